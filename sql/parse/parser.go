package parse

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// maxDepth bounds how deep parentheses, queries, types and patterns may be nested; maxChain how many operators of one
// precedence may follow each other, since each makes the tree one level deeper.
const (
	maxDepth = 200
	maxChain = 5000
)

// parser reads one script. After an error it behaves as if the text ended: every test for a token fails, so all loops
// end and all functions return; what they return is thrown away. Nobody has to look at errors in between.
type parser struct {
	src  *diag.Source
	env  Env
	toks []token
	exps []expansion
	// pos is the next token, end the first one that may not be read (the kEOF, or the end of a variable's tokens).
	pos, end int
	failed   bool
	failPos  int
	quiet    bool // errors are not kept: a try
	// tableArgs is set for the call that comes next: its arguments may be tables.
	tableArgs bool
	errs      diag.List
	depth     int
	// want are the keywords that were asked for in vain at wantPos, before those at beforePos: one of them may have been
	// meant by a misspelt word.
	want, before       []keyword
	wantPos, beforePos int
}

var endOfText = token{kind: kEOF}

// cur is the next token.
func (p *parser) cur() *token {
	if p.failed || p.pos >= p.end {
		return &endOfText
	}
	return &p.toks[p.pos]
}

// ahead is the n-th token behind the next one.
func (p *parser) ahead(n int) *token {
	if p.failed || p.pos+n >= p.end {
		return &endOfText
	}
	return &p.toks[p.pos+n]
}

func (p *parser) advance() {
	if !p.failed && p.pos < p.end {
		p.pos++
	}
}

// at tells whether the next token is of a kind.
func (p *parser) at(k kind) bool { return p.cur().kind == k }

// accept takes the next token if it is of a kind.
func (p *parser) accept(k kind) bool {
	if p.cur().kind != k {
		return false
	}
	p.advance()
	return true
}

// is tells whether the next token is a keyword.
func (p *parser) is(k keyword) bool {
	t := p.cur()
	if t.kind == kWord && t.kw == k {
		return true
	}
	if p.wantPos != p.pos {
		p.want, p.before = p.before[:0], p.want
		p.beforePos, p.wantPos = p.wantPos, p.pos
	}
	p.want = append(p.want, k)
	return false
}

// note remembers keywords that may stand where a name is taken next, for the hint at a misspelt one.
func (p *parser) note(ks ...keyword) {
	for _, k := range ks {
		p.is(k)
	}
}

// isSeq tells whether the next tokens are these keywords.
func (p *parser) isSeq(ks ...keyword) bool {
	for i, k := range ks {
		if i == 0 {
			if !p.is(k) {
				return false
			}
		} else if t := p.ahead(i); t.kind != kWord || t.kw != k {
			return false
		}
	}
	return true
}

// take takes the next tokens if they are these keywords.
func (p *parser) take(ks ...keyword) bool {
	if !p.isSeq(ks...) {
		return false
	}
	p.pos += len(ks)
	return true
}

// takeOne takes the next token if it is one of these keywords, and says which, or kwNone.
func (p *parser) takeOne(ks ...keyword) keyword {
	for _, k := range ks {
		if p.is(k) {
			p.pos++
			return k
		}
	}
	return kwNone
}

// expect takes these keywords or fails.
func (p *parser) expect(ks ...keyword) {
	for _, k := range ks {
		if !p.take(k) {
			p.unexpected(k.String())
			return
		}
	}
}

// expectKind takes a sign or fails.
func (p *parser) expectKind(k kind, what string) {
	if !p.accept(k) {
		p.unexpected(what)
	}
}

// start is where the next token starts in the source.
func (p *parser) start() int {
	if p.failed {
		return 0
	}
	return int(p.toks[p.pos].start)
}

// from is the span from a start to the end of the last token taken.
func (p *parser) from(start int) ast.Span {
	if p.failed || p.pos == 0 {
		return ast.Span{Start: start, End: start}
	}
	return ast.Span{Start: start, End: max(start, int(p.toks[p.pos-1].end))}
}

func (p *parser) here() ast.Span { return p.spanOf(p.pos) }

func (p *parser) spanOf(i int) ast.Span {
	t := p.toks[min(i, len(p.toks)-1)]
	return ast.Span{Start: int(t.start), End: int(t.end)}
}

// text is the text of a token as it stands in the source or in the value of a variable.
func (p *parser) text(t *token) string {
	if t.exp != 0 {
		return p.exps[t.exp-1].value[t.textStart:t.textEnd]
	}
	return p.src.Text[t.textStart:t.textEnd]
}

// source is the text of a token as it stands in the source: ${NAME} for all that came out of a variable.
func (p *parser) source(t *token) string { return p.src.Text[t.start:t.end] }

// fail says that the text cannot be read and stops reading. The first error of a statement is the one that counts.
func (p *parser) fail(span ast.Span, code, format string, args ...any) *diag.Error {
	e := &diag.Error{}
	if !p.failed {
		p.failed, p.failPos = true, p.pos
		if !p.quiet {
			e = diag.New(p.src, span, code, format, args...)
			p.errs.Add(e)
		}
	}
	return e
}

// unexpected fails at the next token: what should have stood there.
func (p *parser) unexpected(what string) {
	if p.failed {
		return
	}
	if p.pos >= p.end {
		span := p.here()
		if p.pos > 0 && p.end == len(p.toks)-1 {
			span = ast.Span{Start: int(p.toks[p.pos-1].end), End: int(p.toks[p.pos-1].end)}
		}
		e := p.fail(span, "E1001", "unexpected end of the text, expected %s", what)
		p.hint(e, p.pos)
		return
	}
	t := &p.toks[p.pos]
	switch t.kind {
	case kBad: // the lexer has said what is wrong
		p.failed, p.failPos = true, p.pos
		return
	case kHintOpen:
		p.fail(p.here(), "E1001", "unexpected hint, expected %s", what).
			WithHint("a hint stands right after SELECT or after the name of a table; a comment starts with /* alone")
		return
	case kSemicolon:
		p.hint(p.fail(p.here(), "E1001", "unexpected end of the statement, expected %s", what), p.pos)
		return
	}
	// A misspelt keyword was often taken for a name, and only the word behind it is in the way: FORM in
	// "SELECT a FORM t".
	if p.beforePos == p.pos-1 && p.pos > 0 && p.beforePos >= 0 {
		if near, ok := p.near(p.pos-1, p.before); ok {
			p.pos--
			p.fail(p.here(), "E1001", "unexpected %s", p.show(&p.toks[p.pos])).WithHint("did you mean %s?", near)
			return
		}
	}
	e := p.fail(p.here(), "E1001", "unexpected %s, expected %s", p.show(t), what)
	p.hint(e, p.pos)
}

// hint adds what may have been meant by the token at pos, the first that cannot be read.
func (p *parser) hint(e *diag.Error, pos int) {
	if near, ok := p.near(pos, p.want); ok && p.wantPos == pos {
		e.WithHint("did you mean %s?", near)
		return
	}
	if pos == 0 {
		return
	}
	if p.toks[pos-1].kind == kComma {
		if t := &p.toks[pos]; t.kind == kWord && t.kw.reserved() || t.kind == kRParen || t.kind == kSemicolon || t.kind == kEOF {
			e.WithHint("one comma too many before it?")
		}
	}
}

// near finds the keyword that the name at pos may have meant.
func (p *parser) near(pos int, want []keyword) (string, bool) {
	t := &p.toks[pos]
	if t.kind != kWord || t.kw.reserved() || t.exp != 0 {
		return "", false
	}
	var texts []string
	for _, k := range want {
		// Short words are near to everything.
		if len(k.String()) >= 3 {
			texts = append(texts, k.String())
		}
	}
	word := p.text(t)
	if len(word) < 3 {
		return "", false
	}
	return near.Word(word, texts)
}

// show names a token in a message.
func (p *parser) show(t *token) string {
	if t.exp != 0 {
		return p.source(t)
	}
	text := p.text(t)
	switch t.kind {
	case kWord:
		if t.kw.reserved() {
			return strings.ToUpper(text)
		}
	case kString, kUnicode, kBinary, kQuoted:
		if utf8.RuneCountInString(text) > 40 {
			text = string([]rune(text)[:40]) + ".."
		}
		return text
	}
	return fmt.Sprintf("%q", text)
}

// enter goes one level deeper; leave must follow in any case.
func (p *parser) enter() bool {
	p.depth++
	if p.depth > maxDepth {
		p.fail(p.here(), "E1007", "nested deeper than %d levels", maxDepth)
		return false
	}
	return !p.failed
}

func (p *parser) leave() { p.depth-- }

// chain counts one more operator of a chain.
func (p *parser) chain(n *int) bool {
	*n++
	if *n > maxChain {
		p.fail(p.here(), "E1007", "more than %d operators in a row", maxChain)
		return false
	}
	return true
}

// isName tells whether a token is a name: in back-quotes, or a word that is not reserved.
func isName(t *token) bool {
	return t.kind == kQuoted || t.kind == kWord && !t.kw.reserved()
}

// ident reads one name.
func (p *parser) ident(what string) ast.Ident {
	t := p.cur()
	if !isName(t) {
		if t.kind == kWord {
			p.reservedWord(t, what)
		} else {
			p.unexpected(what)
		}
		return ast.Ident{}
	}
	id := p.identOf(p.pos)
	if t.exp != 0 && p.exps[t.exp-1].first == p.exps[t.exp-1].last {
		id.Env = p.source(t)
	}
	p.advance()
	return id
}

// reservedWord fails because a word cannot be a name.
func (p *parser) reservedWord(t *token, what string) {
	if p.hintable(what) {
		e := p.fail(p.here(), "E1001", "unexpected %s, expected %s", p.show(t), what)
		p.hint(e, p.failPos)
		return
	}
	if t.exp != 0 {
		p.fail(p.here(), "E1002", "the value of %s is a reserved word, expected %s", p.source(t), what)
		return
	}
	p.fail(p.here(), "E1002", "%q is a reserved word, expected %s", p.text(t), what).
		WithHint("as a name it stands in back-quotes: `%s`", p.text(t))
}

// hintable tells whether a reserved word at this place is more likely the start of the next clause than a name.
func (p *parser) hintable(string) bool {
	switch p.cur().kw {
	case kwFrom, kwWhere, kwGroup, kwOrder, kwHaving, kwSelect, kwLimit, kwUnion, kwOn, kwJoin, kwAs, kwWith, kwInsert, kwCreate:
		return true
	}
	return false
}

// identOf is the name that the token at pos is.
func (p *parser) identOf(pos int) ast.Ident {
	t := &p.toks[pos]
	id := ast.Ident{Span: p.spanOf(pos)}
	text := p.text(t)
	if t.kind == kQuoted {
		id.Name = p.unquote(text, t, '`', 1)
		if t.env {
			if hasVariable(text) {
				id.Env = text
			}
			if id.Name == "" {
				p.fail(id.Span, "E1005", "name is empty")
			}
		}
		return id
	}
	id.Name = text
	return id
}

// unquote is the inside of a quoted text that starts after some bytes.
func (p *parser) unquote(text string, t *token, quote byte, from int) string {
	inside := text[from : len(text)-1]
	if t.env {
		// Quotes are doubled in the text itself, not in values, so each piece between variables is undone alone.
		var b strings.Builder
		for inside != "" {
			i := 0
			for i < len(inside) {
				if inside[i] == '$' {
					if _, ok := variable(inside[i:]); ok {
						break
					}
				}
				i++
			}
			b.WriteString(undouble(inside[:i], quote))
			inside = inside[i:]
			if inside != "" {
				v, _ := variable(inside)
				value, _ := v.get(p.env)
				b.WriteString(value)
				inside = inside[v.size:]
			}
		}
		return b.String()
	}
	return undouble(inside, quote)
}

func undouble(s string, quote byte) string {
	if strings.IndexByte(s, quote) < 0 {
		return s
	}
	q := string(quote)
	return strings.ReplaceAll(s, q+q, q)
}

// name reads a name of one or more parts.
func (p *parser) name(what string) ast.Name {
	start, first := p.start(), p.pos
	n := ast.Name{Parts: []ast.Ident{p.ident(what)}}
	for p.at(kDot) && p.ahead(1).kind != kStar {
		p.advance()
		n.Parts = append(n.Parts, p.ident("a name after the point"))
	}
	n.Span = p.from(start)
	p.markParts(&n, first)
	return n
}

// markParts gives the parts that came together out of one variable its text. The parts stand at every second token from
// first on.
func (p *parser) markParts(n *ast.Name, first int) {
	for i := 0; i < len(n.Parts) && !p.failed; i++ {
		t := &p.toks[first+2*i]
		if t.exp == 0 {
			continue
		}
		e := p.exps[t.exp-1]
		if int(e.first) != first+2*i || (e.last-e.first)%2 != 0 || int(e.last) > first+2*(len(n.Parts)-1) {
			continue
		}
		for j := first + 2*i; j <= int(e.last); j += 2 {
			n.Parts[(j-first)/2].Env = p.source(t)
		}
	}
}

// stringLit reads a text.
func (p *parser) stringLit(what string) ast.String {
	t := p.cur()
	switch t.kind {
	case kString, kUnicode:
	default:
		p.unexpected(what)
		return ast.String{}
	}
	return p.takeString()
}

// takeString reads the text that the next token is.
func (p *parser) takeString() ast.String {
	t := p.cur()
	s := ast.String{Span: p.here()}
	text := p.text(t)
	p.advance()
	if t.env && hasVariable(text) {
		s.Env = text
	} else if t.exp != 0 && p.exps[t.exp-1].first == p.exps[t.exp-1].last {
		s.Env = p.source(t)
	}
	if t.kind == kString {
		s.Value = p.unquote(text, t, '\'', 1)
		return s
	}
	value := p.unquote(text, t, '\'', 3)
	escape := byte('\\')
	if p.is(kwUescape) && p.ahead(1).kind == kString {
		p.advance()
		e := p.text(p.cur())
		if len(e) != 3 || strings.ContainsAny(e[1:2], "0123456789abcdefABCDEF+\"' \t\n") {
			p.fail(p.here(), "E1005", "UESCAPE takes one character that is no hexadecimal digit")
			return s
		}
		escape = e[1]
		if s.Env != "" {
			s.Env += " UESCAPE " + e
		}
		p.advance()
		s.Span.End = p.from(s.Span.Start).End
	}
	decoded, ok := decodeUnicode(value, escape)
	if !ok {
		p.fail(s.Span, "E1005", "bad escape in a Unicode text").
			WithHint("write %c0041, or %c+01F600 with six digits, or %c%c for the character itself", escape, escape, escape, escape)
	}
	s.Value = decoded
	return s
}

// decodeUnicode reads the escapes of U&'..'. Two halves of a surrogate pair make one character; a half alone is refused.
func decodeUnicode(s string, escape byte) (string, bool) {
	if strings.IndexByte(s, escape) < 0 {
		return s, true
	}
	hex := func(s string, n int) (rune, bool) {
		if len(s) < n {
			return 0, false
		}
		r := rune(0)
		for i := range n {
			d := strings.IndexByte("0123456789abcdef", s[i]|0x20)
			if d < 0 || s[i] < '0' {
				return 0, false
			}
			r = r<<4 | rune(d)
		}
		return r, true
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != escape {
			b.WriteByte(s[i])
			i++
			continue
		}
		if i+1 < len(s) && s[i+1] == escape {
			b.WriteByte(escape)
			i += 2
			continue
		}
		var r rune
		var ok bool
		if i+1 < len(s) && s[i+1] == '+' {
			r, ok = hex(s[i+2:], 6)
			i += 8
		} else {
			r, ok = hex(s[i+1:], 4)
			i += 5
			if ok && 0xd800 <= r && r < 0xdc00 && i < len(s) && s[i] == escape {
				low, lowOK := hex(s[i+1:], 4)
				if !lowOK || low < 0xdc00 || low > 0xdfff {
					return "", false
				}
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				i += 5
			}
		}
		if !ok || !utf8.ValidRune(r) {
			return "", false
		}
		b.WriteRune(r)
	}
	return b.String(), true
}

// integer reads an unsigned whole number that fits an int.
func (p *parser) integer(what string) int {
	t := p.cur()
	if t.kind != kInt {
		p.unexpected(what)
		return 0
	}
	n := 0
	for _, c := range p.text(t) {
		n = n*10 + int(c-'0')
		if n > 1<<30 {
			p.fail(p.here(), "E1005", "number %s is too large", p.show(t))
			return 0
		}
	}
	p.advance()
	return n
}

// number reads an unsigned whole number as a literal.
func (p *parser) number(what string) *ast.Number {
	if !p.at(kInt) {
		p.unexpected(what)
		return &ast.Number{}
	}
	return p.takeNumber()
}

// takeNumber reads the number that the next token is.
func (p *parser) takeNumber() *ast.Number {
	t := p.cur()
	n := &ast.Number{Span: p.here(), Text: p.text(t)}
	switch t.kind {
	case kDecimal:
		n.Kind = ast.DecimalNumber
	case kFloat:
		n.Kind = ast.FloatNumber
	}
	if t.exp != 0 && p.exps[t.exp-1].first == p.exps[t.exp-1].last {
		n.Env = p.source(t)
	}
	p.advance()
	return n
}

// list reads items with commas between.
func list[T any](p *parser, item func() T) []T {
	out := []T{item()}
	for p.accept(kComma) {
		out = append(out, item())
	}
	return out
}

// inParens reads ( item, .. ).
func inParens[T any](p *parser, what string, item func() T) []T {
	p.expectKind(kLParen, "( before "+what)
	out := list(p, item)
	p.expectKind(kRParen, ", or )")
	return out
}

func (p *parser) identList(what string) []ast.Ident {
	return inParens(p, what, func() ast.Ident { return p.ident(what) })
}
