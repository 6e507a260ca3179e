package bind

import (
	"errors"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
)

// testSession is a session with functions that only tests have: a table function, a scalar one and an aggregate of the user.
func testSession() *Session {
	s := NewSession()
	s.Functions["words"] = &fn.Func{Name: "WORDS", Kind: fn.Table, Resolve: resolver(1, 1, func([]fn.Arg) *row.Type {
		return row.RowOf(row.Field{Name: "word", Type: row.String()}, row.Field{Name: "length", Type: row.Int()})
	})}
	s.Functions["twice"] = &fn.Func{Name: "TWICE", Resolve: resolver(1, 1, func(a []fn.Arg) *row.Type { return a[0].Type })}
	s.Functions["product"] = &fn.Func{Name: "PRODUCT", Kind: fn.Aggregate, Agg: &fn.Agg{}, Resolve: resolver(1, 1, func([]fn.Arg) *row.Type {
		return row.Double()
	})}
	return s
}

func resolver(least, most int, t func([]fn.Arg) *row.Type) func([]fn.Arg) (fn.Resolved, error) {
	return func(a []fn.Arg) (fn.Resolved, error) {
		if len(a) < least || len(a) > most {
			return fn.Resolved{}, errors.New("wrong number of arguments")
		}
		types := make([]*row.Type, len(a))
		for i := range a {
			types[i] = a[i].Type
		}
		return fn.Resolved{Args: types, Result: t(a)}, nil
	}
}
