// Package lint checks rules of this repository that no linter knows: who may import what, which packages are pure, and
// what files may say.
package lint

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// root of the repository: tests run in their package's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("find the module's root: %v", err)
	}
	return dir
}

func TestText(t *testing.T) {
	dir := root(t)
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the repository's files: %v", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if len(names) < 10 {
		t.Fatalf("git knows %d files only", len(names))
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range checkText(name, content) {
			t.Error(p)
		}
	}
}

// somebody's folders: an absolute path that exists on one machine only.
var absolute = regexp.MustCompile(`(^|[^\w.~}\-])/(work|farm|home|root|Users)/\w`)

// up is a relative path that climbs.
var up = regexp.MustCompile(`(?:\.\./)+`)

// code is what must be ASCII: what looks equal must be equal.
var code = regexp.MustCompile(`\.(go|mod|ya?ml|xml|sh|sql|proto)$|(^|/)(Makefile|Dockerfile|run|\.gitignore|\.dockerignore)$`)

// checkText returns what breaks a rule, with its line.
func checkText(name string, content []byte) []string {
	if bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content) || strings.Contains(name, "testdata/") {
		return nil // binary, or input of a test
	}
	depth := strings.Count(path.Clean(name), "/")
	var problems []string
	for i, line := range strings.Split(string(content), "\n") {
		report := func(what string) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %.100s", name, i+1, what, strings.TrimSpace(line)))
		}
		if absolute.MatchString(line) {
			report("names a folder of one machine")
		}
		// Tests may climb on purpose: they try paths that lead out.
		if !strings.HasSuffix(name, "_test.go") {
			for _, climb := range up.FindAllString(line, -1) {
				if len(climb)/len("../") > depth {
					report("names a folder outside the repository")
				}
			}
		}
		if code.MatchString(name) {
			for _, r := range line {
				if r >= utf8.RuneSelf {
					report(fmt.Sprintf("holds %U, code is ASCII (write an escape)", r))
					break
				}
			}
		}
	}
	return problems
}

func TestTextRulesCanFail(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"README.md", "Caf\u00e9: see docs/x.md, https://example.com/home/x and ${DIR}/wo" + "rk/x", ""},
		{"README.md", "line\nsee /" + "home/ann/notes", "README.md:2: names a folder of one machine"},
		{"internal/a/a.go", "// from /" + "work/x", "one machine"},
		{"docs/a.md", "see [it](../README.md)", ""},
		{"docs/a.md", "see [it](../../other/README.md)", "outside the repository"},
		{"internal/a/a_test.go", `open("../../../etc/passwd")`, ""},
		{"internal/a/a.go", "// Caf\u00e9", "U+00E9"},
		{".ci/run", "echo \u2713", "U+2713"},
		{"internal/a/testdata/bad.json", "\u2713 /" + "home/x", ""},
	} {
		got := strings.Join(checkText(c.name, []byte(c.content)), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s %q: got %q, want %q", c.name, c.content, got, c.want)
		}
	}
}
