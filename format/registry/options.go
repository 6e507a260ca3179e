package registry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/near"
)

// Options are those that every format with a registry has, in Flink's words.
func Options() []format.Option {
	return []format.Option{
		{Name: "url", Required: true, Doc: "URLs of the schema registry, with , between them: each is tried in turn. A user and a password in a URL are used as basic authentication."},
		{Name: "subject", Doc: "The subject under which a table that is written registers its schema. Default: the topic's name and -value, or -key for the key format."},
		{Name: "ssl.truststore.location", Doc: "File with the certificates that the registry's one is checked against: PEM or PKCS #12. Default: those of the system."},
		{Name: "ssl.truststore.password", Doc: "Password of a PKCS #12 trust store."},
		{Name: "ssl.keystore.location", Doc: "File with the certificate and the private key that this client shows: PEM with both, or PKCS #12."},
		{Name: "ssl.keystore.password", Doc: "Password of a PKCS #12 key store."},
		{Name: "basic-auth.credentials-source", Kind: format.Enum, Values: []string{"URL", "USER_INFO"}, Doc: "Where user and password of basic authentication stand: in url, or in basic-auth.user-info. Default: wherever there are some."},
		{Name: "basic-auth.user-info", Doc: "User and password of basic authentication, with : between them."},
		{Name: "bearer-auth.credentials-source", Kind: format.Enum, Values: []string{"STATIC_TOKEN"}, Doc: "Where the token of bearer authentication stands: in bearer-auth.token."},
		{Name: "bearer-auth.token", Doc: "Token of bearer authentication."},
		{Name: "properties.*", Doc: "Settings of Confluent's client that have no option of their own: auto.register.schemas (false: a schema that a table writes must be registered already), " +
			"http.connect.timeout.ms, http.read.timeout.ms, and those of the options above under Confluent's names, such as properties.basic.auth.user.info; options win over them."},
	}
}

// same are Confluent's names of what options say, too.
var same = map[string]string{
	"ssl.truststore.location":       "ssl.truststore.location",
	"ssl.truststore.password":       "ssl.truststore.password",
	"ssl.keystore.location":         "ssl.keystore.location",
	"ssl.keystore.password":         "ssl.keystore.password",
	"basic.auth.credentials.source": "basic-auth.credentials-source",
	"basic.auth.user.info":          "basic-auth.user-info",
	"bearer.auth.token":             "bearer-auth.token",
}

// settings are the properties of Confluent's client that are none of same and have a meaning here.
var settings = []string{"auto.register.schemas", "http.connect.timeout.ms", "http.read.timeout.ms", "bearer.auth.credentials.source"}

const (
	defaultConnect = 5 * time.Second
	defaultRead    = 10 * time.Second
)

// New makes the client of a table from its options, which are those of Options. It does not speak to the registry yet.
func New(o *format.Options) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	return c, nil
}

func newClient(o *format.Options) (*Client, error) {
	props, err := properties(o)
	if err != nil {
		return nil, err
	}
	text := func(name string) string {
		if v := o.Text(name); v != "" {
			return v
		}
		return props[name]
	}
	urls, user, password, err := readURLs(text("url"))
	if err != nil {
		return nil, err
	}
	if info := text("basic-auth.user-info"); info != "" && !strings.EqualFold(text("basic-auth.credentials-source"), "URL") {
		var ok bool
		if user, password, ok = strings.Cut(info, ":"); !ok {
			return nil, errors.New("option 'basic-auth.user-info' must be user:password")
		}
	}
	opts := []sr.ClientOpt{sr.URLs(urls...), sr.UserAgent("millrace")}
	token := text("bearer-auth.token")
	switch {
	case token != "" && user != "":
		return nil, errors.New("options 'bearer-auth.token' and 'basic-auth.user-info' (or a user in 'url') exclude each other")
	case token != "":
		opts = append(opts, sr.BearerToken(token))
	case user != "":
		opts = append(opts, sr.BasicAuth(user, password))
	}
	connect, err := timeout(props, "http.connect.timeout.ms", defaultConnect)
	if err != nil {
		return nil, err
	}
	read, err := timeout(props, "http.read.timeout.ms", defaultRead)
	if err != nil {
		return nil, err
	}
	conf, err := tlsConfig(text)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connect}).DialContext,
		TLSHandshakeTimeout: connect,
		TLSClientConfig:     conf,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     30 * time.Second,
	}
	opts = append(opts, sr.HTTPClient(&http.Client{Transport: transport, Timeout: connect + read}))
	cl, err := sr.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	return &Client{
		cl: cl, where: strings.Join(urls, ", "), subject: o.Text("subject"), lookOnly: strings.EqualFold(props["auto.register.schemas"], "false"),
		byID: map[int]*Schema{}, missing: map[int]time.Time{}, names: map[int]string{}, ids: map[string]int{},
	}, nil
}

// properties are those of properties.*, by the names of our options where there is one.
func properties(o *format.Options) (map[string]string, error) {
	props := map[string]string{}
	for name, v := range o.Prefixed("properties.") {
		if rest, ok := strings.CutPrefix(name, "schema.registry.ssl."); ok {
			name = "ssl." + rest
		}
		switch ours, ok := same[name]; {
		case ok:
			props[ours] = v
		case slices.Contains(settings, name):
			props[name] = v
		default:
			known := slices.Clone(settings)
			for theirs := range same {
				known = append(known, theirs)
			}
			slices.Sort(known)
			if n, ok := near.Word(name, known); ok {
				return nil, fmt.Errorf("option 'properties.%s' is unknown; did you mean 'properties.%s'?", name, n)
			}
			return nil, fmt.Errorf("option 'properties.%s' is unknown; there are: %s", name, strings.Join(known, ", "))
		}
	}
	return props, nil
}

func timeout(props map[string]string, name string, def time.Duration) (time.Duration, error) {
	v, ok := props[name]
	if !ok {
		return def, nil
	}
	ms, err := strconv.ParseInt(v, 10, 32)
	if err != nil || ms < 1 {
		return 0, fmt.Errorf("option 'properties.%s' = '%s': must be ms, 1 or more", name, v)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// readURLs takes the list apart, and user and password out of the first URL that has them: they must not be in messages.
func readURLs(list string) (urls []string, user, password string, err error) {
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, "", "", errors.New("option 'url' must be URLs that begin with http:// or https://, with , between them")
		}
		if u.User != nil && user == "" {
			user = u.User.Username()
			password, _ = u.User.Password()
		}
		u.User = nil
		urls = append(urls, strings.TrimRight(u.String(), "/"))
	}
	if len(urls) == 0 {
		return nil, "", "", errors.New("option 'url' names no URL")
	}
	return urls, user, password, nil
}

// tlsConfig reads the certificates that options name.
func tlsConfig(text func(string) string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := text("ssl.truststore.location"); file != "" {
		roots, err := readTrust(file, text("ssl.truststore.password"))
		if err != nil {
			return nil, fmt.Errorf("option 'ssl.truststore.location': read %s: %w", file, err)
		}
		c.RootCAs = x509.NewCertPool()
		for _, cert := range roots {
			c.RootCAs.AddCert(cert)
		}
	}
	if file := text("ssl.keystore.location"); file != "" {
		cert, err := readKey(file, text("ssl.keystore.password"))
		if err != nil {
			return nil, fmt.Errorf("option 'ssl.keystore.location': read %s: %w", file, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// errJKS is what is said of Java's own form of key stores.
var errJKS = errors.New("it is a Java key store (JKS); make a PKCS #12 one of it: keytool -importkeystore -srckeystore IN -destkeystore OUT -deststoretype pkcs12")

func readStore(file string) (b []byte, isPEM bool, err error) {
	if b, err = os.ReadFile(file); err != nil {
		return nil, false, err
	}
	if len(b) >= 4 && string(b[:4]) == "\xfe\xed\xfe\xed" {
		return nil, false, errJKS
	}
	block, _ := pem.Decode(b)
	return b, block != nil, nil
}

func readTrust(file, password string) ([]*x509.Certificate, error) {
	b, isPEM, err := readStore(file)
	if err != nil {
		return nil, err
	}
	if !isPEM {
		return pkcs12.DecodeTrustStore(b, password)
	}
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	return certs, nil
}

func readKey(file, password string) (tls.Certificate, error) {
	b, isPEM, err := readStore(file)
	if err != nil {
		return tls.Certificate{}, err
	}
	if isPEM {
		return tls.X509KeyPair(b, b)
	}
	key, cert, others, err := pkcs12.DecodeChain(b, password)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := tls.Certificate{PrivateKey: key, Leaf: cert, Certificate: [][]byte{cert.Raw}}
	for _, o := range others {
		c.Certificate = append(c.Certificate, o.Raw)
	}
	return c, nil
}
