package row

import (
	"math"
	"slices"
)

// RowKind says what a row of a changelog does.
type RowKind uint8 //nolint:revive // the name that Flink gives it

// The kinds of rows, in Flink's words. Their numbers are part of the packed form.
const (
	Insert       RowKind = iota // +I
	UpdateBefore                // -U
	UpdateAfter                 // +U
	Delete                      // -D
)

// String is +I, -U, +U or -D.
func (k RowKind) String() string { return [...]string{"+I", "-U", "+U", "-D"}[k&3] }

// Adds says whether the row adds one (+I, +U) and does not take one away (-U, -D).
func (k RowKind) Adds() bool { return k == Insert || k == UpdateAfter }

// ParseRowKind reads +I, -U, +U or -D.
func ParseRowKind(s string) (RowKind, bool) {
	switch s {
	case "+I":
		return Insert, true
	case "-U":
		return UpdateBefore, true
	case "+U":
		return UpdateAfter, true
	case "-D":
		return Delete, true
	}
	return 0, false
}

// Row is a row in flight. [Layout.New] makes one; a Layout says where each column lies in W and S. A row and all that it
// points to is valid for the call it is handed to.
type Row struct {
	// Kind is what the row does to the table.
	Kind RowKind
	// Time is the event time in ms since 1970-01-01.
	Time int64

	nulls uint64
	more  []uint64 // null bits of the columns from 64 on

	// W has the words, see the package comment.
	W []uint64
	// S has text, bytes and packed nested values.
	S [][]byte
	// Plain has bit i set if S[i] is known to need no escaping inside a JSON string, for i < 64. It is a hint: who sets
	// S[i] may leave the bit off, and must clear it if the text may need escaping.
	Plain uint64
}

// Null says whether column i is NULL.
func (r *Row) Null(i int) bool {
	if i < 64 {
		return r.nulls>>(uint(i)&63)&1 != 0
	}
	return r.more[i>>6-1]>>(uint(i)&63)&1 != 0
}

// SetNull makes column i NULL.
func (r *Row) SetNull(i int) {
	if i < 64 {
		r.nulls |= 1 << (uint(i) & 63)
		return
	}
	r.more[i>>6-1] |= 1 << (uint(i) & 63)
}

// ClearNull makes column i not NULL.
func (r *Row) ClearNull(i int) {
	if i < 64 {
		r.nulls &^= 1 << (uint(i) & 63)
		return
	}
	r.more[i>>6-1] &^= 1 << (uint(i) & 63)
}

// PutNull makes column i NULL or not.
func (r *Row) PutNull(i int, null bool) {
	if null {
		r.SetNull(i)
	} else {
		r.ClearNull(i)
	}
}

// Nulls is the null bits of the columns 0 to 63, bit i for column i.
func (r *Row) Nulls() uint64 { return r.nulls }

// ClearNulls makes all columns not NULL.
func (r *Row) ClearNulls() {
	r.nulls = 0
	clear(r.more)
}

// Int64 is word w as an integer. w is an index into W (see [Place]), not a column.
func (r *Row) Int64(w int) int64 { return int64(r.W[w]) }

// SetInt64 sets word w.
func (r *Row) SetInt64(w int, v int64) { r.W[w] = uint64(v) }

// Float64 is word w as a DOUBLE or FLOAT.
func (r *Row) Float64(w int) float64 { return math.Float64frombits(r.W[w]) }

// SetFloat64 sets word w. The caller has rounded what goes into a FLOAT: float64(float32(v)).
func (r *Row) SetFloat64(w int, v float64) { r.W[w] = math.Float64bits(v) }

// Bool is word w as a BOOLEAN.
func (r *Row) Bool(w int) bool { return r.W[w] != 0 }

// SetBool sets word w.
func (r *Row) SetBool(w int, v bool) {
	r.W[w] = 0
	if v {
		r.W[w] = 1
	}
}

// Dec is the words w and w+1 as the unscaled number of a DECIMAL of more than 18 digits.
func (r *Row) Dec(w int) Dec {
	s := r.W[w : w+2 : w+2]
	return Dec{Lo: s[0], Hi: int64(s[1])}
}

// SetDec sets the words w and w+1.
func (r *Row) SetDec(w int, d Dec) {
	s := r.W[w : w+2 : w+2]
	s[0], s[1] = d.Lo, uint64(d.Hi)
}

// SetBytes sets view s and clears its plain bit. The bytes are not copied.
func (r *Row) SetBytes(s int, b []byte) {
	r.S[s] = b
	if s < 64 {
		r.Plain &^= 1 << uint(s)
	}
}

// Bank is the part of a row that has a column.
type Bank uint8

// The banks of a row.
const (
	Words Bank = iota // W
	Views             // S
)

// Place is where a column lies.
type Place struct {
	Bank  Bank
	Words uint8 // words taken: 1 or 2, 0 in Views
	Index int   // of the first word in W, or of the view in S
}

// Layout says where the columns of a list of types lie. It is immutable and made at plan time.
type Layout struct {
	types  []*Type
	places []Place
	words  int
	views  int
	codec  rowCodec
}

// NewLayout places columns of these types in order.
func NewLayout(types ...*Type) *Layout {
	l := &Layout{types: slices.Clone(types), places: make([]Place, len(types))}
	for i, t := range l.types {
		n := t.shape.words
		if n == 0 {
			l.places[i] = Place{Bank: Views, Index: l.views}
			l.views++
			continue
		}
		l.places[i] = Place{Bank: Words, Words: n, Index: l.words}
		l.words += int(n)
	}
	l.codec = newRowCodec(l)
	return l
}

// Len is the number of columns.
func (l *Layout) Len() int { return len(l.types) }

// Type is the type of column i.
func (l *Layout) Type(i int) *Type { return l.types[i] }

// Types is the types of all columns; not to be changed.
func (l *Layout) Types() []*Type { return l.types }

// Place is where column i lies.
func (l *Layout) Place(i int) Place { return l.places[i] }

// Words is the length of W.
func (l *Layout) Words() int { return l.words }

// Views is the length of S.
func (l *Layout) Views() int { return l.views }

// New makes a row: +I, no column NULL, all words 0, all views nil.
func (l *Layout) New() *Row {
	r := &Row{W: make([]uint64, l.words), S: make([][]byte, l.views)}
	if n := len(l.types); n > 64 {
		r.more = make([]uint64, (n-1)/64)
	}
	return r
}

// Copy copies src to dst, both of this layout. The bytes of the views are copied behind each other into one new
// allocation, so that dst stays valid.
func (l *Layout) Copy(dst, src *Row) {
	l.Assign(dst, src)
	n := 0
	for i, s := range src.S {
		if s != nil && !l.viewNull(src, i) {
			n += len(s)
		}
	}
	buf := make([]byte, 0, n)
	for i, s := range src.S {
		if s == nil || l.viewNull(src, i) {
			dst.S[i] = nil
			continue
		}
		at := len(buf)
		buf = append(buf, s...)
		dst.S[i] = buf[at:len(buf):len(buf)]
	}
}

func (l *Layout) viewNull(r *Row, view int) bool { return r.Null(l.codec.viewColumn[view]) }

// Assign copies src to dst, both of this layout. dst has the views of src: it is valid as long as src is.
func (l *Layout) Assign(dst, src *Row) {
	dst.Kind, dst.Time, dst.nulls, dst.Plain = src.Kind, src.Time, src.nulls, src.Plain
	copy(dst.more, src.more)
	copy(dst.W, src.W)
	copy(dst.S, src.S)
}

// CopyColumn copies column from of src, a row of layout sl, to column to of dst, a row of l. The types are equal but for
// nullability and mark. A view is not copied but shared.
func (l *Layout) CopyColumn(dst *Row, to int, sl *Layout, src *Row, from int) {
	if src.Null(from) {
		dst.SetNull(to)
		return
	}
	dst.ClearNull(to)
	p, q := l.places[to], sl.places[from]
	if p.Bank == Views {
		dst.S[p.Index] = src.S[q.Index]
		if p.Index < 64 {
			dst.Plain &^= 1 << uint(p.Index)
			if q.Index < 64 {
				dst.Plain |= src.Plain >> uint(q.Index) & 1 << uint(p.Index)
			}
		}
		return
	}
	dst.W[p.Index] = src.W[q.Index]
	if p.Words == 2 {
		dst.W[p.Index+1] = src.W[q.Index+1]
	}
}
