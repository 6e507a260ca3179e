package parse

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// difference says where two trees differ, spans apart; empty if nowhere.
func difference(a, b any) string { return differ("", reflect.ValueOf(a), reflect.ValueOf(b)) }

func differ(path string, a, b reflect.Value) string {
	if a.IsValid() != b.IsValid() {
		return fmt.Sprintf("%s: %v, then %v", path, a, b)
	}
	if !a.IsValid() {
		return ""
	}
	if a.Type() != b.Type() {
		return fmt.Sprintf("%s: %v, then %v", path, a.Type(), b.Type())
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return fmt.Sprintf("%s: nil %v, then nil %v", path, a.IsNil(), b.IsNil())
			}
			return ""
		}
		return differ(path, a.Elem(), b.Elem())
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[ast.Span]() {
			return ""
		}
		for i := range a.NumField() {
			if d := differ(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d items, then %d", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			if d := differ(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
	default:
		if !a.Equal(b) {
			return fmt.Sprintf("%s: %v, then %v", path, a, b)
		}
	}
	return ""
}

// checkTokens tests that the tokens of a text and what stands between them are the text.
func checkTokens(t testing.TB, text string, env Env) {
	t.Helper()
	l := lex(diag.NewSource("t", text), env)
	at := 0
	for i, tok := range l.toks {
		if tok.exp != 0 && i > 0 && l.toks[i-1].exp == tok.exp {
			continue // more of the same variable
		}
		start, end := int(tok.start), int(tok.end)
		if start < at || end < start || end > len(text) {
			t.Fatalf("token %d of %q is at %d..%d, the one before ended at %d", i, text, start, end, at)
		}
		if between := text[at:start]; !trivia(between, env) {
			t.Fatalf("%q between tokens %d and %d of %q is nothing that may stand there", between, i-1, i, text)
		}
		at = end
	}
	if at != len(text) {
		t.Fatalf("tokens of %q end at %d", text, at)
	}
}

// trivia tells whether a text holds nothing but spaces, comments and variables without a token in their value.
func trivia(s string, env Env) bool {
	for s != "" {
		if strings.HasPrefix(s, "--") || strings.HasPrefix(s, "//") {
			s = s[endOfLine(s, 0):]
			continue
		}
		if strings.HasPrefix(s, "/*") {
			n := strings.Index(s[2:], "*/")
			if n < 0 {
				return false
			}
			s = s[n+4:]
			continue
		}
		if v, ok := variable(s); ok && !v.escaped {
			value, known := v.get(env)
			if !known || !trivia(value, nil) {
				return false
			}
			s = s[v.size:]
			continue
		}
		r := []rune(s[:min(4, len(s))])[0]
		if !unicode.IsSpace(r) && r != 0xfeff {
			return false
		}
		s = s[len(string(r)):]
	}
	return true
}

// roundTrip tests the three properties on a text, whether it parses or not: tokens joined are the text; what is printed
// prints the same again; and gives the same tree.
func roundTrip(t testing.TB, text string, env Env) {
	t.Helper()
	checkTokens(t, text, env)
	script, errs := Script(diag.NewSource("t", text), env)
	for _, e := range errs {
		if e.Span.Start < 0 || e.Span.End < e.Span.Start || e.Span.End > len(text) {
			t.Fatalf("error outside of the text %q: %v", text, e.Span)
		}
		if e.Text() == "" {
			t.Fatal("error without a text")
		}
	}
	checkSpans(t, text, reflect.ValueOf(script))
	canonical := ast.Print(script)
	again, errs := Script(diag.NewSource("t", canonical), env)
	if len(errs) > 0 {
		t.Fatalf("%q prints as\n%s\n%s", text, canonical, errs.Text())
	}
	if d := difference(script, again); d != "" {
		t.Fatalf("%q prints as\n%s\nwhich is another tree: %s", text, canonical, d)
	}
	if second := ast.Print(again); second != canonical {
		t.Fatalf("%q prints as\n%s\nand then as\n%s", text, canonical, second)
	}
}

// checkSpans tests that every span lies in the text.
func checkSpans(t testing.TB, text string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			checkSpans(t, text, v.Elem())
		}
	case reflect.Struct:
		if s, ok := v.Interface().(ast.Span); ok {
			if s.Start < 0 || s.End < s.Start || s.End > len(text) {
				t.Fatalf("span %v outside of %q", s, text)
			}
			return
		}
		for i := range v.NumField() {
			checkSpans(t, text, v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			checkSpans(t, text, v.Index(i))
		}
	}
}

// testEnv are the variables of the tests.
func testEnv(name string) (string, bool) {
	switch name {
	case "TABLE":
		return "db.orders", true
	case "NAME":
		return "orders", true
	case "QUOTE":
		return "it's \"so\" `it` is", true
	case "COND":
		return "a > 5 OR b", true
	case "PART":
		return "> 5 AND c", true
	case "N":
		return "10", true
	case "EMPTY":
		return "", true
	case "STRING":
		return "'x''y'", true
	}
	return "", false
}

func FuzzScript(f *testing.F) {
	for _, c := range oracleCases(f) {
		f.Add(c.ddl + ";\n" + c.query)
		if len(c.exprs) > 0 {
			f.Add("SELECT " + strings.Join(c.exprs, ", "))
		}
	}
	for _, c := range corners {
		f.Add(c.text)
	}
	for _, q := range nexmark {
		f.Add(q)
	}
	for _, c := range mistakes {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		roundTrip(t, text, testEnv)
	})
}
