package txn

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// selfSigned makes a certificate for 127.0.0.1 and localhost.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// silent listens and never answers.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}

func TestConnect(t *testing.T) {
	k := fakeKafka(t, kfake.ClusterID("the-cluster"))
	c := connect(t, k.ListenAddrs(), nil)
	if c.ID() != "the-cluster" {
		t.Errorf("cluster id %q", c.ID())
	}
	f := c.Features()
	if f.TxnOffsetCommit < 3 || f.EndTxn < 3 || f.OffsetFetch < 7 || f.Kafka == "" {
		t.Errorf("features %+v", f)
	}
}

func TestConnectFaults(t *testing.T) {
	cert, pool := selfSigned(t)
	plain := fakeKafka(t).ListenAddrs()
	sasl := fakeKafka(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "me", "secret"),
		kfake.Superuser("SCRAM-SHA-256", "me", "secret")).ListenAddrs()
	enc := fakeKafka(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}})).ListenAddrs()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		o    Options
		kind error
		says string
	}{
		{"nobody listens", Options{Brokers: []string{dead}}, ErrUnreachable, "check that the brokers run"},
		{"no such name", Options{Brokers: []string{"nothere.invalid:9092"}}, ErrUnreachable, "cannot be resolved"},
		{"never answers", Options{Brokers: []string{silent(t)}}, ErrUnreachable, "no answer in time"},
		{"wrong password", Options{Brokers: sasl, SASL: SASL{"PLAIN", "me", "wrong"}}, nil, "username and password"},
		{"wrong scram password", Options{Brokers: sasl, SASL: SASL{"SCRAM-SHA-256", "me", "wrong"}}, nil, "username and password"},
		{"sasl missing", Options{Brokers: sasl}, nil, "SASL"},
		{"tls to plaintext", Options{Brokers: plain, TLS: &tls.Config{RootCAs: pool}}, ErrUnreachable, "TLS is on"},
		{"plaintext to tls", Options{Brokers: enc}, ErrUnreachable, "TLS"},
		{"unknown ca", Options{Brokers: enc, TLS: &tls.Config{}}, ErrUnreachable, "not trusted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.o.AppID, tc.o.RequestTimeout = "app", time.Second
			start := time.Now()
			_, err := Connect(t.Context(), tc.o)
			if err == nil {
				t.Fatal("no error")
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if tc.kind != nil && !errors.Is(err, tc.kind) {
				t.Errorf("%v is not %v", err, tc.kind)
			}
			for _, want := range []string{tc.o.Brokers[0], tc.says} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "wrong") {
				t.Errorf("%q tells the password", err)
			}
		})
	}
}

func TestConnectSecurely(t *testing.T) {
	cert, pool := selfSigned(t)
	sasl := fakeKafka(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "me", "secret"),
		kfake.Superuser("SCRAM-SHA-256", "me", "secret")).ListenAddrs()
	enc := fakeKafka(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}})).ListenAddrs()
	for name, o := range map[string]Options{
		"plain": {Brokers: sasl, SASL: SASL{"PLAIN", "me", "secret"}},
		"scram": {Brokers: sasl, SASL: SASL{"SCRAM-SHA-256", "me", "secret"}},
		"tls":   {Brokers: enc, TLS: &tls.Config{RootCAs: pool}},
		"tls by a dialer": {Brokers: enc, TLS: &tls.Config{RootCAs: pool}, Dialer: func(ctx context.Context, n, a string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, n, a)
		}},
	} {
		o.AppID = "app"
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.Close()
	}
}

// TestConnectWaitsForBrokers: a broker that comes up within the request time-out is good enough.
func TestConnectWaitsForBrokers(t *testing.T) {
	k := fakeKafka(t)
	tries := 0
	c, err := Connect(t.Context(), Options{AppID: "app", Brokers: k.ListenAddrs(), RequestTimeout: patience,
		Dialer: func(ctx context.Context, n, a string) (net.Conn, error) {
			if tries++; tries < 4 {
				return nil, &net.OpError{Op: "dial", Net: n, Err: errors.New("not yet")}
			}
			var d net.Dialer
			return d.DialContext(ctx, n, a)
		}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestSASLOptions(t *testing.T) {
	for name, s := range map[string]SASL{
		"no mechanism": {Username: "u", Password: "p"},
		"unknown":      {Mechanism: "GSSAPI", Username: "u", Password: "p"},
		"no password":  {Mechanism: "PLAIN", Username: "u"},
		"not yet":      {Mechanism: "OAUTHBEARER", Username: "u", Password: "p"},
	} {
		if _, err := s.mechanism(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLoggerGoesDownOneLevel(t *testing.T) {
	var buf bytes.Buffer
	l := newKgoLogger(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelInfo})))
	if l.Level() != kgo.LogLevelWarn {
		t.Errorf("level %v", l.Level())
	}
	l.Log(kgo.LogLevelInfo, "quiet")
	l.Log(kgo.LogLevelWarn, "noticed")
	l.Log(kgo.LogLevelError, "loud")
	out := buf.String()
	if strings.Contains(out, "quiet") || !strings.Contains(out, "level=INFO msg=\"kafka client: noticed\"") ||
		!strings.Contains(out, "level=WARN msg=\"kafka client: loud\"") {
		t.Errorf("log: %s", out)
	}
}
