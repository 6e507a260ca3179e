package processor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// driver runs a plan as the engine does, on logs in memory: fetches of any size, commits and crashes at any point,
// outputs visible only after their commit, transaction markers as holes in the offsets.
type driver struct {
	t      testing.TB
	plan   *task.Plan
	logs   map[string][][]record.Record
	tasks  []*subtask
	now    int64
	rng    *rand.Rand
	o      driverOptions
	failed error
}

type driverOptions struct {
	partitions  map[string]int // of topics; default 1
	parallelism int            // wanted of every sub-topology, 0 = the plan's
	maxBytes    int            // MaxRecordBytes of outputs, 0 = none
	batch       int            // records of one fetch and Step, at most; 0 = 64
	crash       float64        // probability of a crash instead of a commit
	behind      float64        // probability of a write-behind after a commit
	mayFail     bool           // a failing task ends the run and is kept in failed
	seed        uint64
}

type subtask struct {
	d         *driver
	sub       *task.SubTopology
	index     int
	s         int
	task      *task.Task
	state     *statestore.State
	store     *memstore.Store
	fetched   map[[2]int]int // position up to which records were handed to the task
	committed map[string][]byte
	progress  *task.Progress
	epoch     uint64
	pending   []record.Output
	stats     task.Stats // of tasks before a crash
}

func newDriver(t testing.TB, topology func(*processor.Topology), o driverOptions) *driver {
	t.Helper()
	top := processor.New()
	topology(top)
	plan, err := top.Plan()
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	if o.batch == 0 {
		o.batch = 64
	}
	d := &driver{t: t, plan: plan, logs: map[string][][]record.Record{}, o: o, now: 1_000_000, rng: rand.New(rand.NewPCG(o.seed, 7))}
	for _, sub := range plan.Subs {
		var counts []int32
		for _, in := range sub.Inputs {
			counts = append(counts, int32(len(d.log(d.inputName(in), d.inputPartitions(in)))))
		}
		wanted := sub.Parallelism
		if o.parallelism > 0 {
			wanted = o.parallelism
		}
		s, err := task.ResolveParallelism(wanted, counts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s {
			st := &subtask{d: d, sub: sub, index: i, s: s, committed: map[string][]byte{}}
			d.tasks = append(d.tasks, st)
		}
	}
	for _, st := range d.tasks {
		st.open()
	}
	return d
}

func (d *driver) inputName(in task.Input) string {
	if in.Internal {
		return "repartition " + in.Topic
	}
	return in.Topic
}

func (d *driver) inputPartitions(in task.Input) int {
	if !in.Internal {
		return d.partitionsOf(in.Topic)
	}
	if in.Partitions > 0 {
		return in.Partitions
	}
	most := 0
	for _, up := range d.plan.Subs[in.Upstream].Inputs {
		most = max(most, d.inputPartitions(up))
	}
	return most
}

func (d *driver) partitionsOf(topic string) int {
	if n := d.o.partitions[topic]; n > 0 {
		return n
	}
	return 1
}

func (d *driver) log(name string, partitions int) [][]record.Record {
	if d.logs[name] == nil {
		d.logs[name] = make([][]record.Record, partitions)
	}
	return d.logs[name]
}

func outputName(o task.OutputTopic) string {
	switch {
	case o.DeadLetter:
		return "dead-letter"
	case o.Internal:
		return "repartition " + o.Topic
	}
	return o.Topic
}

// open makes the task from what is committed.
func (st *subtask) open() {
	d := st.d
	st.store = memstore.New()
	b := st.store.NewBatch()
	for k, v := range st.live() {
		b.Set([]byte(k), v)
	}
	if err := b.Commit(statestore.Meta{Epoch: st.epoch}); err != nil {
		d.t.Fatal(err)
	}
	st.state = statestore.NewState(st.store, statestore.StateOptions{})
	env := task.Env{Subtask: record.SubtaskID{SubTopology: st.sub.ID, Index: st.index}, Parallelism: st.s, State: st.state, Restored: st.progress, Now: d.now}
	for _, in := range st.sub.Inputs {
		e := task.EnvInput{Topic: d.inputName(in), TotalPartitions: int32(len(d.logs[d.inputName(in)]))}
		for p := range e.TotalPartitions {
			if int(p)%st.s == st.index {
				e.Partitions = append(e.Partitions, p)
			}
		}
		for _, other := range d.tasks {
			if in.Internal && other.sub.ID == in.Upstream {
				e.UpstreamSubtasks = other.s
			}
		}
		env.Inputs = append(env.Inputs, e)
	}
	for _, o := range st.sub.Outputs {
		n := d.partitionsOf(o.Topic)
		for _, sub := range d.plan.Subs {
			for _, in := range sub.Inputs {
				if o.Internal && in.Internal && in.Topic == o.Topic {
					n = d.inputPartitions(in)
				}
			}
		}
		env.Outputs = append(env.Outputs, task.EnvOutput{Topic: outputName(o), Partitions: int32(len(d.log(outputName(o), n))), MaxRecordBytes: d.o.maxBytes})
	}
	var err error
	if st.task, err = st.sub.New(env); err != nil {
		d.t.Fatalf("make subtask: %v", err)
	}
	st.pending = nil
	st.fetched = map[[2]int]int{}
	if st.progress != nil {
		for _, p := range st.progress.Partitions {
			if p.Offset >= 0 {
				st.fetched[[2]int{p.Input, int(p.Partition)}] = int(p.Offset)
			}
		}
	}
}

// live is the committed state: the fold of the changelog without the windows that the horizons say are gone.
func (st *subtask) live() map[string][]byte {
	if st.progress != nil {
		for _, h := range st.progress.Horizons {
			lo, hi := statestore.WindowRange(h.Store, h.End)
			maps.DeleteFunc(st.committed, func(k string, _ []byte) bool { return k >= string(lo) && k < string(hi) })
		}
	}
	return st.committed
}

// fetch hands over up to n records of each partition. The slices belong to the task.
func (st *subtask) fetch(n int) (any bool) {
	for i, in := range st.sub.Inputs {
		log := st.d.logs[st.d.inputName(in)]
		for p := st.index; p < len(log); p += st.s {
			at := st.fetched[[2]int{i, p}]
			k := min(n, len(log[p])-at)
			if k <= 0 {
				continue
			}
			st.task.Enqueue(i, int32(p), slices.Clone(log[p][at:at+k]))
			st.fetched[[2]int{i, p}] = at + k
			any = true
		}
	}
	return any
}

func (st *subtask) step(max int) int {
	n, err := st.task.Step(max, st.d.now)
	st.fail(err)
	st.take(st.task.TakeOutputs())
	return n
}

// take copies what the task says is stable until Committed: if it is not, the bytes differ at the commit.
func (st *subtask) take(outs []record.Output) { st.pending = append(st.pending, outs...) }

func (st *subtask) fail(err error) {
	if err == nil {
		return
	}
	if !st.d.o.mayFail {
		st.d.t.Fatalf("subtask %d_%d: %v", st.sub.ID, st.index, err)
	}
	if st.d.failed == nil {
		st.d.failed = err
	}
}

// commit seals and publishes; it says whether the epoch was not empty.
func (st *subtask) commit() bool {
	d := st.d
	if d.failed != nil {
		return false
	}
	st.epoch++
	s, err := st.task.Seal(st.epoch, d.now)
	st.fail(err)
	if err != nil || s.Empty {
		st.epoch--
		return false
	}
	st.take(s.Outputs)
	touched := map[string]map[int32]bool{}
	for _, o := range st.pending {
		name := outputName(st.sub.Outputs[o.Topic])
		log := d.logs[name]
		log[o.Partition] = append(log[o.Partition], record.Record{Key: bytes.Clone(o.Key), Value: bytes.Clone(o.Value), Headers: slices.Clone(o.Headers), Timestamp: o.Timestamp, Offset: int64(len(log[o.Partition]))})
		if touched[name] == nil {
			touched[name] = map[int32]bool{}
		}
		touched[name][o.Partition] = true
	}
	for name, parts := range touched {
		for p := range parts {
			d.logs[name][p] = append(d.logs[name][p], record.Record{Control: true, Timestamp: d.now, Offset: int64(len(d.logs[name][p]))})
		}
	}
	for _, c := range s.Changelog {
		if c.Value == nil {
			delete(st.committed, string(c.Key))
		} else {
			st.committed[string(c.Key)] = bytes.Clone(c.Value)
		}
	}
	p := s.Progress
	if st.progress != nil {
		for _, was := range st.progress.Horizons {
			if !slices.ContainsFunc(p.Horizons, func(h task.Horizon) bool { return h.Store == was.Store && h.End >= was.End }) {
				d.t.Fatalf("horizon %d of store %d is lost: dropped windows would come back", was.End, was.Store)
			}
		}
	}
	st.progress = &p
	st.pending = st.pending[:0]
	m := statestore.Meta{Epoch: st.epoch}
	if err := st.task.Committed(m); err != nil {
		d.t.Fatal(err)
	}
	if d.rng.Float64() < d.o.behind {
		if err := st.state.WriteBehind(m); err != nil {
			d.t.Fatal(err)
		}
	}
	return true
}

// restart drops the task and makes it anew from what is committed.
func (st *subtask) restart() {
	s := st.task.Stats()
	st.stats.Late += s.Late
	st.open()
}

// run works until nothing is left to do. Processing time passes between rounds, so that watermarks reach all
// partitions.
func (d *driver) run() {
	d.t.Helper()
	for quiet := 0; quiet < 3; {
		busy := false
		for _, st := range d.tasks {
			n := 1 + d.rng.IntN(d.o.batch)
			if st.fetch(n) {
				busy = true
			}
			for st.step(n) > 0 && d.failed == nil {
				busy = true
			}
			if d.failed != nil {
				return
			}
			switch r := d.rng.Float64(); {
			case r < d.o.crash:
				st.restart()
				busy = true
			case r < 0.7+d.o.crash || d.o.crash == 0:
				busy = st.commit() || busy
			default:
				busy = true
			}
		}
		if busy {
			quiet = 0
		} else {
			quiet++
		}
		d.pass(100)
		if d.failed != nil {
			return
		}
	}
}

// pass lets processing time pass.
func (d *driver) pass(ms int64) {
	d.now += ms
	for _, st := range d.tasks {
		st.fail(st.task.Tick(d.now))
		if d.failed == nil {
			st.take(st.task.TakeOutputs())
		}
	}
}

func (d *driver) produce(topic string, partition int, key, value []byte, at int64) {
	log := d.log(topic, d.partitionsOf(topic))
	log[partition] = append(log[partition], record.Record{Key: key, Value: value, Timestamp: at, Offset: int64(len(log[partition]))})
}

// sendKeyed produces JSON where Kafka's default partitioner puts the key.
func (d *driver) sendKeyed(topic, key string, v any, at int64) {
	d.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		d.t.Fatal(err)
	}
	d.produce(topic, int(format.Partition([]byte(key), int32(d.partitionsOf(topic)))), []byte(key), b, at)
}

// records are the data records of a topic, partition by partition.
func (d *driver) records(topic string) (all []record.Record) {
	for _, p := range d.logs[topic] {
		for _, r := range p {
			if !r.Control {
				all = append(all, r)
			}
		}
	}
	return all
}

// rows are the records of a topic as "key=value @time", sorted.
func (d *driver) rows(topic string) []string {
	var rows []string
	for _, r := range d.records(topic) {
		v := string(r.Value)
		if r.Value == nil {
			v = "null"
		}
		rows = append(rows, fmt.Sprintf("%s=%s @%d", r.Key, v, r.Timestamp))
	}
	slices.Sort(rows)
	return rows
}

func (d *driver) late() (n int64) {
	for _, st := range d.tasks {
		n += st.stats.Late + st.task.Stats().Late
	}
	return n
}

func wantRows(t testing.TB, got []string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
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
	if len(diff) > 40 {
		diff = append(diff[:40], "...")
	}
	t.Fatalf("rows differ (+ too many, - missing), %d got, %d want:\n%s", len(got), len(want), strings.Join(diff, "\n"))
}
