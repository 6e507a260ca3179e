package shell

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/sql"
)

// FuzzLine: whatever is on the line, completion offers what begins as the word does, and colours take nothing away.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"SELECT n.", `\d num`, "SELECT * FROM numbers AS n JOIN ", "'", "/*", "`", `\`, "SELECT numbers.id"} {
		f.Add(line)
	}
	s := New(Options{SQL: sql.Options{Connectors: connector.Registry{"datagen": datagen.New()}}, Out: io.Discard, Err: io.Discard, Form: "table", Interruptible: context.WithCancel})
	if err := s.Script(f.Context(), "fuzz", numbers); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		list, word := s.Complete(line)
		if word < 0 || word > len(line) {
			t.Fatalf("the word of %q has %d bytes", line, word)
		}
		prefix := strings.TrimRight(line, " \t\r\n\v\f\u0085\u00a0")
		if !IsCommand(line) {
			prefix = line
		}
		prefix = prefix[max(0, len(prefix)-word):]
		for _, c := range list {
			if len(c.Text) < len(prefix) || !strings.EqualFold(c.Text[:len(prefix)], prefix) {
				t.Fatalf("%q offers %q for %q", line, c.Text, prefix)
			}
		}
		if strings.Contains(line, "\x1b") {
			return
		}
		plainText := highlight(line)
		for _, style := range []string{"\x1b[1m", "\x1b[32m", "\x1b[36m", plain} {
			plainText = strings.ReplaceAll(plainText, style, "")
		}
		if plainText != line {
			t.Fatalf("%q is shown as %q", line, plainText)
		}
	})
}
