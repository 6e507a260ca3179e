package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// requireToken lets a request through to next if it carries token as its bearer token. Without a token configured nobody
// gets through: what is behind it shows records or changes something, and must not be open by default.
func requireToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token == "" {
			writeJSON(w, http.StatusForbidden, errorBody{"this needs a token, and the app has none: set admin.token, and send it as Authorization: Bearer <token>"})
			return
		}
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		// Hashes have one length, so that the comparison tells nothing of the token's.
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="millrace"`)
			writeJSON(w, http.StatusUnauthorized, errorBody{"the token is missing or wrong: send the one of admin.token as Authorization: Bearer <token>"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// errorBody is the body of an answer that says no.
type errorBody struct {
	Error string `json:"error"`
}
