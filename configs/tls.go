package configs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
)

// TLSConfig reads the files of security.tls. It returns nil if TLS is off. The error is *Faults and names each file that
// is not right, and why. A server name is set only if one is configured: the client fills in the broker's host.
func TLSConfig(c Config) (*tls.Config, error) {
	t := c.Security.TLS
	if !t.Enabled {
		return nil, nil
	}
	out := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, // the user's wish, documented as for tests only
	}
	var list []Fault
	read := func(key, path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			list = append(list, Fault{Key: key, Value: path, Problem: "read the file: " + cause(err)})
			return nil
		}
		if block, _ := pem.Decode(content); block == nil {
			list = append(list, Fault{Key: key, Value: path, Problem: "there is no PEM block in the file; other formats want converting with openssl"})
			return nil
		}
		return content
	}
	if t.CAFile != "" {
		if content := read("security.tls.ca-file", t.CAFile); content != nil {
			out.RootCAs = x509.NewCertPool()
			if !out.RootCAs.AppendCertsFromPEM(content) {
				list = append(list, Fault{Key: "security.tls.ca-file", Value: t.CAFile, Problem: "there is no certificate in the file that can be read"})
			}
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		cert, key := read("security.tls.cert-file", t.CertFile), read("security.tls.key-file", t.KeyFile)
		if cert != nil && key != nil {
			pair, err := tls.X509KeyPair(cert, key)
			switch {
			case err == nil:
				out.Certificates = []tls.Certificate{pair}
			case encrypted(key):
				list = append(list, Fault{Key: "security.tls.key-file", Value: t.KeyFile, Problem: "the key is encrypted, which is not supported: decrypt it, for example with openssl pkey"})
			default:
				list = append(list, Fault{Key: "security.tls.cert-file", Value: t.CertFile,
					Problem: "use it with the key in " + t.KeyFile + ": " + strings.TrimPrefix(err.Error(), "tls: ")})
			}
		}
	}
	if err := faults(list); err != nil {
		return nil, err
	}
	return out, nil
}

// encrypted says whether PEM data holds an encrypted private key, in either of its two forms.
func encrypted(key []byte) bool {
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}
