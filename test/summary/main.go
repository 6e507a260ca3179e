// Command summary reads the output of go test -json and writes what a person wants to see of it: each package's
// closing line, the output of tests that failed, the tests that were skipped and why, and at the end what failed tests
// said once more and
//
//	N passed, N failed, N skipped
//
// It counts top-level tests. A package that does not build or crashes counts as failed. The exit code is 1 if anything
// failed or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	ok, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "read test output:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// event is a line of go test -json; see go doc test2json. Build output has ImportPath in place of Package.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// maxOutput bounds what is kept of one test's output, and what is shown when it fails.
const maxOutput = 64 << 10

type summary struct {
	out                     io.Writer
	passed, failed, skipped int
	output                  map[string]string // of tests that have not ended, by package and test
	running                 map[string]bool   // top-level tests that have not ended, by package and test
	failures                map[string]int    // by package
	recap                   []string          // of failed tests, repeated at the end
}

func summarize(in io.Reader, out io.Writer) (ok bool, err error) {
	s := &summary{out: out, output: map[string]string{}, running: map[string]bool{}, failures: map[string]int{}}
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
	}
	for key := range s.running { // the stream broke off
		s.failed++
		s.show(key)
	}
	if len(s.recap) > 0 {
		_, _ = fmt.Fprintf(out, "\nfailed:\n%s\n", strings.Join(s.recap, "\n"))
	}
	_, _ = fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.failed == 0 && s.passed > 0, nil
}

func (s *summary) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		_, _ = io.WriteString(s.out, line) // make's own words, or a tool's
		return
	}
	if e.Test == "" {
		s.packageEvent(e)
		return
	}
	key := e.Package + "\x00" + e.Test
	parent, isTop := parentOf(e.Package, e.Test)
	switch e.Action {
	case "run":
		if isTop {
			s.running[key] = true
		}
	case "output":
		if len(s.output[key]) < maxOutput && !strings.HasPrefix(e.Output, "=== ") {
			s.output[key] += e.Output
		}
	case "skip":
		if isTop {
			s.skipped++
		}
		_, _ = fmt.Fprintf(s.out, "%s:\n%s", e.Package, s.output[key])
		s.end(key)
	case "pass":
		if isTop {
			s.passed++
		}
		s.end(key)
	case "fail":
		if isTop {
			s.failed++
			s.failures[e.Package]++
			_, _ = io.WriteString(s.out, s.output[key])
			s.repeat(key, s.output[key])
		} else { // shown with its parent; a subtest ends first
			s.output[parent] += s.output[key]
		}
		s.end(key)
	}
}

// parentOf is the key of the test above; a top-level test has none.
func parentOf(pkg, test string) (key string, isTop bool) {
	i := strings.LastIndexByte(test, '/')
	if i < 0 {
		return "", true
	}
	return pkg + "\x00" + test[:i], false
}

// show writes what a test that never ended has said, its subtests with it.
func (s *summary) show(top string) {
	_, _ = fmt.Fprintf(s.out, "--- NOT FINISHED: %s\n", strings.ReplaceAll(top, "\x00", " "))
	s.repeat(top, s.output[top])
	for _, key := range slices.Sorted(maps.Keys(s.output)) {
		if key == top || strings.HasPrefix(key, top+"/") {
			_, _ = io.WriteString(s.out, s.output[key])
			s.end(key)
		}
	}
	s.end(top)
}

// What is repeated of a failed test: long logs lie between its words and the end of the output.
const (
	recapLines = 8
	recapWidth = 400
)

var saidIn = regexp.MustCompile(`^\s*[a-z0-9_]+_test\.go:\d+: |^panic: `)

// repeat keeps for the end of the output what a failed test said itself.
func (s *summary) repeat(key, output string) {
	s.recap = append(s.recap, "  "+strings.ReplaceAll(key, "\x00", " "))
	n := 0
	for line := range strings.Lines(output) {
		if line = strings.TrimRight(line, "\n"); !saidIn.MatchString(line) {
			continue
		}
		if n++; n > recapLines {
			break
		}
		if len(line) > recapWidth {
			line = line[:recapWidth] + " ..."
		}
		s.recap = append(s.recap, "  "+line)
	}
}

func (s *summary) end(key string) {
	delete(s.running, key)
	delete(s.output, key)
}

// packageEvent handles what is said of a whole package.
func (s *summary) packageEvent(e event) {
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
			_, _ = io.WriteString(s.out, e.Output)
		}
	case "build-output":
		_, _ = io.WriteString(s.out, e.Output)
	case "fail":
		for key := range s.running { // a crash or a time-out ends a package without a word on its running tests
			if strings.HasPrefix(key, e.Package+"\x00") {
				s.failed++
				s.failures[e.Package]++
				s.show(key)
			}
		}
		if s.failures[e.Package] == 0 { // it did not build, or its TestMain said no
			s.failed++
		}
	}
}
