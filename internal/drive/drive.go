// Package drive runs the plan of a topology as the engine does, without broker, clock and goroutines: on logs in memory,
// with fetches of any size, commits and crashes at any point, outputs that are visible only after their commit, and
// transaction markers as holes in the offsets. Package processortest makes the driver of users' tests of it, and the tests
// of package processor use it as it is.
package drive

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// Restore is what a subtask that starts anew makes its state of.
type Restore uint8

// The ways to restore: all give the same state.
const (
	Changelog  Restore = iota // the whole changelog, into an empty store
	Store                     // the store that it had, and the changes that were not in it
	Checkpoint                // an older copy of its store, and the changes since
	Mixed                     // one of these by chance
)

// Options of a Driver.
type Options struct {
	Partitions  map[string]int // of topics; those that are not named have Default
	Default     int            // partitions of other topics; 0 = 1
	Parallelism int            // wanted of every sub-topology, 0 = the plan's
	MaxBytes    int            // MaxRecordBytes of outputs, 0 = none
	Batch       int            // records of one fetch and Step, at most; 0 = 64
	Crash       float64        // probability of a crash instead of a commit
	Skip        float64        // probability that a round of a subtask ends without a commit; 0 with Crash = 0.15
	Behind      float64        // probability of a write-behind after a commit
	Copy        float64        // probability of a copy of the store after a commit, for Checkpoint
	Restore     Restore
	MayFail     bool // a failing task ends the run and is kept in Failed
	// Calls is the probability that a call beside a task ends in a round; 0 = each ends at once. They end in any order.
	Calls float64
	Seed  uint64
	Now   int64 // processing time at the start, ms; 0 = 1000000
	// Still lets no processing time pass but by Pass: watermarks reach all partitions of repartition topics at once.
	Still bool
}

// Driver runs a plan. Its fields may be read, and changed between calls.
type Driver struct {
	T        testing.TB
	Plan     *task.Plan
	Logs     map[string][][]record.Record // committed records by Name of topic, and partition
	Tasks    []*Subtask
	Now      int64
	O        Options
	Failed   error
	FailNext int // commits that fail
	rng      *rand.Rand
}

// Subtask is one subtask and what it has committed.
type Subtask struct {
	D         *Driver
	Sub       *task.SubTopology
	Index     int
	S         int // subtasks of Sub
	Task      *task.Task
	State     *statestore.State
	Committed map[string][]byte // the fold of the changelog
	Progress  *task.Progress
	Epoch     uint64
	Pending   []record.Output   // of the running epoch, taken from the task
	Handles   map[string][]byte // of Externals, as committed

	fetched map[[2]int]int // position up to which records were handed to the task
	stats   task.Stats     // of tasks before a crash
	calls   []func()       // beside the task, not yet run

	store *memstore.Store
	tail  []statestore.Change // committed, not in store
	copy  map[string][]byte   // of store at some time
	since []statestore.Change // committed, not in copy
}

// New makes the driver of a topology, with all its subtasks.
func New(t testing.TB, topology func(*processor.Topology), o Options) *Driver {
	t.Helper()
	top := processor.New()
	topology(top)
	return NewPlan(t, Plan(t, top), o)
}

// Plan is the plan of a topology without faults.
func Plan(t testing.TB, top *processor.Topology) *task.Plan {
	t.Helper()
	plan, err := top.Plan()
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	return plan
}

// NewPlan is New for a plan.
func NewPlan(t testing.TB, plan *task.Plan, o Options) *Driver {
	t.Helper()
	if o.Batch == 0 {
		o.Batch = 64
	}
	if o.Now == 0 {
		o.Now = 1_000_000
	}
	if o.Skip == 0 && o.Crash > 0 {
		o.Skip = 0.15
	}
	d := &Driver{T: t, Plan: plan, Logs: map[string][][]record.Record{}, O: o, Now: o.Now, rng: rand.New(rand.NewPCG(o.Seed, 7))}
	for _, sub := range plan.Subs {
		var counts []int32
		for _, in := range sub.Inputs {
			if !in.Broadcast {
				counts = append(counts, int32(len(d.Log(d.InputName(in), d.inputPartitions(in)))))
			}
		}
		wanted := sub.Parallelism
		if o.Parallelism > 0 {
			wanted = o.Parallelism
		}
		if sub.Feeds {
			wanted = task.WithinParallelism(wanted, counts)
		}
		s, err := task.ResolveParallelism(wanted, counts)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range sub.Inputs {
			if in.Broadcast {
				d.Log(d.InputName(in), s)
			}
		}
		for i := range s {
			d.Tasks = append(d.Tasks, &Subtask{D: d, Sub: sub, Index: i, S: s, Committed: map[string][]byte{}})
		}
	}
	for _, st := range d.Tasks {
		st.Open()
	}
	return d
}

// InputName is the key of an input in Logs.
func (d *Driver) InputName(in task.Input) string {
	if in.Internal {
		return "repartition " + in.Topic
	}
	return in.Topic
}

// OutputName is the key of an output in Logs.
func OutputName(o task.OutputTopic) string {
	switch {
	case o.DeadLetter:
		return DeadLetters
	case o.Internal:
		return "repartition " + o.Topic
	}
	return o.Topic
}

// DeadLetters is the key of the dead-letter topic in Logs.
const DeadLetters = "dead-letter"

func (d *Driver) inputPartitions(in task.Input) int {
	if !in.Internal {
		return d.PartitionsOf(in.Topic)
	}
	if in.Broadcast {
		return len(d.Logs[d.InputName(in)])
	}
	if in.Partitions > 0 {
		return in.Partitions
	}
	most := 0
	for _, up := range d.Plan.Subs[in.Upstream].Inputs {
		most = max(most, d.inputPartitions(up))
	}
	return most
}

// PartitionsOf is the number of partitions of a topic that is not internal.
func (d *Driver) PartitionsOf(topic string) int {
	if n := d.O.Partitions[topic]; n > 0 {
		return n
	}
	return max(d.O.Default, 1)
}

// Log is the log of a topic, made if there is none.
func (d *Driver) Log(name string, partitions int) [][]record.Record {
	if d.Logs[name] == nil {
		d.Logs[name] = make([][]record.Record, partitions)
	}
	return d.Logs[name]
}

// Open makes the task from what is committed.
func (st *Subtask) Open() {
	d := st.D
	st.restore()
	st.State = statestore.NewState(st.store, statestore.StateOptions{})
	env := task.Env{Subtask: record.SubtaskID{SubTopology: st.Sub.ID, Index: st.Index}, Parallelism: st.S, State: st.State, Restored: st.Progress, Now: d.Now,
		Testing: task.Testing{EagerWatermarks: d.O.Still, Wrap: wrap}}
	for _, in := range st.Sub.Inputs {
		e := task.EnvInput{Topic: d.InputName(in), TotalPartitions: int32(len(d.Logs[d.InputName(in)]))}
		for p := range e.TotalPartitions {
			if int(p)%st.S == st.Index {
				e.Partitions = append(e.Partitions, p)
			}
		}
		if in.Load {
			e.Ends = map[int32]int64{}
			for _, p := range e.Partitions {
				e.Ends[p] = int64(len(d.Logs[e.Topic][p]))
			}
		}
		for _, other := range d.Tasks {
			if in.Internal && other.Sub.ID == in.Upstream {
				e.UpstreamSubtasks = other.S
			}
		}
		env.Inputs = append(env.Inputs, e)
	}
	for _, o := range st.Sub.Outputs {
		n := d.PartitionsOf(o.Topic)
		for _, sub := range d.Plan.Subs {
			for _, in := range sub.Inputs {
				if o.Internal && in.Internal && in.Topic == o.Topic {
					n = len(d.Logs[d.InputName(in)])
				}
			}
		}
		env.Outputs = append(env.Outputs, task.EnvOutput{Topic: OutputName(o), Partitions: int32(len(d.Log(OutputName(o), n))), MaxRecordBytes: d.O.MaxBytes})
	}
	st.calls = nil
	if d.O.Calls > 0 {
		env.Go = func(timeout time.Duration, f func(ctx context.Context, wait task.Wait)) {
			st.calls = append(st.calls, func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				f(ctx, func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) })
			})
		}
	}
	var err error
	if st.Task, err = st.Sub.New(env); err != nil {
		d.T.Fatalf("make subtask: %v", err)
	}
	handles := map[string][][]byte{}
	for name, h := range st.Handles {
		handles[name] = [][]byte{h}
	}
	if err := st.Task.Begin(context.Background(), task.Begun{App: "drive", Incarnation: 1, Epoch: st.Epoch + 1}, handles); err != nil {
		d.T.Fatalf("begin: %v", err)
	}
	st.Pending = nil
	st.fetched = map[[2]int]int{}
	if st.Progress != nil {
		for _, p := range st.Progress.Partitions {
			if p.Offset >= 0 {
				st.fetched[[2]int{p.Input, int(p.Partition)}] = int(p.Offset)
			}
		}
	}
}

// restore makes the store of a new task.
func (st *Subtask) restore() {
	how := st.D.O.Restore
	if how == Mixed {
		how = Restore(st.D.rng.IntN(int(Mixed)))
	}
	if st.store == nil {
		how = Changelog
	}
	if how == Checkpoint && st.copy == nil {
		how = Changelog
	}
	changes := st.tail
	content := map[string][]byte{}
	switch how {
	case Changelog:
		changes, content = nil, st.Live()
	case Checkpoint:
		changes, content = st.since, st.copy
	}
	if how != Store {
		st.store = memstore.New()
	}
	b := st.store.NewBatch()
	for k, v := range content {
		b.Set([]byte(k), v)
	}
	for _, c := range changes {
		if c.Value == nil {
			b.Delete(c.Key)
		} else {
			b.Set(c.Key, c.Value)
		}
	}
	if st.Progress != nil {
		for _, h := range st.Progress.Horizons {
			b.DeleteRange(statestore.WindowRange(h.Store, h.End))
		}
	}
	if err := b.Commit(statestore.Meta{Epoch: st.Epoch}); err != nil {
		st.D.T.Fatal(err)
	}
	st.tail = nil
}

// Live is the committed state: the fold of the changelog without the windows that the horizons say are gone.
func (st *Subtask) Live() map[string][]byte {
	if st.Progress != nil {
		for _, h := range st.Progress.Horizons {
			lo, hi := statestore.WindowRange(h.Store, h.End)
			maps.DeleteFunc(st.Committed, func(k string, _ []byte) bool { return k >= string(lo) && k < string(hi) })
		}
	}
	return st.Committed
}

// Fetch hands over up to n records of each partition. The slices belong to the task.
func (st *Subtask) Fetch(n int) (some bool) {
	for i, in := range st.Sub.Inputs {
		log := st.D.Logs[st.D.InputName(in)]
		for p := st.Index; p < len(log); p += st.S {
			at := st.fetched[[2]int{i, p}]
			k := min(n, len(log[p])-at)
			if k <= 0 {
				continue
			}
			st.Task.Enqueue(i, int32(p), slices.Clone(log[p][at:at+k]))
			st.fetched[[2]int{i, p}] = at + k
			some = true
		}
	}
	return some
}

// Step processes up to n records.
func (st *Subtask) Step(n int) int {
	k, err := st.Task.Step(n, st.D.Now)
	st.fail(err)
	st.take(st.Task.TakeOutputs())
	return k
}

// take keeps what the task says is stable until Committed: if it is not, the bytes differ at the commit.
func (st *Subtask) take(outs []record.Output) { st.Pending = append(st.Pending, outs...) }

func (st *Subtask) fail(err error) {
	if err == nil {
		return
	}
	if !st.D.O.MayFail {
		st.D.T.Fatalf("subtask %d_%d: %v", st.Sub.ID, st.Index, err)
	}
	if st.D.Failed == nil {
		st.D.Failed = err
	}
}

// Commit seals and publishes; it says whether the epoch was not empty.
func (st *Subtask) Commit() bool {
	d := st.D
	if d.Failed != nil {
		return false
	}
	st.Epoch++
	s, err := st.Task.Seal(st.Epoch, d.Now)
	st.fail(err)
	if err != nil || s.Empty {
		st.Epoch--
		return false
	}
	handles, err := st.Task.Prepare(context.Background(), st.Epoch, false)
	st.fail(err)
	if err != nil {
		st.Epoch--
		return false
	}
	if d.FailNext > 0 {
		d.FailNext--
		st.Epoch--
		st.Restart()
		return true
	}
	st.take(s.Outputs)
	st.publish()
	for _, c := range s.Changelog {
		if c = (statestore.Change{Changelog: c.Changelog, Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)}); c.Value == nil {
			delete(st.Committed, string(c.Key))
		} else {
			st.Committed[string(c.Key)] = c.Value
		}
		st.tail = append(st.tail, c)
		if st.copy != nil {
			st.since = append(st.since, c)
		}
	}
	p := s.Progress
	if st.Progress != nil {
		for _, was := range st.Progress.Horizons {
			if !slices.ContainsFunc(p.Horizons, func(h task.Horizon) bool { return h.Store == was.Store && h.End >= was.End }) {
				d.T.Fatalf("horizon %d of store %d is lost: dropped windows would come back", was.End, was.Store)
			}
		}
	}
	st.Progress = &p
	m := statestore.Meta{Epoch: st.Epoch}
	if err := st.Task.Committed(m); err != nil {
		d.T.Fatal(err)
	}
	st.Handles = handles
	st.fail(st.Task.Finish(context.Background()))
	if d.rng.Float64() < d.O.Behind {
		st.WriteBehind()
	}
	if d.O.Copy > 0 && d.rng.Float64() < d.O.Copy {
		st.copyStore()
	}
	return true
}

// publish appends the outputs of the epoch to their logs, and a marker to each partition that got some.
func (st *Subtask) publish() {
	d := st.D
	touched := map[string]map[int32]bool{}
	for _, o := range st.Pending {
		name := OutputName(st.Sub.Outputs[o.Topic])
		log := d.Logs[name]
		log[o.Partition] = append(log[o.Partition], record.Record{Key: bytes.Clone(o.Key), Value: bytes.Clone(o.Value), Headers: slices.Clone(o.Headers), Timestamp: o.Timestamp, Offset: int64(len(log[o.Partition]))})
		if touched[name] == nil {
			touched[name] = map[int32]bool{}
		}
		touched[name][o.Partition] = true
	}
	for name, parts := range touched {
		for p := range parts {
			d.Logs[name][p] = append(d.Logs[name][p], record.Record{Control: true, Timestamp: d.Now, Offset: int64(len(d.Logs[name][p]))})
		}
	}
	st.Pending = st.Pending[:0]
}

// WriteBehind writes what is committed to the store.
func (st *Subtask) WriteBehind() {
	if err := st.State.WriteBehind(statestore.Meta{Epoch: st.Epoch}); err != nil {
		st.D.T.Fatal(err)
	}
	st.tail = nil
}

// copyStore keeps what the store has now: all that is committed but the tail.
func (st *Subtask) copyStore() {
	it, err := st.store.Scan(nil, nil)
	if err != nil {
		st.D.T.Fatal(err)
	}
	defer it.Close()
	st.copy = map[string][]byte{}
	for it.Next() {
		st.copy[string(it.Key())] = bytes.Clone(it.Value())
	}
	if err := it.Err(); err != nil {
		st.D.T.Fatal(err)
	}
	st.since = slices.Clone(st.tail)
}

// Restart drops the task and makes it anew from what is committed.
func (st *Subtask) Restart() {
	st.stats.Late += st.Task.Stats().Late
	if err := st.Task.Close(); err != nil {
		st.D.T.Fatalf("close subtask: %v", err)
	}
	st.Open()
}

// Late is how many late records the subtask has met.
func (st *Subtask) Late() int64 { return st.stats.Late + st.Task.Stats().Late }

// Run works until nothing is left to do. Unless Still is set, processing time passes between rounds, so that watermarks
// reach all partitions.
func (d *Driver) Run() {
	d.T.Helper()
	quietRounds, pass := 3, int64(100)
	if d.O.Still {
		quietRounds, pass = 2, 0
	}
	for quiet := 0; quiet < quietRounds && d.Failed == nil; {
		// Nothing crashes in the last quiet round, so that all is committed.
		if d.round(quiet < quietRounds-1) {
			quiet = 0
		} else {
			quiet++
		}
		if d.Failed == nil {
			d.Pass(pass)
		}
	}
}

// Round lets each subtask work once; it says whether one had something to do.
func (d *Driver) Round() (busy bool) { return d.round(true) }

func (d *Driver) round(faults bool) (busy bool) {
	for _, st := range d.Tasks {
		n := 1 + d.rng.IntN(d.O.Batch)
		if st.Fetch(n) {
			busy = true
		}
		busy = st.endCalls() || busy
		for st.Step(n) > 0 && d.Failed == nil {
			busy = true
		}
		if d.Failed != nil {
			return busy
		}
		switch r := d.rng.Float64(); {
		case faults && r < d.O.Crash:
			st.Restart()
		case faults && r < d.O.Crash+d.O.Skip:
		default:
			busy = st.Commit() || busy
		}
	}
	return busy
}

// endCalls lets some of the calls beside the task end; it says whether there were any.
func (st *Subtask) endCalls() bool {
	if len(st.calls) == 0 {
		return false
	}
	st.D.rng.Shuffle(len(st.calls), func(i, j int) { st.calls[i], st.calls[j] = st.calls[j], st.calls[i] })
	var left []func()
	for _, f := range st.calls {
		if st.D.rng.Float64() < st.D.O.Calls {
			f()
		} else {
			left = append(left, f)
		}
	}
	st.calls = left
	return true
}

// Pass lets processing time pass.
func (d *Driver) Pass(ms int64) {
	d.Now += ms
	for _, st := range d.Tasks {
		st.fail(st.Task.Tick(d.Now))
		if d.Failed == nil {
			st.take(st.Task.TakeOutputs())
		}
	}
}

// Produce appends a record to a topic.
func (d *Driver) Produce(topic string, partition int, r record.Record) {
	log := d.Log(topic, d.PartitionsOf(topic))
	r.Offset = int64(len(log[partition]))
	log[partition] = append(log[partition], r)
}

// Records are the data records of a topic, partition by partition.
func (d *Driver) Records(topic string) (all []record.Record) {
	for _, p := range d.Logs[topic] {
		for _, r := range p {
			if !r.Control {
				all = append(all, r)
			}
		}
	}
	return all
}

// Late is how many late records the subtasks have met.
func (d *Driver) Late() (n int64) {
	for _, st := range d.Tasks {
		n += st.Late()
	}
	return n
}

// Close closes the tasks.
func (d *Driver) Close() {
	for _, st := range d.Tasks {
		if err := st.Task.Close(); err != nil {
			d.T.Errorf("close subtask: %v", err)
		}
	}
}

// DiffRows tells how two sorted lists of rows differ: "-2 row" = 2 are missing, "+1 row" = one too many; "" if they do not.
func DiffRows(got, want []string) string {
	if slices.Equal(got, want) {
		return ""
	}
	count := map[string]int{}
	for _, r := range want {
		count[r]--
	}
	for _, r := range got {
		count[r]++
	}
	var diff []string
	for _, r := range slices.Sorted(maps.Keys(count)) {
		if count[r] != 0 {
			diff = append(diff, fmt.Sprintf("%+d %s", count[r], r))
		}
	}
	const most = 40
	if len(diff) > most {
		diff = append(diff[:most], fmt.Sprintf("... and %d more", len(diff)-most))
	}
	return strings.Join(diff, "\n")
}

// watermarkHeader marks a record that is no data: it moves the watermark of its partition to a time, as a record of the
// source could.
const watermarkHeader = "millrace-drive-watermark"

// WatermarkRecord is a record for an external topic that moves the watermark of its partition to ms.
func WatermarkRecord(ms int64) record.Record {
	return record.Record{Key: nil, Value: []byte{}, Headers: []record.Header{{Key: watermarkHeader, Value: binary.BigEndian.AppendUint64(nil, uint64(ms))}}}
}

// Watermark is the time that a WatermarkRecord carries.
func Watermark(r *record.Record) (ms int64, ok bool) {
	if len(r.Headers) != 1 || r.Headers[0].Key != watermarkHeader || len(r.Headers[0].Value) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(r.Headers[0].Value)), true
}

// Wrap makes the sources of a plan understand WatermarkRecord, in subtasks that the engine makes.
func Wrap(plan *task.Plan) {
	for _, sub := range plan.Subs {
		build := sub.New
		sub.New = func(env task.Env) (*task.Task, error) {
			env.Testing.Wrap = wrap
			return build(env)
		}
	}
}

func wrap(_ int, l task.InputLayout, s task.Source) task.Source {
	if l.Internal {
		return s
	}
	return &markedSource{Source: s, l: l}
}

// markedSource is a source whose topic may have WatermarkRecords.
type markedSource struct {
	task.Source
	l     task.InputLayout
	marks []mark // by slot
}

type mark struct {
	is bool
	at int64
}

func (s *markedSource) Open(n int) {
	s.marks = make([]mark, n)
	s.Source.Open(n)
}

func (s *markedSource) Decode(x *task.Exec, slot int, rec *record.Record) (int64, error) {
	at, is := Watermark(rec)
	s.marks[slot] = mark{is, at}
	if !is {
		return s.Source.Decode(x, slot, rec)
	}
	if at > math.MaxInt64-s.l.Bound-2 {
		return math.MaxInt64 - 1, nil
	}
	// The watermark of a source with a bound is the highest time, less the bound and 1.
	return at + s.l.Bound + 1, nil
}

func (s *markedSource) Run(x *task.Exec, slot int) error {
	if s.marks[slot].is {
		return nil
	}
	return s.Source.Run(x, slot)
}

func (s *markedSource) OnEvent(slot int, at int64) int64 {
	if m := s.marks[slot]; m.is {
		return m.at
	}
	return s.Source.OnEvent(slot, at)
}

// SetIdle makes a partition of an external topic idle, until its next record.
func (d *Driver) SetIdle(topic string, partition int) {
	for _, st := range d.Tasks {
		for i, in := range st.Sub.Inputs {
			if !in.Internal && in.Topic == topic && partition%st.S == st.Index {
				st.Task.SetIdle(i, int32(partition))
			}
		}
	}
}
