package parse

import (
	"slices"

	"github.com/millrace-stream/millrace/sql/diag"
)

// Class is what a Token is, for editors.
type Class uint8

// The classes of tokens.
const (
	Word    Class = iota // a name that may be a keyword
	Keyword              // a word that the grammar uses
	Quoted               // `name`
	Number
	String // 'text', x'0A'
	Sign
	Bad // what cannot be read, or has no end
)

// Token is a part of a text. White space and comments are none.
type Token struct {
	Class      Class
	Start, End int // bytes of the text
}

// Tokens cuts a text as Script does, but for ${NAME}: that is left as it stands.
func Tokens(text string) []Token {
	l := lex(diag.NewSource("", text), func(string) (string, bool) { return "", true })
	var out []Token
	for _, t := range l.toks {
		if t.kind == kEOF || t.exp != 0 {
			continue
		}
		out = append(out, Token{class(t), int(t.start), int(t.end)})
	}
	return out
}

func class(t token) Class {
	switch t.kind {
	case kWord:
		if t.kw != kwNone {
			return Keyword
		}
		return Word
	case kQuoted:
		return Quoted
	case kInt, kDecimal, kFloat:
		return Number
	case kString, kUnicode, kBinary:
		return String
	case kBad:
		return Bad
	}
	return Sign
}

// Complete says whether a text ends with the semicolon of its last statement, so that somebody who types it is done with it:
// not inside of a text, a comment or a statement set. A text without any statement is complete.
func Complete(text string) bool {
	l := lex(diag.NewSource("", text), func(string) (string, bool) { return "", true })
	for _, e := range l.errs {
		if e.Code == "E1003" {
			return false
		}
	}
	toks := l.toks[:len(l.toks)-1]
	block := false
	for i, t := range toks {
		switch {
		case t.kw == kwBegin && (i > 0 && toks[i-1].kw == kwSet || i+2 < len(toks) && toks[i+1].kw == kwStatement && toks[i+2].kw == kwSet):
			block = true
		case block && t.kw == kwEnd && toks[i-1].kind == kSemicolon:
			block = false
		}
	}
	return !block && (len(toks) == 0 || toks[len(toks)-1].kind == kSemicolon)
}

// Keywords are all words that the grammar uses or reserves, sorted: for completion.
func Keywords() []string {
	var words []string
	for k := kwNone + 1; int(k) < len(keywords.texts); k++ {
		if w := k.String(); w != "" {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}
