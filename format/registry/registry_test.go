package registry

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/millrace-stream/millrace/format"
)

func newTestClient(t testing.TB, options map[string]string) *Client {
	t.Helper()
	c, err := open(options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(options map[string]string) (*Client, error) {
	o, err := format.ReadOptions("", options, Options())
	if err != nil {
		return nil, err
	}
	return New(o)
}

const (
	schemaA = `{"type":"record","name":"a","fields":[{"name":"x","type":"int"}]}`
	schemaB = `{"type":"record","name":"b","fields":[{"name":"a","type":"a"}]}`
)

func TestGetAndRegister(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	c := newTestClient(t, map[string]string{"url": reg.URL()})
	id, err := c.Register("a-value", Avro, schemaA)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newTestClient(t, map[string]string{"url": reg.URL()}).Register("a-value", Avro, schemaA)
	if err != nil || again != id {
		t.Errorf("registered again: id %d, error %v; want %d", again, err, id)
	}
	s, err := c.Get(id)
	if err != nil || s.Text != schemaA || s.Type != Avro || s.ID != id {
		t.Errorf("got %+v, error %v", s, err)
	}
	if got, want := c.Name(id), fmt.Sprintf("schema id %d (subject a-value)", id); got != want {
		t.Errorf("name %q, want %q", got, want)
	}
	if s, ok, err := c.Latest("a-value"); err != nil || !ok || s.ID != id {
		t.Errorf("latest %+v, %v, error %v", s, ok, err)
	}
	if _, ok, err := c.Latest("none"); err != nil || ok {
		t.Errorf("latest of a subject that is not there: %v, error %v", ok, err)
	}
}

func TestReferences(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	cl, err := sr.NewClient(sr.URLs(reg.URL()))
	if err != nil {
		t.Fatal(err)
	}
	create := func(subject, text string, refs ...sr.SchemaReference) int {
		t.Helper()
		s, err := cl.CreateSchema(t.Context(), subject, sr.Schema{Schema: text, References: refs})
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	create("a", schemaA)
	create("b", schemaB, sr.SchemaReference{Name: "a", Subject: "a", Version: 1})
	id := create("c", `{"type":"record","name":"c","fields":[{"name":"b","type":"b"},{"name":"a","type":"a"}]}`,
		sr.SchemaReference{Name: "b", Subject: "b", Version: 1}, sr.SchemaReference{Name: "a", Subject: "a", Version: 1})
	s, err := newTestClient(t, map[string]string{"url": reg.URL()}).Get(id)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Reference{{"a", schemaA}, {"b", schemaB}}; !slices.Equal(s.References, want) {
		t.Errorf("references %v, want %v", s.References, want)
	}
}

// answer is a registry that answers with what f says, and counts.
func answer(t *testing.T, f func(n int, w http.ResponseWriter, r *http.Request)) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(int(calls.Add(1)), w, r) }))
	t.Cleanup(s.Close)
	return s.URL, calls
}

func problem(w http.ResponseWriter, status, code int, text string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error_code":%d,"message":%q}`, code, text)
}

// An id that is unknown is the message's fault, and is not asked for with each message.
func TestUnknownID(t *testing.T) {
	url, calls := answer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { problem(w, 404, 40403, "Schema not found") })
	c := newTestClient(t, map[string]string{"url": url})
	for range 3 {
		_, err := c.Get(7)
		var unknown *UnknownIDError
		if !errors.As(err, &unknown) || unknown.ID != 7 || !strings.Contains(err.Error(), url) {
			t.Fatalf("error %v", err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestTriesAgain(t *testing.T) {
	url, calls := answer(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 1:
			problem(w, 500, 50001, "store")
		case 2:
			problem(w, 429, 0, "slow down")
		default:
			fmt.Fprintf(w, `{"schema":%q}`, schemaA)
		}
	})
	s, err := newTestClient(t, map[string]string{"url": url}).Get(7)
	if err != nil || s.Text != schemaA || calls.Load() != 3 {
		t.Errorf("%+v, error %v after %d requests", s, err, calls.Load())
	}
}

// A registry that is at fault is given up, and the error is not the message's.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, map[string]string{"url": "http://registry.example"})
		calls := 0
		cl, err := sr.NewClient(sr.URLs("http://registry.example"), sr.HTTPClient(&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			calls++
			return nil, errors.New("connection refused")
		})}))
		if err != nil {
			t.Fatal(err)
		}
		c.cl = cl
		start := time.Now()
		_, err = c.Get(7)
		var outside *format.OutsideError
		if !errors.As(err, &outside) || !strings.Contains(err.Error(), "get schema id 7 at the schema registry http://registry.example") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		if d := time.Since(start); d > patience || d < patience/2 || calls < 5 || calls > 30 {
			t.Errorf("gave up after %s and %d requests", d, calls)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRefusals(t *testing.T) {
	incompatible := func(verbose string) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/compatibility/") {
				fmt.Fprint(w, verbose)
				return
			}
			problem(w, 409, 409, "Schema being registered is incompatible with an earlier schema")
		}
	}
	for _, c := range []struct {
		answer  func(int, http.ResponseWriter, *http.Request)
		options map[string]string
		want    []string
	}{
		{incompatible(`{"is_compatible":false,"messages":["reader field 'price' has no default"]}`), nil, []string{"subject s-value", "reader field 'price' has no default", "compatibility level"}},
		{incompatible(`{"is_compatible":false}`), nil, []string{"subject s-value", "incompatible with an earlier schema"}},
		{func(_ int, w http.ResponseWriter, _ *http.Request) { problem(w, 401, 40101, "who?") }, nil, []string{"HTTP status 401", "who?", "basic-auth.user-info"}},
		{func(_ int, w http.ResponseWriter, _ *http.Request) { problem(w, 422, 42201, "Invalid schema") }, nil, []string{"register the schema of subject s-value", "HTTP status 422: Invalid schema"}},
		{func(_ int, w http.ResponseWriter, _ *http.Request) { problem(w, 404, 40403, "Schema not found") }, map[string]string{"properties.auto.register.schemas": "false"},
			[]string{"auto.register.schemas is false", schemaA}},
	} {
		url, _ := answer(t, c.answer)
		options := map[string]string{"url": url}
		for k, v := range c.options {
			options[k] = v
		}
		_, err := newTestClient(t, options).Register("s-value", Avro, schemaA)
		var outside *format.OutsideError
		if !errors.As(err, &outside) {
			t.Errorf("error %v is none of the outside", err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	}
}

// Many partitions want the same schema at once: one asks.
func TestAsksOnce(t *testing.T) {
	url, calls := answer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"schema":%q}`, schemaA) })
	c := newTestClient(t, map[string]string{"url": url})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := c.Get(1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestAuthentication(t *testing.T) {
	var mu sync.Mutex
	header := ""
	url, _ := answer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		header = r.Header.Get("Authorization")
		mu.Unlock()
		fmt.Fprintf(w, `{"schema":%q}`, schemaA)
	})
	withUser := strings.Replace(url, "http://", "http://me:pass@", 1)
	const me, other = "Basic bWU6cGFzcw==", "Basic eW91OnNlY3JldA=="
	for _, c := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"url": url}, ""},
		{map[string]string{"url": withUser}, me},
		{map[string]string{"url": withUser, "basic-auth.credentials-source": "URL", "basic-auth.user-info": "you:secret"}, me},
		{map[string]string{"url": url, "basic-auth.credentials-source": "USER_INFO", "basic-auth.user-info": "you:secret"}, other},
		{map[string]string{"url": url, "properties.basic.auth.user.info": "you:secret"}, other},
		{map[string]string{"url": url, "bearer-auth.credentials-source": "STATIC_TOKEN", "bearer-auth.token": "abc"}, "Bearer abc"},
		{map[string]string{"url": url, "bearer-auth.token": "abc", "properties.bearer.auth.token": "def"}, "Bearer abc"},
		{map[string]string{"url": "http://127.0.0.1:1, " + url + "/"}, ""}, // the first does not answer
	} {
		if _, err := newTestClient(t, c.options).Get(1); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if header != c.want {
			t.Errorf("%v: header %q, want %q", c.options, header, c.want)
		}
		mu.Unlock()
	}
}

func TestWrongOptions(t *testing.T) {
	dir := t.TempDir()
	jks := filepath.Join(dir, "jks")
	if err := os.WriteFile(jks, []byte("\xfe\xed\xfe\xed0000"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, pem.EncodeToMemory(&pem.Block{Type: "X"}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, value, want string
	}{
		{"url", "registry:8081", "option 'url' must be URLs that begin with http:// or https://"},
		{"url", " , ", "option 'url' names no URL"},
		{"basic-auth.user-info", "me", "must be user:password"},
		{"properties.basic.auth.user.inf", "a:b", "did you mean 'properties.basic.auth.user.info'?"},
		{"properties.zzz", "1", "there are: auto.register.schemas, basic.auth"},
		{"properties.http.read.timeout.ms", "0", "must be ms, 1 or more"},
		{"ssl.truststore.location", jks, "keytool -importkeystore"},
		{"ssl.truststore.location", empty, "there is no certificate in it"},
		{"ssl.keystore.location", filepath.Join(dir, "none"), "option 'ssl.keystore.location': read"},
	} {
		options := map[string]string{"url": "http://localhost:8081", c.name: c.value}
		if _, err := open(options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: error %v, want %s", c.name, c.value, err, c.want)
		}
	}
	_, err := open(map[string]string{"url": "http://me:secret@x y", "bearer-auth.token": "t"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v shows a password", err)
	}
	if _, err := open(map[string]string{"url": "http://me:secret@x", "bearer-auth.token": "t"}); err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Errorf("error %v", err)
	}
}

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.cert, a.key = a.issue(t, true)
	return a
}

func (a *authority) issue(t *testing.T, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	parent, parentKey := a.cert, a.key
	if ca {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	serverCert, serverKey := ca.issue(t, false)
	clientCert, clientKey := ca.issue(t, false)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"schema":%q}`, schemaA) }))
	s.Config.ErrorLog = nil
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{serverCert.Raw}, PrivateKey: serverKey}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.StartTLS()
	defer s.Close()

	dir := t.TempDir()
	write := func(name string, b []byte, err error) string {
		t.Helper()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	der, err := x509.MarshalPKCS8PrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	trustPEM := write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}), nil)
	keyPEM := write("client.pem", slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: clientCert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil)
	b, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{ca.cert}, "changeit")
	trust12 := write("ca.p12", b, err)
	b, err = pkcs12.Modern.Encode(clientKey, clientCert, nil, "changeit")
	key12 := write("client.p12", b, err)

	url := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"ssl.truststore.location": trustPEM, "ssl.keystore.location": keyPEM}, ""},
		{map[string]string{"ssl.truststore.location": trust12, "ssl.truststore.password": "changeit", "ssl.keystore.location": key12, "ssl.keystore.password": "changeit"}, ""},
		{map[string]string{"properties.schema.registry.ssl.truststore.location": trustPEM, "properties.schema.registry.ssl.keystore.location": keyPEM}, ""},
		{map[string]string{"ssl.truststore.location": trust12, "ssl.truststore.password": "wrong"}, "password"},
	} {
		c.options["url"] = url
		cl, err := open(c.options)
		if err == nil {
			_, err = cl.Get(1)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.options, err, c.want)
		}
	}
}

func TestWire(t *testing.T) {
	id, rest, err := ID(append(AppendID(nil, 258), 'x'))
	if err != nil || id != 258 || string(rest) != "x" || !bytes.Equal(AppendID(nil, 258), []byte{0, 0, 0, 1, 2}) {
		t.Errorf("id %d, rest %q, error %v", id, rest, err)
	}
	for _, b := range [][]byte{nil, {0, 0, 0, 1}, {1, 0, 0, 0, 1}, []byte(`{"a":1}`)} {
		if _, _, err := ID(b); err == nil || !strings.Contains(err.Error(), "not written with a schema registry") {
			t.Errorf("%q: error %v", b, err)
		}
	}
	for _, c := range []struct {
		index []int
		bytes []byte
	}{{[]int{0}, []byte{0}}, {[]int{1}, []byte{2, 2}}, {[]int{1, 0, 64}, []byte{6, 2, 0, 128, 1}}} {
		b := AppendIndex(nil, c.index)
		got, rest, err := Index(append(slices.Clone(b), 'x'))
		if !bytes.Equal(b, c.bytes) || !slices.Equal(got, c.index) || string(rest) != "x" || err != nil {
			t.Errorf("%v: written % x, read %v, rest %q, error %v", c.index, b, got, rest, err)
		}
	}
	for _, b := range [][]byte{{}, {2}, {0xff}, {1}, {0xfe, 0xff, 0xff, 0xff, 0x0f}} {
		if got, _, err := Index(b); err == nil {
			t.Errorf("% x: read %v", b, got)
		}
	}
}

func FuzzWire(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 4, 2, 2, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, rest, err := ID(b)
		if err != nil {
			return
		}
		if !bytes.Equal(AppendID(nil, id), b[:5]) {
			t.Errorf("id %d of % x", id, b[:5])
		}
		if index, _, err := Index(rest); err == nil {
			if again, _, err := Index(AppendIndex(nil, index)); err != nil || !slices.Equal(again, index) {
				t.Errorf("index %v read back as %v, error %v", index, again, err)
			}
		}
	})
}

// TestFieldsOfReasons: where registries name places of a schema of Avro, the message has the names of the fields, too.
func TestFieldsOfReasons(t *testing.T) {
	text := `{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"b","type":["null",{"type":"record","name":"c","fields":[{"name":"d","type":"int"}]}]}]}`
	for reason, want := range map[string]string{
		"reader union lacking writer type: LONG at /fields/0/type": "reader union lacking writer type: LONG at /fields/0/type (field a)",
		"path:'/fields/1/type/1/fields/0/type'":                    "path:'/fields/1/type/1/fields/0/type (field b.d)'",
		"/fields/7/type":                                           "/fields/7/type",
		"no place":                                                 "no place",
	} {
		if got := withFields([]string{reason}, sr.Schema{Schema: text, Type: sr.TypeAvro})[0]; got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}
