// Package sqltest runs queries deterministically: case files with input lines and what must come out, on the runtime of
// subtasks, without broker and clock. test/oracle/README.md describes the files.
package sqltest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/row"
)

// Case is a case file.
type Case struct {
	Path, Name string
	// Set has the settings of Flink, Own those of the runner ("oracle.end-of-input").
	Set, Own map[string]string
	DDL      string
	Lines    []Line
	Query    string
	Exprs    []string
	Expect   Expect
}

// Line is a line of input.
type Line struct {
	Number    int // from 1 through the file
	Table     string
	Partition int // -1 = none was named
	Kind      row.RowKind
	// Control is "", "idle", "active" or "watermark"; then Text is the time.
	Control string
	Text    string
}

// Expect is what must come out; nil = not said.
type Expect struct {
	Schema    []Column
	Changelog []Change
	Final     []string
	HasFinal  bool
	HasLog    bool
	Error     string // parse, validate, plan, runtime
	Exprs     []ExprResult
}

// Column is a column of a schema: its name and its type as text.
type Column struct{ Name, Type string }

// End is the number of what the end of the input sets free.
const End = -1

// Change is a row of a changelog. Number is that of the line that caused it, or End.
type Change struct {
	Number int
	Kind   row.RowKind
	Row    string
	values []row.Value
}

func (c Change) String() string {
	if c.Number == End {
		return fmt.Sprintf("end %s %s", c.Kind, c.Row)
	}
	return fmt.Sprintf("%d %s %s", c.Number, c.Kind, c.Row)
}

// Key is a text that is the same for changes with the same values in columns. The change must have come out of a run.
func (c Change) Key(columns []int) string {
	var b strings.Builder
	for _, i := range columns {
		fmt.Fprintf(&b, "%v|", c.values[i])
	}
	return b.String()
}

// ExprResult is the expectation of an expression.
type ExprResult struct {
	Expr, Type, Values string
	Error              string
}

// Load reads a case file, or a golden of the auction benchmark; a file that ends with .gz is unpacked.
func Load(path string) (*Case, error) {
	b, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := Parse(withoutFlaws(path, b))
	if err != nil {
		return nil, fmt.Errorf("read case %s: %w", path, err)
	}
	c.Path = path
	if c.Name == "" {
		c.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return c, nil
}

// ReadFile reads a file; one that ends with .gz is unpacked.
func ReadFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(path, ".gz") {
		return b, err
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", path, err)
	}
	return io.ReadAll(r)
}

// sections are the words that may stand behind "-- ".
var sections = []string{"name:", "desc:", "set", "ddl", "input", "query", "exprs", "expect"}

// Parse reads the text of a case.
func Parse(text []byte) (*Case, error) {
	c := &Case{Set: map[string]string{}, Own: map[string]string{}}
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 1<<24)
	section, arg, number := "", "", 0
	table, partition := "", -1
	for line := 1; s.Scan(); line++ {
		t := s.Text()
		if word, ok := strings.CutPrefix(t, "-- "); ok {
			f := strings.Fields(word)
			if len(f) > 0 && slices.Contains(sections, f[0]) {
				section, arg = f[0], strings.TrimSpace(word[len(f[0]):])
				switch section {
				case "name:":
					c.Name = arg
				case "input":
					table, partition = f[1], -1
					for _, o := range f[2:] {
						if p, ok := strings.CutPrefix(o, "partition="); ok {
							n, err := strconv.Atoi(p)
							if err != nil {
								return nil, fmt.Errorf("line %d: %w", line, err)
							}
							partition = n
						}
					}
				case "expect":
					c.Expect.HasFinal = c.Expect.HasFinal || arg == "final"
					c.Expect.HasLog = c.Expect.HasLog || arg == "changelog"
				}
				continue
			}
		}
		var err error
		switch section {
		case "set":
			if k, v, ok := strings.Cut(t, "="); ok {
				k, v = strings.TrimSpace(k), strings.TrimSpace(v)
				if own, ok := strings.CutPrefix(k, "oracle."); ok {
					c.Own[own] = v
				} else {
					c.Set[k] = v
				}
			}
		case "ddl":
			c.DDL += t + "\n"
		case "query":
			c.Query += t + "\n"
		case "exprs":
			if strings.TrimSpace(t) != "" {
				c.Exprs = append(c.Exprs, t)
			}
		case "input":
			if strings.TrimSpace(t) == "" {
				continue
			}
			number++
			var l Line
			if l, err = parseLine(t); err == nil {
				l.Number, l.Table = number, table
				if l.Partition < 0 {
					l.Partition = partition
				}
				c.Lines = append(c.Lines, l)
			}
		case "expect":
			err = c.Expect.parse(arg, t)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	return c, s.Err()
}

func parseLine(t string) (Line, error) {
	l := Line{Partition: -1}
	if rest, ok := strings.CutPrefix(t, "@"); ok {
		p, after, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(p)
		if err != nil {
			return l, fmt.Errorf("partition: %w", err)
		}
		l.Partition, t = n, after
	}
	if rest, ok := strings.CutPrefix(t, "!"); ok {
		l.Control, l.Text, _ = strings.Cut(rest, " ")
		switch l.Control {
		case "idle", "active", "watermark":
			return l, nil
		}
		return l, fmt.Errorf("unknown control line !%s", rest)
	}
	if len(t) > 3 && t[2] == ' ' {
		if k, ok := row.ParseRowKind(t[:2]); ok {
			l.Kind, t = k, t[3:]
		}
	}
	l.Text = t
	return l, nil
}

func (e *Expect) parse(what, t string) error {
	if strings.TrimSpace(t) == "" || strings.HasPrefix(strings.TrimSpace(t), "# ") {
		return nil
	}
	switch what {
	case "schema":
		name, typ, ok := cutName(t)
		if !ok {
			return fmt.Errorf("no column: %s", t)
		}
		e.Schema = append(e.Schema, Column{name, typ})
	case "final":
		e.Final = append(e.Final, t)
	case "changelog":
		c, err := parseChange(t)
		if err != nil {
			return err
		}
		e.Changelog = append(e.Changelog, c)
	case "error":
		if e.Error == "" {
			e.Error = strings.TrimSpace(t)
		}
	case "exprs":
		parts := strings.Split(t, " ==> ")
		r := ExprResult{Expr: parts[0]}
		last := parts[len(parts)-1]
		if kind, ok := strings.CutPrefix(last, "error "); ok {
			r.Error, _, _ = strings.Cut(kind, " ")
		} else if len(parts) == 3 {
			r.Type, r.Values = parts[1], last
		} else {
			return fmt.Errorf("no expectation: %s", t)
		}
		e.Exprs = append(e.Exprs, r)
	}
	return nil
}

// cutName takes the name of a column, perhaps in back-quotes, from its type. A name may hold spaces only in back-quotes.
func cutName(t string) (name, typ string, ok bool) {
	if strings.HasPrefix(t, "`") {
		if end := strings.Index(t[1:], "` "); end >= 0 {
			return t[1 : 1+end], t[end+3:], true
		}
	}
	return strings.Cut(t, " ")
}

func parseChange(t string) (Change, error) {
	f := strings.SplitN(t, " ", 3)
	if len(f) != 3 {
		return Change{}, fmt.Errorf("no change: %s", t)
	}
	c := Change{Row: f[2], Number: End}
	if f[0] != "end" {
		n, err := strconv.Atoi(f[0])
		if err != nil {
			return c, fmt.Errorf("no change: %s", t)
		}
		c.Number = n
	}
	var ok bool
	if c.Kind, ok = row.ParseRowKind(f[1]); !ok {
		return c, fmt.Errorf("no change: %s", t)
	}
	return c, nil
}
