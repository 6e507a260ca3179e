package task

import (
	"math"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
)

// Policy says what becomes of a record that an operator cannot process.
type Policy uint8

// The policies. PolicyDefault depends on the class of the failure: see Class.
const (
	PolicyDefault Policy = iota
	PolicyFail
	PolicySkip
	PolicyDeadLetter
)

// Class says what kind of thing failed; it decides where an operator has no policy of its own.
type Class uint8

// The classes of failures and their default policies.
const (
	UserCode     Class = iota // a user function returned an error or panicked: fail
	BadData                   // it cannot be decoded, encoded, timed or written: Layout.BadData (dead letter)
	Misrouted                 // the key is not of this partition: fail
	internalData              // a record of an internal topic cannot be decoded: always stops
)

// Layout is the static shape of a sub-topology, as the runtime needs it.
type Layout struct {
	Inputs  []InputLayout
	Ops     []Op
	BadData Policy // default policy for BadData; PolicyDefault = dead letter
	// Nodes carry watermarks, in topological order. The first len(Inputs) are the inputs.
	Nodes        []NodeLayout
	Repartitions []Repartition
	DeadLetter   int // index of the output for dead letters, -1 = none
}

// InputLayout belongs to one input.
type InputLayout struct {
	Op       int32 // the source operator
	Internal bool
	Bound    int64 // ms of bounded out-of-orderness
	Custom   bool  // the Source has watermark generators of its own; Bound is not used
	Idle     time.Duration
	// Broadcast: see Input.Broadcast. Its records go first, and it holds back no event time.
	Broadcast bool
	// First: see Input.First.
	First bool
	// Nothing: it is that of an operator that reads nothing, and stays empty.
	Nothing bool
}

// Op is an operator, for policies and messages.
type Op struct {
	Name   string
	Policy Policy
}

// NodeLayout is an operator with a watermark of its own.
type NodeLayout struct {
	ID     string // key in Progress.Watermarks; "" = not kept
	Inputs []int  // nodes; empty for an input
}

// Repartition is an output that carries watermarks downstream.
type Repartition struct {
	Output int
	Node   int
	ID     string // operator id
	// Broadcast: every record goes to all partitions. Loads are the inputs whose records of before the first start those
	// behind it wait for.
	Broadcast bool
	Loads     []int
}

// Source is the typed side of one input: it decodes the head of each partition into a slot of its type and runs the
// operator chain on it.
type Source interface {
	// Open makes n slots, one for each partition of the input that the task owns.
	Open(n int)
	// Decode decodes rec into the slot and gives its event time in ms.
	Decode(x *Exec, slot int, rec *record.Record) (eventTime int64, err error)
	// Run sends the value of the slot down the chain.
	Run(x *Exec, slot int) error
	// OnEvent and OnPeriod ask the slot's own watermark generator (InputLayout.Custom): math.MinInt64 = nothing new.
	OnEvent(slot int, eventTime int64) (watermark int64)
	OnPeriod(slot int) (watermark int64)
}

// Node is the watermark of one operator in a running task.
type Node struct {
	Watermark int64 // ms; math.MinInt64 before the first
	Idle      bool
	// Fire fires all that is due now that the watermark has moved from before to watermark (they may be equal) and
	// sets Due anew. It returns only what stops the task.
	Fire func(x *Exec, before, watermark int64) error
	// FireProcessing is Fire for processing time.
	FireProcessing func(x *Exec, now int64) error

	id      string
	inputs  []*Node
	due     int64
	dueProc int64
	ahead   int64 // of Advance
	own     *Assigner
	hold    int64 // of Hold
	delay   int64 // of Delay
	t       *Task
}

// Due says that something is to fire once the watermark is >= at.
func (n *Node) Due(at int64) {
	if at < n.due {
		n.due = at
		if at <= n.Watermark {
			n.t.due = true
		}
	}
}

// NextDue is the lowest time that Due was called with since the node fired; Never if nothing is due.
func (n *Node) NextDue() int64 { return n.due }

// Advance moves the watermark of this node, and of those behind it, to at least at, whatever its inputs say: of what is
// called in FireProcessing only. The node fires before the Tick ends.
func (n *Node) Advance(at int64) {
	if at > n.Watermark {
		n.ahead = max(n.ahead, at)
		n.t.moved = true
	}
}

// Hold keeps the watermark of this node, and of those behind it, from going beyond at, whatever its inputs say, until
// the next call; Never ends it. A watermark that is beyond it already stays.
func (n *Node) Hold(at int64) {
	if at != n.hold {
		n.hold = at
		n.t.moved = true
	}
}

// Delay says that values which this node sends on may be so many ms behind its own watermark: those behind it see a
// watermark that is as much less. It is to be called before the task starts.
func (n *Node) Delay(ms int64) { n.delay = ms }

// out is the watermark that those behind the node see.
func (n *Node) out() int64 {
	if n.delay == 0 || n.Watermark == never || n.Watermark < unset+n.delay {
		return n.Watermark
	}
	return n.Watermark - n.delay
}

// Input is the watermark that the inputs of this node have now: where the node itself would be without Hold.
func (n *Node) Input() int64 {
	m := newMeet()
	for _, in := range n.inputs {
		m.add(in.out(), in.Idle)
	}
	return max(m.watermark(), n.Watermark)
}

// DueProcessing says that something is to fire once the clock shows >= now.
func (n *Node) DueProcessing(at int64) {
	if at < n.dueProc {
		n.dueProc = at
	}
}

// Never is a time at which nothing is due.
const Never = math.MaxInt64
