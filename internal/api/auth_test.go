package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
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
