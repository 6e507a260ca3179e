package task

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

const (
	never = math.MaxInt64
	unset = math.MinInt64 // of watermarks and highest times

	// broadcastInterval is how often a watermark goes to all partitions of a repartition topic, ms. The partitions
	// that an epoch writes anyway get it with every epoch.
	broadcastInterval = 200
	// periodInterval is how often OnPeriod of a watermark generator is called, ms (Flink: auto-watermark-interval).
	periodInterval = 200
)

// Task is the runtime of one subtask. See the end of contract.go for the order in which its methods are called.
//
// A record runs through the whole chain in one atomic step: State.Begin, chain, State.End, and then the watermark
// moves and what is due fires, each timer and each result of a window as a step of its own. A step that fails is
// rolled back to its mark: state, timers, outputs, counters. recover stands around a run of records, not around each;
// it takes the record that ran as failed and the run resumes behind it.
type Task struct {
	env     Env
	lay     *Layout
	x       Exec
	inputs  []input
	parts   []*part // of all inputs, by input and partition
	heads   []int64 // event time of each part's head, never = nothing buffered, unset = not looked at yet
	nodes   []*Node
	reparts []repartition

	stateful bool // the sub-topology has stores
	failed   error
	closers  []func() error

	arena   arena
	outs    []record.Output
	taken   []record.Output // handed out by TakeOutputs, reused from the next step on
	sealed  []record.Output // handed out by Seal, reused after Committed
	inSeal  bool
	barrier string // id of the savepoint whose barrier the next Seal writes; "" = none
	paused  bool   // external inputs wait
	// awaiting counts the inputs that go first and are not loaded yet: all others wait.
	awaiting int
	pollers  []func() (did bool, err error)
	blocked  int // reasons for which no record is processed

	now         int64
	phase       phase
	cur         *part // whose head is being decoded or run
	m           mark  // of the record that runs
	due         bool  // a node has something due at its present watermark
	moved       bool  // an input's watermark or idleness moved since advance
	dirty       bool  // something happened since the last seal
	oldest      int64 // processing time of the first of it that wants a commit, 0 = none
	lastPeriod  int64
	epochOut    int64 // bytes of outputs in the running epoch
	c           counters
	recordsIn   int64
	bytesIn     int64
	skipped     int64
	deadLetters int64
	buffered    int
	bufferedB   int64
	positions   []PartitionProgress // handed out by Positions
	expired     int64
	assigners   []*Assigner
	upkeeps     []*upkeep
	befores     []beforeSeal
	metrics     []*Metric
	onStep      []func()
	onUndo      []func()
	externals   []*external
}

type phase uint8

const (
	phaseNone phase = iota
	phaseDecode
	phaseRun
)

type input struct {
	InputLayout
	env   *EnvInput
	src   Source
	node  *Node
	parts []*part
	idle  int64 // ms, 0 = never
	// Of an input that goes first: its id, which upstream subtasks have sent all that they held at the first start (of an
	// external input: whether it was read to there), and how many have not.
	id       string
	loaded   []bool
	unloaded int
}

// part is one input partition.
type part struct {
	in     *input
	index  int // in Task.parts
	slot   int
	number int32

	queue [][]record.Record // not yet begun slices
	cur   []record.Record
	pos   int // head within cur

	kind headKind
	bad  error // headBad
	mark UpstreamMark
	at   int64  // headData: event time
	from int    // headWatermark, headBarrier, headLoaded: upstream subtask
	id   string // headBarrier: of the savepoint

	offset    int64
	maxTime   int64
	watermark int64
	isIdle    bool
	upstream  []UpstreamMark
	barriers  []string // of internal inputs: the last barrier of each upstream subtask; nil before the first
	lastSeen  int64    // processing time of the last record, for idleness
	until     int64    // where reading ends; never = it does not
	past      bool     // a record from there on was seen, so that a hole in front of it is none of ours
}

type headKind uint8

const (
	headUnknown headKind = iota
	headData
	headControl
	headWatermark
	headBarrier
	headLoaded
	headBad
)

type repartition struct {
	Repartition
	node    *Node
	sent    []UpstreamMark // by partition
	touched []bool         // partitions written in the running epoch
	lastAll int64          // processing time of the last watermark that went to all partitions
	loaded  bool           // of a broadcast: those behind it were told that they have all that was there at the first start
	behind  UpstreamMark   // the least of sent
}

// New makes a task without its chain: the caller sets the sources and the nodes' functions, then calls Start. It
// restores horizons first, so typed stores must be made after it.
func New(env Env, lay *Layout) (*Task, error) {
	if len(env.Inputs) != len(lay.Inputs) {
		return nil, fmt.Errorf("make subtask %s: %d inputs given, the sub-topology has %d", env.Subtask, len(env.Inputs), len(lay.Inputs))
	}
	t := &Task{env: env, lay: lay, now: env.Now, due: true, lastPeriod: env.Now}
	t.x.t, t.x.Op = t, -1
	for i := range env.Outputs {
		if env.Outputs[i].Partitions <= 0 {
			return nil, fmt.Errorf("make subtask %s: output topic %s has no partitions", env.Subtask, env.Outputs[i].Topic)
		}
	}
	if env.Restored != nil && env.State != nil {
		for _, h := range env.Restored.Horizons {
			env.State.SetHorizon(h.Store, h.End)
		}
	}
	for i := range lay.Nodes {
		l := &lay.Nodes[i]
		n := &Node{Watermark: unset, id: l.ID, due: never, dueProc: never, ahead: unset, hold: never, t: t}
		for _, in := range l.Inputs {
			n.inputs = append(n.inputs, t.nodes[in])
		}
		if w, ok := t.restoredWatermark(l.ID); ok {
			n.Watermark = w
		}
		t.nodes = append(t.nodes, n)
	}
	t.inputs = make([]input, len(lay.Inputs))
	for i := range t.inputs {
		in := &t.inputs[i]
		in.InputLayout, in.env, in.node = lay.Inputs[i], &env.Inputs[i], t.nodes[i]
		in.idle = in.Idle.Milliseconds()
		if in.Idle > 0 {
			in.idle = max(in.idle, 1)
		}
		numbers := slices.Clone(env.Inputs[i].Partitions)
		slices.Sort(numbers)
		for slot, p := range numbers {
			t.addPart(in, i, slot, p)
		}
		in.move()
		if in.loadedFirst() {
			t.await(in, lay.Nodes[i].ID)
		}
	}
	for _, r := range lay.Repartitions {
		n := env.Outputs[r.Output].Partitions
		w := repartition{Repartition: r, node: t.nodes[r.Node], sent: make([]UpstreamMark, n), touched: make([]bool, n), lastAll: unset}
		w.behind.Watermark = unset
		if sent, ok := t.restoredWatermark(r.sentID(false)); ok {
			w.behind.Watermark = sent
			_, w.behind.Idle = t.restoredWatermark(r.sentID(true))
		}
		for p := range w.sent {
			w.sent[p] = w.behind
		}
		_, w.loaded = t.restoredWatermark(r.loadedID())
		t.reparts = append(t.reparts, w)
	}
	t.moved = true
	return t, nil
}

func (t *Task) restoredWatermark(id string) (int64, bool) {
	if id == "" || t.env.Restored == nil {
		return 0, false
	}
	w, ok := t.env.Restored.Watermarks[id]
	return w, ok
}

// sentID is where Progress keeps what all partitions of a repartition topic were told at least. Operator ids hold no
// slash, so it is no operator's.
func (r Repartition) sentID(idle bool) string {
	if idle {
		return r.ID + "/sent-idle"
	}
	return r.ID + "/sent"
}

func (t *Task) addPart(in *input, index, slot int, number int32) {
	p := &part{in: in, index: len(t.parts), slot: slot, number: number, offset: -1, maxTime: unset, watermark: unset, lastSeen: t.now, until: never}
	if end, ok := in.env.Until[number]; ok {
		p.until = end
	}
	if in.Internal {
		p.upstream = make([]UpstreamMark, in.env.UpstreamSubtasks)
		for i := range p.upstream {
			p.upstream[i].Watermark = unset
		}
	}
	if t.env.Restored != nil {
		for i := range t.env.Restored.Partitions {
			r := &t.env.Restored.Partitions[i]
			if r.Input == index && r.Partition == number {
				p.offset, p.maxTime, p.watermark, p.isIdle = r.Offset, r.MaxTime, r.Watermark, r.Idle
				copy(p.upstream, r.Upstream)
			}
		}
	}
	in.parts = append(in.parts, p)
	t.parts = append(t.parts, p)
	t.heads = append(t.heads, never)
}

// Exec is the one Exec of the task.
func (t *Task) Exec() *Exec { return &t.x }

// Node gives the node of Layout.Nodes[i].
func (t *Task) Node(i int) *Node { return t.nodes[i] }

// SetSource sets the source of an input.
func (t *Task) SetSource(i int, s Source) {
	if wrap := t.env.Testing.Wrap; wrap != nil {
		s = wrap(i, t.inputs[i].InputLayout, s)
	}
	t.inputs[i].src = s
}

// OnClose adds a function for Close.
func (t *Task) OnClose(f func() error) { t.closers = append(t.closers, f) }

// OnStep adds a function that runs at the start of each atomic step.
func (t *Task) OnStep(f func()) { t.onStep = append(t.onStep, f) }

// OnUndo adds a function that runs when an atomic step has failed, for what it did to memory beside the state.
func (t *Task) OnUndo(f func()) { t.onUndo = append(t.onUndo, f) }

// Start ends the making of a task.
func (t *Task) Start() error {
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.src == nil {
			return fmt.Errorf("make subtask %s: input %s has no source", t.env.Subtask, in.env.Topic)
		}
		in.src.Open(len(in.parts))
	}
	t.stateful = t.env.State != nil && len(t.env.State.Specs()) > 0
	return nil
}

// Enqueue hands over fetched records of a partition, in offset order. The task owns the slice until they are
// processed. Records of a partition that the task does not own are a bug of the caller and stop the task.
func (t *Task) Enqueue(inputIndex int, partition int32, recs []record.Record) {
	if len(recs) == 0 {
		return
	}
	var p *part
	if inputIndex >= 0 && inputIndex < len(t.inputs) {
		for _, q := range t.inputs[inputIndex].parts {
			if q.number == partition {
				p = q
				break
			}
		}
	}
	if p == nil {
		t.failed = &Error{Kind: Bug, Partition: partition, Offset: recs[0].Offset, Cause: fmt.Errorf("enqueue records: subtask %s does not own partition %d of input %d", t.env.Subtask, partition, inputIndex)}
		return
	}
	if recs[0].Offset < p.offset {
		t.failed = &Error{Kind: Bug, Topic: p.in.env.Topic, Partition: partition, Offset: recs[0].Offset, Cause: fmt.Errorf("enqueue records: the offset is below the position %d", p.offset)}
		return
	}
	if recs = p.bound(recs); len(recs) == 0 {
		return
	}
	bytes := 0
	for i := range recs {
		bytes += len(recs[i].Key) + len(recs[i].Value)
	}
	t.bufferedB += int64(bytes)
	t.buffered += len(recs)
	if p.pos == len(p.cur) {
		p.cur, p.pos = recs, 0
		p.kind = headUnknown
		if !t.waits(p) {
			t.heads[p.index] = unset
		}
		return
	}
	p.queue = append(p.queue, recs)
}

// Step processes up to max records, watermark records and transaction markers; n is how many it did.
func (t *Task) Step(max int, now int64) (n int, err error) {
	if t.failed != nil {
		return 0, t.failed
	}
	t.now = now
	t.endParts()
	err = t.poll()
	for n < max && err == nil {
		var k int
		k, err = t.run(max - n)
		n += k
		if k == 0 && err == nil {
			break
		}
	}
	if err == nil && (t.moved || t.due) {
		err = t.guard(t.advance)
	}
	return n, t.fail(err)
}

// guard runs f; a panic ends the task.
func (t *Task) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = t.stop(t.x.panicked(r))
		}
	}()
	return f()
}

func (t *Task) fail(err error) error {
	if err != nil {
		t.failed = err
	}
	return err
}

// stop makes any error one that ends the task.
func (t *Task) stop(err error) error {
	if e, ok := fatal(err); ok {
		return e
	}
	if f, ok := err.(*Failure); ok {
		if f.op >= 0 {
			t.x.Op = f.op
		}
		return t.x.locate(f.data())
	}
	return t.x.locate(&Error{Kind: Bug, Cause: err})
}

// run processes records until max, the end of what is buffered, an error, or a panic: after a panic it has dealt with
// the record that caused it and counts it.
func (t *Task) run(max int) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			bad := t.x.panicked(r)
			switch ph := t.phase; ph {
			case phaseDecode:
				t.phase = phaseNone
				if e, ok := fatal(bad); ok {
					err = e
					return
				}
				t.setBad(t.cur, bad)
				n++ // so that the caller goes on
			case phaseRun:
				t.phase = phaseNone
				if e, ok := fatal(bad); ok {
					err = e
					return
				}
				n++
				err = t.guard(func() error { return t.failedRecord(t.cur, bad) })
			default:
				err = t.stop(bad)
			}
		}
	}()
	for n < max && t.blocked == 0 {
		i := t.pick()
		if i < 0 {
			break
		}
		p := t.parts[i]
		if p.kind == headUnknown {
			t.look(p)
			if len(t.parts) > 1 {
				continue
			}
		}
		if err = t.process(p); err != nil {
			return n, err
		}
		n++
		t.endPart(p)
		if t.moved || t.due {
			if err = t.advance(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// pick gives the part whose head comes first (I6): those not looked at yet, then the lowest event time; ties go to the
// lower input and partition.
func (t *Task) pick() int {
	best, at := -1, int64(never)
	for i, h := range t.heads {
		if h < at {
			best, at = i, h
		}
	}
	return best
}

// headFirst orders a head that has no event time before all that have one.
const headFirst = unset + 1

// look decodes the head of a part.
func (t *Task) look(p *part) {
	rec := &p.cur[p.pos]
	x := &t.x
	if rec.Control {
		p.kind, t.heads[p.index] = headControl, headFirst
		return
	}
	if p.in.Internal && len(rec.Value) > 0 && rec.Value[0] != frameData {
		if err := t.lookFrame(p, rec.Value); err != nil {
			t.setBad(p, err)
		}
		return
	}
	t.cur, t.phase = p, phaseDecode
	x.part, x.rec, x.Op = p, rec, p.in.Op
	at, err := p.in.src.Decode(x, p.slot, rec)
	t.phase, x.part, x.rec, x.Op = phaseNone, nil, nil, -1
	if err != nil {
		t.setBad(p, err)
		return
	}
	p.kind, p.at, t.heads[p.index] = headData, at, at
	if p.in.Broadcast {
		t.heads[p.index] = headFirst
	}
}

// lookFrame decodes a record of a repartition topic that is no data.
func (t *Task) lookFrame(p *part, value []byte) (err error) {
	switch value[0] {
	case frameWatermark:
		p.kind = headWatermark
		p.from, p.mark, err = watermarkFrame(value)
	case frameBarrier:
		p.kind = headBarrier
		p.from, p.id, err = barrierFrame(value)
	case frameLoaded:
		p.kind = headLoaded
		p.from, err = loadedFrame(value)
	default:
		err = fmt.Errorf("decode repartition record: kind %d is not known to this version of millrace; a later one wrote it, so run that one", value[0])
	}
	if err == nil && p.from >= len(p.upstream) {
		err = fmt.Errorf("decode repartition record: it is of upstream subtask %d, there are %d", p.from, len(p.upstream))
	}
	t.heads[p.index] = headFirst
	return err
}

func (t *Task) setBad(p *part, err error) {
	f, ok := err.(*Failure)
	if !ok {
		f = &Failure{op: p.in.Op, class: BadData, err: err}
	}
	if p.in.Internal {
		f.class = internalData
	}
	t.x.part, t.x.rec, t.x.Op = nil, nil, -1
	p.kind, p.bad, t.heads[p.index] = headBad, f, headFirst
}

// process handles the head of a part and moves behind it.
func (t *Task) process(p *part) error {
	rec := &p.cur[p.pos]
	x := &t.x
	switch p.kind {
	case headData:
		at := p.at
		x.part, x.rec, x.Time, x.Op = p, rec, at, -1
		x.begin(&t.m)
		t.cur, t.phase = p, phaseRun
		err := p.in.src.Run(x, p.slot)
		if err == nil && p.in.Custom {
			x.Op = p.in.Op
			p.setWatermark(t, p.in.src.OnEvent(p.slot, at))
		}
		if err != nil {
			t.phase = phaseNone
			return t.failedRecord(p, err)
		}
		x.end()
		t.phase, x.part, x.rec, x.Op = phaseNone, nil, nil, -1
		if at > p.maxTime {
			p.maxTime = at
			if !p.in.Custom && !p.in.Internal {
				p.setWatermark(t, at-p.in.Bound-1)
			}
		}
	case headBad:
		err := p.bad
		p.bad = nil
		x.begin(&t.m)
		return t.failedRecord(p, err)
	case headWatermark:
		m := &p.upstream[p.from]
		m.Watermark = max(m.Watermark, p.mark.Watermark)
		flips := m.Idle != p.mark.Idle
		m.Idle = p.mark.Idle
		p.fromUpstream()
		if flips { // which counts for all partitions
			for _, q := range p.in.parts {
				q.fromUpstream()
			}
		}
		t.moveInput(p.in)
	case headBarrier:
		if p.barriers == nil {
			p.barriers = make([]string, len(p.upstream))
		}
		p.barriers[p.from] = p.id
		t.dirty = true
		t.next(p, rec)
		return nil
	case headLoaded:
		t.dirty = true
		t.next(p, rec)
		t.hasLoaded(p)
		return nil
	case headControl:
		t.dirty = true
		t.next(p, rec)
		return nil
	}
	t.processed(p, rec)
	return nil
}

// failedRecord undoes the record that ran and lets its operator's policy decide.
func (t *Task) failedRecord(p *part, err error) error {
	x := &t.x
	rec := &p.cur[p.pos]
	x.rollback(&t.m)
	x.part, x.rec = p, rec
	err = x.judge(err, func() ([]byte, []byte) { return rec.Key, rec.Value })
	x.part, x.rec, x.Op = nil, nil, -1
	if err != nil {
		return err
	}
	t.processed(p, rec)
	return nil
}

func (t *Task) processed(p *part, rec *record.Record) {
	if p.kind != headWatermark {
		t.recordsIn++
		t.bytesIn += int64(len(rec.Key) + len(rec.Value))
	}
	t.touch()
	p.lastSeen = t.now
	if p.isIdle && !p.in.Internal {
		p.isIdle = false
		t.moveInput(p.in)
	}
	t.next(p, rec)
}

// touch says that the running epoch has something to commit.
func (t *Task) touch() {
	t.dirty = true
	if t.oldest == 0 {
		t.oldest = t.now
	}
}

// next moves a part behind its head.
func (t *Task) next(p *part, rec *record.Record) {
	p.offset = rec.Offset + 1
	t.buffered--
	t.bufferedB -= int64(len(rec.Key) + len(rec.Value))
	p.pos++
	p.kind = headUnknown
	if p.pos == len(p.cur) {
		p.pos, p.cur = 0, nil
		if len(p.queue) > 0 {
			p.cur = p.queue[0]
			p.queue[0] = nil
			if p.queue = p.queue[1:]; len(p.queue) == 0 {
				p.queue = nil
			}
		}
	}
	if p.cur == nil {
		t.heads[p.index] = never
	} else {
		t.heads[p.index] = unset
	}
	if p.in.unloaded > 0 {
		t.lookLoaded(p.in)
	}
}

// setWatermark moves the watermark of a partition; it never goes back.
func (p *part) setWatermark(t *Task, w int64) {
	if w <= p.watermark {
		return
	}
	// Only the partition that held the input back can let it go on.
	holds := p.watermark <= p.in.node.Watermark
	p.watermark = w
	if holds {
		t.moveInput(p.in)
	}
}

// fromUpstream takes the minimum over all active upstream subtasks. One is idle when it is on all partitions: its last word on
// this one may be older than its last word on another, and records between them are still to come.
func (p *part) fromUpstream() {
	m := newMeet()
	for i := range p.upstream {
		m.add(p.upstream[i].Watermark, p.in.isIdle(i))
	}
	p.watermark, p.isIdle = max(p.watermark, m.watermark()), !m.active
}

// meet is where watermarks come together: the least of the active ones counts. Where all are idle it is the greatest: had
// the others become idle first, it would have gone on alone. What has ended counts for nothing.
type meet struct {
	least, most int64
	active      bool
}

func newMeet() meet { return meet{never, unset, false} }

func (m *meet) add(watermark int64, idle bool) {
	switch {
	case !idle:
		m.active = true
		m.least = min(m.least, watermark)
	case watermark != never:
		m.most = max(m.most, watermark)
	}
}

func (m *meet) watermark() int64 {
	if m.active {
		return m.least
	}
	return m.most
}

// isIdle says whether an upstream subtask is idle.
func (in *input) isIdle(upstream int) bool {
	for _, p := range in.parts {
		if !p.upstream[upstream].Idle {
			return false
		}
	}
	return true
}

func (t *Task) moveInput(in *input) {
	if in.move() {
		t.moved = true
	}
}

// move puts the watermarks of the partitions of an input together.
func (in *input) move() (moved bool) {
	m := newMeet()
	for _, p := range in.parts {
		m.add(p.watermark, p.isIdle)
	}
	moved = m.active == in.node.Idle
	in.node.Idle = !m.active
	if w := m.watermark(); w > in.node.Watermark {
		in.node.Watermark = w
		moved = true
	}
	return moved
}

// advance moves the operators' watermarks in topological order and fires what is due: an operator fires before the
// watermark reaches those behind it, so that its results are never late there.
func (t *Task) advance() error {
	moved := t.moved
	t.moved, t.due = false, false
	for _, n := range t.nodes[len(t.inputs):] {
		before := n.Watermark
		if moved {
			if n.own != nil {
				n.own.move()
			} else if len(n.inputs) == 1 {
				in := n.inputs[0]
				n.Idle = in.Idle && n.hold == never
				n.Watermark = max(n.Watermark, min(in.out(), n.hold))
			} else {
				n.combine()
			}
			n.Watermark = max(n.Watermark, n.ahead)
		}
		if n.Watermark >= n.due && n.Fire != nil {
			n.due = never
			t.touch()
			if err := n.Fire(&t.x, before, n.Watermark); err != nil {
				return err
			}
		}
	}
	if t.moved && len(t.assigners) > 0 { // by what has fired
		return t.advance()
	}
	return nil
}

func (n *Node) combine() {
	m := newMeet()
	for _, in := range n.inputs {
		m.add(in.out(), in.Idle)
	}
	n.Idle = !m.active && n.hold == never
	n.Watermark = max(n.Watermark, min(m.watermark(), n.hold))
}

// Tick lets processing time pass: timers, idleness, periodic watermarks.
func (t *Task) Tick(now int64) (err error) {
	if t.failed != nil {
		return t.failed
	}
	t.now = now
	defer func() {
		if r := recover(); r != nil {
			err = t.fail(t.stop(t.x.panicked(r)))
		}
	}()
	if err := t.poll(); err != nil {
		return err
	}
	restored := t.moved // by New: it is committed already
	period := now-t.lastPeriod >= periodInterval
	if period {
		t.lastPeriod = now
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		for _, p := range in.parts {
			if in.Custom && period {
				t.x.Op = in.Op
				p.setWatermark(t, in.src.OnPeriod(p.slot))
				t.x.Op = -1
			}
			if in.idle > 0 && !p.isIdle && !p.ended() && t.heads[p.index] == never && !t.stands() && now-p.lastSeen >= in.idle {
				p.isIdle = true
				t.moveInput(in)
			}
		}
	}
	for _, a := range t.assigners {
		a.pass(now, period)
	}
	if t.moved && !restored {
		t.touch()
	}
	for _, n := range t.nodes {
		if n.FireProcessing != nil && now >= n.dueProc {
			n.dueProc = never
			t.touch()
			if err := n.FireProcessing(&t.x, now); err != nil {
				return t.fail(err)
			}
		}
	}
	if err := t.doUpkeep(now); err != nil {
		return t.fail(err)
	}
	if t.moved || t.due {
		if err := t.advance(); err != nil {
			return t.fail(err)
		}
	}
	for _, e := range t.externals {
		if now >= e.Due() {
			t.touch()
		}
	}
	for i := range t.reparts {
		// Nothing else would make the engine commit, so the outputs of this do. A running epoch has its Seal.
		if r := &t.reparts[i]; t.oldest == 0 && r.pending() && now >= r.nextAll() {
			t.touch()
			t.writeWatermarks(i)
		}
	}
	return nil
}

// pending says that some partition has not heard of the present watermark.
func (r *repartition) pending() bool {
	return r.node.Watermark > r.behind.Watermark || r.node.Idle != r.behind.Idle
}

func (r *repartition) nextAll() int64 {
	if r.lastAll == unset {
		return unset
	}
	return r.lastAll + broadcastInterval
}

// TakeOutputs returns the outputs of finished records since the last call, for the engine to produce at once. The
// slice is valid until the next Step, Tick or Seal, the bytes until Committed.
func (t *Task) TakeOutputs() []record.Output {
	t.passExternals()
	o := t.outs
	t.outs, t.taken = t.taken[:0], o
	for i := range o {
		t.epochOut += int64(len(o[i].Key) + len(o[i].Value))
	}
	return o
}

// Seal ends the running epoch: watermark records for repartition topics are written, dirty state is encoded once. An
// Empty result leaves the running epoch as it is, nothing of it is to be committed. Otherwise the next Seal comes
// after Committed; Step and Tick may run before it.
func (t *Task) Seal(epoch uint64, now int64) (s *Sealed, err error) {
	if t.failed != nil {
		return nil, t.failed
	}
	if t.inSeal {
		return nil, fmt.Errorf("seal epoch %d of subtask %s: the epoch before is not committed yet", epoch, t.env.Subtask)
	}
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, t.fail(t.stop(t.x.panicked(r)))
		}
	}()
	t.now = now
	if err := t.runBeforeSeal(); err != nil {
		return nil, t.fail(err)
	}
	for i := range t.reparts {
		t.writeWatermarks(i)
	}
	t.writeLoaded()
	t.writeBarriers()
	if t.passExternals(); t.failed != nil {
		return nil, t.failed
	}
	s = &Sealed{Epoch: epoch}
	if !t.dirty && len(t.outs) == 0 {
		s.Empty = true
		s.Progress = t.progress()
		return s, nil
	}
	if t.stateful {
		s.Changelog = t.env.State.Seal(epoch)
	}
	s.Progress = t.progress()
	s.Outputs = t.outs
	t.outs, t.sealed = t.sealed[:0], t.outs
	t.arena.seal()
	t.inSeal, t.dirty, t.oldest, t.epochOut = true, false, 0, 0
	return s, nil
}

// writeWatermarks writes the watermark to the partitions of a repartition topic that are to hear of it now.
func (t *Task) writeWatermarks(i int) {
	r := &t.reparts[i]
	mark := UpstreamMark{Watermark: r.node.Watermark, Idle: r.node.Idle}
	all := r.pending() && t.now >= r.nextAll()
	if all && !t.env.Testing.EagerWatermarks {
		r.lastAll = t.now
	}
	r.behind = mark
	for p := range r.sent {
		s := &r.sent[p]
		if (all || r.touched[p]) && *s != mark {
			v := t.x.Keep(appendWatermark(t.x.Buf(), t.env.Subtask.Index, mark))
			t.outs = append(t.outs, record.Output{Topic: int32(r.Output), Partition: int32(p), Value: v, Timestamp: max(t.now, 0)})
			*s = mark
		}
		r.touched[p] = false
		r.behind.Watermark = min(r.behind.Watermark, s.Watermark)
		if s.Idle != mark.Idle {
			r.behind.Idle = s.Idle
		}
	}
}

func (t *Task) progress() Progress {
	p := Progress{Partitions: make([]PartitionProgress, 0, len(t.parts)), Watermarks: map[string]int64{}}
	for i := range t.inputs {
		for _, q := range t.inputs[i].parts {
			p.Partitions = append(p.Partitions, PartitionProgress{Input: i, Partition: q.number, Offset: q.offset, MaxTime: q.maxTime,
				Watermark: q.watermark, Idle: q.isIdle, Upstream: slices.Clone(q.upstream)})
		}
	}
	if t.stateful {
		for id, end := range t.env.State.Horizons() {
			p.Horizons = append(p.Horizons, Horizon{Store: id, End: end})
		}
		slices.SortFunc(p.Horizons, func(a, b Horizon) int { return cmp.Compare(a.Store, b.Store) })
	}
	for _, n := range t.nodes {
		if n.id != "" && n.Watermark != unset {
			p.Watermarks[n.id] = n.Watermark
		}
	}
	for _, a := range t.assigners {
		a.note(p.Watermarks)
	}
	for _, q := range t.parts {
		if q.until != never {
			p.Watermarks[EndID(q.in.env.Topic, q.number)] = q.until
		}
	}
	for i := range t.reparts {
		if r := &t.reparts[i]; r.behind.Watermark != unset {
			p.Watermarks[r.sentID(false)] = r.behind.Watermark
			if r.behind.Idle {
				p.Watermarks[r.sentID(true)] = 1
			}
		}
	}
	t.loadProgress(p.Watermarks)
	return p
}

// Committed says that the sealed epoch is committed: its memory is recycled and its state becomes a candidate for
// write-behind, which the engine starts (State.WriteBehind with the same Meta).
func (t *Task) Committed(statestore.Meta) error {
	if !t.inSeal {
		return nil
	}
	t.inSeal = false
	clear(t.sealed[:cap(t.sealed)])
	t.arena.committed()
	if t.stateful {
		t.env.State.Committed()
	}
	return nil
}

// Stats returns the task's counters.
func (t *Task) Stats() Stats {
	s := Stats{RecordsIn: t.recordsIn, BytesIn: t.bytesIn, RecordsOut: t.c.recordsOut, BytesOut: t.c.bytesOut, Late: t.c.late,
		Blocked: t.blocked > 0, DeadLetters: t.deadLetters, Skipped: t.skipped, Expired: t.expired, Watermark: t.watermark(), Buffered: t.buffered, BufferedBytes: t.bufferedB,
		OldestUncommittedIn: t.oldest, EpochBytes: t.epochOut, Ended: t.ended(), NextTimer: never}
	for i := range t.outs {
		s.EpochBytes += int64(len(t.outs[i].Key) + len(t.outs[i].Value))
	}
	if t.stateful {
		s.EpochBytes += t.env.State.Dirty()
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.Custom {
			s.NextTimer = min(s.NextTimer, t.lastPeriod+periodInterval)
		}
		if in.idle == 0 || t.stands() {
			continue
		}
		for _, p := range in.parts {
			if !p.isIdle && !p.ended() && t.heads[p.index] == never {
				s.NextTimer = min(s.NextTimer, p.lastSeen+in.idle)
			}
		}
	}
	for _, n := range t.nodes {
		s.NextTimer = min(s.NextTimer, n.dueProc)
	}
	for _, a := range t.assigners {
		s.NextTimer = min(s.NextTimer, a.nextPass())
	}
	for _, u := range t.upkeeps {
		s.NextTimer = min(s.NextTimer, u.due)
	}
	for _, e := range t.externals {
		if t.oldest == 0 { // else a commit is on its way
			s.NextTimer = min(s.NextTimer, e.Due())
		}
	}
	for i := range t.reparts {
		if r := &t.reparts[i]; t.oldest == 0 && r.pending() {
			s.NextTimer = min(s.NextTimer, max(r.nextAll(), 0))
		}
	}
	return s
}

func (t *Task) watermark() int64 {
	w, idle := int64(never), true
	for i := range t.inputs {
		if n := t.inputs[i].node; !n.Idle && !t.inputs[i].Broadcast {
			idle = false
			w = min(w, n.Watermark)
		}
	}
	if !idle {
		return w
	}
	w = unset
	for i := range t.inputs {
		if !t.inputs[i].Broadcast {
			w = max(w, t.inputs[i].node.Watermark)
		}
	}
	return w
}

// Close ends the task; what was not committed is lost.
func (t *Task) Close() error {
	var errs []error
	for _, f := range t.closers {
		if err := f(); err != nil {
			errs = append(errs, err)
		}
	}
	t.closers = nil
	return errors.Join(errs...)
}
