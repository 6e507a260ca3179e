package fn

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
)

// jsonKind is the kind of a JSON value.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonTrue
	jsonFalse
	jsonNumber
	jsonText
	jsonArray
	jsonObject
)

// jsonNode is a parsed JSON value. Numbers keep their text.
type jsonNode struct {
	kind  jsonKind
	text  string // of numbers and texts
	keys  []string
	items []*jsonNode
}

func (n *jsonNode) scalar() bool { return n.kind < jsonArray }

var errJSON = errors.New("it is not JSON")

const jsonDepth = 1000

// parseJSON reads one JSON value and nothing behind it.
func parseJSON(b []byte) (*jsonNode, error) {
	p := jsonParser{b: b}
	n, ok := p.value(0)
	if !ok {
		return nil, errJSON
	}
	p.space()
	if len(p.b) > 0 {
		return nil, errJSON
	}
	return n, nil
}

type jsonParser struct{ b []byte }

func (p *jsonParser) space() {
	for len(p.b) > 0 && (p.b[0] == ' ' || p.b[0] == '\t' || p.b[0] == '\n' || p.b[0] == '\r') {
		p.b = p.b[1:]
	}
}

func (p *jsonParser) take(c byte) bool {
	p.space()
	if len(p.b) == 0 || p.b[0] != c {
		return false
	}
	p.b = p.b[1:]
	return true
}

func (p *jsonParser) word(w string) bool {
	if !strings.HasPrefix(string(p.b[:min(len(p.b), len(w))]), w) {
		return false
	}
	p.b = p.b[len(w):]
	return true
}

func (p *jsonParser) value(depth int) (*jsonNode, bool) {
	p.space()
	if len(p.b) == 0 || depth > jsonDepth {
		return nil, false
	}
	switch c := p.b[0]; c {
	case '{':
		p.b = p.b[1:]
		n := &jsonNode{kind: jsonObject}
		if p.take('}') {
			return n, true
		}
		for {
			p.space()
			key, ok := p.str()
			if !ok || !p.take(':') {
				return nil, false
			}
			v, ok := p.value(depth + 1)
			if !ok {
				return nil, false
			}
			n.set(key, v)
			if p.take(',') {
				continue
			}
			return n, p.take('}')
		}
	case '[':
		p.b = p.b[1:]
		n := &jsonNode{kind: jsonArray}
		if p.take(']') {
			return n, true
		}
		for {
			v, ok := p.value(depth + 1)
			if !ok {
				return nil, false
			}
			n.items = append(n.items, v)
			if p.take(',') {
				continue
			}
			return n, p.take(']')
		}
	case '"':
		s, ok := p.str()
		return &jsonNode{kind: jsonText, text: s}, ok
	case 't':
		return &jsonNode{kind: jsonTrue}, p.word("true")
	case 'f':
		return &jsonNode{kind: jsonFalse}, p.word("false")
	case 'n':
		return &jsonNode{kind: jsonNull}, p.word("null")
	}
	return p.number()
}

func (n *jsonNode) set(key string, v *jsonNode) {
	for i, k := range n.keys {
		if k == key {
			n.items[i] = v
			return
		}
	}
	n.keys, n.items = append(n.keys, key), append(n.items, v)
}

func (p *jsonParser) number() (*jsonNode, bool) {
	i := 0
	digits := func() bool {
		start := i
		for i < len(p.b) && p.b[i]-'0' <= 9 {
			i++
		}
		return i > start
	}
	if i < len(p.b) && p.b[i] == '-' {
		i++
	}
	start := i
	if !digits() || p.b[start] == '0' && i > start+1 {
		return nil, false
	}
	if i < len(p.b) && p.b[i] == '.' {
		i++
		if !digits() {
			return nil, false
		}
	}
	if i < len(p.b) && p.b[i]|0x20 == 'e' {
		i++
		if i < len(p.b) && (p.b[i] == '+' || p.b[i] == '-') {
			i++
		}
		if !digits() {
			return nil, false
		}
	}
	n := &jsonNode{kind: jsonNumber, text: string(p.b[:i])}
	p.b = p.b[i:]
	return n, true
}

func (p *jsonParser) str() (string, bool) {
	if len(p.b) == 0 || p.b[0] != '"' {
		return "", false
	}
	b := p.b[1:]
	for i, c := range b {
		if c == '"' {
			p.b = b[i+1:]
			return string(b[:i]), true
		}
		if c == '\\' || c < 0x20 {
			break
		}
	}
	var out []byte
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			p.b = b[i+1:]
			return string(out), true
		case c < 0x20:
			return "", false
		case c != '\\':
			out = append(out, c)
		default:
			i++
			if i == len(b) {
				return "", false
			}
			switch b[i] {
			case '"', '\\', '/':
				out = append(out, b[i])
			case 'b':
				out = append(out, '\b')
			case 'f':
				out = append(out, '\f')
			case 'n':
				out = append(out, '\n')
			case 'r':
				out = append(out, '\r')
			case 't':
				out = append(out, '\t')
			case 'u':
				u, ok := hex4(b[i+1:])
				if !ok {
					return "", false
				}
				i += 4
				if utf16.IsSurrogate(u) && i+2 < len(b) && b[i+1] == '\\' && b[i+2] == 'u' {
					if v, ok := hex4(b[i+3:]); ok {
						if c := utf16.DecodeRune(u, v); c != utf8.RuneError {
							u = c
							i += 6
						}
					}
				}
				if utf16.IsSurrogate(u) {
					out = row.AppendSurrogate(out, u)
				} else {
					out = utf8.AppendRune(out, u)
				}
			default:
				return "", false
			}
		}
	}
	return "", false
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[:4]), 16, 32)
	return rune(u), err == nil
}

// append appends the value as JSON without blanks.
func (n *jsonNode) append(dst []byte) []byte {
	switch n.kind {
	case jsonNull:
		return append(dst, "null"...)
	case jsonTrue:
		return append(dst, "true"...)
	case jsonFalse:
		return append(dst, "false"...)
	case jsonNumber:
		return append(dst, n.text...)
	case jsonText:
		return appendJSONText(dst, n.text)
	case jsonArray:
		dst = append(dst, '[')
		for i, v := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.append(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, v := range n.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.append(append(appendJSONText(dst, n.keys[i]), ':'))
	}
	return append(dst, '}')
}

// plain is a scalar as text.
func (n *jsonNode) plain() string {
	switch n.kind {
	case jsonTrue:
		return "true"
	case jsonFalse:
		return "false"
	}
	return n.text
}

func appendJSONText[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = fmt.Appendf(dst, "\\u%04X", c)
		}
	}
	return append(dst, '"')
}

// appendJSONQuoted is appendJSONText in ASCII, with / escaped too.
func appendJSONQuoted(dst, s []byte) []byte {
	at := len(dst)
	dst = appendJSONText(dst, s)
	if !bytes.ContainsFunc(dst[at:], func(c rune) bool { return c == '/' || c > 0x7f }) {
		return dst
	}
	text := bytes.Clone(dst[at:])
	dst = dst[:at]
	for _, c := range string(text) {
		switch {
		case c == '/':
			dst = append(dst, '\\', '/')
		case c <= 0x7f:
			dst = append(dst, byte(c))
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			dst = fmt.Appendf(dst, "\\u%04x\\u%04x", hi, lo)
		default:
			dst = fmt.Appendf(dst, "\\u%04x", c)
		}
	}
	return dst
}

// jsonPath is a compiled path. strict is the mode if none is written, as in Flink.
type jsonPath struct {
	wrong error // it is no path: each search fails
	lax   bool
	steps []jsonStep
	many  bool // it may lead to several values: their list is the result
}

type jsonStep struct {
	name  string
	index int
	kind  byte // 'n' a member, 'i' an element, '*' all of them, '.' all below
}

func newJSONPath(text string) (*jsonPath, error) {
	p := &jsonPath{}
	s := strings.TrimSpace(text)
	if mode, rest, ok := strings.Cut(s, " "); ok && (mode == "lax" || mode == "strict") {
		p.lax = mode == "lax"
		s = strings.TrimSpace(rest)
	}
	wrong := func(why string) (*jsonPath, error) { return nil, fmt.Errorf("JSON path '%s': %s", text, why) }
	if s != "" && s[0] != '$' {
		s = "$." + s // as Flink's library has it
	}
	if s == "" {
		return wrong("it is empty")
	}
	s = s[1:]
	for s != "" {
		if strings.HasPrefix(s, "..") {
			p.steps = append(p.steps, jsonStep{kind: '.'})
			p.many = true
			s = s[1:]
			if strings.HasPrefix(s, ".[") {
				s = s[1:]
			}
		}
		if strings.HasPrefix(s, ".[") {
			s = s[1:]
		}
		switch s[0] {
		case '.':
			s = s[1:]
			end := strings.IndexAny(s, ".[")
			if end < 0 {
				end = len(s)
			}
			name := strings.TrimSpace(s[:end])
			s = s[end:]
			switch name {
			case "":
				return wrong("there is a name missing")
			case "*":
				p.steps = append(p.steps, jsonStep{kind: '*'})
				p.many = true
			default:
				p.steps = append(p.steps, jsonStep{kind: 'n', name: name})
			}
		case '[':
			in := strings.TrimLeft(s[1:], " ")
			if in != "" && (in[0] == '"' || in[0] == '\'') {
				end := strings.IndexByte(in[1:], in[0])
				if end < 0 {
					return wrong("a quote is not closed")
				}
				p.steps = append(p.steps, jsonStep{kind: 'n', name: in[1 : 1+end]})
				s = strings.TrimLeft(in[end+2:], " ")
				if !strings.HasPrefix(s, "]") {
					return wrong("] is missing")
				}
				s = s[1:]
				break
			}
			word, rest, ok := strings.Cut(in, "]")
			if !ok {
				return wrong("] is missing")
			}
			s = rest
			if word = strings.TrimSpace(word); word == "*" {
				p.steps = append(p.steps, jsonStep{kind: '*'})
				p.many = true
				break
			}
			i, err := strconv.Atoi(word)
			if err != nil {
				return wrong("[" + word + "] is neither an index, nor a name in quotes, nor *")
			}
			p.steps = append(p.steps, jsonStep{kind: 'i', index: i})
		default:
			return wrong("a step starts with . or [")
		}
	}
	return p, nil
}

var errJSONPath = errors.New("there is nothing at the path")

// find is the value at the path. In lax mode it is nil where there is none, in strict mode that is an error.
func (p *jsonPath) find(b []byte) (*jsonNode, error) {
	if p.wrong != nil {
		return nil, p.wrong
	}
	n, err := parseJSON(b)
	if err != nil {
		if p.lax {
			return nil, nil
		}
		return nil, err
	}
	found := []*jsonNode{n}
	for _, s := range p.steps {
		var next []*jsonNode
		for _, n := range found {
			next = s.apply(next, n)
		}
		found = next
	}
	switch {
	case p.many:
		return &jsonNode{kind: jsonArray, items: found}, nil
	case len(found) > 0:
		return found[0], nil
	case p.lax:
		return nil, nil
	}
	return nil, errJSONPath
}

func (s jsonStep) apply(dst []*jsonNode, n *jsonNode) []*jsonNode {
	switch s.kind {
	case 'n':
		if n.kind == jsonObject {
			for i, k := range n.keys {
				if k == s.name {
					return append(dst, n.items[i])
				}
			}
		}
	case 'i':
		i := s.index
		if i < 0 {
			i += len(n.items)
		}
		if n.kind == jsonArray && i >= 0 && i < len(n.items) {
			return append(dst, n.items[i])
		}
	case '*':
		return append(dst, n.items...)
	case '.':
		dst = append(dst, n)
		for _, v := range n.items {
			dst = s.apply(dst, v)
		}
	}
	return dst
}

// jsonPaths compiles the path argument: a constant one at once. What is no path is an error of the search, which the call may
// have a value for (ON ERROR), as in Flink.
func jsonPaths(env *Env, arg Code) func(text []byte) *jsonPath {
	at := env.Place
	compile := func(text string) (*jsonPath, error) {
		p, err := newJSONPath(text)
		if err != nil {
			p = &jsonPath{wrong: err}
		}
		return p, nil
	}
	if text, ok := constText(arg); ok {
		p, _ := compile(text)
		return func([]byte) *jsonPath { return p }
	}
	list := newFormats(compile)
	return func(text []byte) *jsonPath { return list.get(at, text) }
}

// appendJSONValue appends a value of SQL as JSON.
func appendJSONValue(dst []byte, t *row.Type, v Const, zone *row.Zone) []byte {
	if v.Null {
		return append(dst, "null"...)
	}
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return strconv.AppendBool(dst, v.X != 0)
	case k.Numeric():
		return row.AppendText(dst, t, v.X, v.Y, v.B, zone)
	case k.Text():
		return appendJSONText(dst, v.B)
	case k.Bytes():
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v.B), '"')
	case k == row.KindTimestamp || k == row.KindTimestampLTZ:
		at := len(dst) + 1
		dst = row.AppendTimestamp(append(dst, '"'), int64(v.X), int64(v.Y), t.Precision())
		for ; at < len(dst); at++ {
			if dst[at] == ' ' {
				dst[at] = 'T'
			}
		}
		if k == row.KindTimestampLTZ {
			dst = append(dst, 'Z')
		}
		return append(dst, '"')
	case k == row.KindArray:
		a := row.ViewArray(t, v.B)
		dst = append(dst, '[')
		for i := range a.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSONValue(dst, t.Elem(), element(a, i), zone)
		}
		return append(dst, ']')
	case k == row.KindMap || k == row.KindMultiset:
		m := row.ViewMap(t, v.B)
		key, value := mapTypes(t)
		dst = append(dst, '{')
		for i := range m.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			name := element(m.Keys(), i)
			text := []byte("null")
			if !name.Null {
				text = row.AppendText(nil, key, name.X, name.Y, name.B, zone)
			}
			dst = append(appendJSONText(dst, text), ':')
			dst = appendJSONValue(dst, value, element(m.Values(), i), zone)
		}
		return append(dst, '}')
	case k == row.KindRow:
		r := row.ViewRow(t, v.B)
		dst = append(dst, '{')
		for i := range t.NumFields() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONText(dst, t.Field(i).Name), ':')
			dst = appendJSONValue(dst, t.Field(i).Type, field(t, r, i), zone)
		}
		return append(dst, '}')
	}
	return append(row.AppendText(append(dst, '"'), t, v.X, v.Y, v.B, zone), '"')
}

// jsonArg appends an argument as JSON; what a JSON function made goes in as it is.
func jsonArg(dst []byte, c Code, v Const, zone *row.Zone) []byte {
	if c.JSON && !v.Null {
		return append(dst, v.B...)
	}
	return appendJSONValue(dst, c.Type, v, zone)
}

func jsonCode(t *row.Type, f Get[[]byte]) Code { return Code{Type: t, Bytes: f, JSON: true} }

func compileJSONValue(env *Env, args []Code, t *row.Type) (Code, error) {
	paths := jsonPaths(env, args[1])
	at := env.Place
	onEmpty, _ := constText(args[2])
	onError, _ := constText(args[4])
	// The value goes through the cast from text to the type.
	var cell []byte
	conv, err := Cast(env, BytesCode(row.String(), func(*row.Row) ([]byte, bool) { return cell, true }), t, true)
	if err != nil {
		return Code{}, err
	}
	convert := conv.Values()
	defaults := [2]func(*row.Row) Const{}
	for i, a := range []Code{args[3], args[5]} {
		d, err := Cast(env, a, t, false)
		if err != nil {
			return Code{}, err
		}
		defaults[i] = d.Values()
	}
	otherwise := func(r *row.Row, word string, deflt func(*row.Row) Const, why error) Const {
		switch word {
		case "DEFAULT":
			return deflt(r)
		case "ERROR":
			at.failf("JSON_VALUE: %s", why)
		}
		return Const{Null: true}
	}
	return CodeOf(t, func(r *row.Row) Const {
		doc, ok1 := args[0].Bytes(r)
		text, ok2 := args[1].Bytes(r)
		if !ok1 || !ok2 {
			return Const{Null: true}
		}
		p := paths(text)
		n, err := p.find(doc)
		switch {
		case err != nil:
			return otherwise(r, onError, defaults[1], err)
		case n == nil, n.kind == jsonNull, p.lax && !n.scalar():
			return otherwise(r, onEmpty, defaults[0], errJSONPath)
		case !n.scalar():
			return otherwise(r, onError, defaults[1], errors.New("the value is an object or an array"))
		}
		cell = append(cell[:0], n.plain()...)
		v := convert(nil)
		if v.Null {
			return otherwise(r, onError, defaults[1], fmt.Errorf("'%s' is no %s", cell, t.Text()))
		}
		if v.B != nil {
			v.B = env.keep(string(v.B))
		}
		return v
	}), nil
}

func compileJSONQuery(env *Env, args []Code, t *row.Type) (Code, error) {
	texts := t.Kind() == row.KindArray && t.Elem().Kind() == row.KindVarChar
	if t.Kind() != row.KindVarChar && !texts {
		return Code{}, fmt.Errorf("JSON_QUERY returns text, or an ARRAY of text, not %s", t.Text())
	}
	paths := jsonPaths(env, args[1])
	at := env.Place
	wrapper, _ := constText(args[2])
	onEmpty, _ := constText(args[3])
	onError, _ := constText(args[4])
	if texts && (onEmpty == "EMPTY OBJECT" || onError == "EMPTY OBJECT") {
		return Code{}, fmt.Errorf("JSON_QUERY: EMPTY OBJECT is no %s", t.Text())
	}
	var list *arrayWriter
	if texts {
		list = newArrayWriter(t)
	}
	otherwise := func(word string, why error) ([]byte, bool) {
		switch word {
		case "EMPTY", "EMPTY ARRAY":
			if texts {
				list.begin()
				return list.finish(env), true
			}
			return []byte("[]"), true
		case "EMPTY OBJECT":
			return []byte("{}"), true
		case "ERROR":
			at.failf("JSON_QUERY: %s", why)
		}
		return nil, false
	}
	return BytesCode(t, try2(args[0].Bytes, args[1].Bytes, func(doc, text []byte) ([]byte, bool) {
		p := paths(text)
		n, err := p.find(doc)
		if err != nil {
			return otherwise(onError, err)
		}
		if n != nil && n.kind != jsonNull && (strings.HasPrefix(wrapper, "UNCONDITIONAL") || strings.HasPrefix(wrapper, "CONDITIONAL") && n.kind != jsonArray) {
			n = &jsonNode{kind: jsonArray, items: []*jsonNode{n}}
		}
		switch {
		case n == nil, n.kind == jsonNull, p.lax && n.scalar():
			return otherwise(onEmpty, errJSONPath)
		case n.scalar():
			return otherwise(onError, errors.New("the value is neither an object nor an array"))
		case !texts:
			return env.Arena.Keep(n.append(env.Arena.Begin())), true
		case n.kind != jsonArray:
			return otherwise(onError, errors.New("the value is no array"))
		}
		list.begin()
		for _, e := range n.items {
			switch e.kind {
			case jsonNull:
				list.add(Const{Null: true})
			case jsonText:
				list.add(Const{B: []byte(e.text)})
			default:
				list.add(Const{B: e.append(nil)})
			}
		}
		return list.finish(env), true
	})), nil
}

func isJSON(name, what string, test func(n *jsonNode) bool) *Func {
	return &Func{
		Name: name, Group: "json", Nulls: Never, Syntax: "string " + name, Doc: "Says whether the text is JSON, " + what + "; FALSE for NULL.",
		Resolve: sigs(of(notNull(row.Boolean()), wantText)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			get := args[0].Bytes
			return CondCode(t, func(r *row.Row) Tri {
				b, ok := get(r)
				if !ok {
					return False
				}
				n, err := parseJSON(b)
				return truth(err == nil && test(n))
			}), nil
		},
		Examples: []Example{{"'no' " + name, "BOOLEAN NOT NULL", "false"}},
	}
}

var jsonFuncs = []*Func{
	isJSON("IS JSON", "of any kind", func(*jsonNode) bool { return true }),
	isJSON("IS JSON OBJECT", "an object", func(n *jsonNode) bool { return n.kind == jsonObject }),
	isJSON("IS JSON ARRAY", "an array", func(n *jsonNode) bool { return n.kind == jsonArray }),
	isJSON("IS JSON SCALAR", "no object and no array", (*jsonNode).scalar),
	{
		Name: "JSON_VALUE", Group: "json", Nulls: Custom, Fails: true, Syntax: "JSON_VALUE(json, path [RETURNING type] [NULL | ERROR | DEFAULT value ON EMPTY] [.. ON ERROR])",
		Doc:     "The text, number or BOOLEAN at a path. Without lax or strict in front, a path is strict: what is not there is an error.",
		Resolve: sigs(of(nullable(row.String()), wantText, wantText, wantWord, wantAny, wantWord, wantAny)), Compile: compileJSONValue,
		Examples: []Example{{`JSON_VALUE('{"a": 1}', '$.a')`, "STRING", "1"}},
	},
	{
		Name: "JSON_QUERY", Group: "json", Fails: true, Syntax: "JSON_QUERY(json, path [RETURNING STRING | ARRAY<STRING>] [WITHOUT | WITH [CONDITIONAL | UNCONDITIONAL] WRAPPER] [NULL | EMPTY ARRAY | EMPTY OBJECT | ERROR ON EMPTY] [.. ON ERROR])",
		Doc:     "The object or array at a path, as JSON without blanks, or, of an array, its elements: texts as they are, others as JSON.",
		Resolve: sigs(of(nullable(row.String()), wantText, wantText, wantWord, wantWord, wantWord)), Compile: compileJSONQuery,
		Examples: []Example{{`JSON_QUERY('{"a": [1, 2]}', '$.a')`, "STRING", "[1,2]"}, {`JSON_QUERY('{"a": [1, "x"]}', '$.a' RETURNING ARRAY<STRING>)`, "ARRAY<STRING>", `["1", "x"]`}},
	},
	{
		Name: "JSON_EXISTS", Group: "json", Fails: true, Syntax: "JSON_EXISTS(json, path [TRUE | FALSE | UNKNOWN | ERROR ON ERROR])", Doc: "Says whether there is a value at a path.",
		Resolve: sigs(of(nullable(row.Boolean()), wantText, wantText, wantWord)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			paths := jsonPaths(env, args[1])
			at := env.Place
			onError, _ := constText(args[2])
			return BoolCode(t, try2(args[0].Bytes, args[1].Bytes, func(doc, text []byte) (bool, bool) {
				n, err := paths(text).find(doc)
				if err == nil {
					return n != nil, true
				}
				if onError == "ERROR" {
					at.failf("JSON_EXISTS: %s", err)
				}
				return onError == "TRUE", onError != "UNKNOWN"
			})), nil
		},
		Examples: []Example{{`JSON_EXISTS('{"a": 1}', '$.a')`, "BOOLEAN", "true"}},
	},
	{
		Name: "JSON_OBJECT", Group: "json", Nulls: Never, Syntax: "JSON_OBJECT([[KEY] key VALUE value, ..] [NULL | ABSENT ON NULL])", Doc: "An object of the values. The result of another JSON_OBJECT or JSON_ARRAY goes in as it is.",
		Resolve: func(args []Arg) (Resolved, error) {
			types := make([]*row.Type, len(args))
			for i, a := range args {
				types[i] = a.Type
				if i%2 == 1 && !a.Type.Kind().Text() {
					return Resolved{}, fmt.Errorf("the key of a JSON object is text, not %s", a.Type.Text())
				}
			}
			if len(args)%2 == 0 || wantWord.fit(args[0]) == nil {
				return Resolved{}, errors.New("JSON_OBJECT takes keys and values in turn")
			}
			return Resolved{types, row.String().NotNull()}, nil
		},
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			word, _ := constText(args[0])
			gets := valuesOf(args[1:])
			values := make([]Const, len(gets))
			return jsonCode(t, func(r *row.Row) ([]byte, bool) {
				for i, get := range gets {
					values[i] = get(r)
				}
				dst := append(env.Arena.Begin(), '{')
				first := true
				for i := 0; i < len(values); i += 2 {
					if values[i].Null || values[i+1].Null && word == "ABSENT" {
						continue
					}
					if !first {
						dst = append(dst, ',')
					}
					first = false
					dst = append(appendJSONText(dst, values[i].B), ':')
					dst = jsonArg(dst, args[i+2], values[i+1], env.Zone)
				}
				return env.Arena.Keep(append(dst, '}')), true
			}), nil
		},
		Examples: []Example{{`JSON_OBJECT('k' VALUE 1)`, "STRING NOT NULL", `{"k":1}`}},
	},
	{
		Name: "JSON_ARRAY", Group: "json", Nulls: Never, Syntax: "JSON_ARRAY([value, ..] [NULL | ABSENT ON NULL])", Doc: "An array of the values, without NULL if not said otherwise.",
		Resolve: sigs(of(notNull(row.String()), wantWord, wantAny).opt(1).many()),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			word, _ := constText(args[0])
			gets := valuesOf(args[1:])
			values := make([]Const, len(gets))
			return jsonCode(t, func(r *row.Row) ([]byte, bool) {
				for i, get := range gets {
					values[i] = get(r)
				}
				dst := append(env.Arena.Begin(), '[')
				first := true
				for i, v := range values {
					if v.Null && word == "ABSENT" {
						continue
					}
					if !first {
						dst = append(dst, ',')
					}
					first = false
					dst = jsonArg(dst, args[i+1], v, env.Zone)
				}
				return env.Arena.Keep(append(dst, ']')), true
			}), nil
		},
		Examples: []Example{{`JSON_ARRAY(1, 'a', TRUE)`, "STRING NOT NULL", `[1,"a",true]`}},
	},
	{
		Name: "JSON_STRING", Group: "json", Syntax: "JSON_STRING(value)", Doc: "The value as JSON.", Resolve: sigs(of(strictly(row.String()), wantAny)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			get := args[0].Values()
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				v := get(r)
				if v.Null {
					return nil, false
				}
				return env.Arena.Keep(jsonArg(env.Arena.Begin(), args[0], v, env.Zone)), true
			}), nil
		},
		Examples: []Example{{"JSON_STRING(ARRAY[1, 2])", "STRING NOT NULL", "[1,2]"}},
	},
	{
		Name: "JSON", Group: "json", Fails: true, Syntax: "JSON(string)", Doc: "The text, which must be JSON, as a value of JSON_OBJECT or JSON_ARRAY that goes in as it is.", Resolve: sigs(of(strictly(row.String()), wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			return jsonCode(t, lift1(args[0].Bytes, func(b []byte) []byte {
				if _, err := parseJSON(b); err != nil {
					at.failf("JSON: '%s': %s", b, err)
				}
				return b
			})), nil
		},
		Examples: []Example{{`JSON('{"a":1}')`, "STRING NOT NULL", `{"a":1}`}},
	},
	text1("JSON_QUOTE", strictly(row.String()), "The text as a JSON string of ASCII characters.", appendJSONQuoted, Example{"JSON_QUOTE('a')", "STRING NOT NULL", `"a"`}),
	text1("JSON_UNQUOTE", strictly(row.String()), "The text of a JSON string; another text stays as it is.", func(dst, b []byte) []byte {
		if n, err := parseJSON(b); err == nil && n.kind == jsonText {
			return append(dst, n.text...)
		}
		return append(dst, b...)
	}, Example{`JSON_UNQUOTE('"a"')`, "STRING NOT NULL", "a"}),
}

// compileJSONAgg is JSON_OBJECTAGG (object) and JSON_ARRAYAGG: the view is the inside of the brackets.
func compileJSONAgg(object bool) func(*Env, []Code, *row.Type) (*Acc, error) {
	return func(env *Env, args []Code, t *row.Type) (*Acc, error) {
		word, _ := constText(args[0])
		key := func(*row.Row) ([]byte, bool) { return nil, true }
		value := args[len(args)-1]
		open, end := byte('['), byte(']')
		if object {
			key, open, end = args[1].Bytes, '{', '}'
		}
		get := value.Values()
		a := acc(0, 1, func(s *State) Code {
			return BytesCode(t, func(*row.Row) ([]byte, bool) {
				return env.Arena.Keep(append(append(append(env.Arena.Begin(), open), s.S[0]...), end)), true
			})
		})
		grow := func(s State, n int) []byte {
			dst := append(make([]byte, 0, len(s.S[0])+n+1), s.S[0]...)
			if len(dst) > 0 {
				dst = append(dst, ',')
			}
			return dst
		}
		a.Add = func(s State, r *row.Row) {
			k, ok := key(r)
			v := get(r)
			if !ok || v.Null && word == "ABSENT" {
				return
			}
			dst := grow(s, 32+len(k)+len(v.B))
			if object {
				dst = append(appendJSONText(dst, k), ':')
			}
			s.S[0] = jsonArg(dst, value, v, env.Zone)
		}
		a.Merge = func(s, from State) {
			if len(from.S[0]) > 0 {
				s.S[0] = append(grow(s, len(from.S[0])), from.S[0]...)
			}
		}
		return a, nil
	}
}

// jsonAggs have the type that they have in Flink; the length is not looked at.
var jsonAggs = []*Func{
	aggFunc("JSON_OBJECTAGG", nil, "JSON_OBJECTAGG([KEY] key VALUE value [NULL | ABSENT ON NULL])", "A JSON object of the keys and values of all rows.",
		sigs(of(notNull(row.VarChar(2000)), wantWord, wantText, wantAny)), Agg{Store: Replay, Arrival: true, Compile: compileJSONAgg(true)}),
	aggFunc("JSON_ARRAYAGG", nil, "JSON_ARRAYAGG(value [NULL | ABSENT ON NULL])", "A JSON array of the values of all rows, without NULL if not said otherwise.",
		sigs(of(notNull(row.VarChar(2000)), wantWord, wantAny)), Agg{Store: Replay, Arrival: true, Compile: compileJSONAgg(false)}),
}
