package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run lets the real go command test a package of one file and summarizes its output.
func run(t *testing.T, test string) (out string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":    "module example.com/x\ngo 1.26\n",
		"x_test.go": "package x\nimport (\n\"os\"\n\"testing\"\n)\nvar _ = os.Exit\nvar _ *testing.T\n" + test,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-timeout", "5s", "./...")
	cmd.Dir = dir
	events, _ := cmd.CombinedOutput() // it fails where the test wants it to
	var b strings.Builder
	ok, err := summarize(strings.NewReader("make: a line of its own\n"+string(events)), &b)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), ok
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		name, test string
		ok         bool
		counts     string
		want       []string
	}{
		{"pass", "func TestA(t *testing.T) { t.Run(\"sub\", func(*testing.T) {}) }\nfunc TestB(*testing.T) {}", true,
			"2 passed, 0 failed, 0 skipped", []string{"make: a line of its own\n", "ok  \texample.com/x"}},
		{"fail", "func TestA(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"wrong sum\") }); t.Run(\"fine\", func(t *testing.T) { t.Log(\"quiet\") }) }\nfunc TestB(t *testing.T) { t.Log(\"quiet\") }", false,
			"1 passed, 1 failed, 0 skipped", []string{"wrong sum", "--- FAIL: TestA/sub", "FAIL\texample.com/x",
				"\nfailed:\n  example.com/x TestA\n      x_test.go:8: wrong sum\n1 passed"}},
		{"skip", "func TestA(*testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"NOT TESTED: no broker\") }", true,
			"1 passed, 0 failed, 1 skipped", []string{"NOT TESTED: no broker"}},
		{"skip below", "func TestA(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Skip(\"x\") }) }", true,
			"1 passed, 0 failed, 0 skipped", []string{"example.com/x:\n", "SKIP: TestA/sub"}},
		{"panic", "func TestA(*testing.T) {}\nfunc TestB(*testing.T) { panic(\"boom\") }", false,
			"1 passed, 1 failed, 0 skipped", []string{"boom"}},
		{"panic below", "func TestA(t *testing.T) { t.Run(\"sub\", func(*testing.T) { panic(\"boom\") }) }", false,
			"0 passed, 1 failed, 0 skipped", []string{"boom"}},
		{"exit", "func TestA(*testing.T) { os.Exit(3) }", false,
			"0 passed, 1 failed, 0 skipped", []string{"FAIL\texample.com/x"}},
		{"time-out", "func TestA(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Log(\"waits\"); select {} }) }", false,
			"0 passed, 1 failed, 0 skipped", []string{"waits", "test timed out", "goroutine"}},
		{"test main", "func TestMain(m *testing.M) { m.Run(); os.Exit(1) }\nfunc TestA(*testing.T) {}", false,
			"1 passed, 1 failed, 0 skipped", nil},
		{"no build", "func TestA(*testing.T) { undefined() }", false,
			"0 passed, 1 failed, 0 skipped", []string{"undefined: undefined", "[build failed]"}},
		{"no tests", "", false, "0 passed, 0 failed, 0 skipped", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, ok := run(t, c.test)
			if ok != c.ok || !strings.HasSuffix(out, "\n"+c.counts+"\n") {
				t.Errorf("ok is %t, want %t; output, which should end with %q:\n%s", ok, c.ok, c.counts, out)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in the output:\n%s", w, out)
				}
			}
			if strings.Contains(out, "quiet") {
				t.Errorf("the output of a test that passed is shown:\n%s", out)
			}
		})
	}
}

// TestBrokenOff: a stream that ends in the middle of a test is no success.
func TestBrokenOff(t *testing.T) {
	var b strings.Builder
	ok, err := summarize(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}`), &b)
	if err != nil || ok || !strings.Contains(b.String(), "NOT FINISHED: p TestB") {
		t.Errorf("ok is %t, %v:\n%s", ok, err, b.String())
	}
}
