// Package http is the connector of tables that are asked by key, each key a request to a service: for lookup joins.
package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// New is the connector 'http', with the formats that there are.
func New(formats format.RowFormats) connector.Connector { return &services{formats} }

type services struct{ formats format.RowFormats }

var options = []format.Option{
	{Name: "url", Kind: format.Text, Required: true, Doc: "Where to ask. {column} is the value of a column that the join has a key for, escaped as a part of a URL: https://host/users/{id}. Keys that it does not name go into the query string, or with POST and PUT into the body, as a JSON object."},
	{Name: "format", Kind: format.Text, Default: "json", Doc: "How answers are written. An answer of json is an object, which is a row, or an array of objects, which are rows."},
	{Name: "method", Kind: format.Enum, Default: "GET", Values: []string{"GET", "POST", "PUT"}, Doc: "Method of the request."},
	{Name: "headers", Kind: format.Map, Doc: "Headers of each request: name:value pairs with , between them."},
	{Name: "header.*", Kind: format.Text, Doc: "One header, whose value may have any characters: header.Authorization."},
	{Name: "username", Kind: format.Text, Doc: "User of HTTP basic authentication."},
	{Name: "password", Kind: format.Text, Doc: "Password of HTTP basic authentication."},
	{Name: "request.timeout", Kind: format.Duration, Default: "10 s", Doc: "How long one try may take, with the reading of the answer."},
	{Name: "lookup.max-retries", Kind: format.Integer, Default: "3", Doc: "How often a request is tried again that got no answer, or one of the status 408, 425, 429 and 500 to 599. Then the app stops, or the row goes by the policy for errors."},
	{Name: "retry.backoff", Kind: format.Duration, Default: "100 ms", Doc: "Wait before the first retry; it doubles for each more, up to 10 s. A header Retry-After is followed, up to 60 s."},
	{Name: "no-row-status", Kind: format.List, Default: "404;204", Doc: "Status codes that mean: there is no row of that key."},
	{Name: "max-connections", Kind: format.Integer, Default: "16", Doc: "How many connections a process has to the service at most."},
	{Name: "max-response-size", Kind: format.Integer, Default: "16777216", Doc: "Bytes that an answer has at most."},
	{Name: "tls.ca", Kind: format.Text, Doc: "File with the certificates (PEM) that the service's must be signed by; by default those of the system."},
	{Name: "tls.cert", Kind: format.Text, Doc: "File with the client's certificate (PEM)."},
	{Name: "tls.key", Kind: format.Text, Doc: "File with the key of tls.cert (PEM)."},
	{Name: "lookup.cache", Kind: format.Text, Default: "NONE", Doc: "PARTIAL keeps answers in memory: see the lookup join."},
	{Name: "lookup.partial-cache.*", Kind: format.Text, Doc: "Size and age of that cache: see the lookup join."},
}

// Spec is of connector.Connector.
func (c *services) Spec() connector.Spec {
	return connector.Spec{Options: options,
		Doc: "A service that answers by HTTP, for lookup joins: each key that is looked up is a request. The columns of the table are the fields of the answer; a key column that the answer does not have is taken from the request. " +
			"Status 200 to 299 is an answer, 404 and 204 mean that there is no row, others are errors."}
}

// Traits is of connector.Connector.
func (c *services) Traits(t connector.Table) (connector.Traits, error) {
	_, err := c.read(t)
	return connector.Traits{Reads: catalog.Append, CanLookup: true}, err
}

// Source is of connector.Connector.
func (c *services) Source(connector.Table) (*connector.Source, error) {
	return nil, errors.New("connector 'http' can be asked by key only: JOIN it with FOR SYSTEM_TIME AS OF a processing time")
}

// Sink is of connector.Connector.
func (c *services) Sink(connector.Table) (*connector.Sink, error) {
	return nil, errors.New("connector 'http' can be asked by key only")
}

// service is a table of this connector.
type service struct {
	connector.Table
	format   format.RowFormat
	template []piece
	method   string
	headers  http.Header
	user     *url.Userinfo
	timeout  time.Duration
	retries  int64
	backoff  time.Duration
	noRow    []int
	most     int64
	client   *http.Client
}

// piece is a part of the URL: a text, and behind it the value of a column, "" = none.
type piece struct{ text, column string }

// read checks the options of a table.
func (c *services) read(t connector.Table) (*service, error) {
	name := t.Options["format"]
	if name == "" {
		name = "json"
	}
	o, err := connector.Options(t.Options, options, name+".")
	if err != nil {
		return nil, err
	}
	s := &service{Table: t, method: o.Text("method"), headers: http.Header{}, timeout: o.Duration("request.timeout"), retries: o.Int("lookup.max-retries"),
		backoff: o.Duration("retry.backoff"), most: o.Int("max-response-size")}
	var spec format.RowFormatSpec
	if s.format, spec, err = connector.Format(c.formats, t.Options, "", name); err != nil {
		return nil, err
	}
	if spec.Changes {
		return nil, fmt.Errorf("option 'format' = '%s': an answer is rows, not changes", name)
	}
	if s.template, err = parseURL(o.Text("url"), t.Table); err != nil {
		return nil, fmt.Errorf("option 'url' = '%s': %w", o.Text("url"), err)
	}
	for _, list := range []map[string]string{o.Map("headers"), o.Prefixed("header.")} {
		for k, v := range list {
			if strings.ContainsAny(k, " \t\r\n:") || strings.ContainsAny(v, "\r\n") {
				return nil, fmt.Errorf("header %q cannot be sent: it has characters that headers have not", k)
			}
			s.headers.Set(k, v)
		}
	}
	if o.Has("username") {
		s.user = url.UserPassword(o.Text("username"), o.Text("password"))
	}
	for _, text := range o.List("no-row-status") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 200 || n > 599 {
			return nil, fmt.Errorf("option 'no-row-status' = '%s': must be status codes with ; between them", o.Text("no-row-status"))
		}
		s.noRow = append(s.noRow, n)
	}
	for name, n := range map[string]int64{"max-connections": o.Int("max-connections"), "max-response-size": s.most, "request.timeout": int64(s.timeout)} {
		if n < 1 {
			return nil, fmt.Errorf("option '%s' = '%s': must be more than 0", name, o.Text(name))
		}
	}
	secure, err := readTLS(o)
	if err != nil {
		return nil, err
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.MaxConnsPerHost, tr.MaxIdleConnsPerHost, tr.MaxIdleConns = int(o.Int("max-connections")), int(o.Int("max-connections")), 0
	tr.TLSClientConfig = secure
	s.client = &http.Client{Transport: tr}
	return s, nil
}

// readTLS reads the files of tls.*.
func readTLS(o *format.Options) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Has("tls.ca") {
		pem, err := os.ReadFile(o.Text("tls.ca"))
		if err != nil {
			return nil, fmt.Errorf("option 'tls.ca': %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("option 'tls.ca': file %s has no certificate (PEM)", o.Text("tls.ca"))
		}
	}
	if o.Has("tls.cert") != o.Has("tls.key") {
		return nil, errors.New("options 'tls.cert' and 'tls.key' go together; one of them is missing")
	}
	if o.Has("tls.cert") {
		pair, err := tls.LoadX509KeyPair(o.Text("tls.cert"), o.Text("tls.key"))
		if err != nil {
			return nil, fmt.Errorf("options 'tls.cert' and 'tls.key': %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// parseURL cuts a URL at its columns.
func parseURL(s string, t *catalog.Table) (pieces []piece, err error) {
	sample := ""
	for rest := s; rest != ""; {
		text, behind, ok := strings.Cut(rest, "{")
		sample += text
		if !ok {
			pieces = append(pieces, piece{text: text})
			break
		}
		name, after, ok := strings.Cut(behind, "}")
		if !ok {
			return nil, errors.New("a { has no }")
		}
		if t.Column(name) < 0 {
			return nil, fmt.Errorf("{%s} is no column of the table", name)
		}
		pieces = append(pieces, piece{text, name})
		sample += "x"
		rest = after
	}
	u, err := url.Parse(sample)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("must begin with http:// or https:// and a host")
	}
	return pieces, nil
}

// key is a column that is asked by.
type key struct {
	name  string
	typ   *row.Type
	index int // in the rows of answers
	inURL bool
}

// Lookup is of connector.Connector.
func (c *services) Lookup(t connector.Table, keys []int) (*connector.Lookup, error) {
	s, err := c.read(t)
	if err != nil {
		return nil, err
	}
	schema := format.RowSchema{Layout: t.Layout, Zone: t.Zone}
	for i, ordinal := range t.Columns {
		col := &t.Table.Columns[ordinal]
		if col.Kind == catalog.Metadata {
			return nil, fmt.Errorf("column %s: connector 'http' has no metadata", col.Name)
		}
		schema.Columns = append(schema.Columns, format.RowColumn{Name: col.Name, Type: col.Type, Index: i})
	}
	for i := range t.Table.Columns {
		if col := &t.Table.Columns[i]; col.Kind == catalog.Physical {
			schema.Message = append(schema.Message, row.Field{Name: col.Name, Type: col.Type})
		}
	}
	var ks []key
	var types []*row.Type
	for _, k := range keys {
		col := &t.Table.Columns[t.Columns[k]]
		ks = append(ks, key{name: col.Name, typ: col.Type, index: k})
		types = append(types, col.Type)
	}
	for _, p := range s.template {
		if p.column == "" {
			continue
		}
		i := slices.IndexFunc(ks, func(k key) bool { return k.name == p.column })
		if i < 0 {
			return nil, fmt.Errorf("option 'url' names column {%s}, which the join has no key for; add %s = ... to its condition", p.column, p.column)
		}
		ks[i].inURL = true
	}
	if _, err := s.format.RowDecoder(schema); err != nil {
		return nil, err
	}
	layout := row.NewLayout(types...)
	return &connector.Lookup{Waits: true, Open: func() (func(ctx context.Context, k *row.Row, next func() *row.Row) error, error) {
		dec, err := s.format.RowDecoder(schema)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, k *row.Row, next func() *row.Row) error {
			return s.ask(ctx, ks, layout, k, dec, next)
		}, nil
	}}, nil
}

// ask looks up the rows of a key.
func (s *service) ask(ctx context.Context, keys []key, layout *row.Layout, k *row.Row, dec format.RowDecoder, next func() *row.Row) error {
	values := make([]row.Value, len(keys))
	texts := make([]string, len(keys))
	for i, c := range keys {
		values[i] = layout.Get(k, i)
		x, y, b := c.typ.Encode(values[i])
		texts[i] = string(row.AppendText(nil, c.typ, x, y, b, s.Zone))
	}
	target, body := s.request(keys, values, texts)
	answer, err := s.send(ctx, target, body)
	if err != nil {
		return &format.OutsideError{Err: fmt.Errorf("ask %s %s: %w", s.method, target, err)}
	}
	if answer == nil {
		return nil
	}
	err = dec.Decode(answer, func() *row.Row {
		r := next()
		// The decoder sets what the answer has.
		for i, c := range keys {
			s.Layout.Set(r, c.index, values[i])
		}
		return r
	})
	if err != nil {
		return fmt.Errorf("answer to %s %s: %w", s.method, target, err)
	}
	return nil
}

// request is the URL and the body for a key.
func (s *service) request(keys []key, values []row.Value, texts []string) (target string, body []byte) {
	var u strings.Builder
	query := strings.Contains(s.template[0].text, "?")
	for _, p := range s.template {
		u.WriteString(p.text)
		query = query || strings.Contains(p.text, "?")
		if p.column == "" {
			continue
		}
		text := texts[slices.IndexFunc(keys, func(k key) bool { return k.name == p.column })]
		if query {
			u.WriteString(url.QueryEscape(text))
		} else {
			u.WriteString(url.PathEscape(text))
		}
	}
	for i, k := range keys {
		if k.inURL {
			continue
		}
		if s.method == "GET" {
			u.WriteByte("?&"[b2i(query)])
			u.WriteString(url.QueryEscape(k.name) + "=" + url.QueryEscape(texts[i]))
			query = true
			continue
		}
		body = append(body, "{,"[b2i(body != nil)])
		body = append(append(strconv.AppendQuote(body, k.name), ':'), appendJSON(nil, k.typ, values[i], texts[i])...)
	}
	if body != nil {
		body = append(body, '}')
	}
	return u.String(), body
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// send sends a request until there is an answer; nil = there is no row.
func (s *service) send(ctx context.Context, target string, body []byte) ([]byte, error) {
	wait := s.backoff
	for try := int64(0); ; try++ {
		answer, after, err := s.try(ctx, target, body)
		if err == nil || after < 0 || try >= s.retries || ctx.Err() != nil {
			if err != nil && try > 0 {
				err = fmt.Errorf("%w (%d tries)", err, try+1)
			}
			return answer, err
		}
		timer := time.NewTimer(max(wait, after))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, 10*time.Second)
	}
}

// maxRetryAfter bounds what a service may ask for.
const maxRetryAfter = time.Minute

// try sends a request once. after is how long the service wants to be left alone before the next; below 0 = trying again
// does not help.
func (s *service) try(ctx context.Context, target string, body []byte) (answer []byte, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, -1, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range s.headers {
		req.Header[k] = v
	}
	if s.user != nil {
		password, _ := s.user.Password()
		req.SetBasicAuth(s.user.Username(), password)
	}
	res, err := s.client.Do(req)
	if err != nil {
		var bad *tls.CertificateVerificationError
		if errors.As(err, &bad) {
			after = -1
		}
		var u *url.Error
		if errors.As(err, &u) { // which has the URL
			err = u.Err
		}
		return nil, after, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, s.most+1))
	if err != nil {
		return nil, 0, fmt.Errorf("read the answer: %w", err)
	}
	switch code := res.StatusCode; {
	case slices.Contains(s.noRow, code):
		return nil, 0, nil
	case code >= 200 && code < 300:
		if int64(len(b)) > s.most {
			return nil, -1, fmt.Errorf("the answer has more than %d bytes (max-response-size)", s.most)
		}
		return b, 0, nil
	case code == 408, code == 425, code == 429, code >= 500:
		if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
			after = min(time.Duration(n)*time.Second, maxRetryAfter)
		}
		return nil, after, statusError(res.Status, b)
	default:
		return nil, -1, statusError(res.Status, b)
	}
}

// statusError tells a status and how its text begins.
func statusError(status string, body []byte) error {
	text := strings.TrimSpace(string(body[:min(len(body), 200)]))
	if text == "" {
		return fmt.Errorf("status %s", status)
	}
	return fmt.Errorf("status %s: %q", status, text)
}
