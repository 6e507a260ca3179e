package sql_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/sqltest"
)

// longest is the state of the aggregate LONGEST: exported fields are kept.
type longest struct{ Words []string }

// word is a row of the table function WORDS: its fields are the columns.
type word struct {
	Word string `sql:"word"`
	Size int32  `sql:"size"`
}

// userFunctions is what a program gives as sql.Options.Functions, by the identifiers that CREATE FUNCTION names.
func userFunctions() (map[string]*fn.Func, error) {
	mask := fn.Scalar2("MASK", func(_ *fn.Env, text string, keep int32) (string, error) {
		if keep < 0 {
			return "", errors.New("keep is negative")
		}
		if int(keep) >= len(text) {
			return "", fn.ErrNull // NULL
		}
		return text[:keep] + strings.Repeat("*", len(text)-int(keep)), nil
	})
	mask.Purity = fn.Pure
	words, err := fn.Table1("WORDS", func(_ *fn.Env, text string, emit func(word) error) error {
		for _, w := range strings.Fields(text) {
			if err := emit(word{w, int32(len(w))}); err != nil { //nolint:gosec // a word is short
				return err
			}
		}
		return nil
	})
	return map[string]*fn.Func{
		"shop.Mask":  mask,
		"shop.Words": words,
		"shop.Longest": fn.Aggregate1("LONGEST",
			func(s *longest, w string) error { s.Words = append(s.Words, w); return nil },
			nil, nil, // rows that are withdrawn make it count the others anew
			func(s longest) (string, error) {
				best := ""
				for _, w := range s.Words {
					if len(w) > len(best) {
						best = w
					}
				}
				return best, nil
			}),
	}, err
}

// Functions in Go are called by the names that CREATE FUNCTION gives them.
func Example_functions() {
	functions, err := userFunctions()
	if err != nil {
		fmt.Println(err)
		return
	}
	// A case has tables, rows and a query, and runs without a broker.
	c, err := sqltest.Parse([]byte(`
-- ddl
CREATE TABLE notes (id INT, text STRING);
CREATE FUNCTION mask AS 'shop.Mask' LANGUAGE GO;
CREATE TEMPORARY FUNCTION words AS 'shop.Words';
CREATE TEMPORARY SYSTEM FUNCTION longest AS 'shop.Longest';
-- input notes
{"id":1,"text":"a wide river"}
{"id":2,"text":""}
-- query
SELECT id, LONGEST(word), MASK(LONGEST(word), 2), SUM(size)
FROM notes LEFT JOIN LATERAL TABLE(words(text)) ON TRUE GROUP BY id
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	out := sqltest.Run(c, sqltest.RunOptions{Mode: sqltest.Batch, Functions: functions})
	if out.Err != nil {
		fmt.Println(out.Err)
	}
	for _, change := range out.Changes {
		fmt.Println(change.Kind, change.Row)
	}
	// Output:
	// +I [1, "a", null, 1]
	// -U [1, "a", null, 1]
	// +U [1, "wide", "wi**", 5]
	// -U [1, "wide", "wi**", 5]
	// +U [1, "river", "ri***", 10]
	// +I [2, "", null, null]
}
