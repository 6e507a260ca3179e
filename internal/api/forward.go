package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// forwardedHeader carries "<unix seconds>.<signature>" when a member sends a request on to another one. The signature is
// made with admin.token, which all members share and which never leaves them: the address of the other one comes from the
// consumer group, and whoever may join that must not be handed the token.
const forwardedHeader = "Millrace-Forwarded"

// forwardedAge is how old a forwarded request may be, with the difference of two clocks.
const forwardedAge = 2 * time.Minute

func signature(token, method, uri string, at int64) string {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "forward %d %s %s", at, method, uri)
	return hex.EncodeToString(mac.Sum(nil))
}

type forwardedKey struct{}

// forwarded says that another member has sent the request on.
func forwarded(r *http.Request) bool { return r.Context().Value(forwardedKey{}) != nil }

// fromMemberOr lets requests through that another member has signed, and all others by requireToken.
func fromMemberOr(token string, now func() time.Time, next http.Handler) http.Handler {
	people := requireToken(token, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get(forwardedHeader)
		if given == "" || token == "" {
			people.ServeHTTP(w, r)
			return
		}
		seconds, sig, _ := strings.Cut(given, ".")
		at, err := strconv.ParseInt(seconds, 10, 64)
		age := now().Sub(time.Unix(at, 0)).Abs()
		if err != nil || age > forwardedAge || !hmac.Equal([]byte(sig), []byte(signature(token, r.Method, r.URL.RequestURI(), at))) {
			writeJSON(w, http.StatusUnauthorized, errorBody{"another member sent this on, but its signature is wrong or old: all members need the same admin.token, and clocks that differ by less than two minutes"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true)))
	})
}

// forwarder sends requests on to other members. Connections are not kept: there is nothing to close.
type forwarder struct {
	token string
	now   func() time.Time
	http  *http.Client
}

func newForwarder(token string, now func() time.Time) *forwarder {
	return &forwarder{token: token, now: now, http: &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
			ResponseHeaderTimeout: time.Minute,
			DisableKeepAlives:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// get asks the member at addr, a host:port, for uri.
func (f *forwarder) get(ctx context.Context, addr, uri string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+uri, nil)
	if err != nil {
		return nil, err
	}
	at := f.now().Unix()
	req.Header.Set(forwardedHeader, fmt.Sprintf("%d.%s", at, signature(f.token, req.Method, req.URL.RequestURI(), at)))
	return f.http.Do(req)
}
