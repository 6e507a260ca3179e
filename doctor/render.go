package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes the report as one indented JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the report for people: a line for each check, what to do below it, and a verdict.
func (r Report) WriteText(w io.Writer) error {
	var sb strings.Builder
	wide := 0
	counts := make(map[Status]int)
	for _, c := range r.Checks {
		wide = max(wide, len(c.Name))
		counts[c.Status]++
	}
	for _, c := range r.Checks {
		fmt.Fprintf(&sb, "%-7s  %-*s  %s\n", c.Status, wide, c.Name, c.Found)
		for _, d := range c.Do {
			fmt.Fprintf(&sb, "%-7s  %-*s  -> %s\n", "", wide, "", d)
		}
	}
	fmt.Fprintf(&sb, "\n%d ok, %d warn, %d fail, %d skipped\n", counts[OK], counts[Warn], counts[Fail], counts[Skipped])
	_, err := io.WriteString(w, sb.String())
	return err
}
