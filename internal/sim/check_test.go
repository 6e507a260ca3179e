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
	at      map[int32]int64 // next offset
	changed chan struct{}
	records map[int32][]*kgo.Record
}

func newTap(opts []kgo.Opt) (*tap, error) {
	cl, err := kgo.NewClient(append(slices.Clone(opts), kgo.ConsumeTopics(topicRepart), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(driverWait*time.Millisecond), kgo.FetchMinBytes(1))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &tap{cl: cl, stop: cancel, done: make(chan struct{}), at: map[int32]int64{}, changed: make(chan struct{}), records: map[int32][]*kgo.Record{}}
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
			if !r.Attrs.IsControl() && r.Offset >= t.at[r.Partition] {
				t.records[r.Partition] = append(t.records[r.Partition], r)
			}
			t.at[r.Partition] = max(t.at[r.Partition], r.Offset+1)
		})
		close(t.changed)
		t.changed = make(chan struct{})
		t.mu.Unlock()
	}
}

// await returns when the tap has passed an offset, or is closed.
func (t *tap) await(topic string, partition int32, offset int64) {
	for topic == topicRepart {
		t.mu.Lock()
		at, changed := t.at[partition], t.changed
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
	var changelogs []string
	for _, s := range plan.Subs {
		changelogs = append(changelogs, changelogsOf(s)...)
	}
	names := append([]string{topicIn, topicDirect, topicTotals, topicCounts, topicSums, topicDCounts, topicDead}, changelogs...)
	logs, err := w.readTopics(ctx, names...)
	if err != nil {
		w.wrongf("visible", "read everything: %v", err)
		return
	}
	w.tap.mu.Lock()
	logs[topicRepart] = w.tap.records
	w.tap.mu.Unlock()

	w.checkOnce(logs)
	w.checkRepartition(logs)
	w.checkWindows(logs[topicCounts], topicCounts, topicIn)
	w.checkWindows(logs[topicDCounts], topicDCounts, topicDirect)
	w.checkDead(logs[topicDead])
	offsets, err := w.adm.FetchOffsets(ctx, app)
	if err != nil {
		w.wrongf("harness", "fetch offsets: %v", err)
		return
	}
	histories := map[string]*history{}
	for _, s := range plan.Subs {
		n := w.subtasks(s, logs)
		for k := range n {
			h := w.checkHistory(s, k, n, logs)
			if h == nil {
				continue
			}
			histories[fmt.Sprintf("%d_%d", s.ID, k)] = h
			last := h.epochs[len(h.epochs)-1].rec
			for _, in := range last.Inputs {
				o, _ := offsets.Lookup(in.Topic, in.Partition)
				if o.At != in.Offset {
					w.wrongf("I2", "subtask %d_%d: the last epoch record has offset %d of %s/%d, the group has %d", s.ID, k, in.Offset, in.Topic, in.Partition, o.At)
				}
			}
			w.checkDisks(s, k, h)
		}
	}
	if !w.failed() {
		w.checkSavepoints(ctx, plan, histories, logs)
	}
}

func changelogsOf(s *task.SubTopology) []string {
	names := []string{fmt.Sprintf("%s-%d-changelog", app, s.ID)}
	for _, st := range s.Stores {
		if st.Expiring {
			return append(names, fmt.Sprintf("%s-%d-changelog-expiring", app, s.ID))
		}
	}
	return names
}

// subtasks is the parallelism of a sub-topology: as many changelog partitions have records, since each subtask claims.
func (w *world) subtasks(s *task.SubTopology, logs map[string]log) int {
	n := len(logs[changelogsOf(s)[0]])
	want := int(w.prof.partitions)
	if w.prof.parallelism > 0 {
		want = w.prof.parallelism
	}
	if n != want {
		w.wrongf("harness", "sub-topology %d has %d subtasks with a changelog, want %d", s.ID, n, want)
	}
	return min(n, want)
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

// checkOnce: every input once in the running totals, per key in order, each total the sum of all before it; every timer
// once.
func (w *world) checkOnce(logs map[string]log) {
	for out, in := range map[string]string{topicTotals: topicIn, topicSums: topicDirect} {
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
		timers := map[string]int{}
		seen := map[int64]bool{}
		where := map[string]int32{}
		state := map[string]total{}
		type lane struct {
			key       string
			partition int32
		}
		last := map[lane]int64{}
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
					timers[fmt.Sprint(o.Key, "@", o.Timer)]++
					continue
				}
				i, ok := want[o.ID]
				switch {
				case !ok:
					w.wrongf("once", "%s has a result of input %d of %s, which was not sent", out, o.ID, in)
					continue
				case seen[o.ID]:
					w.wrongf("once", "%s has the result of input %d twice (again at %d/%d)", out, o.ID, p, r.Offset)
				case i.event.Key != o.Key:
					w.wrongf("once", "%s has input %d under key %s, want %s", out, o.ID, o.Key, i.event.Key)
				}
				seen[o.ID] = true
				t := state[o.Key]
				t.add(i.event)
				state[o.Key] = t
				if t.N != o.N || t.Sum != o.Sum {
					w.wrongf("state in output", "%s/%d offset %d: total of key %s after input %d is %d records, sum %d; want %d, %d", out, p, r.Offset, o.Key, o.ID, o.N, o.Sum, t.N, t.Sum)
					state[o.Key] = total{N: o.N, Sum: o.Sum, IDs: t.IDs}
				}
				l := lane{o.Key, i.partition}
				if place[o.ID] < last[l] {
					w.wrongf("order", "%s: input %d of key %s (offset %d of %s/%d) comes after offset %d", out, o.ID, o.Key, place[o.ID], in, i.partition, last[l])
				}
				last[l] = place[o.ID]
			}
		}
		for id := range want {
			if !seen[id] {
				w.wrongf("once", "%s lacks input %d of %s", out, id, in)
			}
		}
		if out != topicTotals {
			continue
		}
		wantTimers := map[string]bool{}
		for _, i := range want {
			if !strings.HasPrefix(i.event.Key, closingKey) {
				wantTimers[fmt.Sprint(i.event.Key, "@", timerOf(i.event.At))] = true
			}
		}
		for t, n := range timers {
			if n != 1 || !wantTimers[t] {
				w.wrongf("timers", "timer %s fired %d times, want %v", t, n, wantTimers[t])
			}
		}
		for t := range wantTimers {
			if timers[t] == 0 {
				w.wrongf("timers", "timer %s never fired", t)
			}
		}
	}
}

// checkRepartition: every decodable input once on the repartition topic.
func (w *world) checkRepartition(logs map[string]log) {
	want := w.good(topicIn)
	seen := map[int64]bool{}
	for p := range logs[topicRepart] {
		for _, e := range w.inputsOf(logs, topicRepart, p, 0, math.MaxInt64) {
			if _, ok := want[e.ID]; !ok || seen[e.ID] {
				w.wrongf("once", "the repartition topic has input %d twice, or it was never sent", e.ID)
			}
			seen[e.ID] = true
		}
	}
	if len(seen) != len(want) {
		w.wrongf("once", "the repartition topic has %d of %d inputs", len(seen), len(want))
	}
}

// checkWindows: every window once, with all of its records.
func (w *world) checkWindows(l log, out, in string) {
	type cell struct {
		key string
		end int64
	}
	want := map[cell]total{}
	for _, i := range w.good(in) {
		if !strings.HasPrefix(i.event.Key, closingKey) {
			c := cell{i.event.Key, windowOf(i.event.At)}
			t := want[c]
			t.add(i.event)
			want[c] = t
		}
	}
	seen := map[cell]bool{}
	for p, recs := range l {
		for _, r := range recs {
			var o count
			if err := json.Unmarshal(r.Value, &o); err != nil {
				w.wrongf("windows", "%s/%d offset %d: %v", out, p, r.Offset, err)
				continue
			}
			c := cell{o.Key, o.End}
			if seen[c] {
				w.wrongf("windows", "%s has the window of %s ending %d twice (again at %d/%d)", out, o.Key, o.End, p, r.Offset)
			}
			seen[c] = true
			if got := (total{o.N, o.Sum, o.IDs}); got != want[c] {
				w.wrongf("windows", "%s: window of %s ending %d is %v, want %v", out, o.Key, o.End, got, want[c])
			}
		}
	}
	for c := range want {
		if !seen[c] {
			w.wrongf("windows", "%s lacks the window of %s ending %d", out, c.key, c.end)
		}
	}
}

// checkDead: every record that cannot be decoded once in the dead-letter topic, as it was.
func (w *world) checkDead(l log) {
	left := map[string]int{}
	for _, in := range w.src.sent {
		if in.bad {
			left[string(in.value())]++
		}
	}
	for _, recs := range l {
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
		if topic == topicRepart {
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
func (w *world) checkHistory(s *task.SubTopology, k, n int, logs map[string]log) *history {
	h := &history{sub: s, index: k}
	name := fmt.Sprintf("subtask %d_%d", s.ID, k)
	meta := statestore.MetaKey()
	byEpoch := map[uint64]*epoch{}
	changelogs := changelogsOf(s)
	for c, topic := range changelogs {
		recs := logs[topic][int32(k)]
		h.logs = append(h.logs, recs)
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
	at := map[record.TopicPartition]int64{}
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
		m.begin()
		for _, in := range e.rec.Inputs {
			tp := record.TopicPartition{Topic: in.Topic, Partition: in.Partition}
			if in.Partition%int32(n) != int32(k) {
				w.wrongf("epochs", "%s: epoch %d has partition %s, which is not its own", name, no, tp)
			}
			if in.Offset < at[tp] {
				w.wrongf("monotone", "%s: the offset of %s goes from %d back to %d at epoch %d", name, tp, at[tp], in.Offset, no)
			}
			for _, ev := range w.inputsOf(logs, in.Topic, in.Partition, at[tp], in.Offset) {
				m.apply(ev)
			}
			at[tp] = in.Offset
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
	keys, err := statestore.KeyCodecOf[string]()
	if err != nil {
		w.wrongf("harness", "%v", err)
		return
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
				rest := r.Key[4:]
				var c windowKey
				if st.Kind == statestore.KindWindows {
					c.end = int64(binary.BigEndian.Uint64(rest) ^ 1<<63)
					rest = rest[8:]
				}
				if c.key, rest, err = keys.Decode(rest[2:]); err != nil || len(rest) > 0 {
					w.wrongf("state", "%s: epoch %d: key %x of %s: %v, %d bytes left", m.name, no, r.Key, st.Name, err, len(rest))
					continue
				}
				seen[c] = true
				_, n := binary.Uvarint(r.Value)
				var got, want total
				if n <= 0 {
					w.wrongf("state", "%s: epoch %d: %s of %v has no value", m.name, no, st.Name, c)
					continue
				}
				if err := totalCodec().Decode(r.Value[n:], &got); err != nil {
					w.wrongf("state", "%s: epoch %d: %s of %v: %v", m.name, no, st.Name, c, err)
					continue
				}
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
func (w *world) checkDisks(s *task.SubTopology, k int, h *history) {
	newest := uint64(0)
	name := fmt.Sprintf("%d_%d", s.ID, k)
	for _, d := range w.disks {
		path := "state/1/" + name
		if _, err := d.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := d.open(w, name, s, func(st statestore.Store) error {
			meta, ok := st.Meta()
			if !ok {
				return nil
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
	if last := h.epochs[len(h.epochs)-1].rec.Epoch; newest != last {
		w.wrongf("I1", "after a graceful stop the newest store of subtask %s is at epoch %d, the changelog at %d", name, newest, last)
	}
}

func (d disk) open(w *world, subtask string, s *task.SubTopology, fn func(statestore.Store) error) error {
	dir, err := pebblestore.OpenDir("state", app, pebblestore.Options{FS: d.fs, CacheBytes: 1 << 20, MinFreeBytes: -1})
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := dir.Open(w.identity(subtask, s))
	if err != nil {
		return err
	}
	return errors.Join(fn(st), st.Close())
}

// identity is what the engine opens a store with.
func (w *world) identity(subtask string, s *task.SubTopology) statestore.Identity {
	id := statestore.Identity{App: app, ClusterID: w.clusterID, Incarnation: 1, Subtask: subtask}
	for _, c := range changelogsOf(s) {
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
