package http

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var formats = format.RowFormats{"json": format.JSONRows(), "debezium-json": format.DebeziumRows()}

// people is a table (id BIGINT, name STRING, age INT).
func people(options map[string]string) connector.Table {
	t := connector.Table{Table: &catalog.Table{Options: options, Columns: []catalog.Column{{Name: "id", Type: row.BigInt()}, {Name: "name", Type: row.String()}, {Name: "age", Type: row.Int()}}},
		Options: options, Zone: row.UTC(), Columns: []int{0, 1, 2}}
	t.Layout = row.NewLayout(row.BigInt(), row.String(), row.Int())
	return t
}

// asker asks a table by columns.
func asker(t *testing.T, options map[string]string, keys ...int) func(vs ...row.Value) (string, error) {
	t.Helper()
	tab := people(options)
	l, err := New(formats).Lookup(tab, keys)
	if err != nil {
		t.Fatal(err)
	}
	ask, err := l.Open()
	if err != nil {
		t.Fatal(err)
	}
	var types []*row.Type
	for _, k := range keys {
		types = append(types, tab.Layout.Type(k))
	}
	layout := row.NewLayout(types...)
	return func(vs ...row.Value) (string, error) {
		var rows []*row.Row
		err := ask(t.Context(), layout.RowOf(vs...), func() *row.Row {
			r := tab.Layout.New()
			for i := range tab.Layout.Len() {
				r.SetNull(i)
			}
			rows = append(rows, r)
			return r
		})
		var b strings.Builder
		for _, r := range rows {
			b.Write(tab.Layout.AppendResult(nil, r))
		}
		return strings.ReplaceAll(b.String(), ", ", ","), err
	}
}

// server is a service; close its idle connections at the end of the test, so that no goroutine is left.
func server(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func TestLookup(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		asked = append(asked, fmt.Sprintf("%s %s %s|%s|%s", r.Method, r.RequestURI, b, r.Header.Get("X-A"), r.Header.Get("Authorization")))
		mu.Unlock()
		switch r.URL.Query().Get("id") + r.URL.Path[1:] {
		case "404", "users/404":
			w.WriteHeader(404)
		case "204":
			w.WriteHeader(204)
		case "2":
			fmt.Fprint(w, `[{"id":2,"name":"b"},{"name":"c","age":9}]`)
		case "3":
			fmt.Fprint(w, `[]`)
		default:
			fmt.Fprint(w, `{"name":"a","age":30,"more":[1]}`)
		}
	})
	for _, c := range []struct {
		options map[string]string
		keys    []int
		values  []row.Value
		asked   string
		rows    string
	}{
		{map[string]string{"url": "/users/{id}"}, []int{0}, []row.Value{int64(1)}, "GET /users/1 ||", `[1,"a",30]`},
		{map[string]string{"url": "/users/{id}"}, []int{0}, []row.Value{int64(404)}, "GET /users/404 ||", ""},
		{map[string]string{"url": ""}, []int{0}, []row.Value{int64(204)}, "GET /?id=204 ||", ""},
		{map[string]string{"url": ""}, []int{0}, []row.Value{int64(2)}, "GET /?id=2 ||", `[2,"b",null][2,"c",9]`},
		{map[string]string{"url": ""}, []int{0}, []row.Value{int64(3)}, "GET /?id=3 ||", ""},
		{map[string]string{"url": "/p/{name}?x=1", "headers": "X-A: b", "username": "u", "password": "p"}, []int{1, 0}, []row.Value{"a/b \u00fc?", int64(7)}, "GET /p/a%2Fb%20%C3%BC%3F?x=1&id=7 |b|Basic dTpw", `[7,"a",30]`},
		{map[string]string{"url": "/q?n={name}", "header.X-A": "b, c"}, []int{1}, []row.Value{"a b&c"}, "GET /q?n=a+b%26c |b, c|", `[null,"a",30]`},
		{map[string]string{"url": "/p/{id}", "method": "post"}, []int{0, 1, 2}, []row.Value{int64(5), `q"`, int64(6)}, `POST /p/5 {"name":"q\"","age":6}||`, `[5,"a",30]`},
	} {
		c.options["url"] = s.URL + c.options["url"]
		asked = nil
		rows, err := asker(t, c.options, c.keys...)(c.values...)
		if err != nil {
			t.Errorf("%s: %v", c.asked, err)
		}
		if len(asked) != 1 || asked[0] != c.asked || rows != c.rows {
			t.Errorf("asked %q, want %q; rows %s, want %s", asked, c.asked, rows, c.rows)
		}
	}
}

func TestErrors(t *testing.T) {
	var tries atomic.Int64
	answer := func(w http.ResponseWriter, r *http.Request) {}
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		answer(w, r)
	})
	failing := func(status, times int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if tries.Load() <= int64(times) {
				w.WriteHeader(status)
				fmt.Fprint(w, "not now")
				return
			}
			fmt.Fprint(w, `{"name":"a"}`)
		}
	}
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		options map[string]string
		tries   int64
		want    string // of the error; "" = none
	}{
		{"busy twice", failing(503, 2), nil, 3, ""},
		{"too many requests", failing(429, 1), nil, 2, ""},
		{"busy for long", failing(500, 99), nil, 4, `status 500 Internal Server Error: "not now" (4 tries)`},
		{"no retries", failing(500, 99), map[string]string{"lookup.max-retries": "0"}, 1, "status 500"},
		{"refused", failing(403, 99), nil, 1, "status 403 Forbidden"},
		{"no row by option", failing(403, 99), map[string]string{"no-row-status": "403;404"}, 1, ""},
		{"not found is wrong", failing(404, 99), map[string]string{"no-row-status": "204"}, 1, "status 404"},
		{"cut off", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		}, nil, 4, "read the answer"},
		{"too long", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 2000)) }, map[string]string{"max-response-size": "1000"}, 1, "more than 1000 bytes"},
		{"no JSON", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") }, nil, 1, "answer to GET"},
		{"no answer", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, map[string]string{"request.timeout": "20 ms", "lookup.max-retries": "1"}, 2, "deadline exceeded (2 tries)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := map[string]string{"url": s.URL + "/{id}", "retry.backoff": "1 ms"}
			for k, v := range c.options {
				o[k] = v
			}
			answer = c.answer
			tries.Store(0)
			_, err := asker(t, o, 0)(int64(1))
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if got := tries.Load(); got != c.tries {
				t.Errorf("%d tries, want %d", got, c.tries)
			}
		})
	}
}

// TestConnections: a process has no more of them than it may, however many ask.
func TestConnections(t *testing.T) {
	var connections, asked atomic.Int64
	two := make(chan struct{}) // closed: there are as many requests as connections may be
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			close(two)
		}
		<-two
		fmt.Fprint(w, `{"name":"a"}`)
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	tab := people(map[string]string{"url": s.URL + "/{id}", "max-connections": "2"})
	l, err := New(formats).Lookup(tab, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		ask, err := l.Open() // a subtask each
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range 20 {
				if err := ask(t.Context(), row.NewLayout(row.BigInt()).RowOf(int64(i)), tab.Layout.New); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := connections.Load(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"name":"a"}`) }))
	s.Config.ErrorLog = nil
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	o := map[string]string{"url": s.URL + "/{id}", "tls.ca": ca}
	if rows, err := asker(t, o, 0)(int64(1)); err != nil || rows != `[1,"a",null]` {
		t.Errorf("rows %s, error %v", rows, err)
	}
	delete(o, "tls.ca")
	if _, err := asker(t, o, 0)(int64(1)); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "tries") {
		t.Errorf("with an unknown certificate: error %v", err)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"url", "ftp://x/{id}", "must begin with http"},
		{"url", "http://x/{id", "has no }"},
		{"url", "http://x/{ident}", "{ident} is no column"},
		{"metod", "GET", "did you mean 'method'?"},
		{"lookup.max-retires", "1", "did you mean 'lookup.max-retries'?"},
		{"method", "DELETE", "one of GET, POST, PUT"},
		{"format", "debezium-json", "rows, not changes"},
		{"header.a b", "c", "characters that headers have not"},
		{"no-row-status", "4o4", "must be status codes"},
		{"max-connections", "0", "more than 0"},
		{"tls.ca", "/nowhere", "'tls.ca'"},
		{"tls.cert", "/nowhere", "go together"},
	} {
		o := map[string]string{"url": "http://x/{id}", c.name: c.value}
		_, err := New(formats).Traits(people(o))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: error %v, want one with %q", c.name, c.value, err, c.want)
		}
	}
	if _, err := New(formats).Lookup(people(map[string]string{"url": "http://x/{id}"}), []int{1}); err == nil || !strings.Contains(err.Error(), "no key for") {
		t.Errorf("a column of the URL that is no key: error %v", err)
	}
}
