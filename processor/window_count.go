package processor

import (
	"math"
	"reflect"
	"slices"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// countWindows makes the operator of CountWindow.
func countWindows[K comparable, T, A, R any](w WindowedStream[K, T], n *node, d *windowDef[K, T, A, R], out KeyedStream[K, R]) {
	s := w.s.s
	counts, migrations := partsCodec[countList[A]](n, "state type", reflect.TypeFor[A]())
	codec, _ := statestore.CodecOf[A]()
	spec := n.store(storeWindows, statestore.KindTable, s.keys.schema(), schemaOf(counts))
	spec.Windows, spec.Aggregate, spec.Migrations = w.assigner.Layout(), d.aggregate, migrations
	var rows rowSpec[T]
	if d.rows {
		declare(&rows, n, d, s.keys.schema())
	}
	if d.declare != nil {
		d.declare(n)
	}
	s.attach(func(b *builder) keyedStep[K, T] {
		a := w.assigner
		o := &countOp[K, T, A]{unit: a.Unit(), most: int(a.Size() / a.Unit()), slide: a.Slide()}
		o.leave = max(0, o.most-int(o.slide/o.unit))
		o.open(b, n, &w, d.add, d.merge, codec)
		var err error
		if o.lists, err = statestore.NewTable(b.state(), n.specOf(storeWindows), s.keys.codec, counts); err != nil {
			b.fail(n, err)
			return nil
		}
		if d.rows {
			if o.rows, err = openRows[K](b, n, s.keys.codec, rows.codec); err != nil {
				b.fail(n, err)
				return nil
			}
		}
		o.host.values = o.values
		o.result = d.open(b, n, out.s.step(b), &o.host)
		return o.step
	})
}

// countList is the values of a key since its last windows, in pieces of gcd(size, slide).
type countList[A any] struct {
	Seen   int64 // values since the last firing
	Fired  int64
	Next   uint64 // number of the next piece
	Pieces []countPiece[A]
}

type countPiece[A any] struct {
	N      int64
	Latest int64 // highest event time
	Part   uint64
	Acc    A `part:"acc"`
}

type countOp[K comparable, T, A any] struct {
	windowCommon[K, T, A]
	lists *statestore.Table[K, countList[A]]
	rows  *keptRows[K, T]
	unit  int64
	slide int64
	most  int // pieces of a window
	leave int // of them those that are also part of the next

	firing *countList[A]
	group  statestore.Group
}

func (o *countOp[K, T, A]) step(x *task.Exec, k K, v T) error {
	x.Op = o.op
	g := x.Group
	l, _ := o.lists.Update(g, k)
	if n := len(l.Pieces); n == 0 || l.Pieces[n-1].N == o.unit {
		if n == o.most {
			o.cut(g, k, l, 1)
		}
		l.Pieces = append(l.Pieces, countPiece[A]{Latest: math.MinInt64, Part: l.Next})
		l.Next++
	}
	p := &l.Pieces[len(l.Pieces)-1]
	o.add(&p.Acc, p.N > 0, v)
	p.N++
	p.Latest = max(p.Latest, x.Time)
	if o.rows != nil {
		// In order of arrival: a window is the last values, whatever their event time.
		o.rows.put(g, k, p.Part, 0, uint64(p.N), v)
	}
	if l.Seen++; l.Seen < o.slide {
		return nil
	}
	l.Seen = 0
	at := int64(math.MinInt64)
	for i := range l.Pieces {
		at = max(at, l.Pieces[i].Latest)
	}
	acc := &l.Pieces[0].Acc
	if len(l.Pieces) > 1 {
		acc = new(A)
		o.clone(acc, &l.Pieces[0].Acc)
		for i := range l.Pieces[1:] {
			o.join(acc, &l.Pieces[1+i].Acc)
		}
	}
	o.key, o.group, o.firing = k, g, l
	w := Window[K]{Key: k, Pane: Pane{OnTime, l.Fired}}
	l.Fired++
	if err := o.emit(at, endless, w, acc); err != nil {
		return err
	}
	o.cut(g, k, l, len(l.Pieces)-o.leave)
	return nil
}

// cut drops the first n pieces.
func (o *countOp[K, T, A]) cut(g statestore.Group, k K, l *countList[A], n int) {
	if n <= 0 {
		return
	}
	if o.rows != nil {
		for i := range n {
			o.rows.drop(g, k, []uint64{l.Pieces[i].Part})
		}
	}
	l.Pieces = slices.Delete(l.Pieces, 0, n)
}

// values are those of the window that fires.
func (o *countOp[K, T, A]) values(yield func(T) bool) {
	more := true
	for i := range o.firing.Pieces {
		if !more {
			return
		}
		o.rows.part(o.group, o.key, o.firing.Pieces[i].Part, func(_ rowKey, v *T) bool {
			more = yield(*v)
			return more
		})
	}
}
