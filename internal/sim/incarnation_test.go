//go:build synctests

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// deployment is what processes are started with.
type deployment struct {
	start       engine.Start
	parallelism int
}

// incarnations says what begins new incarnations in a run; "" = nothing does.
func (w *world) incarnations() string {
	if !w.saves() {
		return ""
	}
	switch f := newHash(w.seed, "incarnations").float(); {
	case f < 0.25:
		return "rescale"
	case f < 0.45:
		return "roll back"
	case f < 0.6:
		return "roll back and rescale"
	}
	return ""
}

// divisors are the numbers of subtasks that an app can have.
func (w *world) divisors() (all []int) {
	for n := 1; n <= int(w.prof.partitions); n++ {
		if int(w.prof.partitions)%n == 0 {
			all = append(all, n)
		}
	}
	return all
}

// planIncarnations plans what begins new incarnations in a part of the runs with savepoints: a rescale, after which nothing
// is processed twice; or a process that is started anew from one of the savepoints that are completed by then, or from
// nothing, while the others hear of it.
func (w *world) planIncarnations(plan func(at time.Duration, do func()), anyone func() *member) {
	what := w.incarnations()
	if what == "" {
		return
	}
	h := newHash(w.seed, "which incarnations")
	sizes := w.divisors()
	for i := range 1 + h.next()%3 {
		at := 2*time.Second + time.Duration(h.float()*float64(w.prof.duration-2*time.Second))
		first := h.next() % uint64(len(sizes))
		if what == "rescale" {
			s := asked{name: fmt.Sprint("rescale-", i), subtasks: append(slices.Clone(sizes[first:]), sizes[:first]...), dies: h.float() < 0.1, after: time.Duration(h.next()%2000) * time.Millisecond,
				timeout: time.Duration(4000+h.next()%8000) * time.Millisecond}
			plan(at, func() { w.saving.Go(func() { w.takeSavepoint(s) }) })
			continue
		}
		fresh, which, kill := h.float() < 0.15, h.next(), h.float() < 0.5
		var begin func()
		begin = func() {
			mode := "fresh"
			if names := w.savepoints(); len(names) > 0 && !fresh {
				mode = "savepoint:" + names[which%uint64(len(names))]
			} else if !fresh { // until there is one
				plan(time.Since(w.start)+time.Second, begin)
				return
			}
			if what != "roll back" && w.deploy.parallelism == 0 {
				w.deploy.parallelism = sizes[first]
			}
			w.deploy.start = engine.Start{Mode: mode, Nonce: fmt.Sprint(i)}
			w.mu.Lock()
			w.rewinds = true
			w.mu.Unlock()
			w.note("new processes begin with %s, parallelism %d", mode, w.deploy.parallelism)
			if m := anyone(); m != nil && kill {
				m.kill("to begin anew")
			} else if m != nil {
				m.stop("to begin anew")
			}
		}
		plan(at, begin)
	}
}

// savepoints are those that are completed.
func (w *world) savepoints() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.completed)
}

// rescale is what a command does that rescales the app.
func (w *world) rescale(ctx context.Context, cluster *txn.Cluster, control *txn.Control, s asked) (*checkpoint.Savepoint, error) {
	var p *engine.RescalePlan
	err := engine.ErrNothingToDo
	for i := 0; i < len(s.subtasks) && errors.Is(err, engine.ErrNothingToDo); i++ {
		p, err = engine.PlanRescale(ctx, cluster, control, s.subtasks[i])
	}
	if err != nil {
		return nil, err
	}
	return engine.Rescale(ctx, cluster, control, w.bucket, p, engine.SavepointOptions{Name: s.name, Timeout: s.timeout, AlignTimeout: s.timeout / 3, Tries: 2, By: "sim"})
}

// newest is the incarnation that the members run.
func (w *world) newest() uint64 {
	n := uint64(1)
	for _, m := range w.members {
		if m.worker != nil && !m.dead() {
			n = max(n, m.worker.Status().Incarnation)
		}
	}
	return n
}

// internal is the name of an internal topic of an incarnation.
func internal(no uint64, name string) string {
	if no > 1 {
		name = fmt.Sprintf("i%d-%s", no, name)
	}
	return app + "-" + name
}

func repartition(no uint64) string { return internal(no, "by-key-repartition") }

func isRepartition(topic string) bool { return strings.HasSuffix(topic, "-by-key-repartition") }

// incarnation is a state line of the app.
type incarnation struct {
	w         *world
	no        uint64
	last      bool
	width     int                   // subtasks of each sub-topology
	base      *checkpoint.Savepoint // nil = it began without state
	parent    *incarnation          // that of the base
	at        map[record.TopicPartition]int64
	histories map[string]*history
}

// lines reads from the control topic which incarnations there were.
func (w *world) lines(ctx context.Context, l log) []*incarnation {
	states := map[uint64]txn.ControlState{}
	for _, r := range l[0] {
		var s txn.ControlState
		if err := json.Unmarshal(r.Value, &s); err != nil {
			w.wrongf("harness", "control record: %v", err)
			return nil
		}
		if len(s.Parallelism) > 0 {
			states[s.Incarnation] = s
		}
	}
	var all []*incarnation
	for _, no := range slices.Sorted(maps.Keys(states)) {
		s := states[no]
		in := &incarnation{w: w, no: no, width: s.Parallelism[0], at: map[record.TopicPartition]int64{}, histories: map[string]*history{}}
		if s.Base != nil {
			sp, err := checkpoint.NewSavepoints(w.bucket, app, nil, nil).Show(ctx, s.Base.Name)
			if err != nil || sp.ID != s.Base.ID || sp.Status != checkpoint.StatusCompleted {
				w.wrongf("incarnations", "incarnation %d began with savepoint %+v, which is %+v: %v", no, s.Base, sp, err)
				return nil
			}
			in.base = sp
			if i := slices.IndexFunc(all, func(in *incarnation) bool { return in.no == sp.Incarnation }); i >= 0 {
				in.parent = all[i]
			}
			for _, m := range sp.Subtasks {
				rec, err := txn.DecodeEpochRecord(m.EpochRecord)
				if err != nil {
					w.wrongf("incarnations", "savepoint %s: %v", sp.Name, err)
					return nil
				}
				for _, p := range rec.Inputs {
					if !isRepartition(p.Topic) {
						in.at[record.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.Offset
					}
				}
			}
			w.hit("incarnation from a savepoint", -1)
			if len(sp.Subtasks) != 3*in.width {
				w.hit("incarnation of another parallelism", -1)
			}
		} else if no > 1 {
			w.hit("incarnation begun fresh", -1)
		}
		all = append(all, in)
	}
	if len(all) == 0 {
		w.wrongf("incarnations", "the control topic tells of none")
		return nil
	}
	all[len(all)-1].last = true
	return all
}

// topics are its changelogs.
func (in *incarnation) topics(plan *task.Plan) (names []string) {
	for _, s := range plan.Subs {
		names = append(names, in.changelogs(s)...)
	}
	return names
}

func (in *incarnation) changelogs(s *task.SubTopology) []string {
	names := []string{internal(in.no, fmt.Sprintf("%d-changelog", s.ID))}
	for _, st := range s.Stores {
		if st.Expiring {
			return append(names, internal(in.no, fmt.Sprintf("%d-changelog-expiring", s.ID)))
		}
	}
	return names
}

// source is the topic that a sub-topology reads in the incarnation.
func (in *incarnation) source(sub int) string {
	return []string{topicIn, repartition(in.no), topicDirect}[sub]
}

// from is the offset at which the incarnation began with a partition.
func (in *incarnation) from(topic string, p int32) int64 {
	return in.at[record.TopicPartition{Topic: topic, Partition: p}]
}

// to is the offset up to which the incarnation has processed a partition: all, if it is the last.
func (in *incarnation) to(sub int, topic string, p int32) int64 {
	if in.last {
		return math.MaxInt64
	}
	if h := in.histories[fmt.Sprintf("%d_%d", sub, int(p)%in.width)]; h != nil {
		for _, i := range h.epochs[len(h.epochs)-1].rec.Inputs {
			if i.Topic == topic && i.Partition == p {
				return i.Offset
			}
		}
	}
	return in.from(topic, p)
}

// before are the inputs of a topic that the incarnation's base has seen.
func (in *incarnation) before(logs map[string]log, topic string) (all []event) {
	for p := range in.w.prof.partitions {
		all = append(all, in.w.inputsOf(logs, topic, p, 0, in.from(topic, p))...)
	}
	return all
}

// partitionOf is where a key is in repartition topics and in "direct".
func (w *world) partitionOf(key string) int32 {
	return format.Partition([]byte(key), w.prof.partitions)
}

// baseRecord is the epoch record of the part of the base that held a key; nil = the incarnation has none.
func (in *incarnation) baseRecord(sub int, key string) *txn.EpochRecord {
	if in.base == nil {
		return nil
	}
	m := in.base.Subtask(fmt.Sprintf("%d_%d", sub, int(in.w.partitionOf(key))%(len(in.base.Subtasks)/3)))
	if m == nil {
		return nil
	}
	rec, err := txn.DecodeEpochRecord(m.EpochRecord)
	if err != nil {
		in.w.wrongf("incarnations", "savepoint %s: %v", in.base.Name, err)
		return nil
	}
	return rec
}

// lastRecord is the last epoch record of the subtask that has a key; nil = it has none.
func (in *incarnation) lastRecord(sub int, key string) *txn.EpochRecord {
	h := in.histories[fmt.Sprintf("%d_%d", sub, int(in.w.partitionOf(key))%in.width)]
	if h == nil {
		return nil
	}
	return h.epochs[len(h.epochs)-1].rec
}

// horizon is the end of the newest window of a store that was closed.
func horizon(rec *txn.EpochRecord, id statestore.ID) int64 {
	if rec != nil {
		for _, h := range rec.Horizons {
			if h.Store == id {
				return h.End
			}
		}
	}
	return math.MinInt64
}

// watermark is that of an operator.
func watermark(rec *txn.EpochRecord, operator string) int64 {
	if rec != nil {
		if w, ok := rec.Watermarks[operator]; ok {
			return w
		}
	}
	return math.MinInt64
}

// times is how often what fires at a time has fired for a key, over all incarnations: once in each whose time has passed over
// it, counted by the records of its first and its last epoch.
func times(lines []*incarnation, sub int, key string, at int64, clock func(*txn.EpochRecord) int64) (n int) {
	for _, in := range lines {
		if in.passed(sub, key, clock) < at && (in.last || at <= clock(in.lastRecord(sub, key))) {
			n++
		}
	}
	return n
}

// passed is the time that had passed for a key when the incarnation began. When subtasks come together, they go on with the least
// of their times, but what has fired is gone.
func (in *incarnation) passed(sub int, key string, clock func(*txn.EpochRecord) int64) int64 {
	if in == nil {
		return math.MinInt64
	}
	return max(clock(in.baseRecord(sub, key)), in.parent.passed(sub, key, clock))
}

// portion is what one incarnation makes of the inputs of a key: those that it has processed, after what its base holds.
type portion struct {
	in   *incarnation
	ids  map[int64]bool
	base total
}

// portions are those of all keys, in the order of the incarnations.
func (w *world) portions(lines []*incarnation, logs map[string]log, sub int, topic string) map[string][]*portion {
	all := map[string][]*portion{}
	for _, in := range lines {
		mine := map[string]*portion{}
		of := func(key string) *portion {
			if mine[key] == nil {
				mine[key] = &portion{in: in, ids: map[int64]bool{}}
			}
			return mine[key]
		}
		for _, e := range in.before(logs, topic) {
			of(e.Key).base.add(e)
		}
		src := in.source(sub)
		for p := range w.prof.partitions {
			for _, e := range w.inputsOf(logs, src, p, in.from(src, p), in.to(sub, src, p)) {
				of(e.Key).ids[e.ID] = true
			}
		}
		if in.last { // whatever the repartition topic has got: all that came after the base
			for p := range w.prof.partitions {
				for _, e := range w.inputsOf(logs, topic, p, in.from(topic, p), math.MaxInt64) {
					of(e.Key).ids[e.ID] = true
				}
			}
		}
		for key, p := range mine {
			all[key] = append(all[key], p)
		}
	}
	return all
}

// follow makes the tap read the repartition topic of an incarnation.
func (t *tap) follow(topic string) {
	t.mu.Lock()
	known := t.records[topic] != nil
	if !known {
		t.records[topic], t.at[topic] = map[int32][]*kgo.Record{}, map[int32]int64{}
	}
	t.mu.Unlock()
	if !known {
		t.cl.AddConsumeTopics(topic)
	}
}
