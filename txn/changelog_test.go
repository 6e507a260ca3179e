package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// replayed is what a read handed over: "<changelog>:<key>=<value>", and "<changelog>:epoch" for epoch records.
func (r *rig) replay(from ...int64) ([]string, ChangelogEnd) {
	r.t.Helper()
	var got []string
	last := []int64{-1, -1}
	end, err := r.c.ReadChangelog(r.t.Context(), ChangelogRead{Topics: r.changelog, From: from}, func(c int, offset int64, k, v []byte) error {
		if offset <= last[c] {
			r.t.Errorf("offset %d after %d", offset, last[c])
		}
		last[c] = offset
		switch {
		case string(k) == string(metaKey):
			got = append(got, fmt.Sprintf("%d:epoch", c))
		case v == nil:
			got = append(got, fmt.Sprintf("%d:%s deleted", c, k))
		default:
			got = append(got, fmt.Sprintf("%d:%s=%s", c, k, v))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return got, end
}

// lose writes and leaves the transaction open; the next open aborts it.
func (r *rig) lose(values ...string) {
	r.t.Helper()
	p := r.open()
	r.write(p, values...)
	if err := p.cl.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	p.Close()
}

func testChangelogOfAbortedTxns(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	if got, end := r.replay(-1, -1); len(got) > 0 || end.Record != nil || !slices.Equal(end.Positions, []int64{0, 0}) {
		t.Errorf("empty changelogs: %v, %+v", got, end)
	}
	r.lose("x1", "x2")
	p := r.open()
	r.write(p, "a")
	if err := p.ProduceChanges(t.Context(), []statestore.Change{{Key: []byte("key-a")}, {Changelog: 1, Key: []byte("w"), Value: []byte{}}}); err != nil {
		t.Fatal(err)
	}
	ec := r.epoch(1, 10)
	ec.Touched = []bool{true, true}
	if res := p.Commit(t.Context(), ec, r.own, noWait); res.Outcome != Committed {
		t.Fatal(res.Err)
	}
	r.write(p, "b")
	res := r.mustCommit(p, 2, 20)
	p.Close()
	r.lose("x3")
	r.lose("x4")
	r.open() // aborts: the log ends in a marker
	got, end := r.replay(-1, 0)
	want := []string{"0:key-a=a", "0:key-a deleted", "0:epoch", "0:key-b=b", "0:epoch", "1:w=", "1:epoch"}
	if !slices.Equal(got, want) {
		t.Errorf("read  %v\nwant %v", got, want)
	}
	if end.Record == nil || end.Record.Epoch != 2 || end.Records != int64(len(want)) {
		t.Errorf("end %+v, want epoch 2 and %d records", end, len(want))
	}
	if !slices.Equal(end.Positions, end.End) || end.Positions[0] <= res.Positions[0] {
		t.Errorf("positions %v, ends %v, the epoch record ends at %v: the read must pass the markers to the high watermark", end.Positions, end.End, res.Positions)
	}
	// The tail only: from the first epoch record on.
	got, end = r.replay(res.Positions[0]-2, end.Positions[1])
	if want := []string{"0:key-b=b", "0:epoch"}; !slices.Equal(got, want) || end.Record.Epoch != 2 {
		t.Errorf("tail %v, want %v", got, want)
	}
}

func testChangelogPositions(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	for n := range uint64(5) {
		r.write(p, fmt.Sprint(n))
		r.mustCommit(p, n+1, int64(n))
	}
	p.Close()
	r.open() // when it returns, the last marker is written
	_, end := r.replay(-1, -1)
	read := func(from int64) error {
		_, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{from, -1}}, func(int, int64, []byte, []byte) error { return nil })
		return err
	}
	var ahead *AheadError
	if err := read(end.End[0] + 1); !errors.As(err, &ahead) || ahead.End != end.End[0] || !IsFatal(err) {
		t.Errorf("position above the high watermark: %v, want *AheadError", err)
	}
	if err := read(end.End[0]); err != nil {
		t.Errorf("position at the high watermark: %v", err)
	}
	var remains []int64
	boom := errors.New("boom")
	_, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog[:1], From: []int64{-1}, Progress: func(_, _, remaining int64) {
		remains = append(remains, remaining)
	}}, func(int, int64, []byte, []byte) error { return nil })
	if err != nil || len(remains) == 0 || remains[len(remains)-1] != 0 {
		t.Errorf("progress ended with %v (%v), want 0", remains, err)
	}
	if _, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog[:1], From: []int64{-1}}, func(int, int64, []byte, []byte) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("apply's error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := r.c.ReadChangelog(ctx, ChangelogRead{Topics: r.changelog[:1], From: []int64{-1}}, func(int, int64, []byte, []byte) error { cancel(); return nil }); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func testChangelogRetention(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	ec := r.epoch(1, 10)
	ec.Touched = []bool{true, true}
	for _, k := range []string{"a", "b", "c", "d"} {
		if err := p.ProduceChanges(t.Context(), []statestore.Change{{Changelog: 1, Key: []byte(k), Value: []byte(k)}}); err != nil {
			t.Fatal(err)
		}
	}
	if res := p.Commit(t.Context(), ec, r.own, noWait); res.Outcome != Committed {
		t.Fatal(res.Err)
	}
	// Retention takes the beginning: local state from before it is too old, a restore from the start is not.
	if err := r.c.DeleteRecords(t.Context(), map[record.TopicPartition]int64{{Topic: r.changelog[1]}: 2}); err != nil {
		t.Fatal(err)
	}
	_, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, 1}}, func(int, int64, []byte, []byte) error { return nil })
	var stale *StaleError
	if !errors.As(err, &stale) || stale.Topic != r.changelog[1] {
		t.Errorf("position below the log start: %v, want *StaleError", err)
	}
	for _, from := range []int64{-1, 0, 2} {
		got, end := r.replay(-1, from)
		if want := []string{"0:epoch", "1:c=c", "1:d=d", "1:epoch"}; !slices.Equal(got, want) || end.LogStart[1] != 2 {
			t.Errorf("from %d: %v, %+v, want %v", from, got, end, want)
		}
	}
}

// testChangelogVerify: who reads a tail is shown the epoch records that stand last before it, however far, before anything of it.
func testChangelogVerify(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	r.write(p, "a")
	first := r.mustCommit(p, 1, 10).Positions[0]
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprint("v", i))
	}
	r.write(p, many...)
	second := r.mustCommit(p, 2, 20).Positions[0]
	r.write(p, "b")
	r.mustCommit(p, 3, 30)
	p.Close()
	r.open() // when it returns, the last marker is written
	refuse := errors.New("not this one")
	// verify is what the read shows: the epochs, and how often it asks.
	verify := func(answer error, from ...int64) (epochs []uint64, blind bool, asked, applied int, err error) {
		_, err = r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: from, Verify: func(found [][]byte, b bool) error {
			asked, blind = asked+1, b
			for _, raw := range found {
				rec, err := DecodeEpochRecord(raw)
				if err != nil {
					t.Fatal(err)
				}
				epochs = append(epochs, rec.Epoch)
			}
			return answer
		}}, func(int, int64, []byte, []byte) error { applied++; return nil })
		return epochs, blind, asked, applied, err
	}
	for _, c := range []struct {
		from int64
		want []uint64
		tail int
	}{{first, []uint64{1}, 43}, {first + 1, []uint64{1}, 43}, {second, []uint64{2}, 2}, {second - 2, []uint64{1}, 4}, {0, nil, 45}} {
		if epochs, blind, asked, applied, err := verify(nil, c.from, -1); err != nil || !slices.Equal(epochs, c.want) || blind || asked != 1 || applied != c.tail {
			t.Errorf("from %d: epochs %v, blind %t, asked %d times, %d applied, %v; want %v and %d", c.from, epochs, blind, asked, applied, err, c.want, c.tail)
		}
	}
	if _, _, asked, applied, err := verify(refuse, second, -1); !errors.Is(err, refuse) || asked != 1 || applied != 0 {
		t.Errorf("refused: asked %d times, %d applied, %v", asked, applied, err)
	}
	ends, err := r.c.EndOffsets(t.Context(), []record.TopicPartition{{Topic: r.changelog[0]}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, asked, _, err := verify(refuse, ends[record.TopicPartition{Topic: r.changelog[0]}], -1); err != nil || asked != 0 {
		t.Errorf("nothing to read: asked %d times, %v", asked, err)
	}
	// As after compaction: none is left before the position.
	p = r.open()
	both := func(n uint64) []int64 {
		t.Helper()
		for i := range 10 {
			if err := p.ProduceChanges(t.Context(), []statestore.Change{{Changelog: 1, Key: fmt.Append(nil, n, i), Value: []byte("w")}}); err != nil {
				t.Fatal(err)
			}
		}
		ec := r.epoch(n, int64(10*n))
		ec.Touched = []bool{true, true}
		res := p.Commit(t.Context(), ec, r.own, noWait)
		if res.Outcome != Committed {
			t.Fatal(res.Err)
		}
		return res.Positions
	}
	at := both(4)
	end := both(5)
	if err := r.c.DeleteRecords(t.Context(), map[record.TopicPartition]int64{{Topic: r.changelog[1]}: at[1] + 2}); err != nil {
		t.Fatal(err)
	}
	if epochs, blind, _, _, err := verify(nil, end[0], at[1]+5); err != nil || !slices.Equal(epochs, []uint64{5}) || !blind {
		t.Errorf("nothing is left before one of the positions: epochs %v, blind %t, %v", epochs, blind, err)
	}
}

// Field report: a restore ended at the last stable offset, before committed records that stood behind the open
// transaction of a dead writer.
//
// testChangelogForeignOpenTxn: a read never ends below the high watermark because somebody's transaction is open.
func testChangelogForeignOpenTxn(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	foreign, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.TransactionalID(r.app+"-foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := foreign.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := foreign.ProduceSync(t.Context(), &kgo.Record{Topic: r.changelog[0], Key: []byte("foreign"), Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p := r.open()
	r.write(p, "a")
	r.mustCommit(p, 1, 10)
	nothing := func(int, int64, []byte, []byte) error { return nil }
	_, err = r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, -1}, Stall: 500 * time.Millisecond}, nothing)
	if !errors.Is(err, ErrStalled) || !strings.Contains(err.Error(), "producer id") {
		t.Fatalf("open foreign transaction: %v, want ErrStalled that names the producer", err)
	}
	// It waits for as long as it may, and then has all of it.
	done := make(chan error, 1)
	go func() { done <- foreign.EndTransaction(context.WithoutCancel(t.Context()), kgo.TryAbort) }()
	got, end := r.replay(-1, -1)
	if want := []string{"0:key-a=a", "0:epoch"}; !slices.Equal(got, want) || end.Record.Epoch != 1 {
		t.Errorf("read %v, want %v", got, want)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestChangelogHoles: compaction leaves holes, in the middle and up to the end.
func TestChangelogHoles(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	p := r.open()
	for n := range uint64(20) {
		r.write(p, "a", "b")
		r.mustCommit(p, n+1, int64(n))
	}
	_, before := r.replay(-1, -1)
	k.Compact()
	got, end := r.replay(-1, -1)
	if before.Records != 60 || len(got) >= 60 || end.Record.Epoch != 20 || !slices.Equal(end.Positions, before.End) {
		t.Errorf("%d records before, %d after compaction, end %+v, want the same end", before.Records, len(got), end)
	}
	if !slices.Contains(got, "0:key-a=a") || !slices.Contains(got, "0:key-b=b") {
		t.Errorf("read %v", got)
	}
	for from := end.LogStart[0]; from < end.End[0]; from++ {
		if _, e := r.replay(from, -1); e.Positions[0] != end.End[0] {
			t.Fatalf("from %d the read ended at %d, want %d", from, e.Positions[0], end.End[0])
		}
	}
}

// TestChangelogHoleAtTheEnd: brokers that have nothing left up to the end answer with nothing.
func TestChangelogHoleAtTheEnd(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	p := r.open()
	r.write(p, "a")
	r.mustCommit(p, 1, 10)
	_, end := r.replay(-1, -1)
	empty := 0
	k.ControlKey(kmsg.Fetch.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.FetchRequest)
		if len(req.Topics) != 1 || req.Topics[0].Partitions[0].FetchOffset != end.End[0]-1 || req.SessionEpoch != -1 {
			return nil, nil, false
		}
		k.KeepControl()
		empty++
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		st := kmsg.NewFetchResponseTopic()
		st.Topic, st.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		sp := kmsg.NewFetchResponseTopicPartition()
		sp.HighWatermark, sp.LastStableOffset = end.End[0], end.End[0]
		if empty == 2 {
			resp.ThrottleMillis = 1 // emptied by a quota: proves nothing
		}
		st.Partitions = append(st.Partitions, sp)
		resp.Topics = append(resp.Topics, st)
		return resp, nil, true
	})
	if _, e := r.replay(end.End[0]-1, -1); e.Positions[0] != end.End[0] || empty != 2+emptyIsHole {
		t.Errorf("ended at %d after %d empty answers, want %d after %d", e.Positions[0], empty, end.End[0], 2+emptyIsHole)
	}
}

// TestChangelogFaults: what heals is retried, what does not is said.
func TestChangelogFaults(t *testing.T) {
	k := fakeKafka(t, kfake.NumBrokers(3))
	r := newRig(t, k.ListenAddrs(), func(o *Options) { o.FetchMaxPartBytes = 1000 })
	p := r.open()
	for n := range uint64(50) {
		r.write(p, strings.Repeat("v", 100), "b")
		r.mustCommit(p, n+1, int64(n))
	}
	// Errors and a leader that moves while we read.
	f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: r.changelog[0], Err: kerr.NotLeaderForPartition, Count: 1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: r.changelog[0], Err: kerr.UnknownTopicID, Count: 1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: r.changelog[0], Err: kerr.OffsetNotAvailable, Count: 1})
	n := 0
	end, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, -1}}, func(int, int64, []byte, []byte) error {
		if n++; n == 30 {
			return k.MoveTopicPartition(r.changelog[0], 0, (k.LeaderFor(r.changelog[0], 0)+1)%3)
		}
		return nil
	})
	if err != nil || end.Records != 150 || end.Record.Epoch != 50 || f.Hits() != 3 {
		t.Errorf("%v, %+v, %d of 3 faults", err, end, f.Hits())
	}
	for _, c := range []struct {
		err  *kerr.Error
		want error
	}{{kerr.TopicAuthorizationFailed, ErrAuthorization}, {kerr.UnknownServerError, kerr.UnknownServerError}, {kerr.NotLeaderForPartition, ErrStalled}} {
		f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: r.changelog[0], Err: c.err, Count: -1})
		_, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, -1}, Stall: 300 * time.Millisecond}, func(int, int64, []byte, []byte) error { return nil })
		f.Remove()
		if !errors.Is(err, c.want) || f.Hits() == 0 {
			t.Errorf("%s: %v, want %v", c.err.Message, err, c.want)
		}
	}
	// Retention takes what we were about to read.
	f = k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: r.changelog[0], Err: kerr.OffsetOutOfRange, Count: 1})
	var stale *StaleError
	if _, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, -1}}, func(int, int64, []byte, []byte) error { return nil }); !errors.As(err, &stale) || f.Hits() != 1 {
		t.Errorf("out of range: %v, want *StaleError", err)
	}
	// An epoch record of a newer version.
	ec := r.epoch(51, 99)
	ec.Record = []byte{9}
	if res := p.Commit(t.Context(), ec, r.own, noWait); res.Outcome != Committed {
		t.Fatal(res.Err)
	}
	if _, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, -1}}, func(int, int64, []byte, []byte) error { return nil }); !errors.Is(err, ErrEpochRecord) {
		t.Errorf("unknown version: %v", err)
	}
}
