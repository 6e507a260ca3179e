package shell

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
)

// result is the table that a changelog adds up to. Rows stay in the order in which they came; a row that replaces another
// takes its place.
type result struct {
	max     int
	rows    []*entry // nil: a row that is gone
	live    int
	byKey   map[string][]*entry // by the row's packed bytes, oldest first
	replace []int               // places of rows that were taken back by -U, oldest first
	changes int64
	dropped int64 // oldest rows that were left out for max
}

type entry struct {
	place int
	key   string
	cells []string
}

func newResult(limit int) *result { return &result{max: limit, byKey: map[string][]*entry{}} }

// apply applies a change: key are the row's packed bytes, cells its texts.
func (r *result) apply(kind row.RowKind, key string, cells []string) {
	r.changes++
	switch kind {
	case row.Insert, row.UpdateAfter:
		e := &entry{key: key, cells: cells}
		if kind == row.UpdateAfter && len(r.replace) > 0 {
			e.place = r.replace[0]
			r.replace = r.replace[1:]
			r.rows[e.place] = e
		} else {
			e.place = len(r.rows)
			r.rows = append(r.rows, e)
		}
		r.byKey[key] = append(r.byKey[key], e)
		r.live++
		if r.live > r.max {
			r.dropOldest()
		}
	default:
		e := r.take(key)
		if e == nil {
			return // it was left out
		}
		r.rows[e.place] = nil
		r.live--
		if kind == row.UpdateBefore {
			r.replace = append(r.replace, e.place)
		}
	}
	if len(r.rows) > 64 && len(r.rows) > 2*r.live && len(r.replace) == 0 {
		r.compact()
	}
}

// take takes an entry of a key out of byKey.
func (r *result) take(key string) *entry {
	list := r.byKey[key]
	if len(list) == 0 {
		return nil
	}
	e := list[0]
	if len(list) == 1 {
		delete(r.byKey, key)
	} else {
		r.byKey[key] = list[1:]
	}
	return e
}

func (r *result) dropOldest() {
	for i, e := range r.rows {
		if e == nil {
			continue
		}
		list := r.byKey[e.key]
		list = slices.DeleteFunc(slices.Clone(list), func(x *entry) bool { return x == e })
		if len(list) == 0 {
			delete(r.byKey, e.key)
		} else {
			r.byKey[e.key] = list
		}
		r.rows[i] = nil
		r.live--
		r.dropped++
		return
	}
}

func (r *result) compact() {
	r.rows = slices.DeleteFunc(r.rows, func(e *entry) bool { return e == nil })
	for i, e := range r.rows {
		e.place = i
	}
}

// table are the cells of all rows.
func (r *result) table() [][]string {
	out := make([][]string, 0, r.live)
	for _, e := range r.rows {
		if e != nil {
			out = append(out, e.cells)
		}
	}
	return out
}
