package processor

import (
	"math"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// slicedWindows makes the operator of aligned windows that fire by the watermark.
func slicedWindows[K comparable, T, A, R any](w WindowedStream[K, T], n *node, d *windowDef[K, T, A, R], out KeyedStream[K, R]) {
	s, a := w.s.s, w.assigner
	life := time.Duration(a.Size())*time.Millisecond + w.lateness
	codec, migrations := stateCodec[A](n, "state type")
	spec := n.expiring(storeWindows, statestore.KindWindows, s.keys.schema(), schemaOf(codec), life)
	spec.Windows, spec.Aggregate, spec.Migrations = a.Layout(), d.aggregate, migrations
	// Firings are counted where there may be more than one. The horizon of the counts is also what says which
	// overlapping windows of processing time have fired.
	counts := w.lateness > 0 || w.isEarly || w.onUpdate || a.IsProcessingTime()
	var counter statestore.Codec[int64]
	if counts {
		counter, _ = statestore.CodecOf[int64]()
		n.expiring(storePanes, statestore.KindWindows, s.keys.schema(), counter.Schema(), life).Windows = a.Layout()
	}
	var values statestore.Codec[T]
	if d.rows {
		values, migrations = stateCodec[T](n, "value type")
		spec = n.expiring(storeRows, statestore.KindWindowRows, s.keys.schema(), schemaOf(values), life)
		spec.Windows, spec.Migrations = a.Layout(), migrations
	}
	if d.declare != nil {
		d.declare(n)
	}
	s.attach(func(b *builder) keyedStep[K, T] {
		o := &slicedOp[K, T, A]{shared: a.Shared(), lo: math.MaxInt64, hi: math.MinInt64, endsGone: math.MinInt64}
		o.open(b, n, &w, d.add, d.merge, codec)
		var err error
		if o.store, err = statestore.NewWindows(b.state(), n.specOf(storeWindows), s.keys.codec, codec); err != nil {
			b.fail(n, err)
			return nil
		}
		o.drops = append(o.drops, o.store.Drop)
		if counts {
			if o.panes, err = statestore.NewWindows(b.state(), n.specOf(storePanes), s.keys.codec, counter); err != nil {
				b.fail(n, err)
				return nil
			}
			o.endDrops = append(o.endDrops, o.panes.Drop)
			o.endsGone = o.panes.Horizon()
		}
		if d.rows {
			if o.rows, err = statestore.NewWindowRows(b.state(), n.specOf(storeRows), s.keys.codec, values); err != nil {
				b.fail(n, err)
				return nil
			}
			o.drops = append(o.drops, o.rows.Drop)
		}
		o.host.values = o.values
		o.result = d.open(b, n, out.s.step(b), &o.host)
		o.endDrops = append(o.endDrops, o.host.state.drops...)
		o.endsGone = max(o.endsGone, o.host.state.dropped)
		o.start()
		return o.step()
	})
}

// slicedOp aggregates aligned windows in one subtask: state is kept for each slice and key. A window is open until the
// watermark reaches its last millisecond, then it has fired; a slice is dropped when the watermark has gone lateness
// further than its last window. Which of the two it is follows from the watermark alone, which is kept with the epoch,
// so nothing fires twice after a restart.
type slicedOp[K comparable, T, A any] struct {
	windowCommon[K, T, A]
	store  *statestore.Windows[K, A]
	panes  *statestore.Windows[K, int64] // see pane; nil: a window fires once
	rows   *statestore.WindowRows[K, T]  // nil: values are not kept
	shared bool                          // windows consist of several slices, or share them
	plain  bool                          // a record before its windows fire is only added
	drops  []func(end int64)             // of stores by slice
	// endDrops are those of stores by window, which have none up to endsGone any more.
	endDrops []func(end int64)
	endsGone int64

	// The slice of the last record, and the first and last of its windows.
	lo, hi, first, last int64

	merger *sliceMerger[K, T, A]

	changed  []changedSlice[K] // since the last early firing
	isChange map[changedSlice[K]]struct{}

	firing changedSlice[K] // the window of the running result

	// What is being fired; the functions are made once, so that firing a key allocates nothing.
	end    int64
	acc    *A
	timing Timing
	emit1  func() error
	early1 func() error
	entry  func(g statestore.Group, k K, v *A) error
	upTo   int64 // what is dropped: slices
	ended  int64 // and windows
	drop1  func() error
}

type changedSlice[K comparable] struct {
	end   int64
	group statestore.Group
	key   K
}

func (o *slicedOp[K, T, A]) start() {
	o.plain = o.rows == nil && !o.onUpdate && o.early == 0 && o.idle == nil && !o.processing && !o.shared
	o.emit1 = func() error { return o.emitKey(o.end, o.x.Group, o.key, o.acc, o.timing) }
	o.early1 = func() error { return o.fireKey(o.end, o.x.Group, o.key, Early) }
	o.entry = func(g statestore.Group, k K, v *A) error {
		o.key, o.acc = k, v
		_, err := o.x.Atomic(o.op, g, o.end-1, o.emit1, o.name)
		return err
	}
	o.drop1 = func() error {
		for _, drop := range o.drops {
			drop(o.upTo)
		}
		for _, drop := range o.endDrops {
			drop(o.ended)
		}
		return nil
	}
	if o.shared {
		o.merger = newSliceMerger(o)
	}
	if o.processing {
		o.dueNext(math.MinInt64)
	} else {
		o.node.Fire = func(_ *task.Exec, before, watermark int64) error {
			err := o.fire(before, watermark)
			if o.idle != nil {
				o.idle.fired()
			}
			return err
		}
		o.dueNext(o.node.Watermark)
	}
	if o.processing || o.early > 0 || o.idle != nil {
		o.node.FireProcessing = o.fireProcessing
	}
	if o.early > 0 {
		o.findChanged()
	}
	if o.idle != nil {
		o.idle.seen = o.x.Now()
		o.idle.fired()
	}
}

// due says that something is due when the watermark, or what stands for it, reaches at.
func (o *slicedOp[K, T, A]) due(at int64) {
	if o.processing {
		o.node.DueProcessing(at + 1)
	} else {
		o.node.Due(at)
	}
}

// watermark is what windows are compared with: of processing time, all before the clock.
func (o *slicedOp[K, T, A]) watermark() int64 {
	if o.processing {
		return o.x.Now() - 1
	}
	return o.node.Watermark
}

// locate finds the slice of a time.
func (o *slicedOp[K, T, A]) locate(at int64) {
	o.lo, o.hi = o.assigner.Slice(at)
	o.first, o.last = o.assigner.Ends(o.hi)
}

func (o *slicedOp[K, T, A]) step() keyedStep[K, T] {
	add := o.add
	return func(x *task.Exec, k K, v T) error {
		x.Op = o.op
		at, w := x.Time, o.node.Watermark
		if o.processing {
			// The clock may have gone back, with the task to another machine.
			at = max(x.Now(), o.store.Horizon(), o.endsGone)
			w = at - 1
		}
		if at < o.lo || at >= o.hi {
			o.locate(at)
		}
		// Dropped ones may have been so under a shorter lateness.
		if w >= o.last-1+o.lateness || o.hi <= o.store.Horizon() || o.last <= o.endsGone {
			if o.first > o.last {
				return nil // between two windows
			}
			return o.tooLate(x, v)
		}
		if o.first > o.last {
			return nil
		}
		acc, existed := o.store.Update(o.hi, x.Group, k)
		add(acc, existed, v)
		if o.plain && w < o.first-1 {
			o.node.Due(o.first - 1)
			return nil
		}
		return o.added(x, k, v, acc, existed, w)
	}
}

// added does what else is to be done for a record that was added to its slice.
func (o *slicedOp[K, T, A]) added(x *task.Exec, k K, v T, acc *A, existed bool, w int64) error {
	g, slice := x.Group, o.hi
	first, last := o.first, o.last // firing may lead to other records of this operator's
	if o.rows != nil {
		o.rows.Add(slice, g, k, x.Time, v)
	}
	if o.idle != nil {
		o.idle.record()
	}
	if o.merger != nil && slice <= o.merger.upTo {
		o.merger.spoil(g, k)
	}
	if w < last-1 {
		if w < first-1 {
			o.due(first - 1)
		} else {
			o.due(o.assigner.NextEnd(w+1) - 1)
		}
		if o.early > 0 {
			o.change(changedSlice[K]{slice, g, k})
		}
	}
	if w >= first-1 {
		o.due(last - 1 + o.lateness)
	} else if !o.onUpdate {
		return nil
	}
	for end := first; end <= last; end = o.assigner.NextEnd(end) {
		timing := Early
		switch {
		case w >= end-1+o.lateness || end <= o.endsGone:
			continue
		case w >= end-1:
			timing = Late
			if o.panes != nil {
				o.lateFiring(end, g, k, existed)
			}
		case !o.onUpdate:
			return nil
		}
		var err error
		if o.shared {
			err = o.fireKey(end, g, k, timing)
		} else {
			err = o.emitKey(end, g, k, acc, timing)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The count of a window's firings is kept where it cannot be told otherwise: twice the number of early and late
// firings, and of the one on time once a late one has come, and then also 1.

// lateFiring prepares the count for a late firing.
func (o *slicedOp[K, T, A]) lateFiring(end int64, g statestore.Group, k K, existed bool) {
	n, _ := o.panes.Update(end, g, k)
	if *n&1 != 0 {
		return
	}
	*n |= 1
	if !existed && o.shared {
		// The key's other slices of the window tell whether it fired on time.
		for s, ok := o.store.After(o.assigner.StartOf(end)); ok && s <= end && !existed; s, ok = o.store.After(s) {
			existed = s != o.hi && o.store.Get(s, g, k) != nil
		}
	}
	if existed {
		*n += 2
	}
}

// emitKey sends on the result of a window of one key.
func (o *slicedOp[K, T, A]) emitKey(end int64, g statestore.Group, k K, acc *A, timing Timing) error {
	p := Pane{Timing: timing}
	if o.panes != nil {
		if timing == OnTime {
			if n := o.panes.Get(end, g, k); n != nil {
				p.Index = *n >> 1
			}
		} else {
			n, _ := o.panes.Update(end, g, k)
			p.Index = *n >> 1
			*n += 2
		}
	}
	o.firing = changedSlice[K]{end, g, k}
	return o.emit(end-1, end, Window[K]{Key: k, Start: instant(o.assigner.StartOf(end)), End: instant(end), Pane: p}, acc)
}

// values are those of the window that fires, in order of event time.
func (o *slicedOp[K, T, A]) values(yield func(T) bool) {
	f, more := o.firing, true
	for s, ok := o.store.After(o.assigner.StartOf(f.end)); ok && s <= f.end && more; s, ok = o.store.After(s) {
		o.rows.Rows(s, f.group, f.key, func(r statestore.Row[T]) bool {
			more = yield(*r.Get())
			return more
		})
	}
}

// fireKey puts the window of one key together and sends the result on, if there is anything in it.
func (o *slicedOp[K, T, A]) fireKey(end int64, g statestore.Group, k K, timing Timing) error {
	if !o.shared {
		acc := o.store.Get(end, g, k)
		if acc == nil {
			return nil
		}
		return o.emitKey(end, g, k, acc, timing)
	}
	var acc A
	if !o.merger.key(end, g, k, &acc) {
		return nil
	}
	return o.emitKey(end, g, k, &acc, timing)
}

// fire fires the windows whose last millisecond lies in (before, watermark] and drops the slices that nothing can reach
// any more.
func (o *slicedOp[K, T, A]) fire(before, watermark int64) error {
	after := int64(math.MaxInt64)
	if before < math.MaxInt64-1 {
		after = before + 1
	}
	if before < watermark {
		for {
			end, ok := o.nextWindow(after)
			if !ok || end-1 > watermark {
				break
			}
			if err := o.fireWindow(end); err != nil {
				return err
			}
			after = end
		}
	}
	if err := o.drop(watermark); err != nil {
		return err
	}
	o.dueNext(watermark)
	return nil
}

// nextWindow is the lowest end behind after of a window with something in it.
func (o *slicedOp[K, T, A]) nextWindow(after int64) (end int64, ok bool) {
	if after == math.MaxInt64 {
		return 0, false
	}
	if !o.shared {
		return o.store.After(after)
	}
	for s, ok := o.store.Next(); ok; s, ok = o.store.After(s) {
		first, last := o.assigner.Ends(s)
		if first <= after {
			first = o.assigner.NextEnd(after)
		}
		if first <= last {
			return first, true
		}
	}
	return 0, false
}

func (o *slicedOp[K, T, A]) fireWindow(end int64) error {
	o.end, o.timing = end, OnTime
	if o.shared {
		return o.merger.fire(end)
	}
	return o.store.Each(end, o.entry)
}

// drop drops slices behind whose last window the watermark is by the allowed lateness.
func (o *slicedOp[K, T, A]) drop(watermark int64) error {
	gone := false
	for s, ok := o.store.Next(); ok; s, ok = o.store.After(s) {
		_, last := o.assigner.Ends(s)
		if last-1+o.lateness > watermark {
			break
		}
		o.upTo, gone = s, true
	}
	if !gone && !o.processing {
		return nil
	}
	if !gone {
		o.upTo = o.store.Horizon()
	}
	if o.ended = math.MaxInt64; watermark < math.MaxInt64-o.lateness {
		o.ended = watermark + 1 - o.lateness
	}
	o.endsGone = max(o.endsGone, o.ended)
	_, err := o.x.Atomic(o.op, 0, o.upTo-1, o.drop1, o.name)
	return err
}

// dueNext finds out when something is due next: a window that has not fired, or a slice to drop.
func (o *slicedOp[K, T, A]) dueNext(watermark int64) {
	s, ok := o.store.Next()
	if !ok {
		return
	}
	_, last := o.assigner.Ends(s)
	o.due(last - 1 + o.lateness)
	if watermark < math.MaxInt64-1 {
		if end, ok := o.nextWindow(max(watermark, math.MinInt64+1) + 1); ok {
			o.due(end - 1)
		}
	}
}

func (o *slicedOp[K, T, A]) fireProcessing(_ *task.Exec, now int64) error {
	if o.processing {
		// The horizon of the counts is the end of the last window that has fired.
		if err := o.fire(max(o.panes.Horizon(), math.MinInt64+1)-1, now-1); err != nil {
			return err
		}
	}
	if o.earlyAt > 0 {
		if now < o.earlyAt {
			o.node.DueProcessing(o.earlyAt)
		} else if err := o.fireEarly(); err != nil {
			return err
		}
	}
	if o.idle != nil {
		o.idle.tick(now)
	}
	return nil
}

// change notes that a slice of a key has changed since it was last fired early.
func (o *slicedOp[K, T, A]) change(c changedSlice[K]) {
	if _, ok := o.isChange[c]; ok {
		return
	}
	if o.isChange == nil {
		o.isChange = map[changedSlice[K]]struct{}{}
	}
	o.isChange[c] = struct{}{}
	o.changed = append(o.changed, c)
	if o.earlyAt == 0 {
		o.earlyAt = o.x.Now() + o.early
		o.node.DueProcessing(o.earlyAt)
	}
}

// findChanged takes all that is open as changed: what was before a restart is not known.
func (o *slicedOp[K, T, A]) findChanged() {
	w := o.watermark()
	for s, ok := o.store.Next(); ok; s, ok = o.store.After(s) {
		if _, last := o.assigner.Ends(s); last-1 <= w {
			continue
		}
		o.store.EachKey(s, func(key []byte, _ *A) {
			g, k := o.store.Key(key)
			o.change(changedSlice[K]{s, g, k})
		})
	}
}

// fireEarly fires the open windows of what has changed, each once.
func (o *slicedOp[K, T, A]) fireEarly() error {
	changed := o.changed
	o.changed, o.earlyAt = nil, 0
	clear(o.isChange)
	w := o.watermark()
	var fired map[changedSlice[K]]struct{} // by window
	if o.shared {
		fired = map[changedSlice[K]]struct{}{}
	}
	for _, c := range changed {
		first, last := o.assigner.Ends(c.end)
		for end := first; end <= last; end = o.assigner.NextEnd(end) {
			if end-1 <= w {
				continue
			}
			if o.shared {
				id := changedSlice[K]{end, c.group, c.key}
				if _, ok := fired[id]; ok {
					continue
				}
				fired[id] = struct{}{}
			}
			o.end, o.key = end, c.key
			if _, err := o.x.Atomic(o.op, c.group, end-1, o.early1, o.name); err != nil {
				return err
			}
		}
	}
	return nil
}
