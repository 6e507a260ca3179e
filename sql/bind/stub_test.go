package bind

import (
	"errors"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
)

// testSession is a session with functions that only tests have: a table function, a scalar and an aggregate of the user, and
// simple forms of built-in aggregates that the table of functions lacks.
func testSession() *Session {
	s := NewSession()
	s.Functions["words"] = &fn.Func{Name: "WORDS", Kind: fn.Table, Resolve: resolver(1, 1, func(a []fn.Arg) *row.Type {
		return row.RowOf(row.Field{Name: "word", Type: row.String()}, row.Field{Name: "length", Type: row.Int()})
	})}
	s.Functions["twice"] = &fn.Func{Name: "TWICE", Resolve: resolver(1, 1, func(a []fn.Arg) *row.Type { return a[0].Type })}
	s.Functions["product"] = &fn.Func{Name: "PRODUCT", Kind: fn.Aggregate, Agg: &fn.Agg{}, Resolve: resolver(1, 1, func(a []fn.Arg) *row.Type {
		return row.Double()
	})}
	same := func(a []fn.Arg) *row.Type { return a[0].Type.Nullable(true) }
	long := func([]fn.Arg) *row.Type { return row.BigInt().NotNull() }
	agg := func(name string, least, most int, t func([]fn.Arg) *row.Type) {
		if _, ok := fn.Lookup(name); ok {
			return
		}
		f := &fn.Func{Name: name, Kind: fn.Aggregate, Agg: &fn.Agg{}, Resolve: resolver(least, most, t)}
		switch name {
		case "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD":
			f.Agg.OverOnly = true
		}
		s.Store.PutFunction(catalog.Path{}, name, &catalog.Function{Path: catalog.Path{Name: name}, Func: f})
	}
	agg("COUNT", 0, 9, long)
	agg("GROUPING", 1, 1, long)
	agg("GROUPING_ID", 1, 9, long)
	agg("ROW_NUMBER", 0, 0, long)
	agg("RANK", 0, 0, long)
	agg("DENSE_RANK", 0, 0, long)
	for _, n := range []string{"MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV"} {
		agg(n, 1, 1, func(a []fn.Arg) *row.Type {
			if a[0].Type.Kind() == row.KindDecimal && n != "MIN" && n != "MAX" {
				return row.Decimal(38, 6)
			}
			return same(a)
		})
	}
	agg("SUM", 1, 1, func(a []fn.Arg) *row.Type {
		if a[0].Type.Kind() == row.KindDecimal {
			return row.Decimal(38, a[0].Type.Scale())
		}
		return same(a)
	})
	agg("AVG", 1, 1, func(a []fn.Arg) *row.Type {
		if a[0].Type.Kind() == row.KindDecimal {
			return row.Decimal(38, max(6, a[0].Type.Scale()))
		}
		return same(a)
	})
	agg("LISTAGG", 1, 2, func([]fn.Arg) *row.Type { return row.String() })
	agg("COLLECT", 1, 1, func(a []fn.Arg) *row.Type { return row.Multiset(a[0].Type).NotNull() })
	agg("ARRAY_AGG", 1, 1, func(a []fn.Arg) *row.Type { return row.Array(a[0].Type) })
	agg("LAG", 1, 3, func(a []fn.Arg) *row.Type {
		return a[0].Type.Nullable(len(a) < 3 || a[2].Type.IsNullable())
	})
	agg("LEAD", 1, 3, same)
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
