// Package cells has what binary formats share: a value between a message and a row.
package cells

import "github.com/millrace-stream/millrace/row"

// Cell is a value of a type: words as in a [row.Row], or a view.
type Cell struct {
	X, Y uint64
	B    []byte
	Null bool
}

// Store puts the cell into column i of r.
func Store(l *row.Layout, r *row.Row, i int, c *Cell) {
	if c.Null {
		r.SetNull(i)
		return
	}
	r.ClearNull(i)
	switch p := l.Place(i); p.Words {
	case 0:
		r.SetBytes(p.Index, c.B)
	case 1:
		r.W[p.Index] = c.X
	default:
		r.W[p.Index], r.W[p.Index+1] = c.X, c.Y
	}
}

// Load gets column i of r.
func Load(l *row.Layout, r *row.Row, i int) Cell {
	if r.Null(i) {
		return Cell{Null: true}
	}
	switch p := l.Place(i); p.Words {
	case 0:
		return Cell{B: r.S[p.Index]}
	case 1:
		return Cell{X: r.W[p.Index]}
	default:
		return Cell{X: r.W[p.Index], Y: r.W[p.Index+1]}
	}
}

// AddElem adds the cell to an ARRAY whose elements are views or are not.
func AddElem(a *row.ArrayBuilder, view bool, c *Cell) {
	switch {
	case c.Null:
		a.AddNull()
	case view:
		a.AddBytes(c.B)
	default:
		a.AddWords(c.X, c.Y)
	}
}

// AddField adds the cell to a ROW as its next field, which is a view or is not.
func AddField(r *row.RowBuilder, view bool, c *Cell) {
	switch {
	case c.Null:
		r.AddNull()
	case view:
		r.AddBytes(c.B)
	default:
		r.AddWords(c.X, c.Y)
	}
}

// Elem gets element i of an ARRAY whose elements are views or are not.
func Elem(v row.ArrayView, view bool, i int) Cell {
	switch {
	case v.Null(i):
		return Cell{Null: true}
	case view:
		return Cell{B: v.Bytes(i)}
	}
	x, y := v.Words(i)
	return Cell{X: x, Y: y}
}

// Field gets field i of a ROW, which is a view or is not.
func Field(v row.RowView, view bool, i int) Cell {
	switch {
	case v.Null(i):
		return Cell{Null: true}
	case view:
		return Cell{B: v.Bytes(i)}
	}
	x, y := v.Words(i)
	return Cell{X: x, Y: y}
}

// View says whether values of a type are views.
func View(t *row.Type) bool { return t.Kind().Text() || t.Kind().Bytes() || t.Kind().Nested() }
