package diag

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/ast"
)

func TestMessageHasPlaceCaretHintAndNotes(t *testing.T) {
	src := NewSource("pipeline.sql", "SELECT 1;\r\n\tSELECT '\u00e9', pric FROM bid")
	start := strings.Index(src.Text, "pric")
	e := New(src, ast.Span{Start: start, End: start + 4}, "E2103", "column %q not found", "pric").
		WithHint("did you mean %q?", "price").WithNote("column names are case-sensitive, as in Flink")
	want := "pipeline.sql:2:14: error E2103: column \"pric\" not found\n" +
		"   2 | \tSELECT '\u00e9', pric FROM bid\n" +
		"     | \t            ^^^^ did you mean \"price\"?\n" +
		"  = column names are case-sensitive, as in Flink\n"
	if got := e.Text(); got != want {
		t.Errorf("message is\n%q\nnot\n%q", got, want)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); !strings.Contains(got, `"line":2,"column":14,"endLine":2,"endColumn":18`) || !strings.Contains(got, `"severity":"error"`) {
		t.Errorf("JSON is %s", got)
	}
}

func TestListIsSortedAndHasNoDoubles(t *testing.T) {
	src := NewSource("t", "abc")
	var l List
	l.Add(New(src, ast.Span{Start: 2, End: 3}, "E1001", "b"))
	l.Add(New(src, ast.Span{Start: 1, End: 2}, "W12", "a"))
	l.Add(New(src, ast.Span{Start: 2, End: 3}, "E1001", "b"))
	l.Sort()
	if len(l) != 2 || l[0].Message != "a" || l.Err() == nil || l[:1].Err() != nil {
		t.Errorf("list is %v", l)
	}
}
