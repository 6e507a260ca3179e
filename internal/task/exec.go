package task

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Exec is what the operator chain of a task knows about the step that runs: one Exec per task, handed down the chain.
type Exec struct {
	Time  int64            // event time, ms: of the record, the timer, or end-1 of the window
	Group statestore.Group // key group of the current key
	Op    int32            // operator whose user code runs, -1 = none: a panic is its failure

	t    *Task
	part *part          // of the record that runs, nil when a timer or window fires
	rec  *record.Record // likewise
	// origin is where the value came from that an operator kept and goes on with; nil = nowhere.
	origin *Origin
}

// Now is the processing time in ms, as the engine told it.
func (x *Exec) Now() int64 { return x.t.now }

// State is the state of the subtask.
func (x *Exec) State() *statestore.State { return x.t.env.State }

// Subtask is the id of the subtask and the number of subtasks beside it.
func (x *Exec) Subtask() (id record.SubtaskID, parallelism int) {
	return x.t.env.Subtask, x.t.env.Parallelism
}

// Record is the input record that runs with the place it came from; nil when a timer or a window fires.
func (x *Exec) Record() (r *record.Record, topic string, partition int32) {
	if x.part == nil {
		return nil, "", 0
	}
	return x.rec, x.part.in.env.Topic, x.part.number
}

// SourcePartition is the partition that a keyless output follows: the one of the record, else the subtask's index.
func (x *Exec) SourcePartition() int32 {
	if x.part == nil && x.origin != nil {
		return x.origin.Partition
	}
	if x.part == nil {
		return int32(x.t.env.Subtask.Index)
	}
	return x.part.number
}

// CountLate counts a late record.
func (x *Exec) CountLate() { x.t.c.late++ }

// CountSkipped counts a record that was given up.
func (x *Exec) CountSkipped() { x.t.skipped++ }

// Buf returns an empty, never nil slice; what is appended to it becomes the key or value of an output with Keep.
func (x *Exec) Buf() []byte { return x.t.arena.buf() }

// Keep ends what Buf began.
func (x *Exec) Keep(b []byte) []byte { return x.t.arena.keep(b) }

// recordOverhead is what Kafka's record format needs at most beside key, value and headers: varints of length,
// timestamp and offset deltas, key and value lengths, the attributes and the number of headers.
const recordOverhead = 32

// Output writes one record. A record that the topic would refuse is a failure of operator op.
func (x *Exec) Output(op, output, partition int32, key, value []byte, headers []record.Header, timestamp int64, maxBytes int) error {
	t := x.t
	size := len(key) + len(value) + recordOverhead
	for i := range headers {
		size += len(headers[i].Key) + len(headers[i].Value) + 10
	}
	o := &t.env.Outputs[output]
	limit := o.MaxRecordBytes
	if maxBytes > 0 && (limit <= 0 || maxBytes < limit) {
		limit = maxBytes
	}
	if limit > 0 && size > limit {
		return x.Fail(op, BadData, fmt.Errorf("write to topic %s: record with key %s has %d bytes, the limit is %d; raise max.message.bytes of the topic or make the record smaller", o.Topic, quoteKey(key), size, limit))
	}
	if partition < 0 || partition >= o.Partitions {
		return x.Fail(op, UserCode, fmt.Errorf("write to topic %s: partition %d does not exist, the topic has %d", o.Topic, partition, o.Partitions))
	}
	if ahead := timestamp - t.now; o.TimestampAfter > 0 && ahead > o.TimestampAfter {
		return x.Fail(op, BadData, fmt.Errorf("write to topic %s: the record's timestamp %s is %s ahead of the clock, the topic takes %s (message.timestamp.after.max.ms); correct the event time, or give the sink a Time", o.Topic, instantText(timestamp), durationText(ahead), durationText(o.TimestampAfter)))
	} else if o.TimestampBefore > 0 && -ahead > o.TimestampBefore {
		return x.Fail(op, BadData, fmt.Errorf("write to topic %s: the record's timestamp %s is %s behind the clock, the topic takes %s (message.timestamp.before.max.ms); raise it, or give the sink a Time", o.Topic, instantText(timestamp), durationText(-ahead), durationText(o.TimestampBefore)))
	}
	// Kafka knows no times before 1970.
	t.outs = append(t.outs, record.Output{Topic: output, Partition: partition, Key: key, Value: value, Headers: headers, Timestamp: max(timestamp, 0)})
	t.c.recordsOut++
	t.c.bytesOut += int64(size - recordOverhead)
	return nil
}

// OutputRepartition is Output for a repartition topic: the partition gets the epoch's watermark too.
func (x *Exec) OutputRepartition(op int32, repartition int, partition int32, key, value []byte, maxBytes int) error {
	r := &x.t.reparts[repartition]
	// The event time is in the frame. The broker must not judge it (message.timestamp.after.max.ms is an hour).
	if err := x.Output(op, int32(r.Output), partition, key, value, nil, x.t.now, maxBytes); err != nil {
		return err
	}
	r.touched[partition] = true
	return nil
}

// Partitions is the number of partitions of an output.
func (x *Exec) Partitions(output int32) int32 { return x.t.env.Outputs[output].Partitions }

// Failure is a failed operator on its way up the chain to the step that it ends.
type Failure struct {
	op     int32
	class  Class
	policy Policy // instead of the operator's; PolicyDefault = none
	err    error
	stack  []byte
}

func (f *Failure) Error() string { return f.err.Error() }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.err }

// data is the error of a task that ends with it.
func (f *Failure) data() *Error {
	final := f.class == BadData || f.class == Misrouted
	if !final {
		_, final = errors.AsType[Expected](f.err)
	}
	return &Error{Kind: Data, Cause: f.err, Stack: f.stack, Final: final, BadData: f.class == BadData && f.policy == PolicyDefault}
}

// Fail marks err as a failure of operator op. A Failure from further down stays as it is.
func (x *Exec) Fail(op int32, class Class, err error) error {
	if f, ok := err.(*Failure); ok {
		return f
	}
	return &Failure{op: op, class: class, err: err}
}

// FailStack is Fail for a panic of user code elsewhere.
func (x *Exec) FailStack(op int32, err error, stack []byte) error {
	return &Failure{op: op, class: UserCode, err: err, stack: stack}
}

// FailWith is Fail with a policy of its own.
func (x *Exec) FailWith(op int32, class Class, policy Policy, err error) error {
	return &Failure{op: op, class: class, policy: policy, err: err}
}

// Input is the partition that the record that runs came from and the number of partitions of its topic; ok is false
// when a timer or a window fires.
func (x *Exec) Input() (partition, total int32, ok bool) {
	if x.part == nil {
		return 0, 0, false
	}
	return x.part.number, x.part.in.env.TotalPartitions, true
}

// fatal is a *Error that passes through user code unchanged: nothing else may decide about it.
func fatal(err error) (*Error, bool) {
	e, ok := err.(*Error)
	return e, ok
}

// Expected is a value to panic with that means no fault of a program but one of its data: code that computes values does so
// where errors as results would cost too much. It is a failure of the operator that runs, without a stack.
type Expected interface {
	error
	Expected()
}

// panicked turns a recovered panic into what it means.
func (x *Exec) panicked(r any) error {
	if f, ok := r.(*statestore.Fault); ok {
		return x.locate(&Error{Kind: Fault, Cause: f.Err})
	}
	if m, ok := r.(*statestore.MigrationError); ok {
		if x.Op < 0 { // a window that fires, and was not read before
			return x.locate(&Error{Kind: Data, Cause: m})
		}
		return &Failure{op: x.Op, class: UserCode, err: m}
	}
	if e, ok := r.(Expected); ok && x.Op >= 0 {
		return &Failure{op: x.Op, class: UserCode, err: e}
	}
	err, ok := r.(error)
	if ok {
		err = fmt.Errorf("panic: %w", err)
	} else {
		err = fmt.Errorf("panic: %v", r)
	}
	if x.Op < 0 {
		return x.locate(&Error{Kind: Bug, Cause: err, Stack: panicStack()})
	}
	return &Failure{op: x.Op, class: UserCode, err: err, stack: panicStack()}
}

// panicStack is the stack of the panic that is being recovered from, without the frames that recover it.
func panicStack() []byte {
	s := debug.Stack()
	if i := bytes.Index(s, []byte("\npanic(")); i >= 0 {
		s = s[i+1:]
	}
	return s
}

// locate fills in operator and position.
func (x *Exec) locate(e *Error) *Error {
	e.Offset = -1
	if e.Operator == "" && x.Op >= 0 {
		e.Operator = x.t.lay.Ops[x.Op].Name
	}
	if x.part != nil && x.rec != nil {
		e.Topic, e.Partition, e.Offset = x.part.in.env.Topic, x.part.number, x.rec.Offset
	} else if o := x.origin; o != nil && o.Topic != "" {
		e.Topic, e.Partition, e.Offset = o.Topic, o.Partition, o.Offset
	}
	return e
}

// mark is a point of the running epoch to which a failed step goes back.
type mark struct {
	outs  int
	arena arenaMark
	c     counters
}

// counters belong to steps: a failed one takes them back.
type counters struct{ late, recordsOut, bytesOut int64 }

// begin notes in m where the step starts. It runs for every record: m is set in place.
func (x *Exec) begin(m *mark) {
	t := x.t
	if t.stateful {
		t.env.State.Begin()
	}
	m.outs, m.arena, m.c = len(t.outs), t.arena.mark(), t.c
	for _, f := range t.onStep {
		f()
	}
}

func (x *Exec) end() {
	if x.t.stateful {
		x.t.env.State.End()
	}
	for _, a := range x.t.assigners {
		a.apply()
	}
}

func (x *Exec) rollback(m *mark) {
	t := x.t
	if t.stateful {
		t.env.State.Rollback()
	}
	for _, f := range t.onUndo {
		f()
	}
	for _, a := range t.assigners {
		a.pending = a.pending[:0]
	}
	clear(t.outs[m.outs:])
	t.outs = t.outs[:m.outs]
	t.arena.reset(m.arena)
	t.c = m.c
}

// Atomic runs f as one atomic step outside of a record: a timer or one result of a window. When it fails, everything
// that it did is undone and its operator's policy decides; the error is what stops the task, nil otherwise, and
// skipped says that the step was given up. key encodes the key of the step for a dead letter.
func (x *Exec) Atomic(op int32, g statestore.Group, eventTime int64, f func() error, key func(dst []byte) []byte) (skipped bool, err error) {
	part, rec := x.part, x.rec
	x.part, x.rec, x.Group, x.Time = nil, nil, g, eventTime
	var m mark
	x.begin(&m)
	x.Op = op
	if err = x.guarded(f); err == nil {
		x.end()
	} else {
		x.rollback(&m)
		skipped = true
		err = x.judge(err, func() ([]byte, []byte) {
			if x.origin != nil {
				return x.origin.Key, x.origin.Value
			}
			return x.Keep(key(x.Buf())), nil
		})
	}
	x.Op = -1
	x.part, x.rec = part, rec
	return skipped, err
}

// AtomicOf is Atomic for a value that came in an earlier step: a dead letter is that record.
func (x *Exec) AtomicOf(op int32, g statestore.Group, eventTime int64, from *Origin, f func() error) (skipped bool, err error) {
	x.origin = from
	skipped, err = x.Atomic(op, g, eventTime, f, nil)
	x.origin = nil
	return skipped, err
}

func (x *Exec) guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = x.panicked(r)
		}
	}()
	return f()
}

// judge decides about a failed, rolled back step: nil means that the task goes on without it.
func (x *Exec) judge(err error, original func() (key, value []byte)) error {
	t := x.t
	if e, ok := fatal(err); ok {
		return e
	}
	var f *Failure
	if !errors.As(err, &f) {
		f = &Failure{op: x.Op, class: UserCode, err: err}
	}
	x.Op = f.op
	if f.class == internalData {
		return x.locate(&Error{Kind: Internal, Cause: f.err, Stack: f.stack})
	}
	policy := f.policy
	if policy == PolicyDefault && f.op >= 0 {
		policy = t.lay.Ops[f.op].Policy
	}
	if policy == PolicyDefault && f.class == BadData {
		if policy = t.lay.BadData; policy == PolicyDefault {
			policy = PolicyDeadLetter
		}
	}
	switch policy {
	case PolicySkip:
		t.skipped++
		return nil
	case PolicyDeadLetter:
		if err := x.deadLetter(f, original); err != nil {
			return err
		}
		t.deadLetters++
		return nil
	}
	return x.locate(f.data())
}

func quoteKey(key []byte) string {
	if key == nil {
		return "null"
	}
	const most = 64
	if len(key) > most {
		return strconv.Quote(string(key[:most])) + "..."
	}
	return strconv.Quote(string(key))
}

func instantText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

func durationText(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
