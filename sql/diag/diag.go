// Package diag holds what every phase of SQL says about a text: errors and warnings with a code, a place, a caret under
// the source and what to do, as text for people and as JSON for programs.
//
// Codes: E1xxx the text cannot be read, E2xxx it means nothing (unknown name, wrong type), E3xxx it cannot be planned,
// E4xxx it failed while running, W.. a warning.
package diag

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/sql/ast"
)

// Source is a text with a name, and the table of its lines. It is safe for use by several goroutines.
type Source struct {
	// Name is shown in front of positions, usually that of a file.
	Name string
	// Text is the source as it was read, with ${NAME} not expanded, so no value of the environment can be shown.
	Text  string
	lines []int // where each line starts
}

// NewSource makes the table of lines. Lines end with \n, \r\n or \r.
func NewSource(name, text string) *Source {
	s := &Source{Name: name, Text: text, lines: []int{0}}
	for i := 0; i < len(text); i++ {
		if text[i] == '\n' || text[i] == '\r' && (i+1 == len(text) || text[i+1] != '\n') {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// Position is the line and the column of a byte offset, both from 1; columns count code points. Offsets out of range
// are taken to the nearest one.
func (s *Source) Position(offset int) (line, column int) {
	offset = min(max(offset, 0), len(s.Text))
	line = sort.SearchInts(s.lines, offset+1)
	return line, utf8.RuneCountInString(s.Text[s.lines[line-1]:offset]) + 1
}

// Line is the text of a line from 1, without its end.
func (s *Source) Line(line int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	end := len(s.Text)
	if line < len(s.lines) {
		end = s.lines[line]
	}
	return strings.TrimRight(s.Text[s.lines[line-1]:end], "\r\n")
}

// Error is one thing said about a text. It is an error or a warning by its code.
type Error struct {
	// Code is E2103 or W12; never empty.
	Code string
	// Source is nil if the thing has no place in a text.
	Source *Source
	// Span is the part of the source the caret stands under.
	Span ast.Span
	// Message says what is wrong: `column "pric" not found`.
	Message string
	// Hint stands beside the caret: `did you mean "price"?`. May be empty.
	Hint string
	// Notes stand below, a line each: the rule behind it, what to do. May be empty.
	Notes []string
}

// New is an error with a place.
func New(src *Source, span ast.Span, code, format string, args ...any) *Error {
	return &Error{Code: code, Source: src, Span: span, Message: fmt.Sprintf(format, args...)}
}

// WithHint sets the hint beside the caret.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithNote adds a line below.
func (e *Error) WithNote(format string, args ...any) *Error {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
	return e
}

// Warning tells whether this is no error.
func (e *Error) Warning() bool { return strings.HasPrefix(e.Code, "W") }

// severity is the word in front of the code.
func (e *Error) severity() string {
	if e.Warning() {
		return "warning"
	}
	return "error"
}

// Error is the message in one line, with position, hint and notes.
func (e *Error) Error() string {
	var b strings.Builder
	e.head(&b)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	for _, note := range e.Notes {
		b.WriteString("; " + note)
	}
	return b.String()
}

func (e *Error) head(b *strings.Builder) {
	if e.Source != nil {
		line, col := e.Source.Position(e.Span.Start)
		fmt.Fprintf(b, "%s:%d:%d: ", e.Source.Name, line, col)
	}
	fmt.Fprintf(b, "%s %s: %s", e.severity(), e.Code, e.Message)
}

// widest is the longest part of a source line that a message shows, in code points.
const widest = 160

// Text is the message for people, several lines with the source and a caret, each ended by a newline.
func (e *Error) Text() string {
	var b strings.Builder
	e.head(&b)
	b.WriteByte('\n')
	if e.Source != nil {
		e.excerpt(&b)
	} else if e.Hint != "" {
		b.WriteString("  = " + e.Hint + "\n")
	}
	for _, note := range e.Notes {
		b.WriteString("  = " + note + "\n")
	}
	return b.String()
}

// excerpt writes the first source line of the span and the caret under it.
func (e *Error) excerpt(b *strings.Builder) {
	line, col := e.Source.Position(e.Span.Start)
	runes := []rune(e.Source.Line(line))
	at := min(col-1, len(runes))
	length := 1
	if end := min(e.Span.End, len(e.Source.Text)); end > e.Span.Start && e.Span.Start >= 0 {
		length = utf8.RuneCountInString(e.Source.Text[e.Span.Start:end])
	}
	length = max(1, min(length, len(runes)-at))
	from := 0
	if at > widest/2 && len(runes) > widest {
		from = min(at-widest/2, len(runes)-widest)
	}
	to := min(len(runes), from+widest)
	length = max(1, min(length, to-at))
	number := fmt.Sprintf("%4d", line)
	var text, under strings.Builder
	if from > 0 {
		text.WriteString("..")
		under.WriteString("  ")
	}
	for i := from; i < to; i++ {
		r := runes[i]
		switch {
		case r == '\t': // kept, also under the line, so that both move alike
		case r < ' ' || r == 0x7f || r == utf8.RuneError:
			r = '?'
		}
		text.WriteRune(r)
		if i < at {
			if r != '\t' {
				r = ' '
			}
			under.WriteRune(r)
		}
	}
	if to < len(runes) {
		text.WriteString("..")
	}
	fmt.Fprintf(b, "%s | %s\n", number, text.String())
	fmt.Fprintf(b, "%s | %s%s", strings.Repeat(" ", len(number)), under.String(), strings.Repeat("^", length))
	if e.Hint != "" {
		b.WriteString(" " + e.Hint)
	}
	b.WriteByte('\n')
}

// MarshalJSON writes {"code","severity","file","line","column","endLine","endColumn","message","hint","notes"}, with the
// place only if there is one.
func (e *Error) MarshalJSON() ([]byte, error) {
	out := struct {
		Code      string   `json:"code"`
		Severity  string   `json:"severity"`
		File      string   `json:"file,omitempty"`
		Line      int      `json:"line,omitempty"`
		Column    int      `json:"column,omitempty"`
		EndLine   int      `json:"endLine,omitempty"`
		EndColumn int      `json:"endColumn,omitempty"`
		Message   string   `json:"message"`
		Hint      string   `json:"hint,omitempty"`
		Notes     []string `json:"notes,omitempty"`
	}{Code: e.Code, Severity: e.severity(), Message: e.Message, Hint: e.Hint, Notes: e.Notes}
	if e.Source != nil {
		out.File = e.Source.Name
		out.Line, out.Column = e.Source.Position(e.Span.Start)
		out.EndLine, out.EndColumn = e.Source.Position(max(e.Span.Start, e.Span.End))
	}
	return json.Marshal(out)
}

// Limit is the number of errors that a List shows.
const Limit = 10

// List is what one run of a phase has to say. The zero value is empty and ready.
type List []*Error //nolint:recvcheck // Add appends, the others look

// Add appends one.
func (l *List) Add(e *Error) { *l = append(*l, e) }

// Err is nil if the list has no errors (warnings are none), else the list.
func (l List) Err() error {
	if slices.ContainsFunc(l, func(e *Error) bool { return !e.Warning() }) {
		return l
	}
	return nil
}

// Sort orders by source name and position and takes out doubles (same place, same message), so that what is shown does
// not depend on the order of finding.
func (l *List) Sort() {
	slices.SortStableFunc(*l, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.file(), b.file()), cmp.Compare(a.Span.Start, b.Span.Start),
			cmp.Compare(a.Span.End, b.Span.End), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	*l = slices.CompactFunc(*l, func(a, b *Error) bool {
		return a.file() == b.file() && a.Span == b.Span && a.Code == b.Code && a.Message == b.Message
	})
}

func (e *Error) file() string {
	if e.Source == nil {
		return ""
	}
	return e.Source.Name
}

// Error is one line per message.
func (l List) Error() string {
	var b strings.Builder
	for i, e := range l.shown() {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
	}
	if more := len(l) - Limit; more > 0 {
		fmt.Fprintf(&b, "\nand %d more", more)
	}
	return b.String()
}

// Text is all messages for people, at most Limit of them.
func (l List) Text() string {
	var b strings.Builder
	for _, e := range l.shown() {
		b.WriteString(e.Text())
	}
	if more := len(l) - Limit; more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}

func (l List) shown() List { return l[:min(len(l), Limit)] }
