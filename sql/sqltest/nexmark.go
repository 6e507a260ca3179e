package sqltest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Nexmark makes the cases of the auction benchmark: the folder has events.jsonl.gz, side_input.jsonl, golden/ and
// queries/, with the tables in queries/tables.sql.
func Nexmark(dir string) ([]*Case, error) {
	ddl, err := os.ReadFile(filepath.Join(dir, "queries", "tables.sql"))
	if err != nil {
		return nil, err
	}
	var input []Line
	for _, in := range []struct{ file, table string }{{"side_input.jsonl", "side_input"}, {"events.jsonl.gz", "events"}} {
		b, err := ReadFile(filepath.Join(dir, in.file))
		if err != nil {
			return nil, err
		}
		for t := range bytes.Lines(b) {
			input = append(input, Line{Number: len(input) + 1, Table: in.table, Partition: -1, Text: strings.TrimSpace(string(t))})
		}
	}
	goldens, err := os.ReadDir(filepath.Join(dir, "golden"))
	if err != nil {
		return nil, err
	}
	var cases []*Case
	for _, g := range goldens {
		name := strings.TrimSuffix(strings.TrimSuffix(g.Name(), ".gz"), ".txt")
		c, err := Load(filepath.Join(dir, "golden", g.Name()))
		if err != nil {
			return nil, err
		}
		q, err := os.ReadFile(filepath.Join(dir, "queries", name+".sql"))
		if err != nil {
			return nil, fmt.Errorf("golden %s has no query: %w", name, err)
		}
		c.Name, c.DDL, c.Query, c.Lines = name, string(ddl), string(q), input
		cases = append(cases, c)
	}
	return cases, nil
}

// CheckQuery is Check for a case whose rows are judged late one after the other, whatever the mode: one partition, and the
// watermark follows each row.
func CheckQuery(c *Case, o RunOptions) string {
	return compare(c, Run(c, o), o.Mode)
}
