//go:build synctests

package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// tap keeps the committed records of the repartition topic before the app deletes what it has consumed.
type tap struct {
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	at      map[string]map[int32]int64 // next offset
	changed chan struct{}
	records map[string]map[int32][]*kgo.Record
}

func newTap(opts []kgo.Opt) (*tap, error) {
	cl, err := kgo.NewClient(append(slices.Clone(opts), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(driverWait*time.Millisecond), kgo.FetchMinBytes(1))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &tap{cl: cl, stop: cancel, done: make(chan struct{}), at: map[string]map[int32]int64{}, changed: make(chan struct{}), records: map[string]map[int32][]*kgo.Record{}}
	t.follow(repartition(1))
	go t.run(ctx)
	return t, nil
}

func (t *tap) run(ctx context.Context) {
	defer close(t.done)
	for ctx.Err() == nil {
		fs := t.cl.PollFetches(ctx)
		t.mu.Lock()
		// The fake may send a consumer back to the log's start when a leader moves; a real gap shows in
		// checkRepartition.
		fs.EachRecord(func(r *kgo.Record) {
			at, records := t.at[r.Topic], t.records[r.Topic]
			if !r.Attrs.IsControl() && r.Offset >= at[r.Partition] {
				records[r.Partition] = append(records[r.Partition], r)
			}
			at[r.Partition] = max(at[r.Partition], r.Offset+1)
		})
		close(t.changed)
		t.changed = make(chan struct{})
		t.mu.Unlock()
	}
}

// await returns when the tap has passed an offset, or is closed.
func (t *tap) await(topic string, partition int32, offset int64) {
	if !isRepartition(topic) {
		return
	}
	t.follow(topic)
	for {
		t.mu.Lock()
		at, changed := t.at[topic][partition], t.changed
		t.mu.Unlock()
		if at >= offset {
			return
		}
		select {
		case <-changed:
		case <-t.done:
			return
		}
	}
}

func (t *tap) close() {
	t.stop()
	<-t.done
	t.cl.Close()
}

// log is a topic as a read_committed consumer sees it, by partition in offset order.
type log map[int32][]*kgo.Record

// readTopics reads topics read_committed from their starts to the ends that they have now.
func (w *world) readTopics(ctx context.Context, topics ...string) (map[string]log, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	starts, err := w.adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends, err := w.adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	logs := map[string]log{}
	at := map[string]map[int32]kgo.Offset{}
	left := map[record.TopicPartition]int64{}
	for _, topic := range topics {
		logs[topic] = log{}
		for p, e := range ends[topic] {
			if e.Err != nil {
				return nil, e.Err
			}
			if s := starts[topic][p].Offset; s < e.Offset {
				if at[topic] == nil {
					at[topic] = map[int32]kgo.Offset{}
				}
				at[topic][p] = kgo.NewOffset().At(s)
				left[record.TopicPartition{Topic: topic, Partition: p}] = e.Offset
			}
		}
	}
	cl, err := kgo.NewClient(append(w.driver.Opts(), kgo.ConsumePartitions(at), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(driverWait*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return nil, fmt.Errorf("%w; still to be read, up to: %v (is a transaction left open?)", err, left)
		}
		fs.EachRecord(func(r *kgo.Record) {
			tp := record.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			end, ok := left[tp]
			if !ok {
				return
			}
			if !r.Attrs.IsControl() {
				logs[r.Topic][r.Partition] = append(logs[r.Topic][r.Partition], r)
			}
			if r.Offset+1 >= end {
				delete(left, tp)
			}
		})
	}
	return logs, nil
}

// check compares what was committed with what the input says.
func (w *world) check(ctx context.Context) {
	topo := processor.New()
	topology(topo)
	plan, err := topo.Plan()
	if err != nil {
		w.wrongf("harness", "plan: %v", err)
		return
	}
	names := []string{topicIn, topicDirect, topicTotals, topicCounts, topicSums, topicDCounts, topicDead, topicControl}
	logs, err := w.readTopics(ctx, names...)
	if err != nil {
		w.wrongf("visible", "read everything: %v", err)
		return
	}
	lines := w.lines(ctx, logs[topicControl])
	for _, in := range lines {
		more, err := w.readTopics(ctx, slices.DeleteFunc(in.topics(plan), func(t string) bool { return w.topicIDs[t] == "" })...)
		if err != nil {
			w.wrongf("visible", "read everything of incarnation %d: %v", in.no, err)
			return
		}
		maps.Copy(logs, more)
		if err := w.tapped(ctx, logs, repartition(in.no)); err != nil {
			w.wrongf("visible", "read the repartition topic of incarnation %d: %v", in.no, err)
			return
		}
	}
	offsets, err := w.adm.FetchOffsets(ctx, app)
	if err != nil {
		w.wrongf("harness", "fetch offsets: %v", err)
		return
	}
	for _, in := range lines {
		for _, s := range plan.Subs {
			if n := len(logs[in.changelogs(s)[0]]); in.last && n != in.width {
				w.wrongf("harness", "sub-topology %d has %d subtasks with a changelog, want %d", s.ID, n, in.width)
			}
			for k := range in.width {
				h := w.checkHistory(in, s, k, logs)
				if h == nil {
					continue
				}
				in.histories[fmt.Sprintf("%d_%d", s.ID, k)] = h
				w.checkDisks(in, s, k, h)
				if !in.last {
					continue
				}
				last := h.epochs[len(h.epochs)-1].rec
				for _, in := range last.Inputs {
					o, _ := offsets.Lookup(in.Topic, in.Partition)
					if o.At != in.Offset {
						w.wrongf("I2", "subtask %d_%d: the last epoch record has offset %d of %s/%d, the group has %d", s.ID, k, in.Offset, in.Topic, in.Partition, o.At)
					}
				}
			}
		}
	}
	if w.failed() && len(lines) > 1 {
		return // without the histories it is not known what each incarnation has processed
	}
	w.checkOnce(lines, logs)
	w.checkRepartition(lines, logs)
	w.checkWindows(lines, logs[topicCounts], topicCounts, topicIn, plan.Subs[1])
	w.checkWindows(lines, logs[topicDCounts], topicDCounts, topicDirect, plan.Subs[2])
	w.checkDead(lines, logs)
	if !w.failed() {
		w.checkSavepoints(ctx, plan, lines, logs)
	}
}

// tapped puts what the tap has kept of a repartition topic into logs, when it has read all of it.
func (w *world) tapped(ctx context.Context, logs map[string]log, topic string) error {
	if w.topicIDs[topic] == "" {
		return nil
	}
	ends, err := w.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	for p, e := range ends[topic] {
		if e.Err != nil {
			return e.Err
		}
		w.tap.await(topic, p, e.Offset)
	}
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	logs[topic] = maps.Clone(w.tap.records[topic])
	return nil
}

// good are the inputs of a topic that can be decoded, by id.
func (w *world) good(topic string) map[int64]input {
	m := map[int64]input{}
	for _, in := range w.src.sent {
		if in.topic == topic && !in.bad {
			m[in.event.ID] = in
		}
	}
	return m
}

// checkOnce: in each incarnation every input once in the running totals, per key in order, each total the sum of all before
// it; every timer once.
func (w *world) checkOnce(lines []*incarnation, logs map[string]log) {
	for sub, names := range map[int][2]string{1: {topicTotals, topicIn}, 2: {topicSums, topicDirect}} {
		out, in := names[0], names[1]
		want := w.good(in)
		place := map[int64]int64{} // offset of the input record, by id
		for _, recs := range logs[in] {
			for _, r := range recs {
				var e event
				if json.Unmarshal(r.Value, &e) == nil {
					place[e.ID] = r.Offset
				}
			}
		}
		timers := map[timer]int{}
		where := map[string]int32{}
		left := w.portions(lines, logs, sub, in)
		type now struct {
			seen  map[int64]bool
			state total
			last  map[int32]int64 // offset, by partition of the input
		}
		at := map[*portion]*now{}
		for p, recs := range logs[out] {
			for _, r := range recs {
				var o row
				if err := json.Unmarshal(r.Value, &o); err != nil {
					w.wrongf("once", "%s/%d offset %d: %v", out, p, r.Offset, err)
					continue
				}
				if q, ok := where[o.Key]; ok && q != p {
					w.wrongf("order", "key %s is on partitions %d and %d of %s", o.Key, q, p, out)
				}
				where[o.Key] = p
				if o.Timer > 0 {
					timers[timer{o.Key, o.Timer}]++
					continue
				}
				i, ok := want[o.ID]
				for len(left[o.Key]) > 1 && len(left[o.Key][0].ids) == 0 {
					left[o.Key] = left[o.Key][1:]
				}
				if !ok || len(left[o.Key]) == 0 {
					w.wrongf("once", "%s has a result of input %d of %s, which was not sent", out, o.ID, in)
					continue
				}
				now1 := left[o.Key][0]
				n := at[now1]
				if n == nil {
					n = &now{map[int64]bool{}, now1.base, map[int32]int64{}}
					at[now1] = n
				}
				switch {
				case n.seen[o.ID]:
					w.wrongf("once", "%s has the result of input %d twice in incarnation %d (again at %d/%d)", out, o.ID, now1.in.no, p, r.Offset)
				case i.event.Key != o.Key:
					w.wrongf("once", "%s has input %d under key %s, want %s", out, o.ID, o.Key, i.event.Key)
				case !now1.ids[o.ID]:
					w.wrongf("once", "%s has a result of input %d of %s at %d/%d, where those of incarnation %d are, which has not committed it", out, o.ID, in, p, r.Offset, now1.in.no)
				}
				n.seen[o.ID] = true
				delete(now1.ids, o.ID)
				n.state.add(i.event)
				if n.state.N != o.N || n.state.Sum != o.Sum {
					w.wrongf("state in output", "%s/%d offset %d: total of key %s after input %d is %d records, sum %d; want %d, %d", out, p, r.Offset, o.Key, o.ID, o.N, o.Sum, n.state.N, n.state.Sum)
					n.state = total{N: o.N, Sum: o.Sum, IDs: n.state.IDs}
				}
				if place[o.ID] < n.last[i.partition] {
					w.wrongf("order", "%s: input %d of key %s (offset %d of %s/%d) comes after offset %d", out, o.ID, o.Key, place[o.ID], in, i.partition, n.last[i.partition])
				}
				n.last[i.partition] = place[o.ID]
			}
		}
		for _, portions := range left {
			for _, p := range portions {
				for id := range p.ids {
					w.wrongf("once", "%s lacks input %d of %s in incarnation %d", out, id, in, p.in.no)
				}
			}
		}
		if out == topicTotals {
			w.checkTimers(lines, timers, want)
		}
	}
}

type timer struct {
	key string
	at  int64
}

func (w *world) checkTimers(lines []*incarnation, fired map[timer]int, inputs map[int64]input) {
	want := map[timer]int{}
	for _, i := range inputs {
		if t := (timer{i.event.Key, timerOf(i.event.At)}); !strings.HasPrefix(t.key, closingKey) && want[t] == 0 {
			want[t] = times(lines, 1, t.key, t.at, func(r *txn.EpochRecord) int64 { return watermark(r, "total") })
		}
	}
	for t, n := range fired {
		if n != want[t] {
			w.wrongf("timers", "timer %v fired %d times, want %d", t, n, want[t])
		}
	}
	for t, n := range want {
		if n > 0 && fired[t] == 0 {
			w.wrongf("timers", "timer %v never fired", t)
		}
	}
}

// checkRepartition: in each incarnation every decodable input that was processed once on the repartition topic.
func (w *world) checkRepartition(lines []*incarnation, logs map[string]log) {
	for _, in := range lines {
		want := map[int64]bool{}
		for p := range w.prof.partitions {
			for _, e := range w.inputsOf(logs, topicIn, p, in.from(topicIn, p), in.to(0, topicIn, p)) {
				want[e.ID] = true
			}
		}
		topic := repartition(in.no)
		seen := map[int64]bool{}
		for p := range logs[topic] {
			for _, e := range w.inputsOf(logs, topic, p, 0, math.MaxInt64) {
				if !want[e.ID] || seen[e.ID] {
					w.wrongf("once", "the repartition topic of incarnation %d has input %d twice, or it was never sent", in.no, e.ID)
				}
				seen[e.ID] = true
			}
		}
		if len(seen) != len(want) {
			w.wrongf("once", "the repartition topic of incarnation %d has %d of %d inputs", in.no, len(seen), len(want))
		}
	}
}

// checkWindows: every window once in each incarnation that has closed it, with all of its records.
func (w *world) checkWindows(lines []*incarnation, l log, out, in string, sub *task.SubTopology) {
	var store statestore.ID
	for _, st := range sub.Stores {
		if st.Kind == statestore.KindWindows {
			store = st.ID
		}
	}
	want := map[windowKey]total{}
	for _, i := range w.good(in) {
		if !strings.HasPrefix(i.event.Key, closingKey) {
			c := windowKey{windowOf(i.event.At), i.event.Key}
			t := want[c]
			t.add(i.event)
			want[c] = t
		}
	}
	seen := map[windowKey]int{}
	for p, recs := range l {
		for _, r := range recs {
			var o count
			if err := json.Unmarshal(r.Value, &o); err != nil {
				w.wrongf("windows", "%s/%d offset %d: %v", out, p, r.Offset, err)
				continue
			}
			c := windowKey{o.End, o.Key}
			seen[c]++
			if got := (total{o.N, o.Sum, o.IDs}); got != want[c] {
				w.wrongf("windows", "%s: window of %s ending %d is %v, want %v", out, o.Key, o.End, got, want[c])
			}
		}
	}
	for c := range want {
		n := times(lines, sub.ID, c.key, c.end, func(r *txn.EpochRecord) int64 { return horizon(r, store) })
		switch got := seen[c]; {
		case got < n:
			w.wrongf("windows", "%s lacks the window of %s ending %d: it is there %d times, want %d", out, c.key, c.end, got, n)
		case got > n:
			w.wrongf("windows", "%s has the window of %s ending %d %d times, want %d", out, c.key, c.end, got, n)
		}
	}
}

// checkDead: every record that cannot be decoded once in the dead-letter topic for each incarnation that has processed it,
// as it was.
func (w *world) checkDead(lines []*incarnation, logs map[string]log) {
	left := map[string]int{}
	for sub, topic := range map[int]string{0: topicIn, 2: topicDirect} {
		for p, recs := range logs[topic] {
			for _, r := range recs {
				var e event
				if json.Unmarshal(r.Value, &e) == nil {
					continue
				}
				for _, in := range lines {
					if r.Offset >= in.from(topic, p) && r.Offset < in.to(sub, topic, p) {
						left[string(r.Value)]++
					}
				}
			}
		}
	}
	for _, recs := range logs[topicDead] {
		for _, r := range recs {
			left[string(r.Value)]--
		}
	}
	for v, n := range left {
		if n != 0 {
			w.wrongf("dead letters", "%q is there %d times too few", v, n)
		}
	}
}

// inputsOf are the decoded events of an input partition with from <= offset < to.
func (w *world) inputsOf(logs map[string]log, topic string, p int32, from, to int64) []event {
	recs := logs[topic][p]
	i := sort.Search(len(recs), func(i int) bool { return recs[i].Offset >= from })
	var es []event
	for ; i < len(recs) && recs[i].Offset < to; i++ {
		var e event
		if isRepartition(topic) {
			if len(recs[i].Value) > 0 && recs[i].Value[0] != 0 {
				continue // a watermark, or a barrier
			}
			_, payload, err := task.DataFrame(recs[i].Value)
			if err == nil {
				err = eventCodec().Decode(payload, &e)
			}
			if err != nil {
				w.wrongf("harness", "repartition record: %v", err)
				continue
			}
		} else if json.Unmarshal(recs[i].Value, &e) != nil {
			continue
		}
		es = append(es, e)
	}
	return es
}

var (
	eventCodec = sync.OnceValue(func() statestore.Codec[event] { return mustCodec[event]() })
	totalCodec = sync.OnceValue(func() statestore.Codec[total] { return mustCodec[total]() })
)

func mustCodec[V any]() statestore.Codec[V] {
	c, err := statestore.CodecOf[V]()
	if err != nil {
		panic(err)
	}
	return c
}

// epoch is one committed epoch of a subtask as its changelogs tell it.
type epoch struct {
	rec     *txn.EpochRecord
	changes [][]*kgo.Record // by changelog
	at      []int64         // offset of the epoch record, by changelog; -1 = not touched
}

// history is all committed epochs of a subtask, in order.
type history struct {
	sub    *task.SubTopology
	index  int
	epochs []epoch
	logs   [][]*kgo.Record // the changelog partitions
}

// checkHistory takes the changelogs apart into epochs and checks each: numbers without holes, one record each,
// positions that fit, offsets that never go back, and changes that are exactly what the inputs of the epoch make.
func (w *world) checkHistory(in *incarnation, s *task.SubTopology, k int, logs map[string]log) *history {
	h := &history{sub: s, index: k}
	name := fmt.Sprintf("subtask %d_%d", s.ID, k)
	if in.no > 1 {
		name += fmt.Sprintf(" of incarnation %d", in.no)
	}
	meta := statestore.MetaKey()
	byEpoch := map[uint64]*epoch{}
	changelogs := in.changelogs(s)
	for _, topic := range changelogs {
		h.logs = append(h.logs, logs[topic][int32(k)])
	}
	// What an incarnation begins with is written without an epoch record; its first epoch begins behind it.
	first, ok := h.first()
	if !ok && !in.last {
		return nil // nothing was committed before the next incarnation began
	}
	var base [][]*kgo.Record
	for c, topic := range changelogs {
		recs := h.logs[c]
		if ok {
			n := sort.Search(len(recs), func(i int) bool { return recs[i].Offset >= first.Positions[c] })
			base, recs = append(base, recs[:n]), recs[n:]
		}
		var open []*kgo.Record
		last := uint64(0)
		next := int64(0) // position after the last epoch record
		for _, r := range recs {
			if !bytes.Equal(r.Key, meta) {
				open = append(open, r)
				continue
			}
			er, err := txn.DecodeEpochRecord(r.Value)
			if err != nil {
				w.wrongf("epochs", "%s: %s offset %d: %v", name, topic, r.Offset, err)
				return nil
			}
			if er.Epoch <= last {
				w.wrongf("epochs", "%s: epoch %d comes after epoch %d in %s: two owners", name, er.Epoch, last, topic)
				return nil
			}
			// A new owner begins behind the markers and aborted records of the old one.
			first := r.Offset
			if len(open) > 0 {
				first = open[0].Offset
			}
			if er.Touched[c] && (er.Positions[c] < next || er.Positions[c] > first) {
				w.wrongf("epochs", "%s: epoch %d says that it began at %d in %s, the epoch record before it ends at %d and its first record is at %d", name, er.Epoch, er.Positions[c], topic, next, first)
			}
			last, next = er.Epoch, r.Offset+1
			e := byEpoch[er.Epoch]
			if e == nil {
				e = &epoch{rec: er, changes: make([][]*kgo.Record, len(changelogs)), at: make([]int64, len(changelogs))}
				for i := range e.at {
					e.at[i] = -1
				}
				byEpoch[er.Epoch] = e
			} else if !bytes.Equal(e.rec.Append(nil), er.Append(nil)) {
				w.wrongf("epochs", "%s: epoch %d has two different records", name, er.Epoch)
			}
			e.changes[c], e.at[c] = open, r.Offset
			open = nil
		}
		if len(open) > 0 {
			w.wrongf("epochs", "%s: %d committed records of %s belong to no epoch", name, len(open), topic)
		}
	}
	numbers := slices.Sorted(maps.Keys(byEpoch))
	if len(numbers) == 0 {
		w.wrongf("epochs", "%s has no epoch", name)
		return nil
	}
	m := &model{w: w, name: name, sub: s, totals: map[string]total{}, windows: map[windowKey]total{}}
	at := maps.Clone(in.at)
	m.checkBase(in, k, base, logs)
	for i, no := range numbers {
		e := byEpoch[no]
		h.epochs = append(h.epochs, *e)
		if no != uint64(i)+1 {
			w.wrongf("epochs", "%s: epoch %d follows epoch %d", name, no, i)
			return nil
		}
		for c := range changelogs {
			if e.rec.Touched[c] != (e.at[c] >= 0) {
				w.wrongf("epochs", "%s: epoch %d says touched %v, its records are at %v", name, no, e.rec.Touched, e.at)
			}
		}
		if e.rec.Incarnation != in.no {
			w.wrongf("epochs", "%s: epoch %d is of incarnation %d", name, no, e.rec.Incarnation)
		}
		m.begin()
		for _, i := range e.rec.Inputs {
			tp := record.TopicPartition{Topic: i.Topic, Partition: i.Partition}
			if int(i.Partition)%in.width != k || i.Topic != in.source(s.ID) {
				w.wrongf("epochs", "%s: epoch %d has partition %s, which is not its own", name, no, tp)
			}
			if i.Offset < at[tp] {
				w.wrongf("monotone", "%s: the offset of %s goes from %d back to %d at epoch %d", name, tp, at[tp], i.Offset, no)
			}
			for _, ev := range w.inputsOf(logs, i.Topic, i.Partition, at[tp], i.Offset) {
				m.apply(ev)
			}
			at[tp] = i.Offset
		}
		m.compare(e)
		if w.failed() {
			return nil
		}
	}
	return h
}

type windowKey struct {
	end int64
	key string
}

// model is the state of a subtask as its inputs make it.
type model struct {
	w       *world
	name    string
	sub     *task.SubTopology
	totals  map[string]total
	windows map[windowKey]total
	keys    map[string]bool
	cells   map[windowKey]bool
}

// first is the record of the first epoch.
func (h *history) first() (*txn.EpochRecord, bool) {
	for _, recs := range h.logs {
		for _, r := range recs {
			if bytes.Equal(r.Key, statestore.MetaKey()) {
				if er, err := txn.DecodeEpochRecord(r.Value); err == nil && er.Epoch == 1 {
					return er, true
				}
			}
		}
	}
	return nil, false
}

// checkBase makes the state that the subtask's incarnation begins with, out of the inputs before its savepoint, and wants just
// that in front of the first epoch.
func (m *model) checkBase(in *incarnation, k int, base [][]*kgo.Record, logs map[string]log) {
	if len(m.sub.Stores) == 0 {
		return
	}
	mine := func(key string) bool { return int(m.w.partitionOf(key))%in.width == k }
	m.begin()
	for _, e := range in.before(logs, []string{1: topicIn, 2: topicDirect}[m.sub.ID]) {
		if mine(e.Key) {
			m.apply(e)
		}
	}
	got := map[string][]byte{}
	for _, recs := range base {
		for _, r := range recs {
			got[string(r.Key)] = r.Value
		}
	}
	for _, st := range m.sub.Stores {
		if st.Kind != statestore.KindTable && st.Kind != statestore.KindWindows {
			continue
		}
		want := map[windowKey]total{}
		for key, t := range m.totals {
			if st.Kind == statestore.KindTable {
				want[windowKey{key: key}] = t
			}
		}
		for c, t := range m.windows {
			if st.Kind == statestore.KindWindows && c.end > in.passed(m.sub.ID, c.key, func(r *txn.EpochRecord) int64 { return horizon(r, st.ID) }) {
				want[c] = t
			}
		}
		have := map[windowKey]total{}
		for key, value := range got {
			if binary.BigEndian.Uint32([]byte(key)) != uint32(st.ID) {
				continue
			}
			c, t, err := decodeEntry(st.Kind, []byte(key), value)
			if err != nil {
				m.w.wrongf("incarnations", "%s: base: %s: entry %x: %v", m.name, st.Name, key, err)
			}
			have[c] = t
		}
		if !maps.Equal(have, want) {
			m.w.wrongf("incarnations", "%s began with %s of %v, the inputs before its savepoint make %v", m.name, st.Name, have, want)
		}
		if len(have) > 0 {
			m.w.hit("incarnation with state", -1)
		}
	}
}

// decodeEntry reads an entry of a table or of windows.
func decodeEntry(kind statestore.Kind, key, value []byte) (c windowKey, t total, err error) {
	keys, err := statestore.KeyCodecOf[string]()
	if err != nil {
		return c, t, err
	}
	rest := key[4:]
	if kind == statestore.KindWindows {
		c.end = int64(binary.BigEndian.Uint64(rest) ^ 1<<63)
		rest = rest[8:]
	}
	if c.key, rest, err = keys.Decode(rest[2:]); err != nil || len(rest) > 0 {
		return c, t, fmt.Errorf("key: %w, %d bytes left", err, len(rest))
	}
	_, n := binary.Uvarint(value)
	if n <= 0 {
		return c, t, errors.New("it has no value")
	}
	return c, t, totalCodec().Decode(value[n:], &t)
}

func (m *model) begin() { m.keys, m.cells = map[string]bool{}, map[windowKey]bool{} }

func (m *model) apply(e event) {
	t := m.totals[e.Key]
	t.add(e)
	m.totals[e.Key] = t
	m.keys[e.Key] = true
	c := windowKey{windowOf(e.At), e.Key}
	v := m.windows[c]
	v.add(e)
	m.windows[c] = v
	m.cells[c] = true
}

// compare checks that the changes of an epoch are exactly what its inputs have changed: so that the fold of the
// changelog equals the fold of the input after every epoch.
func (m *model) compare(e *epoch) {
	if len(m.sub.Stores) == 0 {
		return
	}
	w, no := m.w, e.rec.Epoch
	horizons := map[statestore.ID]int64{}
	for _, h := range e.rec.Horizons {
		horizons[h.Store] = h.End
	}
	for _, st := range m.sub.Stores {
		if st.Kind != statestore.KindTable && st.Kind != statestore.KindWindows {
			continue
		}
		horizon, closed := horizons[st.ID]
		seen := map[windowKey]bool{}
		for _, recs := range e.changes {
			for _, r := range recs {
				if binary.BigEndian.Uint32(r.Key) != uint32(st.ID) {
					continue
				}
				c, got, err := decodeEntry(st.Kind, r.Key, r.Value)
				if err != nil {
					w.wrongf("state", "%s: epoch %d: entry %x of %s: %v", m.name, no, r.Key, st.Name, err)
					continue
				}
				seen[c] = true
				var want total
				touched := m.keys[c.key]
				want = m.totals[c.key]
				if st.Kind == statestore.KindWindows {
					want, touched = m.windows[c], m.cells[c]
				}
				if got != want || !touched {
					w.wrongf("state", "%s: epoch %d: %s of %v is %v, the inputs below the committed offsets make %v (changed in this epoch: %v)", m.name, no, st.Name, c, got, want, touched)
				}
			}
		}
		if st.Kind == statestore.KindTable {
			for k := range m.keys {
				if !seen[windowKey{key: k}] {
					w.wrongf("state", "%s: epoch %d: %s of %s is not in the changelog, though inputs changed it", m.name, no, st.Name, k)
				}
			}
			continue
		}
		for c := range m.cells {
			if !seen[c] && (!closed || c.end > horizon) {
				w.wrongf("state", "%s: epoch %d: %s of %v is not in the changelog, though inputs changed it", m.name, no, st.Name, c)
			}
		}
	}
}

// checkDisks: every store on every disk, those that crashes left included, is the fold of the committed changelog up
// to its own position (I1). The last owner's store is up to date.
func (w *world) checkDisks(in *incarnation, s *task.SubTopology, k int, h *history) {
	newest := uint64(0)
	name := fmt.Sprintf("%d_%d", s.ID, k)
	for _, d := range w.disks {
		path := fmt.Sprintf("state/%d/%s", in.no, name)
		if _, err := d.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := d.open(w.identity(in, name, s), func(st statestore.Store) error {
			meta, ok := st.Meta()
			if !ok || in.base != nil && meta.Epoch == 0 {
				return nil // what the incarnation begins with, which does not count yet
			}
			newest = max(newest, meta.Epoch)
			got, err := dump(st)
			if err != nil {
				return err
			}
			want := h.fold(meta.Positions)
			if meta.EpochRecord != nil {
				rec, err := txn.DecodeEpochRecord(meta.EpochRecord)
				if err != nil {
					return err
				}
				for _, hz := range rec.Horizons {
					lo, hi := statestore.WindowRange(hz.Store, hz.End)
					for _, m := range []map[string]string{got, want} {
						maps.DeleteFunc(m, func(k, _ string) bool { return k >= string(lo) && (hi == nil || k < string(hi)) })
					}
				}
			}
			if diff := difference(got, want); diff != "" {
				w.wrongf("I1", "store of subtask %s on the disk of %s at epoch %d, positions %v, is not the fold of the changelog: %s", name, d.name, meta.Epoch, meta.Positions, diff)
			}
			return nil
		})
		if err != nil {
			w.wrongf("I1", "store of subtask %s on the disk of %s: %v", name, d.name, err)
		}
	}
	if last := h.epochs[len(h.epochs)-1].rec.Epoch; in.last && newest != last {
		w.wrongf("I1", "after a graceful stop the newest store of subtask %s is at epoch %d, the changelog at %d", name, newest, last)
	}
}

func (d disk) open(id statestore.Identity, fn func(statestore.Store) error) error {
	dir, err := pebblestore.OpenDir("state", app, pebblestore.Options{FS: d.fs, CacheBytes: 1 << 20, MinFreeBytes: -1})
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := dir.Open(id)
	if err != nil {
		return err
	}
	return errors.Join(fn(st), st.Close())
}

// identity is what the engine opens a store with.
func (w *world) identity(in *incarnation, subtask string, s *task.SubTopology) statestore.Identity {
	id := statestore.Identity{App: app, ClusterID: w.clusterID, Incarnation: in.no, Subtask: subtask}
	for _, c := range in.changelogs(s) {
		id.Changelogs = append(id.Changelogs, w.topicIDs[c])
	}
	return id
}

func dump(st statestore.Store) (map[string]string, error) {
	it, err := st.Scan(nil, nil)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	return m, errors.Join(it.Err(), it.Close())
}

// fold is the state that the changelogs make up to positions.
func (h *history) fold(positions []int64) map[string]string {
	m := map[string]string{}
	meta := statestore.MetaKey()
	for c, recs := range h.logs {
		for _, r := range recs {
			switch {
			case r.Offset >= positions[c]:
			case bytes.Equal(r.Key, meta):
			case r.Value == nil:
				delete(m, string(r.Key))
			default:
				m[string(r.Key)] = string(r.Value)
			}
		}
	}
	return m
}

// difference names the first keys in which two states differ.
func difference(got, want map[string]string) string {
	var diffs []string
	for k, v := range want {
		if g, ok := got[k]; !ok {
			diffs = append(diffs, fmt.Sprintf("%x is missing", k))
		} else if g != v {
			diffs = append(diffs, fmt.Sprintf("%x is %x, want %x", k, g, v))
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			diffs = append(diffs, fmt.Sprintf("%x is too much", k))
		}
	}
	slices.SortFunc(diffs, cmp.Compare)
	return strings.Join(diffs[:min(len(diffs), 3)], "; ")
}
