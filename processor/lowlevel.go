package processor

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// This file is the low-level contract: what other engines, such as the one of streaming SQL, are built on. It knows keys
// and stored values as bytes, times as ms since 1970-01-01 (NoTime = none), and allocates nothing per record. Values that
// are pointers may be used again by who sends them: they are valid for the call, as all that they point to.

// NoTime is the watermark before the first, and the time of what has none.
const NoTime = int64(math.MinInt64)

// KeyGroup is the key group of an encoded key: it says which subtask the key belongs to. ExchangeBy sends a value by it,
// and stores take it beside the key.
func KeyGroup(key []byte) statestore.Group {
	_, g := place(key, 1)
	return g
}

// SubtaskContext tells the parts of an operator about the subtask that they belong to.
type SubtaskContext struct {
	b         *builder
	node      *task.Node // of an External
	topic     string
	partition int32
}

// Now is the processing time in ms, the same while a record is processed.
func (c *SubtaskContext) Now() int64 { return c.b.x.Now() }

// Subtask is the subtask.
func (c *SubtaskContext) Subtask() Subtask {
	id, parallelism := c.b.x.Subtask()
	return Subtask{id.SubTopology, id.Index, parallelism}
}

// Watermark is where event time is, of what is for an External; NoTime before the first one, and Never when the input has ended.
func (c *SubtaskContext) Watermark() int64 {
	if c.node == nil {
		return NoTime
	}
	return c.node.Watermark
}

// Source is the topic and the partition that a decoder is for; "", 0 for other parts.
func (c *SubtaskContext) Source() (topic string, partition int32) { return c.topic, c.partition }

// CountSkipped counts a record that a decoder gave up without an error.
func (c *SubtaskContext) CountSkipped() { c.b.x.CountSkipped() }

func (c *SubtaskContext) scope() *builder { return c.b }

// SubtaskScope is a context that belongs to one subtask.
type SubtaskScope interface{ scope() *builder }

// Now is the processing time of a subtask in ms, the same while a record is processed; 0 while the topology is built.
func Now(ctx SubtaskScope) int64 {
	if b := ctx.scope(); b != nil {
		return b.x.Now()
	}
	return 0
}

// SubtaskOf is the SubtaskContext of any context.
func SubtaskOf(ctx SubtaskScope) *SubtaskContext { return &SubtaskContext{b: ctx.scope()} }

// Shared is what the parts of one subtask have in common, such as a memory for results: made by the first that asks for
// it under a key. While the topology is built it is made anew each time.
func Shared[S any](ctx SubtaskScope, key any, build func() S) S {
	b := ctx.scope()
	if b == nil {
		return build()
	}
	if s, ok := b.shared[key].(S); ok {
		return s
	}
	if b.shared == nil {
		b.shared = map[any]any{}
	}
	s := build()
	b.shared[key] = s
	return s
}

// OnStep adds a function that runs at the start of each record of the subtask, of each step of Atomic and of each
// BeforeCommit. While the topology is built it does nothing.
func OnStep(ctx SubtaskScope, f func()) {
	if b := ctx.scope(); b != nil {
		b.task.OnStep(f)
	}
}

// OnUndo adds a function that runs when such a step has failed and what it did is taken back. While the topology is built
// it does nothing.
func OnUndo(ctx SubtaskScope, f func()) {
	if b := ctx.scope(); b != nil {
		b.task.OnUndo(f)
	}
}

// SourceRecord is a record as it was read. Its bytes are valid until it has been processed, and must not be changed.
type SourceRecord struct {
	Key, Value []byte // nil = null
	Headers    []Header
	Timestamp  int64 // of Kafka, ms; below 0 = none
	Topic      string
	Partition  int32
	Offset     int64
	// AppendTime says that the broker set the timestamp when it took the record (LogAppendTime); else the producer did.
	AppendTime bool
	// LeaderEpoch of the partition's leader that took the record; -1 = not known.
	LeaderEpoch int32
}

// Decoder decodes the records of one partition, one after the other. It keeps what it has decoded until Run: Decode runs
// one record ahead, and decoders of other partitions run between the two.
type Decoder[T any] interface {
	// Decode decodes a record, or as much of it as gives its event time in ms. NoTime is the event time of a record that has
	// none or that Run drops. An error is bad input: see Policy, unless it is a format.OutsideError.
	Decode(r *SourceRecord) (at int64, err error)
	// Run sends on what was decoded: a value, several or none. It returns the error of emit.
	Run(emit func(v T) error) error
	// Watermark is asked after the record was processed: no record with an event time at or before it is expected in the
	// partition any more. NoTime = nothing new. What failed is not asked.
	Watermark() int64
}

// RawTopic is one or more topics that are read, with a decoder of the caller's.
type RawTopic[T any] struct {
	// Topics are read as one stream. The watermark is the least of all their partitions.
	Topics []string
	// ID of the source in errors and metrics, with "-2" and so on from the second topic. Default: the topic.
	ID string
	// Open makes the decoder of a partition.
	Open func(ctx *SubtaskContext) (Decoder[T], error)
	// Idle and Start are as in Topic.
	Idle  time.Duration
	Start Start
	// End is where reading ends; the zero End is never.
	End End
	// Pattern is what Topics were found by, if anything. A topic that is added to those of a pattern, when the app has read
	// others of it, begins at its first record and not at Start: nothing of it is to be missed.
	Pattern string
}

// FromRaw reads topics with a decoder for each partition. Unlike From it does not look at keys, values and timestamps.
func FromRaw[T any](t *Topology, topic RawTopic[T], o ...Option) Stream[T] {
	var outs []Flow[T]
	if len(topic.Topics) == 0 {
		topic.Topics = []string{""} // which is reported as a bad name
	}
	for i, name := range topic.Topics {
		id := topic.ID
		switch {
		case id == "":
			id = name
		case i > 0:
			id = fmt.Sprintf("%s-%d", id, i+1)
		}
		n := t.add("from-raw", spaceSource, id)
		checkTopic(n, name, topic.ID)
		n.source = &sourceInfo{topic: name, start: topic.Start.s, end: topic.End.e, pattern: topic.Pattern, layout: task.InputLayout{Custom: true, Idle: topic.Idle}}
		n.with(o)
		n.need(topic.Open != nil, "Open")
		if topic.Idle < 0 {
			n.fail("Idle is negative: %s", topic.Idle)
		}
		out := newStream[T](n)
		n.source.open = func(b *builder) task.Source {
			return &rawSource[T]{b: b, n: n, op: b.op(n), open: topic.Open, next: out.s.step(b)}
		}
		outs = append(outs, out)
	}
	if len(outs) == 1 {
		return outs[0].(Stream[T])
	}
	return Union(outs[0], outs[1:]...)
}

// rawSource is the task.Source of FromRaw.
type rawSource[T any] struct {
	b        *builder
	n        *node
	op       int32
	open     func(ctx *SubtaskContext) (Decoder[T], error)
	next     step[T]
	decoders []Decoder[T]
	rec      SourceRecord
	emit     func(v T) error
}

// Open is of task.Source. Slots are the partitions of the subtask in order.
func (s *rawSource[T]) Open(n int) {
	s.emit = func(v T) error {
		err := s.next(s.b.x, v)
		s.b.x.Op = s.op
		return err
	}
	s.decoders = make([]Decoder[T], n)
}

// decoder is the decoder of a slot, made with its first record, by which its partition is known.
func (s *rawSource[T]) decoder(x *task.Exec, slot int) (Decoder[T], error) {
	if d := s.decoders[slot]; d != nil {
		return d, nil
	}
	_, topic, partition := x.Record()
	d, err := s.open(&SubtaskContext{b: s.b, topic: topic, partition: partition})
	if err != nil {
		return nil, &task.Error{Operator: s.n.display(), Topic: topic, Partition: partition, Offset: -1, Kind: task.Data, Cause: fmt.Errorf("open decoder: %w", err)}
	}
	s.decoders[slot] = d
	return d, nil
}

// headOnly is the event time of records that have none: they go before all others.
const headOnly = math.MinInt64 + 1

// Decode is of task.Source.
func (s *rawSource[T]) Decode(x *task.Exec, slot int, rec *record.Record) (int64, error) {
	d, err := s.decoder(x, slot)
	if err != nil {
		return 0, x.FailWith(s.op, task.UserCode, task.PolicyFail, err)
	}
	_, topic, partition := x.Record()
	s.rec = SourceRecord{rec.Key, rec.Value, rec.Headers, rec.Timestamp, topic, partition, rec.Offset, rec.AppendTime, rec.LeaderEpoch}
	at, err := d.Decode(&s.rec)
	switch {
	case err != nil:
		return 0, badData(x, s.op, err)
	case at == NoTime:
		return headOnly, nil
	case at < -maxTime || at > maxTime:
		return 0, x.Fail(s.op, task.BadData, errors.New("take event time: it is millions of years away"))
	}
	return at, nil
}

// badData is an error of what is read or written, unless it comes from outside.
func badData(x *task.Exec, op int32, err error) error {
	var outside *format.OutsideError
	if errors.As(err, &outside) {
		class := task.UserCode
		if outside.Final {
			class = task.BadData
		}
		return x.FailWith(op, class, task.PolicyFail, err)
	}
	return x.Fail(op, task.BadData, err)
}

// Run is of task.Source.
func (s *rawSource[T]) Run(x *task.Exec, slot int) error {
	if x.Time == headOnly {
		x.Time = NoTime
	}
	part, _, _ := x.Input()
	x.Group, x.Op = statestore.Group(part), s.op
	return s.decoders[slot].Run(s.emit)
}

// OnEvent is of task.Source.
func (s *rawSource[T]) OnEvent(slot int, _ int64) int64 { return s.decoders[slot].Watermark() }

// OnPeriod is of task.Source.
func (s *rawSource[T]) OnPeriod(int) int64 { return math.MinInt64 }

// TransformContext is what the setup function and the callbacks of Transform use. There is one for each subtask. It must
// not be used by another goroutine. Flink: AbstractStreamOperatorV2.
type TransformContext[T, R any] struct {
	contextBase
	next        step[R]
	onRecord    func(input int, v T) error
	onWatermark func(before, watermark int64) error
	onTime      func(now int64) error
	beforeEnd   func() error

	asked   bool // Due was called since OnWatermark
	inStep  bool // a record, a step of Atomic, or the end of an epoch runs
	f       func() error
	runStep func() error
	stepKey []byte
	nameKey func(dst []byte) []byte
}

func (c *TransformContext[T, R]) scope() *builder { return c.b }

// OnRecord sets the callback for each value; inputs count from 0. It must be set. An error, or a panic, undoes all that
// the callback did and goes by the operator's policy. Flink: Input.processElement.
func (c *TransformContext[T, R]) OnRecord(f func(input int, v T) error) { c.onRecord = f }

// OnWatermark sets the callback for when the watermark has reached a time that Due asked for; it must ask anew. It writes
// state and emits in Atomic only. An error stops the app. Flink: processWatermark.
func (c *TransformContext[T, R]) OnWatermark(f func(before, watermark int64) error) {
	c.onWatermark = f
}

// OnTime sets the callback for when the clock has reached a time that DueProcessing asked for. It is as that of
// OnWatermark. Flink: ProcessingTimeCallback.
func (c *TransformContext[T, R]) OnTime(f func(now int64) error) { c.onTime = f }

// BeforeCommit sets a callback for the end of each epoch, before watermarks are sent to other subtasks and state is
// encoded: it emits what the operator has held back in memory, which must hold nothing afterwards. It is one atomic step
// without event time: see EmitAt. Flink: prepareSnapshotPreBarrier.
func (c *TransformContext[T, R]) BeforeCommit(f func() error) { c.beforeEnd = f }

// Emit sends a value on with the event time of the record or step that runs. The error is that of an operator behind: it
// must be returned. Flink: Output.collect.
func (c *TransformContext[T, R]) Emit(v R) error {
	if !c.active {
		panic("Emit is called outside of a callback")
	}
	err := c.next(c.x, v)
	c.x.Op = c.op
	if err != nil {
		c.failed = err
	}
	return err
}

// EmitAt is Emit with another event time, in ms.
func (c *TransformContext[T, R]) EmitAt(v R, at int64) error {
	was := c.x.Time
	c.x.Time = at
	err := c.Emit(v)
	c.x.Time = was
	return err
}

// Time is the event time of the record or step that runs, in ms; NoTime if there is none.
func (c *TransformContext[T, R]) Time() int64 { return c.x.Time }

// Now is the processing time in ms, the same while a record is processed.
func (c *TransformContext[T, R]) Now() int64 { return c.x.Now() }

// Watermark is that of this operator: the least of its inputs that are not idle. While a record is processed, it is as
// it was before it. NoTime before the first.
func (c *TransformContext[T, R]) Watermark() int64 { return c.node.Watermark }

// Due asks for OnWatermark once the watermark is >= at. It is not kept: who needs it after a restart asks in OnOpen.
func (c *TransformContext[T, R]) Due(at int64) {
	c.asked = true
	c.node.Due(at)
}

// DueProcessing asks for OnTime once the clock is >= at. It is not kept either.
func (c *TransformContext[T, R]) DueProcessing(at int64) { c.node.DueProcessing(at) }

// AdvanceWatermark moves the watermark of this operator, and of those behind it, to at least at, whatever its inputs say:
// of what is called in OnTime only.
func (c *TransformContext[T, R]) AdvanceWatermark(at int64) { c.node.Advance(at) }

// DelayWatermark says, in the setup function, that values which the operator emits may be that many ms behind its own
// watermark: the operators behind it see a watermark that is as much less.
func (c *TransformContext[T, R]) DelayWatermark(ms int64) {
	if c.b != nil {
		c.node.Delay(ms)
	} else if ms != 0 {
		c.n.timed = true // it needs a watermark of its own
	}
}

// Atomic runs f as one step in OnWatermark or OnTime: its event time is at, and what it does is undone if it fails; then
// the operator's policy decides, and the error is that of a policy that stops the app. key names the key in a dead
// letter; it is not kept.
func (c *TransformContext[T, R]) Atomic(g statestore.Group, at int64, key []byte, f func() error) error {
	if !c.active || c.inStep {
		panic("Atomic is called outside of OnWatermark and OnTime, or in a step of its own")
	}
	c.f, c.stepKey, c.inStep, c.failed = f, key, true, nil
	_, err := c.x.Atomic(c.op, g, at, c.runStep, c.nameKey)
	c.f, c.stepKey, c.inStep, c.failed, c.x.Op = nil, nil, false, nil, c.op
	return err
}

// CountLate counts a record that came too late.
func (c *TransformContext[T, R]) CountLate() { c.x.CountLate() }

// State is the state of the subtask, to open stores with; nil while the topology is built.
func (c *TransformContext[T, R]) State() *statestore.State {
	if c.b == nil {
		return nil
	}
	return c.b.state()
}

// StoreSpec declares a store of Transform.
type StoreSpec struct {
	Name string // unique in the operator: 1 to 40 of a-z, 0-9 and -
	Kind statestore.Kind
	// Key and Value are the schemas of the codecs.
	Key, Value string
	// Life is how long an entry may be needed after its last write, of windows and state with a time to live; 0 = always.
	Life time.Duration
	// Windows says how windows lie, of a store of windows.
	Windows string
}

// Fail says in the setup function what is wrong: the topology, or the subtask, is then not made.
func (c *TransformContext[T, R]) Fail(err error) { c.errs = append(c.errs, err) }

// Store declares a store, in the setup function. That runs twice: while the topology is built, when open is false, and
// in each subtask, where the store is to be opened with spec and State. The key group of its keys is that of
// StoreSpec's user; a query of state takes KeyGroup of the key. State: "<operator id>/<name>".
func (c *TransformContext[T, R]) Store(s StoreSpec) (spec statestore.Spec, open bool) {
	spec, open = c.declare(s.Name, s.Kind, s.Key, s.Value, stateSettings{}, nil)
	if c.b == nil && len(c.n.specs) > 0 {
		if own := &c.n.specs[len(c.n.specs)-1]; own.Name == c.n.id+"/"+s.Name {
			own.Expiring, own.Life, own.Windows = s.Life > 0 || s.Kind.Windowed(), s.Life, s.Windows
		}
	}
	return spec, open
}

// Sweep removes in the background, as TTL says it, what has expired in a store of stamped values that this subtask has
// opened. Reads must leave out what has expired and is still there: see statestore.Expired.
func (c *TransformContext[T, R]) Sweep(ttl TTL, s *statestore.Sweep) { c.b.sweep(c.n, ttl, s) }

// Transform runs an operator with one input or several. setup runs once in each subtask, where it opens stores and sets
// the callbacks, and once while the topology is built, to declare them; it must do nothing else there. An operator
// without stores, OnWatermark and OnTime needs no id. Flink: transform, MultipleInputStreamOperator.
func Transform[T, R any](inputs []Flow[T], id string, setup func(ctx *TransformContext[T, R]), o ...Option) Stream[R] {
	if len(inputs) == 0 {
		panic("processor: Transform without inputs at " + callSite() + "; use Generate")
	}
	ports := make([]port[T], len(inputs))
	nodes := make([]*node, len(inputs))
	for i, f := range inputs {
		ports[i] = f.flow()
		nodes[i] = ports[i].n
	}
	space := spaceOperator
	if id == "" {
		space = ""
	}
	n := nodes[0].t.add("transform", space, id, nodes...).with(o)
	out := newStream[R](n)
	n.emitsToSides = true
	n.groupOf = func(key []byte) (statestore.Group, error) { return KeyGroup(key), nil }
	if setup == nil {
		n.fail("setup function is nil")
		return out
	}
	dry := &TransformContext[T, R]{contextBase: contextBase{n: n}}
	if !dry.setUp(func() { setup(dry) }) {
		return out
	}
	n.need(dry.onRecord != nil, "OnRecord callback")
	n.timed = n.timed || dry.onWatermark != nil || dry.onTime != nil
	if id == "" && (n.timed || len(n.specs) > 0) {
		n.fail("it has stores or looks at time, so it needs an id")
	}
	context := func(b *builder) *TransformContext[T, R] {
		return shared(b, n, func() *TransformContext[T, R] { return newTransform(b, n, out.s.step(b), setup) })
	}
	for i, p := range ports {
		p.attach(func(b *builder) step[T] {
			c := context(b)
			if c == nil {
				return nil
			}
			return func(x *task.Exec, v T) error {
				c.active, c.inStep, c.failed = true, true, nil
				x.Op = c.op
				err := c.onRecord(i, v)
				c.active, c.inStep = false, false
				return c.done(err)
			}
		})
	}
	return out
}

// newTransform makes the operator of a subtask; nil after an error.
func newTransform[T, R any](b *builder, n *node, next step[R], setup func(ctx *TransformContext[T, R])) *TransformContext[T, R] {
	c := &TransformContext[T, R]{contextBase: newContextBase(b, n), next: next}
	if !c.setUp(func() { setup(c) }) {
		return nil
	}
	c.runStep = func() error { return c.done(c.f()) }
	c.nameKey = func(dst []byte) []byte { return append(dst, c.stepKey...) }
	if f := c.onWatermark; f != nil {
		c.node.Fire = func(x *task.Exec, before, watermark int64) error {
			if !c.asked { // at the end of time a node fires whether anything is due or not
				return nil
			}
			c.asked = false
			c.begin(x)
			return c.outside(f(before, watermark))
		}
	}
	if f := c.onTime; f != nil {
		c.node.FireProcessing = func(x *task.Exec, now int64) error {
			c.begin(x)
			return c.outside(f(now))
		}
	}
	if f := c.beforeEnd; f != nil {
		b.task.BeforeSeal(n.index, c.op, func() error {
			c.active, c.inStep, c.failed = true, true, nil
			err := f()
			c.active, c.inStep = false, false
			return c.done(err)
		})
	}
	return c
}

// begin opens a callback that is no step by itself.
func (c *TransformContext[T, R]) begin(x *task.Exec) {
	c.active, c.failed = true, nil
	x.Op, x.Time = c.op, NoTime
}

// outside ends it. What failed outside of a step can be undone by nobody, so it stops the subtask.
func (c *TransformContext[T, R]) outside(err error) error {
	c.active, c.x.Op = false, -1
	if err == nil {
		return nil
	}
	if e := (*task.Error)(nil); errors.As(err, &e) {
		return e
	}
	return &task.Error{Operator: c.n.display(), Offset: -1, Kind: task.Data, Cause: err}
}

// Generate makes a stream of an operator that reads nothing: it emits in OnTime, in Atomic, and asks for its first call
// in OnOpen. What it has emitted it keeps in a store, since it must go on behind that after a restart. It runs in one
// subtask, or in as many as Parallelism says. Its internal topic (<app.id>-<id>-repartition) stays empty.
// Flink: SourceFunction.
func Generate[R any](t *Topology, id string, setup func(ctx *TransformContext[struct{}, R]), o ...Option) Stream[R] {
	in := t.add("idle", "", id)
	in.source = &sourceInfo{topic: id, internal: true, from: in, layout: task.InputLayout{Internal: true, Nothing: true}}
	in.output = &outputInfo{topic: id, internal: true}
	in.parallelism = 1
	idle := newStream[struct{}](in)
	in.source.open = func(b *builder) task.Source { return &idleSource{next: idle.s.step(b)} }
	out := Transform([]Flow[struct{}]{idle}, id, func(ctx *TransformContext[struct{}, R]) {
		ctx.OnRecord(func(int, struct{}) error { return nil })
		setup(ctx)
	}, o...)
	n := out.s.n
	n.kind = "generate"
	if n.parallelism > 0 {
		in.parallelism, n.parallelism = n.parallelism, 0
	}
	return out
}

// idleSource is the task.Source of a topic to which nobody writes.
type idleSource struct {
	fedByWatermarks
	next step[struct{}]
}

// Open is of task.Source.
func (s *idleSource) Open(int) {}

// Decode is of task.Source.
func (s *idleSource) Decode(*task.Exec, int, *record.Record) (int64, error) {
	return 0, errors.New("read internal topic: it has a record, and nobody writes to it")
}

// Run is of task.Source.
func (s *idleSource) Run(*task.Exec, int) error { return nil }

// ExchangeWriter writes values to the topic of ExchangeBy, in one subtask.
type ExchangeWriter[T any] interface {
	// AppendKey appends the encoded key, by which the value is sent.
	AppendKey(dst []byte, v T) []byte
	AppendValue(dst []byte, v T) []byte
}

// ExchangeReader reads values of one partition of the topic of ExchangeBy. It keeps the value until it is asked for the
// next one; readers of other partitions run between the two.
type ExchangeReader[T any] interface {
	// Read decodes a value with event time at, in ms; key and payload are valid until it has been processed. An error stops
	// the subtask.
	Read(key, payload []byte, at int64) (v T, err error)
}

// Exchange says how values are sent.
type Exchange[T any] struct {
	// Writer and Reader make the two sides: in each subtask, and for each partition.
	Writer func(ctx *SubtaskContext) (ExchangeWriter[T], error)
	Reader func(ctx *SubtaskContext) (ExchangeReader[T], error)
	// KeySchema and ValueSchema say how keys and values are written: a later version must write the same.
	KeySchema, ValueSchema string
}

// ExchangeBy sends each value to the subtask of its encoded key, through a repartition topic as KeyBy does. The key group
// behind it is KeyGroup of the key. Flink: keyBy.
func ExchangeBy[T any](from Flow[T], id string, e Exchange[T], o ...Option) Stream[T] {
	p := from.flow()
	t := p.n.t
	w := t.add("exchange", spaceOperator, id, p.n)
	w.output = &outputInfo{topic: id, internal: true}
	w.with(o)
	w.need(e.Writer != nil, "Writer")
	w.need(e.Reader != nil, "Reader")
	w.detail = e.KeySchema + " -> " + e.ValueSchema
	// The read side. Its errors and policies are those of the exchange.
	r := t.add("exchanged", "", id)
	r.site, r.parallelism, r.name = w.site, w.parallelism, w.name
	w.parallelism = 0
	r.source = &sourceInfo{topic: id, internal: true, from: w, layout: task.InputLayout{Internal: true}, keySchema: e.KeySchema, valueSchema: e.ValueSchema}
	out := newStream[T](r)
	p.attach(func(b *builder) step[T] {
		op, repart, maxBytes := b.op(w), b.sub.repart[w], w.output.maxBytes
		partitions := b.x.Partitions(b.output(w))
		enc, err := e.Writer(&SubtaskContext{b: b})
		if err != nil {
			b.fail(w, err)
			return nil
		}
		return func(x *task.Exec, v T) error {
			x.Op = op
			key := x.Keep(enc.AppendKey(x.Buf(), v))
			value := x.Keep(enc.AppendValue(task.AppendDataHeader(x.Buf(), x.Time), v))
			partition, _ := place(key, partitions)
			return x.OutputRepartition(op, repart, partition, key, value, maxBytes)
		}
	})
	r.source.open = func(b *builder) task.Source {
		return &exchangeSource[T]{b: b, open: e.Reader, next: out.s.step(b)}
	}
	return out
}

// exchangeSource is the read side of ExchangeBy. What it cannot decode stops the subtask: we wrote it ourselves.
type exchangeSource[T any] struct {
	fedByWatermarks
	b     *builder
	open  func(ctx *SubtaskContext) (ExchangeReader[T], error)
	next  step[T]
	heads []exchangeHead[T]
}

type exchangeHead[T any] struct {
	r     ExchangeReader[T]
	group statestore.Group
	value T
}

// Open is of task.Source.
func (s *exchangeSource[T]) Open(n int) { s.heads = make([]exchangeHead[T], n) }

// Decode is of task.Source.
func (s *exchangeSource[T]) Decode(x *task.Exec, slot int, rec *record.Record) (int64, error) {
	h := &s.heads[slot]
	if h.r == nil {
		_, topic, partition := x.Record()
		var err error
		if h.r, err = s.open(&SubtaskContext{b: s.b, topic: topic, partition: partition}); err != nil {
			return 0, fmt.Errorf("open reader of exchange: %w", err)
		}
	}
	at, payload, err := task.DataFrame(rec.Value)
	if err != nil {
		return 0, err
	}
	if h.value, err = h.r.Read(rec.Key, payload, at); err != nil {
		return 0, fmt.Errorf("decode value of exchange: %w", err)
	}
	h.group = KeyGroup(rec.Key)
	if at == NoTime {
		at = headOnly
	}
	return at, nil
}

// Run is of task.Source.
func (s *exchangeSource[T]) Run(x *task.Exec, slot int) error {
	if x.Time == headOnly {
		x.Time = NoTime
	}
	h := &s.heads[slot]
	x.Group = h.group
	return s.next(x, h.value)
}

// SinkRecord is a record that is written.
type SinkRecord struct {
	Key, Value []byte // nil = null
	Headers    []Header
	Timestamp  int64 // of Kafka, ms; times before 1970 become 0
	// Partition is where it goes: AnyPartition is where Kafka's default partitioner puts the key, and without a key the
	// partition of the input.
	Partition int32
}

// AnyPartition: see SinkRecord.
const AnyPartition = int32(-1)

// SinkWriter writes the records of one subtask to a topic, or to an External.
type SinkWriter struct {
	b          *builder
	op, output int32
	maxBytes   int
	partitions int32
}

// Buf returns an empty slice; what is appended to it becomes a key, value or header value with Keep. Between the two
// nothing else may be begun.
func (w *SinkWriter) Buf() []byte { return w.b.x.Buf() }

// Keep ends what Buf began: the bytes stay until they are written.
func (w *SinkWriter) Keep(b []byte) []byte {
	if b = w.b.x.Keep(b); b == nil {
		return []byte{}
	}
	return b
}

// Time is the event time of the value, in ms; NoTime if it has none.
func (w *SinkWriter) Time() int64 { return w.b.x.Time }

// Now is the processing time in ms.
func (w *SinkWriter) Now() int64 { return w.b.x.Now() }

// Partitions is the number of partitions of the topic; 1 of an External.
func (w *SinkWriter) Partitions() int32 { return w.partitions }

// Write writes a record, of bytes that Keep gave or that nobody changes. The error is that of a record which the topic
// would refuse; it must be returned.
func (w *SinkWriter) Write(r SinkRecord) error {
	if w.output < 0 {
		w.b.x.OutputExternal(w.output, r.Key, r.Value)
		return nil
	}
	partition := r.Partition
	switch {
	case partition >= 0:
	case r.Key != nil:
		partition, _ = place(r.Key, w.partitions)
	default:
		partition = w.b.x.SourcePartition() % w.partitions
	}
	return w.b.x.Output(w.op, w.output, partition, r.Key, r.Value, r.Headers, r.Timestamp, w.maxBytes)
}

// RawSink is a topic that is written, with an encoder of the caller's.
type RawSink[T any] struct {
	Topic string
	// ID of the sink in errors and metrics, unique among sinks. Default: Topic.
	ID string
	// Open makes the encoder of a subtask. It writes a value as one record, as several or as none. Its error is bad input, unless
	// it is a format.OutsideError.
	Open func(ctx *SubtaskContext, w *SinkWriter) (func(v T) error, error)
}

// ToRaw writes a stream to a topic, in the transaction that also commits the input's positions and the state.
func ToRaw[T any](from Flow[T], sink RawSink[T], o ...Option) {
	p := from.flow()
	id := sink.ID
	if id == "" {
		id = sink.Topic
	}
	n := p.n.t.add("to-raw", spaceSink, id, p.n)
	checkTopic(n, sink.Topic, sink.ID)
	n.output = &outputInfo{topic: sink.Topic}
	n.with(o)
	n.need(sink.Open != nil, "Open")
	p.attach(func(b *builder) step[T] {
		w := &SinkWriter{b: b, op: b.op(n), output: b.output(n), maxBytes: n.output.maxBytes}
		w.partitions = b.x.Partitions(w.output)
		write, err := sink.Open(&SubtaskContext{b: b}, w)
		if err != nil {
			b.fail(n, err)
			return nil
		}
		return func(x *task.Exec, v T) error {
			x.Op = w.op
			if err := write(v); err != nil {
				return badData(x, w.op, err)
			}
			return nil
		}
	})
}
