package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestOnlyTheTokenOpens(t *testing.T) {
	for _, c := range []struct {
		token, header string
		want          int
	}{
		{"secret", "Bearer secret", http.StatusNoContent},
		{"secret", "bearer secret", http.StatusNoContent},
		{"secret", "", http.StatusUnauthorized},
		{"secret", "Bearer", http.StatusUnauthorized},
		{"secret", "Bearer ", http.StatusUnauthorized},
		{"secret", "Bearer secre", http.StatusUnauthorized},
		{"secret", "Bearer secrets", http.StatusUnauthorized},
		{"secret", "Basic secret", http.StatusUnauthorized},
		{"", "Bearer ", http.StatusForbidden},
		{"", "", http.StatusForbidden},
	} {
		h := requireToken(c.token, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("token %q, header %q: %d, want %d", c.token, c.header, w.Code, c.want)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (c.want == http.StatusUnauthorized) {
			t.Errorf("token %q, header %q: challenge %q", c.token, c.header, challenge)
		}
	}
}

func TestWhatMembersSendOnGetsOld(t *testing.T) {
	const token, uri = "secret", "/api/v1/state/op/v?key=k"
	sent := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		token string
		after time.Duration
		want  int
	}{
		{token, 0, http.StatusNoContent},
		{token, forwardedAge, http.StatusNoContent},
		{token, -forwardedAge, http.StatusNoContent}, // clocks differ
		{token, forwardedAge + time.Second, http.StatusUnauthorized},
		{token, -forwardedAge - time.Second, http.StatusUnauthorized},
		{"another", 0, http.StatusUnauthorized},
		{"", 0, http.StatusForbidden},
	} {
		h := fromMemberOr(c.token, func() time.Time { return sent.Add(c.after) }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !forwarded(r) {
				t.Error("a request that was sent on is taken for one of people")
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		r := httptest.NewRequest(http.MethodGet, uri, nil)
		r.Header.Set(forwardedHeader, fmt.Sprintf("%d.%s", sent.Unix(), signature(token, http.MethodGet, uri, sent.Unix())))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("token %q, %v later: %d, want %d", c.token, c.after, w.Code, c.want)
		}
	}
}
