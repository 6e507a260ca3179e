package fn

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
)

// pattern is a compiled regular expression. need is a text that every match has in it: most rows without a match are
// told by it alone.
type pattern struct {
	*regexp.Regexp
	need []byte
}

// errFeature is what a pattern asks for that automata cannot do.
var errFeature = errors.New("lookahead, lookbehind, back references, possessive quantifiers and && in classes are not supported: matching takes time in proportion to the text")

var javaClasses = strings.NewReplacer(
	`\p{Alpha}`, `[A-Za-z]`, `\p{Digit}`, `[0-9]`, `\p{Alnum}`, `[0-9A-Za-z]`, `\p{Upper}`, `[A-Z]`, `\p{Lower}`, `[a-z]`,
	`\p{Punct}`, `[!-/:-@\[-`+"`"+`{-~]`, `\p{Space}`, `[ \t\n\x0b\f\r]`, `\p{Blank}`, `[ \t]`, `\p{XDigit}`, `[0-9A-Fa-f]`,
	`\p{ASCII}`, `[\x00-\x7f]`, `\p{Cntrl}`, `[\x00-\x1f\x7f]`, `\p{IsAlphabetic}`, `\pL`, `\p{IsDigit}`, `\p{Nd}`, `\h`, `[ \t\xA0]`,
	`\Z`, `\n?\z`, `\e`, `\x1b`, `\\`, `\\`)

// compilePattern compiles Java's syntax of regular expressions.
func compilePattern(text string) (*pattern, error) {
	for i := 0; i+1 < len(text); i++ {
		switch c, d := text[i], text[i+1]; {
		case c == '\\':
			if d >= '1' && d <= '9' || d == 'k' {
				return nil, errFeature
			}
			i++
		case c == '(' && d == '?' && i+2 < len(text):
			rest := text[i+2:]
			if rest[0] == '=' || rest[0] == '!' || rest[0] == '>' || strings.HasPrefix(rest, "<=") || strings.HasPrefix(rest, "<!") {
				return nil, errFeature
			}
		case (c == '+' || c == '*' || c == '?' || c == '}') && d == '+' && i > 0, c == '&' && d == '&' && strings.LastIndexByte(text[:i], '[') > strings.LastIndexByte(text[:i], ']'):
			return nil, errFeature
		}
	}
	java := javaClasses.Replace(text)
	re, err := regexp.Compile(java)
	if err != nil {
		return nil, err
	}
	p := &pattern{Regexp: re}
	if tree, err := syntax.Parse(java, syntax.Perl); err == nil {
		p.need = needed(tree.Simplify())
	}
	return p, nil
}

// needed is the longest literal that must be there for a match.
func needed(re *syntax.Regexp) []byte {
	var best []byte
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			best = []byte(string(re.Rune))
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if b := needed(sub); len(b) > len(best) {
				best = b
			}
		}
	case syntax.OpCapture, syntax.OpPlus:
		best = needed(re.Sub[0])
	}
	return best
}

// find is the index pairs of the first match, nil if there is none.
func (p *pattern) find(b []byte) []int {
	if len(p.need) > 0 && !bytes.Contains(b, p.need) {
		return nil
	}
	return p.FindSubmatchIndex(b)
}

// patterns caches the compiled pattern of an argument. One that cannot be compiled is nil, as Flink has it, unless it asks
// for what we do not have: then it is an error, at once if it is constant.
type patterns struct {
	at    Place
	cache map[string]*pattern
	last  string
	p     *pattern
	any   bool
}

func newPatterns(env *Env, arg Code) (*patterns, error) {
	if text, ok := constText(arg); ok {
		if _, err := compilePattern(text); errors.Is(err, errFeature) {
			return nil, fmt.Errorf("regular expression '%s': %w", text, err)
		}
	}
	return &patterns{at: env.Place, cache: map[string]*pattern{}}, nil
}

func (c *patterns) get(text []byte) *pattern {
	if c.any && string(text) == c.last {
		return c.p
	}
	p, ok := c.cache[string(text)]
	if !ok {
		var err error
		if p, err = compilePattern(string(text)); errors.Is(err, errFeature) {
			c.at.failf("regular expression '%s': %s", text, err)
		}
		if len(c.cache) >= 100 {
			clear(c.cache)
		}
		c.cache[string(text)] = p
	}
	c.last, c.p, c.any = string(text), p, true
	return p
}

// regexpFunc is a function of a text and a regular expression; an expression that cannot be compiled gives NULL.
func regexpFunc[R any](code func(t *row.Type, f Get[R]) Code, f func(env *Env, p *pattern, b []byte) (R, bool)) func(*Env, []Code, *row.Type) (Code, error) {
	return func(env *Env, args []Code, t *row.Type) (Code, error) {
		list, err := newPatterns(env, args[1])
		if err != nil {
			return Code{}, err
		}
		return code(t, try2(args[0].Bytes, args[1].Bytes, func(b, text []byte) (v R, ok bool) {
			p := list.get(text)
			if p == nil {
				return v, false
			}
			return f(env, p, b)
		})), nil
	}
}

func group(b []byte, m []int, g int64) ([]byte, bool) {
	if m == nil || g < 0 || 2*g >= int64(len(m)) || m[2*g] < 0 {
		return nil, false
	}
	return b[m[2*g]:m[2*g+1]:m[2*g+1]], true
}

var regexpFuncs = []*Func{
	{
		Name: "REGEXP", Group: "regexp", Fails: true, Syntax: "REGEXP(string, regexp)", Doc: "Says whether a part of the text matches. An empty or wrong expression matches nothing.",
		Resolve: sigs(of(strictly(row.Boolean()), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			list, err := newPatterns(env, args[1])
			if err != nil {
				return Code{}, err
			}
			return BoolCode(t, lift2(args[0].Bytes, args[1].Bytes, func(b, text []byte) bool {
				p := list.get(text)
				return p != nil && len(text) > 0 && (len(p.need) == 0 || bytes.Contains(b, p.need)) && p.Match(b)
			})), nil
		},
		Examples: []Example{{"REGEXP('abc', 'b')", "BOOLEAN NOT NULL", "true"}},
	},
	{
		Name: "REGEXP_EXTRACT", Group: "regexp", Fails: true, Syntax: "REGEXP_EXTRACT(string, regexp [, group])", Doc: "The first match, or its group; NULL if nothing matches or there is no such group.",
		Resolve: sigs(of(nullable(row.String()), wantText, wantText), of(nullable(row.String()), wantText, wantText, wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			list, err := newPatterns(env, args[1])
			if err != nil {
				return Code{}, err
			}
			index := constGet[int64](0)
			if len(args) > 2 {
				index = args[2].Int
			}
			return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, index, func(b, text []byte, g int64) ([]byte, bool) {
				p := list.get(text)
				if p == nil {
					return nil, false
				}
				return group(b, p.find(b), g)
			})), nil
		},
		Examples: []Example{{"REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "STRING", "bar"}},
	},
	{
		Name: "REGEXP_REPLACE", Group: "regexp", Fails: true, Syntax: "REGEXP_REPLACE(string, regexp, replacement)", Doc: "The text with each match replaced by the replacement as it is. NULL if the expression is wrong.",
		Resolve: sigs(of(strictly(row.String()), wantText, wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			list, err := newPatterns(env, args[1])
			if err != nil {
				return Code{}, err
			}
			return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, args[2].Bytes, func(b, text, by []byte) ([]byte, bool) {
				p := list.get(text)
				if p == nil {
					return nil, at.noValue("REGEXP_REPLACE", t)
				}
				return p.ReplaceAllLiteral(b, by), true
			})), nil
		},
		Examples: []Example{{"REGEXP_REPLACE('a1b22c', '[0-9]+', '#')", "STRING NOT NULL", "a#b#c"}},
	},
	{
		Name: "REGEXP_COUNT", Group: "regexp", Fails: true, Syntax: "REGEXP_COUNT(string, regexp)", Doc: "The number of matches.",
		Resolve:  sigs(of(nullable(row.Int()), wantText, wantText)),
		Compile:  regexpFunc(IntCode, func(_ *Env, p *pattern, b []byte) (int64, bool) { return int64(len(p.FindAllIndex(b, -1))), true }),
		Examples: []Example{{"REGEXP_COUNT('abcabc', 'b')", "INT", "2"}},
	},
	{
		Name: "REGEXP_SUBSTR", Group: "regexp", Fails: true, Syntax: "REGEXP_SUBSTR(string, regexp)", Doc: "The first match.",
		Resolve:  sigs(of(nullable(row.String()), wantText, wantText)),
		Compile:  regexpFunc(BytesCode, func(_ *Env, p *pattern, b []byte) ([]byte, bool) { return group(b, p.find(b), 0) }),
		Examples: []Example{{"REGEXP_SUBSTR('ab12cd34', '[0-9]+')", "STRING", "12"}},
	},
	{
		Name: "REGEXP_INSTR", Group: "regexp", Fails: true, Syntax: "REGEXP_INSTR(string, regexp)", Doc: "Where the first match starts, counted from 1; 0 if nothing matches.",
		Resolve: sigs(of(nullable(row.Int()), wantText, wantText)),
		Compile: regexpFunc(IntCode, func(_ *Env, p *pattern, b []byte) (int64, bool) {
			m := p.find(b)
			if m == nil {
				return 0, true
			}
			return int64(utf8.RuneCount(b[:m[0]])) + 1, true
		}),
		Examples: []Example{{"REGEXP_INSTR('ab12', '[0-9]')", "INT", "3"}},
	},
	{
		Name: "REGEXP_EXTRACT_ALL", Group: "regexp", Fails: true, Syntax: "REGEXP_EXTRACT_ALL(string, regexp [, group])", Doc: "All matches, or their group (1 if not given).",
		Resolve: sigs(of(nullable(row.Array(row.String())), wantText, wantText), of(nullable(row.Array(row.String())), wantText, wantText, wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			list, err := newPatterns(env, args[1])
			if err != nil {
				return Code{}, err
			}
			index := constGet[int64](1)
			if len(args) > 2 {
				index = args[2].Int
			}
			w := newArrayWriter(t)
			return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, index, func(b, text []byte, g int64) ([]byte, bool) {
				p := list.get(text)
				if p == nil || g < 0 || g > int64(p.NumSubexp()) {
					return nil, false
				}
				w.begin()
				for _, m := range p.FindAllSubmatchIndex(b, -1) {
					part, ok := group(b, m, g)
					w.add(Const{Null: !ok, B: part})
				}
				return w.finish(env), true
			})), nil
		},
		Examples: []Example{{"REGEXP_EXTRACT_ALL('a1b2', '([a-z])([0-9])', 2)", "ARRAY<STRING>", `["1", "2"]`}},
	},
	{
		Name: "LIKE", Group: "comparison", Fails: true, Syntax: "string LIKE pattern [ESCAPE character]", Doc: "Says whether the whole text matches: % is any text, _ any character. Without ESCAPE there is no way to mean them.",
		Resolve: sigs(of(strictly(row.Boolean()), wantText, wantText), of(strictly(row.Boolean()), wantText, wantText, wantText)), Compile: compileLike,
		Examples: []Example{{"'abc' LIKE 'a_c'", "BOOLEAN NOT NULL", "true"}},
	},
	{
		Name: "SIMILAR TO", Group: "comparison", Fails: true, Syntax: "string SIMILAR TO pattern [ESCAPE character]", Doc: "Says whether the whole text matches a regular expression in which % is any text and _ any character.",
		Resolve: sigs(of(strictly(row.Boolean()), wantText, wantText), of(strictly(row.Boolean()), wantText, wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at, escape := env.Place, constGet([]byte(nil))
			if len(args) > 2 {
				escape = args[2].Bytes
			}
			list := newFormats(func(key string) (*regexp.Regexp, error) {
				esc, n := utf8.DecodeRuneInString(key)
				re, err := similar(key[n:], esc)
				if err != nil {
					return nil, fmt.Errorf("SIMILAR TO: %w", err)
				}
				return re, nil
			})
			var key []byte
			return BoolCode(t, lift3(args[0].Bytes, args[1].Bytes, escape, func(b, text, esc []byte) bool {
				if len(esc) == 0 {
					esc = []byte{0}
				}
				key = append(append(key[:0], esc...), text...)
				return list.get(at, key).Match(b)
			})), nil
		},
		Examples: []Example{{"'abc' SIMILAR TO '(a|b)%'", "BOOLEAN NOT NULL", "true"}},
	},
}

// similar translates a pattern of SIMILAR TO.
func similar(text string, escape rune) (*regexp.Regexp, error) {
	wrong := func() error { return fmt.Errorf("invalid regular expression '%s'", text) }
	var out strings.Builder
	out.WriteString(`\A(?:`)
	class := false
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; {
		case escape != 0 && c == escape:
			i++
			if i == len(runes) {
				return nil, wrong()
			}
			out.WriteString(regexp.QuoteMeta(string(runes[i])))
		case class:
			switch {
			case c == ']':
				class = false
				out.WriteByte(']')
			case c == '[' && i+1 < len(runes) && runes[i+1] == ':':
				name, _, ok := strings.Cut(string(runes[i:]), ":]")
				if !ok {
					return nil, wrong()
				}
				out.WriteString(strings.ToLower(name) + ":]")
				i += utf8.RuneCountInString(name) + 1
			case strings.ContainsRune("_%|*+?{}()[", c):
				return nil, wrong()
			default:
				out.WriteRune(c)
			}
		case c == '[':
			class = true
			out.WriteByte('[')
			if i+1 < len(runes) && runes[i+1] == '^' {
				out.WriteByte('^')
				i++
			}
		case c == '%':
			out.WriteString("(?s:.*)")
		case c == '_':
			out.WriteString("(?s:.)")
		case c == '^' || c == '$' || c == '\\':
			out.WriteString(regexp.QuoteMeta(string(c)))
		default:
			out.WriteRune(c)
		}
	}
	out.WriteString(`)\z`)
	re, err := regexp.Compile(out.String())
	if err != nil || class {
		return nil, wrong()
	}
	return re, nil
}

// likeItem is a piece of a LIKE pattern: a text, one character, or any text.
type likeItem struct {
	text []byte
	kind byte // 0 text, '_', '%'
}

type likePattern struct {
	items []likeItem
	err   error
}

func newLike(text, escape []byte) *likePattern {
	p := &likePattern{}
	esc := rune(-1)
	if escape != nil {
		if utf8.RuneCount(escape) != 1 {
			p.err = fmt.Errorf("LIKE: the escape '%s' is not one character", escape)
			return p
		}
		esc, _ = utf8.DecodeRune(escape)
	}
	var lit []byte
	flush := func() {
		if len(lit) > 0 {
			p.items = append(p.items, likeItem{text: lit})
			lit = nil
		}
	}
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text)
		piece := text[:n]
		text = text[n:]
		switch c {
		case esc:
			d, n := utf8.DecodeRune(text)
			if n == 0 || d != esc && d != '%' && d != '_' {
				p.err = fmt.Errorf("LIKE: invalid escape sequence: behind the escape character there must be %%, _ or itself")
				return p
			}
			lit = append(lit, text[:n]...)
			text = text[n:]
		case '%', '_':
			flush()
			if c == '_' || len(p.items) == 0 || p.items[len(p.items)-1].kind != '%' {
				p.items = append(p.items, likeItem{kind: byte(c)})
			}
		default:
			lit = append(lit, piece...)
		}
	}
	flush()
	return p
}

// match goes back to the last % only, so it takes at most length times pattern.
func (p *likePattern) match(b []byte) bool {
	i, at := 0, 0
	backI, backAt := -1, 0
	for {
		if i == len(p.items) {
			if at == len(b) {
				return true
			}
		} else {
			switch it := p.items[i]; {
			case it.kind == '%':
				if i+1 == len(p.items) {
					return true
				}
				backI, backAt = i, at
				i++
				continue
			case it.kind == '_' && at < len(b):
				at += runeOffset(b[at:], 1)
				i++
				continue
			case it.kind == 0 && bytes.HasPrefix(b[at:], it.text):
				at += len(it.text)
				i++
				continue
			}
		}
		if backI < 0 || backAt >= len(b) {
			return false
		}
		// The text that % takes grows: to where the next literal stands, if one follows.
		next := backAt + runeOffset(b[backAt:], 1)
		if it := p.items[backI+1]; it.kind == 0 {
			j := bytes.Index(b[next:], it.text)
			if j < 0 {
				return false
			}
			next += j
		}
		backAt, at, i = next, next, backI+1
	}
}

func compileLike(env *Env, args []Code, t *row.Type) (Code, error) {
	at, escape := env.Place, constGet([]byte(nil))
	constant := args[1].Const
	if len(args) > 2 {
		escape = args[2].Bytes
		constant = constant && args[2].Const
	}
	if constant {
		text, ok1 := args[1].Bytes(nil)
		esc, ok2 := escape(nil)
		if !ok1 || !ok2 {
			return ConstCode(t, Const{Null: true}), nil
		}
		p := newLike(text, esc)
		if p.err != nil {
			return Code{}, p.err
		}
		return BoolCode(t, lift1(args[0].Bytes, p.match)), nil
	}
	return BoolCode(t, lift3(args[0].Bytes, args[1].Bytes, escape, func(b, text, esc []byte) bool {
		p := newLike(text, esc)
		if p.err != nil {
			at.failf("%s", p.err)
		}
		return p.match(b)
	})), nil
}
