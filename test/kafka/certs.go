package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certs are the files of a small certificate authority, PEM.
type Certs struct {
	CA                    string // the authority's certificate
	ClientCert, ClientKey string // for mutual TLS, CN=client
	server                string // key and chain in one file, as Kafka's PEM keystore wants it
}

// ClientConfig trusts the authority and shows the client certificate when asked.
func (c *Certs) ClientConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("read test CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	cert, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("read test client certificate: %w", err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// newCerts makes an authority, a certificate for a server on loopback and one for a client.
func newCerts(dir string) (*Certs, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make test CA: %w", err)
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "millrace test CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, fmt.Errorf("make test CA: %w", err)
	}
	issue := func(serial int64, name string, usage x509.ExtKeyUsage) (key, cert []byte, err error) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, fmt.Errorf("make test certificate %s: %w", name, err)
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &k.PublicKey, caKey)
		if err != nil {
			return nil, nil, fmt.Errorf("make test certificate %s: %w", name, err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			return nil, nil, fmt.Errorf("make test certificate %s: %w", name, err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
	}
	serverKey, serverCert, err := issue(2, "localhost", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	clientKey, clientCert, err := issue(3, "client", x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	c := &Certs{
		CA:         filepath.Join(dir, "ca.pem"),
		ClientCert: filepath.Join(dir, "client.pem"), ClientKey: filepath.Join(dir, "client.key"),
		server: filepath.Join(dir, "server.pem"),
	}
	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	for file, content := range map[string][]byte{
		c.CA: caPEM, c.ClientCert: clientCert, c.ClientKey: clientKey,
		c.server: append(append(serverKey, serverCert...), caPEM...),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, fmt.Errorf("write test certificate: %w", err)
		}
	}
	return c, nil
}
