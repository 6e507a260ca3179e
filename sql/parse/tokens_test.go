package parse_test

import (
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/sql/parse"
)

func TestCompleteKnowsWhereStatementsEnd(t *testing.T) {
	for text, want := range map[string]bool{
		"":                  true,
		"-- nothing":        true,
		"SELECT 1":          false,
		"SELECT 1;":         true,
		"SELECT 1; -- done": true,
		"SELECT ';":         false,
		"SELECT ';';":       true,
		"SELECT 1; /* more": false,
		"SELECT `a;`":       false,
		"EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;":      false,
		"EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;": true,
		"BEGIN STATEMENT SET; INSERT INTO a SELECT 1;":             false,
		"BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;":        true,
		"SELECT CASE WHEN a THEN 1 END;":                           true,
		"SELECT * FROM ${TABLE};":                                  true,
	} {
		if got := parse.Complete(text); got != want {
			t.Errorf("Complete(%q) = %v", text, got)
		}
	}
}

func TestTokensHaveClasses(t *testing.T) {
	text := "SELECT `a b`, 'x''y' /* no */ FROM orders WHERE n >= 1.5"
	var got []string
	for _, k := range parse.Tokens(text) {
		got = append(got, string(rune('0'+k.Class))+text[k.Start:k.End])
	}
	want := []string{"1SELECT", "2`a b`", "5,", "4'x''y'", "1FROM", "0orders", "1WHERE", "0n", "5>=", "31.5"}
	if !slices.Equal(got, want) {
		t.Errorf("Tokens = %q, want %q", got, want)
	}
}

func TestKeywordsAreSorted(t *testing.T) {
	words := parse.Keywords()
	if !slices.IsSorted(words) || !slices.Contains(words, "MATCH_RECOGNIZE") || slices.Contains(words, "") {
		t.Errorf("Keywords = %q", words)
	}
}
