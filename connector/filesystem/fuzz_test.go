package filesystem

import (
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
)

// FuzzFolder: what a value becomes in the name of a folder is one name, and reads as the value; the time of any folder can be
// asked for.
func FuzzFolder(f *testing.F) {
	f.Add("dt", "2024-01-31", "$dt $hour:00:00")
	f.Add("a=b/c", "x%2Fy/%", "$a=b/c")
	f.Add("", "..", "$")
	f.Fuzz(func(t *testing.T, name, value, pattern string) {
		for _, s := range []string{name, value} {
			text := string(escape(nil, s))
			if strings.ContainsAny(text, "/=\x00") || unescape(text) != s {
				t.Fatalf("%q becomes %q, which reads as %q", s, text, unescape(text))
			}
		}
		p := commitPolicy{zone: row.UTC(), pattern: pattern}
		p.timeOf(string(escape(nil, name)) + "=" + string(escape(nil, value)))
		p.timeOf(value)
	})
}
