package parse

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// kind is the lexical class of a token.
type kind uint8

const (
	kEOF      kind = iota
	kWord          // a name without quotes, perhaps a keyword
	kQuoted        // `name`
	kInt           // 12
	kDecimal       // 1.50, .5
	kFloat         // 1e3
	kString        // 'text'
	kUnicode       // U&'text'
	kBinary        // x'0AFF'
	kHintOpen      // /*+
	kHintEnd       // */ of a hint
	kBad           // what cannot be read; errs of the lexer say why
	// Signs.
	kLParen
	kRParen
	kLBracket
	kRBracket
	kLBrace
	kRBrace
	kComma
	kDot
	kSemicolon
	kColon
	kPlus
	kMinus
	kStar
	kSlash
	kPercent
	kEq
	kNotEq
	kLess
	kLessEq
	kGreater
	kGreaterEq
	kConcat // ||
	kArrow  // =>
	kBar    // |
	kQuestion
	kCaret
	kDollar
)

// token is one token. Its place in the source is start..end. The text of a token that came out of a variable is not there:
// then exp is the number of the expansion, from 1, and textStart..textEnd is a range of its value.
type token struct {
	kind               kind
	env                bool // a text or quoted name with a variable inside
	kw                 keyword
	exp                int32
	start, end         int32
	textStart, textEnd int32
}

// expansion is one ${NAME} outside of quotes.
type expansion struct {
	value       string
	first, last int32 // its tokens; last < first if the value has none
}

// lexer cuts a text into tokens.
type lexer struct {
	src    *diag.Source
	text   string // the source, or the value of a variable
	env    Env
	toks   []token
	exps   []expansion
	errs   diag.List
	inHint bool
	// exp is the number of the expansion that text is the value of, and place that of its ${NAME}; 0 for the source.
	exp   int32
	place ast.Span
}

// maxText is the longest text that is read, so that offsets fit a token.
const maxText = 1 << 30

// lex cuts the source. The last token is always kEOF.
func lex(src *diag.Source, env Env) *lexer {
	l := &lexer{src: src, text: src.Text, env: env, toks: make([]token, 0, len(src.Text)/4+8)}
	if len(src.Text) > maxText {
		l.fail(ast.Span{}, "E1007", "text of %d bytes is too long", len(src.Text))
		l.text = ""
	}
	l.run()
	n := int32(len(l.text))
	l.toks = append(l.toks, token{kind: kEOF, start: n, end: n, textStart: n, textEnd: n})
	return l
}

func (l *lexer) fail(span ast.Span, code, format string, args ...any) *diag.Error {
	e := diag.New(l.src, span, code, format, args...)
	if l.exp != 0 {
		e.Span = l.place
		e.Hint = "this is in the value of " + l.src.Text[l.place.Start:l.place.End]
	}
	l.errs.Add(e)
	return e
}

// add appends a token of text[start:end].
func (l *lexer) add(k kind, start, end int) *token {
	t := token{kind: k, start: int32(start), end: int32(end), textStart: int32(start), textEnd: int32(end)}
	if l.exp != 0 {
		t.exp, t.start, t.end = l.exp, int32(l.place.Start), int32(l.place.End)
	}
	l.toks = append(l.toks, t)
	return &l.toks[len(l.toks)-1]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isWordByte tells whether c may stand inside a name; bytes of code points beyond ASCII are looked at by wordRune.
func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || isDigit(c)
}

func wordRune(s string) (size int, ok bool) {
	r, size := utf8.DecodeRuneInString(s)
	return size, r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r))
}

// run cuts text to its end.
func (l *lexer) run() {
	s := l.text
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			i++
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_':
			i = l.word(i)
		case isDigit(c):
			i = l.number(i)
		case c == '\'':
			i = l.quoted(i, i+1, '\'', kString)
		case c == '`':
			i = l.quoted(i, i+1, '`', kQuoted)
		case c == '"':
			i = l.doubleQuoted(i)
		case c == '$':
			i = l.dollar(i)
		case c == '-' && strings.HasPrefix(s[i:], "--"), c == '/' && strings.HasPrefix(s[i:], "//"):
			i = endOfLine(s, i)
		case c == '/' && strings.HasPrefix(s[i:], "/*"):
			i = l.comment(i)
		case c >= utf8.RuneSelf:
			i = l.beyondASCII(i)
		default:
			i = l.sign(i)
		}
	}
}

func endOfLine(s string, i int) int {
	if n := strings.IndexAny(s[i:], "\r\n"); n >= 0 {
		return i + n
	}
	return len(s)
}

// comment skips /* .. */, or opens a hint.
func (l *lexer) comment(i int) int {
	if strings.HasPrefix(l.text[i:], "/*+") && !l.inHint {
		l.inHint = true
		l.add(kHintOpen, i, i+3)
		return i + 3
	}
	n := strings.Index(l.text[i+2:], "*/")
	if n < 0 {
		l.add(kBad, i, len(l.text))
		l.fail(ast.Span{Start: i, End: i + 2}, "E1003", "comment has no end").WithHint("a comment ends with */")
		return len(l.text)
	}
	return i + 2 + n + 2
}

// word reads a name or keyword, or a text that starts with a letter: x'..', U&'..'.
func (l *lexer) word(i int) int {
	s := l.text
	if i+1 < len(s) {
		switch s[i] | 0x20 {
		case 'x':
			if s[i+1] == '\'' {
				return l.binary(i)
			}
		case 'u':
			if strings.HasPrefix(s[i+1:], "&'") {
				return l.quoted(i, i+3, '\'', kUnicode)
			}
		}
	}
	j := i + 1
	for j < len(s) {
		c := s[j]
		if isWordByte(c) {
			j++
		} else if c == '$' && !strings.HasPrefix(s[j:], "${") {
			j++
		} else if c >= utf8.RuneSelf {
			size, ok := wordRune(s[j:])
			if !ok {
				break
			}
			j += size
		} else {
			break
		}
	}
	t := l.add(kWord, i, j)
	t.kw = lookup(s[i:j])
	return j
}

func (l *lexer) beyondASCII(i int) int {
	r, size := utf8.DecodeRuneInString(l.text[i:])
	switch {
	case r == 0xfeff && i == 0 && l.exp == 0, unicode.IsSpace(r):
		return i + size
	case r != utf8.RuneError && unicode.IsLetter(r):
		return l.word(i)
	}
	l.add(kBad, i, i+size)
	if r == utf8.RuneError {
		l.fail(ast.Span{Start: i, End: i + size}, "E1004", "byte 0x%02x is no UTF-8", l.text[i])
		return i + size
	}
	e := l.fail(ast.Span{Start: i, End: i + size}, "E1004", "unexpected character %q", r)
	switch r {
	case '\u2018', '\u2019', '\u201c', '\u201d':
		e.WithHint("a text stands in plain single quotes: '..'")
	case '\u2013', '\u2014', '\u2212':
		e.WithHint("minus is the plain -")
	}
	return i + size
}

// number reads 1, 1.5, 1., .5, 1e5; a sign is a token of its own.
func (l *lexer) number(i int) int {
	s, j, k := l.text, i, kInt
	for j < len(s) && isDigit(s[j]) {
		j++
	}
	if j < len(s) && s[j] == '.' {
		k = kDecimal
		j++
		for j < len(s) && isDigit(s[j]) {
			j++
		}
	}
	if j < len(s) && s[j]|0x20 == 'e' {
		e := j + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if e < len(s) && isDigit(s[e]) {
			k = kFloat
			for e < len(s) && isDigit(s[e]) {
				e++
			}
			j = e
		}
	}
	l.add(k, i, j)
	return j
}

// quoted reads a text or a back-quoted name whose inside starts at from; the quote is written twice inside.
func (l *lexer) quoted(start, from int, quote byte, k kind) int {
	s, env, unknown := l.text, false, false
	for j := from; j < len(s); {
		switch c := s[j]; {
		case c == quote:
			if j+1 < len(s) && s[j+1] == quote {
				j += 2
				continue
			}
			if k == kQuoted && j == from {
				l.add(kBad, start, j+1)
				l.fail(ast.Span{Start: start, End: j + 1}, "E1005", "name is empty")
				return j + 1
			}
			if unknown {
				k = kBad
			}
			l.add(k, start, j+1).env = env
			return j + 1
		case c == '$' && l.exp == 0:
			v, ok := variable(s[j:])
			if !ok {
				j++
				continue
			}
			env = true
			if _, known := v.get(l.env); !known {
				l.missing(v, j)
				unknown = true
			}
			j += v.size
		default:
			j++
		}
	}
	l.add(kBad, start, len(s))
	what, end := "text", "'"
	if k == kQuoted {
		what, end = "name", "`"
	}
	l.fail(ast.Span{Start: start, End: from}, "E1003", "%s has no end", what).WithHint("a closing %s is missing", end)
	return len(s)
}

// doubleQuoted refuses "..", which other dialects have for names or texts.
func (l *lexer) doubleQuoted(i int) int {
	s, j := l.text, i+1
	for j < len(s) && s[j] != '"' && s[j] != '\n' {
		j++
	}
	if j < len(s) && s[j] == '"' {
		j++
	}
	l.add(kBad, i, j)
	inside := strings.Trim(s[i:j], "\"")
	e := l.fail(ast.Span{Start: i, End: j}, "E1004", "a double quote quotes nothing here")
	if l.exp == 0 {
		e.WithHint("a name stands in back-quotes, a text in single quotes: `%s` or '%s'", inside, inside)
	}
	return j
}

// binary reads x'0AFF'.
func (l *lexer) binary(i int) int {
	s, j := l.text, i+2
	for j < len(s) && s[j] != '\'' {
		j++
	}
	if j == len(s) {
		l.add(kBad, i, j)
		l.fail(ast.Span{Start: i, End: i + 2}, "E1003", "text has no end").WithHint("a closing ' is missing")
		return j
	}
	j++
	l.add(kBinary, i, j)
	return j
}

// dollar reads ${NAME}, or the end anchor of a pattern.
func (l *lexer) dollar(i int) int {
	if !strings.HasPrefix(l.text[i:], "${") {
		l.add(kDollar, i, i+1)
		return i + 1
	}
	if l.exp != 0 {
		l.add(kBad, i, i+2)
		l.fail(ast.Span{}, "E1006", "a variable stands in the value of a variable")
		return i + 2
	}
	v, ok := variable(l.text[i:])
	if !ok {
		l.add(kBad, i, i+2)
		l.fail(ast.Span{Start: i, End: i + 2}, "E1006", "variable has no name or no end").
			WithHint("write ${NAME} or ${NAME:-default}")
		return i + 2
	}
	value, known := v.get(l.env)
	if !known {
		l.missing(v, i)
		l.add(kBad, i, i+v.size)
		return i + v.size
	}
	l.expand(value, ast.Span{Start: i, End: i + v.size})
	return i + v.size
}

func (l *lexer) missing(v varRef, at int) {
	l.fail(ast.Span{Start: at, End: at + v.size}, "E1006", "variable %s is not set", v.name).
		WithHint("set it, or give a default: ${%s:-..}", v.name)
}

// expand cuts the value of a variable in the place of its ${NAME}.
func (l *lexer) expand(value string, place ast.Span) {
	l.exps = append(l.exps, expansion{value: value, first: int32(len(l.toks))})
	inner := &lexer{src: l.src, text: value, env: l.env, toks: l.toks, exps: l.exps, errs: l.errs,
		exp: int32(len(l.exps)), place: place}
	inner.run()
	if inner.inHint {
		inner.add(kBad, len(value), len(value))
		inner.fail(ast.Span{}, "E1003", "hint has no end")
	}
	l.toks, l.errs = inner.toks, inner.errs
	e := &l.exps[len(l.exps)-1]
	e.last = int32(len(l.toks)) - 1
	for i := e.first; i <= e.last; i++ {
		if l.toks[i].kind == kSemicolon {
			l.toks[i].kind = kBad
			inner.fail(ast.Span{}, "E1006", "a variable cannot end a statement: its value has a semicolon")
			l.errs = inner.errs
			break
		}
	}
}

// sign reads a sign of one or two characters.
func (l *lexer) sign(i int) int {
	s := l.text
	next := byte(0)
	if i+1 < len(s) {
		next = s[i+1]
	}
	one := func(k kind) int { l.add(k, i, i+1); return i + 1 }
	two := func(k kind) int { l.add(k, i, i+2); return i + 2 }
	switch s[i] {
	case '(':
		return one(kLParen)
	case ')':
		return one(kRParen)
	case '[':
		return one(kLBracket)
	case ']':
		return one(kRBracket)
	case '{':
		return one(kLBrace)
	case '}':
		return one(kRBrace)
	case ',':
		return one(kComma)
	case ';':
		return one(kSemicolon)
	case ':':
		return one(kColon)
	case '+':
		return one(kPlus)
	case '-':
		return one(kMinus)
	case '%':
		return one(kPercent)
	case '?':
		return one(kQuestion)
	case '^':
		return one(kCaret)
	case '/':
		return one(kSlash)
	case '.':
		if isDigit(next) && !l.afterName(i) {
			return l.number(i)
		}
		return one(kDot)
	case '*':
		if next == '/' && l.inHint {
			l.inHint = false
			return two(kHintEnd)
		}
		return one(kStar)
	case '=':
		if next == '>' {
			return two(kArrow)
		}
		return one(kEq)
	case '!':
		if next == '=' {
			return two(kNotEq)
		}
	case '<':
		switch next {
		case '>':
			return two(kNotEq)
		case '=':
			return two(kLessEq)
		}
		return one(kLess)
	case '>':
		if next == '=' {
			return two(kGreaterEq)
		}
		return one(kGreater)
	case '|':
		if next == '|' {
			return two(kConcat)
		}
		return one(kBar)
	}
	l.add(kBad, i, i+1)
	e := l.fail(ast.Span{Start: i, End: i + 1}, "E1004", "unexpected character %q", s[i])
	if s[i] == '!' {
		e.WithHint("not equal is <>, not is NOT")
	}
	return i + 1
}

// afterName tells whether a name or a closing bracket ends right before i: then .5 is no number.
func (l *lexer) afterName(i int) bool {
	if len(l.toks) == 0 {
		return false
	}
	t := l.toks[len(l.toks)-1]
	if t.exp != l.exp || int(t.textEnd) != i {
		return false
	}
	return t.kind == kWord || t.kind == kQuoted || t.kind == kRBracket || t.kind == kRParen
}

// varRef is a reference to a variable at the start of a text.
type varRef struct {
	name       string
	def        string
	hasDefault bool
	escaped    bool // $${NAME}: stands for ${NAME} itself
	size       int  // bytes of the reference
}

// get is the value, and whether there is one. As in a shell, the default also stands in for an empty value.
func (v varRef) get(env Env) (string, bool) {
	if v.escaped {
		return v.def, true
	}
	if env != nil {
		if value, ok := env(v.name); ok && (value != "" || !v.hasDefault) {
			return value, true
		}
	}
	return v.def, v.hasDefault
}

// variable reads ${NAME}, ${NAME:-default} or $${ at the start of s. A default has no } and no end of line.
func variable(s string) (varRef, bool) {
	if strings.HasPrefix(s, "$${") {
		return varRef{escaped: true, def: "${", size: 3}, true
	}
	if !strings.HasPrefix(s, "${") {
		return varRef{}, false
	}
	i := 2
	for i < len(s) && (isWordByte(s[i]) && (i > 2 || !isDigit(s[i]))) {
		i++
	}
	v := varRef{name: s[2:i]}
	if i == 2 || i == len(s) {
		return varRef{}, false
	}
	if strings.HasPrefix(s[i:], ":-") {
		end := strings.IndexAny(s[i:], "}\r\n")
		if end < 0 {
			return varRef{}, false
		}
		v.hasDefault, v.def = true, s[i+2:i+end]
		i += end
	}
	if s[i] != '}' {
		return varRef{}, false
	}
	v.size = i + 1
	return v, true
}

// hasVariable tells whether a text has a variable in it.
func hasVariable(s string) bool {
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			return false
		}
		s = s[i:]
		v, ok := variable(s)
		if ok && !v.escaped {
			return true
		}
		s = s[max(1, v.size):]
	}
}

// expandText replaces the variables in a text.
func expandText(s string, env Env) string {
	if !strings.Contains(s, "${") {
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		v, ok := variable(s)
		if !ok {
			b.WriteByte('$')
			s = s[1:]
			continue
		}
		value, _ := v.get(env)
		b.WriteString(value)
		s = s[v.size:]
	}
}
