package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// wire is the network of one member, which can be cut for good: to the others it is dead then.
type wire struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.New("the network is cut")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// restores counts what takeovers and standbys have read.
type restores struct {
	engine.Observer
	mu   sync.Mutex
	done map[string][]restored // by subtask
}

type restored struct {
	way     string
	records int64
}

func (r *restores) RestoreDone(id record.SubtaskID, way string, records, _ int64, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = map[string][]restored{}
	}
	r.done[id.String()] = append(r.done[id.String()], restored{way, records})
}
func (r *restores) CommitDone(record.SubtaskID, string, time.Duration)          {}
func (r *restores) SubtaskRestarted(record.SubtaskID, string)                   {}
func (r *restores) CheckpointDone(record.SubtaskID, bool, int64, time.Duration) {}
func (r *restores) OffsetsSkipped(record.TopicPartition, int64)                 {}
func (r *restores) of(id string) []restored {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.done[id])
}

const wordsChangelog = "words-1-changelog"

// keeps is a member that keeps standbys.
func keeps(r *restores, w *wire) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Standbys, o.Observer = 1, r
		o.ShutdownTimeout = 2 * time.Second
		if w != nil {
			o.Kafka.Dialer = w.dial
		}
	}
}

// followed waits until members keep n standbys together, each up to the epoch of its owner and with nothing left to read.
func followed(t *testing.T, n int, members ...*member) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		owned := map[string]uint64{}
		for _, m := range members {
			for _, s := range m.w.Status().Subtasks {
				if s.State != engine.SubtaskRunning {
					return fmt.Errorf("subtask %s is %s", s.ID, s.State)
				}
				owned[s.ID] = s.Epoch
			}
		}
		var at []string
		for _, m := range members {
			for _, s := range m.w.Status().Standbys {
				if s.State != engine.StandbyFollowing || s.Lag != 0 || s.Epoch != owned[s.ID] {
					return fmt.Errorf("standby %+v, its owner is at epoch %d", s, owned[s.ID])
				}
				at = append(at, s.ID)
			}
		}
		if len(at) != n {
			return fmt.Errorf("standbys %v, want %d", at, n)
		}
		return nil
	})
}

// sameAsChangelog verifies that the stores of a directory are the fold of the committed changelog up to their own
// positions (I1), and how many entries they have.
func (c *cluster) sameAsChangelog(dir *memstore.Dir, clusterID string) (entries int) {
	c.t.Helper()
	infos, err := kadm.NewClient(c.cl).ListTopics(c.t.Context(), wordsChangelog)
	if err != nil {
		c.t.Fatal(err)
	}
	log := c.read(wordsChangelog)
	for k := range nparts {
		id := statestore.Identity{App: "words", ClusterID: clusterID, Incarnation: 1, Subtask: fmt.Sprint("1_", k),
			Changelogs: []string{txn.TopicIDString(infos[wordsChangelog].ID)}}
		st, err := dir.Open(id)
		if err != nil {
			c.t.Fatal(err)
		}
		meta, ok := st.Meta()
		want := map[string]string{}
		for _, r := range log {
			switch {
			case int(r.Partition) != k || !ok || r.Offset >= meta.Positions[0] || bytes.Equal(r.Key, statestore.MetaKey()):
			case r.Value == nil:
				delete(want, string(r.Key))
			default:
				want[string(r.Key)] = string(r.Value)
			}
		}
		it, err := st.Scan(nil, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		got := 0
		for it.Next() {
			if v, ok := want[string(it.Key())]; !ok || v != string(it.Value()) {
				c.t.Errorf("store 1_%d at epoch %d, position %d: key %x is %x, want %x", k, meta.Epoch, meta.Positions[0], it.Key(), it.Value(), v)
			}
			got++
		}
		if err := errors.Join(it.Err(), it.Close(), st.Close()); err != nil {
			c.t.Fatal(err)
		}
		if got != len(want) {
			c.t.Errorf("store 1_%d at epoch %d has %d entries, want %d", k, meta.Epoch, got, len(want))
		}
		entries += got
	}
	return entries
}

// TestStandbyTakesOver kills the owner of all subtasks: the member that kept standbys takes over without reading the
// changelog again, and goes on where the other was.
func TestStandbyTakesOver(t *testing.T) {
	c := newCluster(t)
	var net wire
	var ra, rb restores
	a := c.start("words", countWords, memstore.NewDir("words"), keeps(&ra, &net))
	c.send(2000, 401)
	c.drained("words", "in", "words-by-text-repartition")
	dir := memstore.NewDir("words")
	b := c.start("words", countWords, dir, keeps(&rb, nil))
	followed(t, nparts, a, b)
	c.send(2000, 401)
	c.drained("words", "in", "words-by-text-repartition")
	followed(t, nparts, a, b)
	lost := map[string]bool{}
	for _, s := range a.w.Status().Subtasks {
		if strings.HasPrefix(s.ID, "1_") {
			lost[s.ID] = true
		}
	}
	if len(lost) == 0 || len(lost) == nparts {
		t.Fatalf("the members do not share the work: the first has %v", lost)
	}
	net.cut()
	testutil.Eventually(t, patience, func() error {
		st := b.w.Status()
		running := 0
		for _, s := range st.Subtasks {
			if s.State == engine.SubtaskRunning {
				running++
			}
		}
		if running != 2*nparts || len(st.Standbys) != 0 {
			return fmt.Errorf("%d subtasks run, %d standbys", running, len(st.Standbys))
		}
		return nil
	})
	for id := range lost {
		rs := rb.of(id)
		if len(rs) < 2 {
			t.Fatalf("restores of %s: %v, want one of the standby and one of the takeover", id, rs)
		}
		// The epoch that the takeover claims is its own; what is left to read is what the dead owner did at last.
		if last := rs[len(rs)-1]; last.way != "local store" || last.records > 4 {
			t.Errorf("the takeover of %s read %d records, from %s; its standby was up to date", id, last.records, last.way)
		}
	}
	c.send(2000, 401)
	c.drained("words", "in", "words-by-text-repartition")
	b.stop(t)
	checkCounts(t, c.read("out"), 6000, 401)
	if n := c.sameAsChangelog(dir, b.w.Status().ClusterID); n < 401 {
		t.Errorf("%d entries in the stores, want the 401 words at least", n)
	}
}

// shared waits until a new member runs its half of the subtasks with state, for which it has warmed up.
func shared(t *testing.T, m *member) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		n := 0
		for _, s := range m.w.Status().Subtasks {
			if strings.HasPrefix(s.ID, "1_") && s.State == engine.SubtaskRunning {
				n++
			}
		}
		if n != nparts/2 {
			return fmt.Errorf("the new member runs %d subtasks with state", n)
		}
		return nil
	})
}

// TestNewMemberTakesOverOnceItIsUpToDate: the state of a subtask is on the new member's disk before the subtask moves
// there, so that the move reads next to nothing.
func TestNewMemberTakesOverOnceItIsUpToDate(t *testing.T) {
	c := newCluster(t)
	var ra, rb restores
	a := c.start("words", countWords, memstore.NewDir("words"), keeps(&ra, nil))
	c.send(4000, 1000)
	c.drained("words", "in", "words-by-text-repartition")
	b := c.start("words", countWords, memstore.NewDir("words"), keeps(&rb, nil))
	shared(t, b)
	for _, s := range b.w.Status().Subtasks {
		if rs := rb.of(s.ID); strings.HasPrefix(s.ID, "1_") {
			if len(rs) < 2 || rs[0].records < 100 || rs[len(rs)-1].way != "local store" || rs[len(rs)-1].records > 4 {
				t.Errorf("restores of %s: %v, want a long one of the standby and a short one of the takeover", s.ID, rs)
			}
		}
	}
	if !strings.Contains(b.log.String(), "asking the group for their subtasks") {
		t.Error("the new member did not say that its standbys are up to date")
	}
	c.send(1000, 1000)
	c.drained("words", "in", "words-by-text-repartition")
	followed(t, nparts, a, b)
	checkCounts(t, c.read("out"), 5000, 1000)
	b.stop(t)
	a.stop(t)
}

// TestStandbyHoldsCommittedEpochsOnly writes into the changelogs as a subtask would whose transaction is open, and then
// aborted: no standby takes anything of it, nor of what follows while it is open.
func TestStandbyHoldsCommittedEpochsOnly(t *testing.T) {
	c := newCluster(t)
	var ra, rb restores
	a := c.start("words", countWords, memstore.NewDir("words"), keeps(&ra, nil))
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	disk := memstore.NewDir("words")
	b := c.start("words", countWords, disk, keeps(&rb, nil))
	shared(t, b) // a takeover would wait for the transaction
	followed(t, nparts, a, b)

	p, err := kgo.NewClient(append(c.cl.Opts(), kgo.TransactionalID("aborts"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	poison := binary.BigEndian.AppendUint32(nil, 7)
	poison = append(poison, "poison"...)
	for k := range nparts {
		rs := []*kgo.Record{
			{Topic: wordsChangelog, Partition: int32(k), Key: poison, Value: []byte("never")},
			{Topic: wordsChangelog, Partition: int32(k), Key: statestore.MetaKey(), Value: (&txn.EpochRecord{Epoch: 1 << 40, Incarnation: 1, Touched: []bool{true}, Positions: []int64{0}}).Append(nil)},
		}
		if err := p.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	// The owners have gone on, which they say a moment after the broker; what they committed lies behind the open
	// transaction, and so does an epoch that would be far ahead of theirs.
	testutil.Eventually(t, patience, func() error {
		at := map[string]uint64{}
		for _, m := range []*member{a, b} {
			for _, s := range m.w.Status().Standbys {
				at[s.ID] = s.Epoch
			}
		}
		for _, m := range []*member{a, b} {
			for _, s := range m.w.Status().Subtasks {
				if at, ok := at[s.ID]; ok && at >= s.Epoch {
					return fmt.Errorf("standby %s is at epoch %d, its owner at %d, though a transaction is open", s.ID, at, s.Epoch)
				}
			}
		}
		return nil
	})
	if err := p.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	followed(t, nparts, a, b)
	cluster := b.w.Status().ClusterID
	b.stop(t)
	a.stop(t)
	if n := c.sameAsChangelog(disk, cluster); n == 0 {
		t.Error("the stores are empty")
	}
	checkCounts(t, c.read("out"), 800, 40)
}

// TestStandbyReportsWhatItCannotRead: a standby whose changelog holds what nobody can read says so and tries again; the
// worker and the subtasks go on.
func TestStandbyReportsWhatItCannotRead(t *testing.T) {
	c := newCluster(t)
	var ra, rb restores
	a := c.start("words", countWords, memstore.NewDir("words"), keeps(&ra, nil))
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	b := c.start("words", countWords, memstore.NewDir("words"), keeps(&rb, nil))
	followed(t, nparts, a, b)
	id := b.w.Status().Standbys[0].ID
	sub, err := record.ParseSubtaskID(id)
	if err != nil {
		t.Fatal(err)
	}
	p, err := kgo.NewClient(append(c.cl.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.ProduceSync(t.Context(), &kgo.Record{Topic: wordsChangelog, Partition: int32(sub.Index), Key: statestore.MetaKey(), Value: []byte("rubbish")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		for _, s := range b.w.Status().Standbys {
			if s.ID == id && strings.Contains(s.Error, wordsChangelog) && strings.Contains(s.Error, "epoch record cannot be read") {
				return nil
			}
		}
		return fmt.Errorf("standbys %+v", b.w.Status().Standbys)
	})
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	for _, m := range []*member{a, b} {
		if st := m.w.Status(); st.State != engine.StateRunning {
			t.Errorf("a worker is %s: %s", st.State, st.Error)
		}
	}
	checkCounts(t, c.read("out"), 800, 40)
}

// TestUnusedStateIsRemoved: the state of subtasks that another member owns leaves the disk after the delay, and only that.
func TestUnusedStateIsRemoved(t *testing.T) {
	c := newCluster(t)
	clean := func(o *engine.Options) { o.HouseKeeping, o.CleanupDelay = 20*time.Millisecond, 100*time.Millisecond }
	dir := memstore.NewDir("words")
	a := c.start("words", countWords, dir, clean)
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	b := c.start("words", countWords, memstore.NewDir("words"), clean)
	testutil.Eventually(t, patience, func() error {
		var has []string
		for _, s := range a.w.Status().Subtasks {
			has = append(has, s.ID)
		}
		there, err := dir.Subtasks(1)
		if err != nil {
			return err
		}
		if len(has) != nparts || !slices.Equal(has, there) {
			return fmt.Errorf("the disk has %v, the member owns %v", there, has)
		}
		return nil
	})
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	b.stop(t)
	c.send(400, 40)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	checkCounts(t, c.read("out"), 1200, 40)
}
