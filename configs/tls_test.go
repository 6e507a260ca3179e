package configs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certFiles makes a self-signed certificate for the name and writes it and its key.
func certFiles(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, name+".pem", block("CERTIFICATE", der)), write(t, name+"-key.pem", block("PRIVATE KEY", keyDER))
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// TestTLSConfigWorks shakes hands with a server that wants a client certificate.
func TestTLSConfigWorks(t *testing.T) {
	if got, err := TLSConfig(Default()); got != nil || err != nil {
		t.Errorf("off: %v, %v", got, err)
	}
	serverCert, serverKey := certFiles(t, "broker.test")
	clientCert, clientKey := certFiles(t, "client.test")
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	content, err := os.ReadFile(clientCert)
	if err != nil {
		t.Fatal(err)
	}
	clients.AppendCertsFromPEM(content)
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}

	shake := func(client *tls.Config) error {
		a, b := net.Pipe()
		done := make(chan error, 1)
		go func() {
			s := tls.Server(b, server)
			err := s.Handshake()
			if err == nil {
				_, err = s.Write([]byte("x"))
			}
			_ = b.Close()
			done <- err
		}()
		c := tls.Client(a, client)
		_, readErr := io.ReadAll(c)
		_ = a.Close()
		return errors.Join(<-done, readErr)
	}
	config := func(change func(*TLS)) *tls.Config {
		c := Default()
		c.Security.TLS = TLS{Enabled: true, CAFile: serverCert, CertFile: clientCert, KeyFile: clientKey, ServerName: "broker.test"}
		change(&c.Security.TLS)
		out, err := TLSConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := shake(config(func(*TLS) {})); err != nil {
		t.Errorf("all right: %v", err)
	}
	if err := shake(config(func(c *TLS) { c.CAFile, c.ServerName, c.InsecureSkipVerify = "", "", true })); err != nil {
		t.Errorf("verification skipped: %v", err)
	}
	for name, change := range map[string]func(*TLS){
		"another authority":     func(c *TLS) { c.CAFile = clientCert },
		"the system's":          func(c *TLS) { c.CAFile = "" },
		"another name":          func(c *TLS) { c.ServerName = "other.test" },
		"no client certificate": func(c *TLS) { c.CertFile, c.KeyFile = "", "" },
	} {
		if err := shake(config(change)); err == nil {
			t.Errorf("%s: the handshake succeeds", name)
		}
	}
	if got := config(func(*TLS) {}); got.MinVersion != tls.VersionTLS12 {
		t.Errorf("minimum version %x", got.MinVersion)
	}
}

func TestTLSConfigFaults(t *testing.T) {
	cert, key := certFiles(t, "a.test")
	_, otherKey := certFiles(t, "b.test")
	missing := filepath.Join(t.TempDir(), "missing.pem")
	der := write(t, "cert.der", "0\x82\x01")
	notCert := write(t, "broken.pem", block("CERTIFICATE", []byte("hello")))
	for _, c := range []struct {
		tls  TLS
		want []string
	}{
		{TLS{CAFile: missing}, []string{"security.tls.ca-file = " + missing + ": read the file: no such file or directory"}},
		{TLS{CAFile: der}, []string{"security.tls.ca-file", "no PEM block"}},
		{TLS{CAFile: key}, []string{"security.tls.ca-file", "no certificate in the file"}},
		{TLS{CAFile: notCert}, []string{"no certificate in the file"}},
		{TLS{CertFile: cert, KeyFile: missing}, []string{"security.tls.key-file = " + missing}},
		{TLS{CertFile: cert, KeyFile: otherKey}, []string{"security.tls.cert-file = " + cert, "use it with the key in " + otherKey, "private key does not match public key"}},
		{TLS{CertFile: key, KeyFile: key}, []string{"security.tls.cert-file"}},
		{TLS{CertFile: cert, KeyFile: write(t, "enc.pem", block("ENCRYPTED PRIVATE KEY", []byte("x")))}, []string{"security.tls.key-file", "is encrypted"}},
		{TLS{CertFile: cert, KeyFile: write(t, "old.pem", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\naGVsbG8=\n-----END RSA PRIVATE KEY-----\n")},
			[]string{"security.tls.key-file", "is encrypted"}},
		{TLS{CAFile: missing, CertFile: missing, KeyFile: missing}, []string{"3 faults", "ca-file", "cert-file", "key-file"}},
	} {
		conf := Default()
		c.tls.Enabled = true
		conf.Security.TLS = c.tls
		_, err := TLSConfig(conf)
		if !IsFaults(err) {
			t.Errorf("%+v: %v, want *Faults", c.tls, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v:\n got %v\nwant %s", c.tls, err, want)
			}
		}
	}
}
