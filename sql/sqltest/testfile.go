package sqltest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
)

// TestFile is a file of a user's tests of a pipeline; docs/sql.md describes the format.
type TestFile struct {
	// Path is where it is, Pipeline the script that it tests.
	Path, Pipeline string
	// Set has settings as of SET before the script; Env values of ${NAME}.
	Set, Env map[string]string
	Tests    []Test

	lines []string
}

// Test is one test: the pipeline begins anew, and the steps follow each other.
type Test struct {
	Name  string
	Line  int
	Steps []Step
}

// StepKind is what a step of a test does.
type StepKind string

// The kinds of steps, by the words of the file.
const (
	StepInsert    StepKind = "insert"    // rows come to Table
	StepWatermark StepKind = "watermark" // of Table goes to Text, on all partitions
	StepTime      StepKind = "time"      // processing time goes on
	StepRestart   StepKind = "restart"   // all memory is lost
	StepEnd       StepKind = "end"       // of all inputs
	StepExpect    StepKind = "expect"    // rows of Table
	StepFinal     StepKind = "expect final"
	StepError     StepKind = "expect error"
	StepLate      StepKind = "expect late"
)

// Step is one step.
type Step struct {
	Kind  StepKind
	Line  int
	Table string
	// Text is the argument: a time, or part of a message.
	Text string
	Rows []TestRow
	// From and To are the lines of the rows in the file, from 0, To not included.
	From, To int
}

// TestRow is a line with a row.
type TestRow struct {
	Line int
	Kind row.RowKind
	JSON string
}

// ReadTests reads a file of tests.
func ReadTests(path string) (*TestFile, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseTests(path, string(b))
}

var testWords = []string{"pipeline", "set", "env", "test", "insert", "watermark", "time", "restart", "end", "expect"}

// ParseTests reads the text of a file of tests. The error names file and line.
func ParseTests(path, text string) (*TestFile, error) {
	f := &TestFile{Path: path, Pipeline: strings.TrimSuffix(path, filepath.Ext(path)) + ".sql", Set: map[string]string{}, Env: map[string]string{},
		lines: strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")}
	var step *Step // that takes rows
	for i, line := range f.lines {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", path, i+1, fmt.Sprintf(format, args...))
		}
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			if step == nil {
				return nil, fail("a row, which is indented, stands behind no insert and no expect")
			}
			r, err := parseTestRow(trimmed)
			if err != nil {
				return nil, fail("%s", err)
			}
			r.Line = i + 1
			if len(step.Rows) == 0 {
				step.From = i
			}
			step.Rows, step.To = append(step.Rows, r), i+1
			continue
		}
		step = nil
		word, rest, _ := strings.Cut(trimmed, " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "pipeline", "set", "env":
			if len(f.Tests) > 0 {
				return nil, fail("%s stands behind a test; it holds for all tests, so write it at the top", word)
			}
			if word == "pipeline" {
				f.Pipeline = filepath.Join(filepath.Dir(path), rest)
				continue
			}
			k, v, ok := strings.Cut(rest, "=")
			if !ok {
				return nil, fail("%s needs a name and a value: %s NAME = VALUE", word, word)
			}
			m := f.Set
			if word == "env" {
				m = f.Env
			}
			m[strings.TrimSpace(k)] = strings.TrimSpace(v)
			continue
		case "test":
			if rest == "" {
				return nil, fail("a test needs a name: test late rows are dropped")
			}
			if slices.ContainsFunc(f.Tests, func(t Test) bool { return t.Name == rest }) {
				return nil, fail("there are two tests with the name %q", rest)
			}
			f.Tests = append(f.Tests, Test{Name: rest, Line: i + 1})
			continue
		}
		if !slices.Contains(testWords, word) {
			hint := "a line begins with one of " + strings.Join(testWords, ", ") + ", rows are indented"
			if n, ok := near.Word(word, testWords); ok {
				hint = fmt.Sprintf("did you mean %s?", n)
			}
			return nil, fail("%q is unknown; %s", word, hint)
		}
		if len(f.Tests) == 0 {
			return nil, fail("%s stands in no test; begin one: test NAME", word)
		}
		t := &f.Tests[len(f.Tests)-1]
		s, err := parseStep(word, rest)
		if err != nil {
			return nil, fail("%s", err)
		}
		s.Line, s.From, s.To = i+1, i+1, i+1
		t.Steps = append(t.Steps, s)
		if s.Kind == StepInsert || s.Kind == StepExpect || s.Kind == StepFinal {
			step = &t.Steps[len(t.Steps)-1]
		}
	}
	if len(f.Tests) == 0 {
		return nil, fmt.Errorf("%s: it has no test; begin one: test NAME", path)
	}
	return f, nil
}

func parseStep(word, rest string) (Step, error) {
	s := Step{Kind: StepKind(word), Text: rest}
	fields := strings.Fields(rest)
	wants := func(n int, usage string) error {
		if len(fields) != n {
			return fmt.Errorf("write it as: %s", usage)
		}
		return nil
	}
	switch s.Kind {
	case StepInsert:
		s.Table = rest
		return s, wants(1, "insert TABLE, and the rows below, indented")
	case StepWatermark:
		table, at, ok := strings.Cut(rest, " ")
		if !ok {
			return s, wants(-1, "watermark TABLE 2024-05-01 12:00:00")
		}
		s.Table, s.Text = table, strings.TrimSpace(at)
	case StepTime:
		if rest == "" {
			return s, wants(-1, "time +1 min, or time 2024-05-01 12:00:00")
		}
	case StepRestart, StepEnd:
		return s, wants(0, word)
	case StepExpect:
		switch {
		case len(fields) > 1 && fields[0] == "error":
			s.Kind, s.Text = StepError, strings.TrimSpace(strings.TrimPrefix(rest, "error"))
		case len(fields) == 2 && fields[0] == "late":
			s.Kind, s.Text = StepLate, fields[1]
		case len(fields) == 2 && fields[1] == "final":
			s.Kind, s.Table = StepFinal, fields[0]
		default:
			s.Table = rest
			return s, wants(1, "expect TABLE, expect TABLE final, expect late N, or expect error TEXT")
		}
	}
	return s, nil
}

func parseTestRow(t string) (TestRow, error) {
	r := TestRow{Kind: row.Insert}
	if k, rest, ok := strings.Cut(t, " "); ok && len(k) == 2 {
		if kind, ok := row.ParseRowKind(k); ok {
			r.Kind, t = kind, strings.TrimSpace(rest)
		}
	}
	r.JSON = t
	if !strings.HasPrefix(t, "{") {
		return r, fmt.Errorf("a row is a JSON object, perhaps with +I, -U, +U or -D before it: {\"id\": 1}, not %s", t)
	}
	if _, err := parseObject([]byte(t)); err != nil {
		return r, fmt.Errorf("a row is a JSON object: %w", err)
	}
	return r, nil
}

// FindTests lists the files of tests: paths that are files, and those that end with .test below paths that are folders,
// in the order of their names.
func FindTests(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !st.IsDir() {
			out = append(out, p)
			continue
		}
		found, err := find(p, ".test")
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return slices.Compact(out), nil
}
