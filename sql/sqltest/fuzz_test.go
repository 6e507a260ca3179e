package sqltest_test

import (
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// FuzzTestFile reads files of tests and of cases: any text is one, or an error.
func FuzzTestFile(f *testing.F) {
	f.Add("pipeline a.sql\nset a = b\ntest one\ninsert t\n  +I {\"a\": 1}\nwatermark t 2024-05-01 12:00:00\ntime +1 min\nrestart\nend\nexpect t final\n  {\"a\": null}\nexpect late 1\nexpect error no\n")
	f.Add("test\ninsert\n {")
	f.Fuzz(func(t *testing.T, text string) {
		if file, err := sqltest.ParseTests("a.test", text); (file == nil) == (err == nil) {
			t.Fatalf("%q is read as %v with error %v", text, file, err)
		}
		if c, err := sqltest.Parse([]byte(text)); (c == nil) == (err == nil) {
			t.Fatalf("%q is read as %v with error %v", text, c, err)
		}
	})
}
