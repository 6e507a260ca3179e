package processor

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// listedWindows makes the operator of windows that each key has for itself: sessions, global ones, and all that have a
// Trigger.
func listedWindows[K comparable, T, A, R any](w WindowedStream[K, T], n *node, d *windowDef[K, T, A, R], out KeyedStream[K, R]) makeKeyed[K, T] {
	s := w.s.s
	codec, lists, migrations := listCodec[A](n)
	spec := n.store(storeWindows, statestore.KindTable, s.keys.schema(), schemaOf(lists))
	spec.Windows, spec.Aggregate, spec.Migrations = w.assigner.Layout(), d.aggregate, migrations
	n.store(eventTimers, statestore.KindTimers, s.keys.schema(), "")
	n.store(processingTimers, statestore.KindTimers, s.keys.schema(), "")
	var rows rowSpec[T]
	if d.rows {
		declare(&rows, n, d, s.keys.schema())
	}
	if d.declare != nil {
		d.declare(n)
	}
	return func(b *builder) keyedStep[K, T] {
		o := &listedOp[K, T, A]{trigger: w.trigger, gap: w.assigner.Size()}
		if f, _ := w.assigner.Gap(); f != nil {
			o.gapOf, _ = f.(func(T) time.Duration)
		}
		o.open(b, n, &w, d.add, d.merge, codec)
		fail := func(err error) keyedStep[K, T] { b.fail(n, err); return nil }
		var err error
		if o.lists, err = statestore.NewTable(b.state(), n.specOf(storeWindows), s.keys.codec, lists); err != nil {
			return fail(err)
		}
		if o.events, err = statestore.NewTimers(b.state(), n.specOf(eventTimers), s.keys.codec); err != nil {
			return fail(err)
		}
		if o.procs, err = statestore.NewTimers(b.state(), n.specOf(processingTimers), s.keys.codec); err != nil {
			return fail(err)
		}
		if d.rows {
			if o.rows, err = openRows[K](b, n, s.keys.codec, rows.codec); err != nil {
				return fail(err)
			}
		}
		o.host.rows = func(yield func(at rowKey, v *T) bool) { o.rows.all(o.group, o.key, o.firing.Parts, yield) }
		o.host.values = func(yield func(T) bool) { o.host.rows(func(_ rowKey, v *T) bool { return yield(*v) }) }
		if d.late != nil {
			o.late = d.late(b)
		}
		o.result = d.open(b, n, out.s.step(b), &o.host)
		o.start()
		return o.step
	}
}

// windowList is the open windows of one key.
type windowList[A any] struct {
	Windows []listedWindow[A] // by start
	NextRow uint64            // number of the next part or kept value
}

// listedWindow is one open window of a key.
type listedWindow[A any] struct {
	Start, End int64 // End is endless of global windows
	Latest     int64 // highest event time of its elements
	Fired      int64 // how often
	OnTime     bool  // it has fired, or its trigger was asked, for its end
	Full       bool  // something was added since it was purged
	Changed    bool  // since it was fired early
	Trigger    []byte
	Events     []int64  // timers of the trigger, ascending
	Procs      []int64  // likewise
	Parts      []uint64 // of kept values, see keptRows
	Acc        A        `part:"acc"`
}

// listCodec is the codec of accumulators, and that of the windows of a key, with its migrations.
func listCodec[A any](n *node) (acc statestore.Codec[A], lists statestore.Codec[windowList[A]], migrations []string) {
	lists, migrations = partsCodec[windowList[A]](n, "state type", reflect.TypeFor[A]())
	if lists == nil {
		return nil, nil, nil
	}
	acc, err := statestore.CodecOf[A]()
	if err != nil {
		n.fail("state type: %w", err)
	} else if acc.Flat() {
		lists = copiedLists[A]{lists, !statestore.HasPointers[A]()}
	}
	return acc, lists, migrations
}

// copiedLists is the codec of lists whose accumulators are flat: to copy such a list costs less than to encode it.
type copiedLists[A any] struct {
	statestore.Codec[windowList[A]]
	plain bool // the accumulators have no pointers
}

// Reads is of statestore.Evolver.
func (c copiedLists[A]) Reads(schema string) (statestore.Codec[windowList[A]], error) {
	return c.Codec.(statestore.Evolver[windowList[A]]).Reads(schema)
}

// Copy is of statestore.Copier.
func (copiedLists[A]) Copy(dst, src *windowList[A]) {
	dst.NextRow = src.NextRow
	dst.Windows = append(dst.Windows[:0], src.Windows...)
	for i := range dst.Windows {
		c := &dst.Windows[i]
		if c.Trigger != nil || c.Events != nil || c.Procs != nil || c.Parts != nil {
			c.Trigger, c.Events, c.Procs, c.Parts = slices.Clone(c.Trigger), slices.Clone(c.Events), slices.Clone(c.Procs), slices.Clone(c.Parts)
		}
	}
}

// Size is of statestore.Copier.
func (copiedLists[A]) Size(v *windowList[A]) int {
	n := cap(v.Windows) * int(unsafe.Sizeof(listedWindow[A]{}))
	for i := range v.Windows {
		c := &v.Windows[i]
		n += cap(c.Trigger) + 8*(cap(c.Events)+cap(c.Procs)+cap(c.Parts))
	}
	return n
}

// Own is of statestore.Copier. What a trigger keeps may come from a record.
func (c copiedLists[A]) Own(v *windowList[A]) bool {
	return c.plain && !slices.ContainsFunc(v.Windows, func(w listedWindow[A]) bool { return w.Trigger != nil })
}

const endless = math.MaxInt64

// listedOp keeps the windows of each key in one list, which stays decoded in the cache of the store. A key has a timer
// at or before the time at which something is due for one of its windows: a session that grows leaves its timer where it
// is, which then is set anew. Timers carry no more than the key: what is due is seen from the list.
type listedOp[K comparable, T, A any] struct {
	windowCommon[K, T, A]
	trigger window.Trigger // nil: AtWatermark
	gap     int64
	gapOf   func(T) time.Duration
	lists   *statestore.Table[K, windowList[A]]
	events  *statestore.Timers[K]
	procs   *statestore.Timers[K]
	rows    *keptRows[K, T]

	changed   []changedSlice[K] // keys with windows that changed since they were fired early; end is not used
	isChanged map[K]struct{}

	group  statestore.Group
	firing *listedWindow[A]
	ctx    triggerContext[K, T, A]
	spare  [][]listedWindow[A] // empty, of keys that have none any more

	domain Domain
	upTo   int64
	give   bool // the step was skipped: what was due is given up
	wake1  func() error
	early1 func() error
}

func (o *listedOp[K, T, A]) start() {
	o.ctx.o = o
	o.wake1, o.early1 = o.wake, o.earlyKey
	o.node.Fire = func(_ *task.Exec, _, watermark int64) error {
		err := o.fire(o.events, EventTime, watermark, o.node.Due)
		if o.idle != nil {
			o.idle.fired()
		}
		return err
	}
	o.node.FireProcessing = func(_ *task.Exec, now int64) error {
		if err := o.fire(o.procs, ProcessingTime, now, o.node.DueProcessing); err != nil {
			return err
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
	if at, ok := o.events.Next(); ok {
		o.node.Due(at)
	}
	if at, ok := o.procs.Next(); ok {
		o.node.DueProcessing(at)
	}
	if o.early > 0 { // what was before a restart is not known
		o.lists.All(func(g statestore.Group, k K, l *windowList[A]) bool {
			if slices.ContainsFunc(l.Windows, func(c listedWindow[A]) bool { return c.Changed }) {
				o.change(g, k)
			}
			return true
		})
	}
	if o.idle != nil {
		o.idle.seen = o.x.Now()
		o.idle.fired()
	}
}

// watermark is what windows are compared with: of processing time, all before the clock.
func (o *listedOp[K, T, A]) watermark() int64 {
	if o.processing {
		return o.x.Now() - 1
	}
	return o.node.Watermark
}

// arm sets the timer of the current key for when the watermark, or what stands for it, reaches at.
func (o *listedOp[K, T, A]) arm(at int64) {
	if o.processing {
		o.procs.Set(at+1, o.group, o.key, 0)
		o.node.DueProcessing(at + 1)
		return
	}
	o.events.Set(at, o.group, o.key, 0)
	o.node.Due(at)
}

// gone is when nothing can reach the window any more.
func (o *listedOp[K, T, A]) gone(c *listedWindow[A]) int64 {
	if c.End == endless {
		return endless
	}
	return c.End - 1 + o.lateness
}

// next is when something that needs no trigger's timer is due for a window.
func (o *listedOp[K, T, A]) next(c *listedWindow[A]) int64 {
	if o.trigger == nil && !c.OnTime {
		return c.End - 1
	}
	return o.gone(c)
}

func (o *listedOp[K, T, A]) step(x *task.Exec, k K, v T) error {
	x.Op = o.op
	o.key, o.group = k, x.Group
	at := x.Time
	if o.processing {
		at = x.Now()
	}
	if o.idle != nil {
		o.idle.record()
	}
	w := o.watermark()
	switch {
	case o.assigner.Kind() == window.KindSession:
		return o.session(x, at, w, v)
	case o.assigner.Kind() == window.KindGlobal:
		return o.addTo(x, math.MinInt64, endless, w, v)
	}
	_, slice := o.assigner.Slice(at)
	first, last := o.assigner.Ends(slice)
	if first > last {
		return nil
	}
	if last-1+o.lateness <= w {
		return o.tooLate(x, v)
	}
	for end := first; end <= last; end = o.assigner.NextEnd(end) {
		if end-1+o.lateness <= w {
			continue
		}
		if err := o.addTo(x, o.assigner.StartOf(end), end, w, v); err != nil {
			return err
		}
		o.key, o.group = k, x.Group
	}
	return nil
}

// maxSpare bounds the empty lists that are kept for reuse.
const maxSpare = 1024

// list is the windows of the current key, for writing.
func (o *listedOp[K, T, A]) list() *windowList[A] {
	l, _ := o.lists.Update(o.group, o.key)
	if n := len(o.spare); n > 0 && l.Windows == nil {
		l.Windows, o.spare = o.spare[n-1], o.spare[:n-1]
	}
	return l
}

// addTo adds a value to a window that merges with no other.
func (o *listedOp[K, T, A]) addTo(x *task.Exec, start, end, w int64, v T) error {
	l := o.list()
	i, ok := slices.BinarySearchFunc(l.Windows, end, func(c listedWindow[A], end int64) int { return cmp.Compare(c.End, end) })
	if !ok {
		l.Windows = slices.Insert(l.Windows, i, listedWindow[A]{Start: start, End: end, Latest: math.MinInt64})
	}
	c := &l.Windows[i]
	if !ok && end != endless {
		o.arm(o.next(c))
	}
	return o.added(x, l, c, w, v)
}

// session adds a value to the session that it opens, extends or makes of several.
func (o *listedOp[K, T, A]) session(x *task.Exec, at, w int64, v T) error {
	gap := o.gap
	if o.gapOf != nil {
		d := o.gapOf(v)
		if gap = d.Milliseconds(); d < time.Millisecond {
			return x.Fail(o.op, task.UserCode, fmt.Errorf("take the session gap: it is %s, want at least 1ms", d))
		}
	}
	end := at + gap
	touches := func(c *listedWindow[A]) bool { return c.Start <= end && c.End >= at }
	if end-1+o.lateness <= w {
		l := o.lists.Get(x.Group, o.key)
		if l == nil || !slices.ContainsFunc(l.Windows, func(c listedWindow[A]) bool { return touches(&c) }) {
			return o.tooLate(x, v)
		}
	}
	l := o.list()
	i := 0
	for i < len(l.Windows) && !touches(&l.Windows[i]) && l.Windows[i].Start < at {
		i++
	}
	if i == len(l.Windows) || !touches(&l.Windows[i]) {
		l.Windows = slices.Insert(l.Windows, i, listedWindow[A]{Start: at, End: end, Latest: math.MinInt64})
		o.arm(o.next(&l.Windows[i]))
		return o.added(x, l, &l.Windows[i], w, v)
	}
	c := &l.Windows[i]
	arm, was := c.OnTime, c.End // unless it has fired, its timer is set for its end
	merged := false
	for i+1 < len(l.Windows) && touches(&l.Windows[i+1]) {
		from := &l.Windows[i+1]
		o.mergeWindows(c, from)
		l.Windows = slices.Delete(l.Windows, i+1, i+2)
		c = &l.Windows[i]
		merged = true
	}
	c.Start, c.End = min(c.Start, at), max(c.End, end)
	if c.End != was || merged {
		if c.End-1 > w {
			c.OnTime = false
		}
		if o.trigger != nil { // the timer for the end that it no longer has
			o.dropTimer(&c.Events, was-1)
		}
		if arm {
			o.arm(o.next(c))
		}
	}
	return o.added(x, l, c, w, v)
}

// mergeWindows takes what is in from into c.
func (o *listedOp[K, T, A]) mergeWindows(c, from *listedWindow[A]) {
	switch {
	case c.Full && from.Full:
		o.join(&c.Acc, &from.Acc)
	case from.Full:
		c.Acc = from.Acc
	}
	if o.trigger != nil {
		if c.Trigger == nil {
			c.Trigger = from.Trigger
		} else if from.Trigger != nil {
			o.ctx.begin(c, c.Latest)
			c.Trigger = o.trigger.OnMerge(&o.ctx, c.Trigger, from.Trigger)
			o.ctx.end()
		}
		for _, at := range from.Events {
			if at != from.End-1 {
				addTimer(&c.Events, at)
			}
		}
		for _, at := range from.Procs {
			addTimer(&c.Procs, at)
		}
	}
	c.Full = c.Full || from.Full
	c.OnTime = c.OnTime && from.OnTime
	c.Latest, c.End, c.Fired = max(c.Latest, from.Latest), max(c.End, from.End), max(c.Fired, from.Fired)
	c.Parts = append(c.Parts, from.Parts...)
}

func addTimer(timers *[]int64, at int64) {
	if i, ok := slices.BinarySearch(*timers, at); !ok {
		*timers = slices.Insert(*timers, i, at)
	}
}

func (o *listedOp[K, T, A]) dropTimer(timers *[]int64, at int64) {
	if i, ok := slices.BinarySearch(*timers, at); ok {
		*timers = slices.Delete(*timers, i, i+1)
	}
}

// added adds a value to the window c of the list l, and fires it if it is to.
func (o *listedOp[K, T, A]) added(x *task.Exec, l *windowList[A], c *listedWindow[A], w int64, v T) error {
	o.add(&c.Acc, c.Full, v)
	c.Full = true
	c.Latest = max(c.Latest, x.Time)
	if o.rows != nil {
		if len(c.Parts) == 0 {
			c.Parts = append(c.Parts, l.NextRow)
			l.NextRow++
		}
		o.rows.put(o.group, o.key, c.Parts[0], x.Time, l.NextRow, v)
		l.NextRow++
	}
	if o.trigger != nil {
		end := c.End
		o.ctx.begin(c, x.Time)
		o.ctx.v, o.ctx.element = v, true
		var a window.Action
		a, c.Trigger = o.trigger.OnElement(&o.ctx, c.Trigger)
		o.ctx.end()
		timing := Late
		switch {
		case end == endless:
			timing = OnTime
		case end-1 > w:
			timing = Early
		}
		return o.act(a, c, timing)
	}
	switch {
	case c.End-1 <= w:
		c.OnTime = true
		o.arm(o.gone(c))
		return o.send(c, Late)
	case o.onUpdate:
		return o.send(c, Early)
	case o.early > 0 && !c.Changed:
		c.Changed = true
		o.change(o.group, o.key)
	}
	return nil
}

// act does what a trigger wants.
func (o *listedOp[K, T, A]) act(a window.Action, c *listedWindow[A], timing Timing) error {
	var err error
	if (a == window.Fire || a == window.FireAndPurge) && c.Full {
		err = o.send(c, timing)
	}
	if a == window.Purge || a == window.FireAndPurge {
		o.purge(c)
	}
	return err
}

func (o *listedOp[K, T, A]) purge(c *listedWindow[A]) {
	var zero A
	c.Acc, c.Full = zero, false
	if o.rows != nil {
		o.rows.drop(o.group, o.key, c.Parts)
		c.Parts = nil
	}
}

// send sends on the result of a window.
func (o *listedOp[K, T, A]) send(c *listedWindow[A], timing Timing) error {
	win := Window[K]{Key: o.key, Pane: Pane{timing, c.Fired}}
	at := c.Latest
	if c.End != endless {
		win.Start, win.End, at = instant(c.Start), instant(c.End), c.End-1
	}
	c.Fired++
	c.Changed = false
	o.firing = c
	k, g := o.key, o.group
	err := o.emit(at, c.End, win, &c.Acc)
	o.key, o.group, o.x.Group = k, g, g
	return err
}

// fire wakes the keys whose timers are due.
func (o *listedOp[K, T, A]) fire(timers *statestore.Timers[K], domain Domain, upTo int64, due func(int64)) error {
	for {
		at, ok := timers.Next()
		if !ok {
			return nil
		}
		if at > upTo {
			due(at)
			return nil
		}
		o.domain, o.upTo, o.give = domain, upTo, false
		skipped, err := o.x.Atomic(o.op, 0, at, o.wake1, o.name)
		if err != nil {
			return err
		}
		if skipped {
			o.give = true
			if _, err := o.x.Atomic(o.op, 0, at, o.wake1, o.name); err != nil {
				return err
			}
		}
	}
}

// wake takes the next timer and does the first of what is due for its key.
func (o *listedOp[K, T, A]) wake() error {
	timers := o.events
	if o.domain == ProcessingTime {
		timers = o.procs
	}
	at, g, k, _, ok := timers.Pop(o.upTo)
	if !ok {
		return nil
	}
	o.key, o.group, o.x.Group = k, g, g
	ref, ok := o.lists.Ref(g, k)
	if !ok {
		return nil
	}
	i, when, kind := o.nextDue(ref.Get())
	if i < 0 {
		return nil
	}
	if when > o.upTo {
		timers.Set(when, g, k, 0) // a session has grown since the timer was set
		return nil
	}
	l := ref.Update()
	err := o.happen(l, i, when, kind)
	if err != nil {
		return err
	}
	if len(l.Windows) == 0 {
		if len(o.spare) < maxSpare && cap(l.Windows) <= 4 {
			o.spare = append(o.spare, l.Windows)
		}
		ref.Delete()
		return nil
	}
	if _, when, _ := o.nextDue(l); when <= o.upTo {
		timers.Set(at, g, k, 0) // there is more
	} else if when != endless {
		timers.Set(when, g, k, 0)
	}
	return nil
}

// dueKind is what is due for a window.
type dueKind uint8

const (
	dueEnd        dueKind = iota // it fires, or goes
	dueEvent                     // an event timer of its trigger
	dueProcessing                // a processing timer of its trigger
)

// nextDue is the first thing to happen for a key in the running domain; i is -1 if there is none. Windows of processing
// time have all of it there: their event timers are due when the clock is behind them.
func (o *listedOp[K, T, A]) nextDue(l *windowList[A]) (i int, when int64, kind dueKind) {
	i, when = -1, endless
	consider := func(j int, at int64, k dueKind) {
		if o.processing && k != dueProcessing && at < endless {
			at++
		}
		if at < when {
			i, when, kind = j, at, k
		}
	}
	own := o.processing == (o.domain == ProcessingTime) // the domain that windows end in
	for j := range l.Windows {
		c := &l.Windows[j]
		if len(c.Events) > 0 && own {
			consider(j, c.Events[0], dueEvent)
		}
		if len(c.Procs) > 0 && o.domain == ProcessingTime {
			consider(j, c.Procs[0], dueProcessing)
		}
		if own {
			consider(j, o.next(c), dueEnd)
		}
	}
	return i, when, kind
}

// happen does what is due for a window at a time.
func (o *listedOp[K, T, A]) happen(l *windowList[A], i int, when int64, kind dueKind) error {
	c := &l.Windows[i]
	o.x.Time = when
	if kind == dueEnd {
		if o.trigger == nil && !c.OnTime {
			c.OnTime = true
			if !o.give && c.Full {
				if err := o.send(c, OnTime); err != nil {
					return err
				}
			}
			if o.gone(c) > o.watermark() {
				return nil
			}
		}
		o.purge(c)
		o.host.state.key = &o.key
		for _, gone := range o.host.state.gone {
			gone(o.group, c.End)
		}
		l.Windows = slices.Delete(l.Windows, i, i+1)
		return nil
	}
	timers, call := &c.Procs, o.trigger.OnProcessingTime
	if kind == dueEvent {
		timers, call = &c.Events, o.trigger.OnEventTime
	}
	at := (*timers)[0]
	*timers = slices.Delete(*timers, 0, 1)
	if o.give {
		return nil
	}
	timing := Early
	switch {
	case c.End == endless:
		timing = OnTime
	case c.End-1 > o.watermark() || kind == dueEvent && at < c.End-1: // the watermark may pass a timer and the end at once
	case c.OnTime:
		timing = Late
	default:
		timing, c.OnTime = OnTime, true
	}
	o.ctx.begin(c, at)
	var a window.Action
	a, c.Trigger = call(&o.ctx, c.Trigger)
	o.ctx.end()
	return o.act(a, c, timing)
}

// change notes that a key has a window that changed since it was fired early.
func (o *listedOp[K, T, A]) change(g statestore.Group, k K) {
	if _, ok := o.isChanged[k]; ok {
		return
	}
	if o.isChanged == nil {
		o.isChanged = map[K]struct{}{}
	}
	o.isChanged[k] = struct{}{}
	o.changed = append(o.changed, changedSlice[K]{group: g, key: k})
	if o.earlyAt == 0 {
		o.earlyAt = o.x.Now() + o.early
		o.node.DueProcessing(o.earlyAt)
	}
}

func (o *listedOp[K, T, A]) fireEarly() error {
	changed := o.changed
	o.changed, o.earlyAt = nil, 0
	clear(o.isChanged)
	for _, c := range changed {
		o.key, o.group = c.key, c.group
		if _, err := o.x.Atomic(o.op, c.group, o.x.Now(), o.early1, o.name); err != nil {
			return err
		}
	}
	return nil
}

// earlyKey fires the open windows of a key that have changed.
func (o *listedOp[K, T, A]) earlyKey() error {
	if o.lists.Get(o.group, o.key) == nil {
		return nil
	}
	l, _ := o.lists.Update(o.group, o.key)
	w := o.watermark()
	for i := range l.Windows {
		if c := &l.Windows[i]; c.Changed && c.End-1 > w {
			if err := o.send(c, Early); err != nil {
				return err
			}
		}
	}
	return nil
}

// triggerContext is the window.Context of a listedOp.
type triggerContext[K comparable, T, A any] struct {
	o       *listedOp[K, T, A]
	c       *listedWindow[A]
	at      int64
	v       T
	element bool
}

func (t *triggerContext[K, T, A]) begin(c *listedWindow[A], at int64) { t.c, t.at = c, at }

func (t *triggerContext[K, T, A]) end() {
	var zero T
	t.c, t.v, t.element = nil, zero, false
}

func (t *triggerContext[K, T, A]) Window() (start, end time.Time) {
	if t.c.End == endless {
		return
	}
	return instant(t.c.Start), instant(t.c.End)
}

func (t *triggerContext[K, T, A]) Time() time.Time           { return instant(t.at) }
func (t *triggerContext[K, T, A]) Watermark() time.Time      { return instant(t.o.watermark()) }
func (t *triggerContext[K, T, A]) ProcessingTime() time.Time { return instant(t.o.x.Now()) }

func (t *triggerContext[K, T, A]) Element() any {
	if !t.element {
		return (*T)(nil)
	}
	return &t.v
}

func (t *triggerContext[K, T, A]) ms(at time.Time) int64 {
	n, ok := millis(at)
	if !ok {
		panic(fmt.Errorf("trigger: the time %s of a timer is millions of years away", at))
	}
	return n
}

// A trigger of windows of processing time has its event timers at the pace of the clock.
func (t *triggerContext[K, T, A]) RegisterEventTimer(at time.Time) {
	n := t.ms(at)
	addTimer(&t.c.Events, n)
	t.o.arm(n)
}

func (t *triggerContext[K, T, A]) RegisterProcessingTimer(at time.Time) {
	n := t.ms(at)
	addTimer(&t.c.Procs, n)
	t.o.procs.Set(n, t.o.group, t.o.key, 0)
	t.o.node.DueProcessing(n)
}

func (t *triggerContext[K, T, A]) DeleteEventTimer(at time.Time) {
	t.o.dropTimer(&t.c.Events, t.ms(at))
}

func (t *triggerContext[K, T, A]) DeleteProcessingTimer(at time.Time) {
	t.o.dropTimer(&t.c.Procs, t.ms(at))
}

// rowSpec is the codec of kept values.
type rowSpec[T any] struct{ codec statestore.Codec[T] }

func declare[K comparable, T, A, R any](r *rowSpec[T], n *node, d *windowDef[K, T, A, R], keySchema string) {
	var migrations []string
	if d.values != nil {
		r.codec, migrations = d.values(n)
	} else {
		r.codec, migrations = stateCodec[T](n, "value type")
	}
	mapKeys, err := statestore.KeyCodecOf[rowKey]()
	if err != nil {
		n.fail("%w", err)
	}
	n.store(storeRows, statestore.KindMap, keySchema+" / "+mapKeys.Schema(), schemaOf(r.codec)).Migrations = migrations
}

// rowKey is where a kept value lies: part, event time, and a number behind those before it.
type rowKey struct {
	Part uint64
	At   int64
	Seq  uint64
}

// keptRows are the values of windows that a key has for itself. Each window has parts, which have numbers of their own,
// so that sessions become one without a value being moved.
type keptRows[K comparable, T any] struct {
	m     *statestore.Map[K, rowKey, T]
	found []keptRow[T]
}

type keptRow[T any] struct {
	at rowKey
	v  T
}

func openRows[K comparable, T any](b *builder, n *node, keys statestore.KeyCodec[K], codec statestore.Codec[T]) (*keptRows[K, T], error) {
	mapKeys, err := statestore.KeyCodecOf[rowKey]()
	if err != nil {
		return nil, err
	}
	m, err := statestore.NewMap(b.state(), n.specOf(storeRows), keys, mapKeys, codec)
	return &keptRows[K, T]{m: m}, err
}

func (r *keptRows[K, T]) put(g statestore.Group, k K, part uint64, at int64, seq uint64, v T) {
	r.m.Put(g, k, rowKey{part, at, seq}, v)
}

// all calls yield for the values of parts in order of event time, of one time in order of arrival.
func (r *keptRows[K, T]) all(g statestore.Group, k K, parts []uint64, yield func(at rowKey, v *T) bool) {
	if len(parts) == 1 {
		r.part(g, k, parts[0], yield)
		return
	}
	r.found = r.found[:0]
	for _, p := range parts {
		r.part(g, k, p, func(at rowKey, v *T) bool { r.found = append(r.found, keptRow[T]{at, *v}); return true })
	}
	slices.SortFunc(r.found, func(a, b keptRow[T]) int {
		return cmp.Or(cmp.Compare(a.at.At, b.at.At), cmp.Compare(a.at.Seq, b.at.Seq))
	})
	rows := r.found
	for i := range rows {
		if !yield(rows[i].at, &rows[i].v) {
			break
		}
	}
	clear(rows)
}

func (r *keptRows[K, T]) part(g statestore.Group, k K, part uint64, yield func(at rowKey, v *T) bool) {
	r.m.Range(g, k, rowKey{part, math.MinInt64, 0}, rowKey{part + 1, math.MinInt64, 0}, yield)
}

func (r *keptRows[K, T]) drop(g statestore.Group, k K, parts []uint64) {
	var keys []rowKey
	for _, p := range parts {
		r.part(g, k, p, func(mk rowKey, _ *T) bool { keys = append(keys, mk); return true })
	}
	for _, mk := range keys {
		r.m.Delete(g, k, mk)
	}
}
