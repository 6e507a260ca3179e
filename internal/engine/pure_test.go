package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

func TestCommitPolicy(t *testing.T) {
	t0 := time.UnixMilli(1_700_000_000_000)
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	p := commitPolicy{maxLatency: 100 * time.Millisecond, quiet: 25 * time.Millisecond, maxBytes: 1000}
	for _, c := range []struct {
		name string
		v    commitView
		want time.Time
		none bool
	}{
		{"nothing", commitView{now: ms(0), lastCommit: ms(0)}, time.Time{}, true},
		{"oldest input is max latency old", commitView{now: ms(5), oldestInput: ms(0), lastCommit: ms(-50)}, ms(100), false},
		{"drained", commitView{now: ms(5), oldestInput: ms(0), lastCommit: ms(-50), drained: true}, ms(25), false},
		{"bytes go before the floor", commitView{now: ms(5), oldestInput: ms(0), lastCommit: ms(4), lastTook: 10 * time.Millisecond, bytes: 1000}, ms(5), false},
		{"not sooner than four times the last", commitView{now: ms(5), oldestInput: ms(0), lastCommit: ms(0), lastTook: 20 * time.Millisecond, drained: true}, ms(80), false},
		{"the floor is bounded by max latency", commitView{now: ms(5), oldestInput: ms(0), lastCommit: ms(0), lastTook: 10 * time.Second, drained: true}, ms(100), false},
		{"markers are lazy", commitView{now: ms(5), lastCommit: ms(0), moved: true}, ms(1000), false},
	} {
		got, ok := p.next(c.v)
		if ok == c.none || !got.Equal(c.want) {
			t.Errorf("%s: got %v %v, want %v", c.name, got, ok, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	want := []time.Duration{200, 400, 800, 1600, 2000, 2000}
	for i, w := range want {
		if got := backoff(i+1, 200*time.Millisecond, 2*time.Second); got != w*time.Millisecond {
			t.Errorf("attempt %d: %v, want %v", i+1, got, w*time.Millisecond)
		}
	}
	if got := backoff(1000, time.Millisecond, time.Second); got != time.Second {
		t.Errorf("attempt 1000: %v", got)
	}
}

func plan() *task.Plan {
	return &task.Plan{Fingerprint: "f", Subs: []*task.SubTopology{
		{ID: 0, Inputs: []task.Input{{Topic: "orders"}}, Outputs: []task.OutputTopic{{Topic: "by-user", Internal: true}, {DeadLetter: true}}},
		{ID: 1, Inputs: []task.Input{{Topic: "by-user", Internal: true, Upstream: 0}, {Topic: "users"}},
			Outputs: []task.OutputTopic{{Topic: "out"}},
			Stores:  []statestore.Spec{{Name: "count/window", ID: 7, Kind: statestore.KindWindows, KeyType: "string", ValType: "int64", Expiring: true}}},
	}}
}

func topics(orders, users int32) map[string]txn.TopicInfo {
	return map[string]txn.TopicInfo{
		"orders": {Partitions: orders}, "users": {Partitions: users}, "out": {Partitions: 3, MaxMessageBytes: 1 << 20},
	}
}

func TestResolve(t *testing.T) {
	r, err := resolve("app", 1, plan(), 0, nil, topics(24, 16))
	if err != nil {
		t.Fatal(err)
	}
	if r.subs[0].parallelism != 12 {
		t.Errorf("sub-topology 0: parallelism %d, want 12", r.subs[0].parallelism)
	}
	// 24 partitions beside 16: only a common divisor keeps equal keys together.
	if r.subs[1].parallelism != 8 {
		t.Errorf("sub-topology 1: parallelism %d, want 8", r.subs[1].parallelism)
	}
	if got := r.subs[1].inputs[0]; got.topic != "app-by-user-repartition" || got.partitions != 24 {
		t.Errorf("repartition topic: %+v", got)
	}
	if got := r.subs[1].changelogs; len(got) != 2 || got[1] != "app-1-changelog-expiring" {
		t.Errorf("changelogs: %v", got)
	}
	if got := changelogTopic("app", 2, 0); got != "app-i2-0-changelog" {
		t.Errorf("second incarnation: %s", got)
	}
	seen := map[record.TopicPartition]record.SubtaskID{}
	for _, s := range r.subs {
		for k := range s.parallelism {
			id := record.SubtaskID{SubTopology: s.plan.ID, Index: k}
			for _, tp := range r.subtaskInputs(id) {
				if other, ok := seen[tp]; ok {
					t.Fatalf("%s belongs to %s and %s", tp, other, id)
				}
				seen[tp] = id
			}
		}
	}
	if len(seen) != 24+24+16 {
		t.Errorf("%d partitions have an owner, want 64", len(seen))
	}
	_, err = resolve("app", 1, plan(), 0, map[int]int{1: 8}, topics(24, 12))
	if err == nil || !strings.Contains(err.Error(), "made with 8 subtasks") {
		t.Errorf("pinned parallelism that does not fit: %v", err)
	}
	for wanted, want := range map[int]string{4: "parallelism 4 is wanted, but its state was made with 8 subtasks", 8: "", 0: ""} {
		_, err = resolve("app", 1, plan(), wanted, map[int]int{0: 8, 1: 8}, topics(24, 16))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || classify(err) != actStop) {
			t.Errorf("parallelism %d over state of 8 subtasks: %v", wanted, err)
		}
	}
	_, err = resolve("app", 1, plan(), 0, nil, map[string]txn.TopicInfo{"users": {Partitions: 1}})
	if err == nil || !strings.Contains(err.Error(), "orders does not exist") || classify(err) != actStop {
		t.Errorf("missing input: %v", err)
	}
}

func TestSameTopics(t *testing.T) {
	was := map[string]string{"orders": "aa", "gone": "bb"}
	if err := sameTopics(was, map[string]string{"orders": "aa", "new": "cc"}); err != nil {
		t.Error(err)
	}
	err := sameTopics(was, map[string]string{"orders": "dd"})
	if err == nil || classify(err) != actStop || !strings.Contains(err.Error(), "was aa, is dd") {
		t.Errorf("recreated topic: %v", err)
	}
}

func TestClassify(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("subtask 0_1: %w", err) }
	for _, c := range []struct {
		err  error
		want action
	}{
		{wrap(fatalf("topic gone")), actStop},
		{wrap(statestore.ErrForeign), actStop},
		{wrap(statestore.ErrNoSpace), actStop},
		{wrap(statestore.ErrCorrupt), actWipe},
		{wrap(&outcomeError{txn.Unknown, 3, errors.New("timeout")}), actTakeover},
		{wrap(&task.Error{Kind: task.Data}), actRetry},
		{wrap(&task.Error{Kind: task.Data, Final: true}), actStop},
		{wrap(&task.Error{Kind: task.Internal}), actStop},
		{wrap(&task.Error{Kind: task.Fault, Cause: statestore.ErrCorrupt}), actWipe},
		{wrap(errors.New("connection reset")), actRetry},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestInboxIsBounded(t *testing.T) {
	in := newInbox()
	tp := record.TopicPartition{Topic: "t"}
	big := func(n int) txn.Fetched {
		return txn.Fetched{TopicPartition: tp, Records: []record.Record{{Value: make([]byte, n)}}, LastStable: 9}
	}
	if in.put(big(1 << 20)) {
		t.Fatal("paused at 1 MiB")
	}
	if !in.put(big(4 << 20)) {
		t.Fatal("not paused above the high mark")
	}
	if in.put(big(1)) {
		t.Fatal("asked to pause twice")
	}
	if b, resume, _ := in.take(inboxLow); len(b) != 0 || resume {
		t.Fatal("handed over although the subtask still holds more than the low mark")
	}
	b, resume, err := in.take(0)
	if len(b) != 3 || !resume || err != nil {
		t.Fatalf("take: %d batches, resume %v, %v", len(b), resume, err)
	}
	if _, resume, _ = in.take(0); resume {
		t.Fatal("asked to resume twice")
	}
	in.put(txn.Fetched{TopicPartition: tp, Err: errors.New("gone")})
	if _, _, err := in.take(0); err == nil {
		t.Fatal("the partition's error got lost")
	}
	if v, ok := in.lastStable(tp); !ok || v != 9 {
		t.Fatalf("last stable %d %v", v, ok)
	}
}

// TestInboxModel checks against random traffic that nothing is lost or reordered and pause and resume alternate.
func TestInboxModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	in := newInbox()
	var sent, got int64
	paused := false
	for range 5000 {
		if r.IntN(2) == 0 && !paused {
			var recs []record.Record
			for range 1 + r.IntN(3) {
				recs = append(recs, record.Record{Offset: sent, Value: make([]byte, r.IntN(1<<20))})
				sent++
			}
			if in.put(txn.Fetched{Records: recs}) {
				if paused {
					t.Fatal("pause while paused")
				}
				paused = true
			}
		} else {
			held := int64(r.IntN(2 * inboxLow))
			batches, resume, _ := in.take(held)
			for _, b := range batches {
				for _, rec := range b.Records {
					if rec.Offset != got {
						t.Fatalf("got offset %d, want %d", rec.Offset, got)
					}
					got++
				}
			}
			if resume {
				if !paused {
					t.Fatal("resume while not paused")
				}
				paused = false
			}
		}
		if in.bytes > inboxHigh+4<<20 {
			t.Fatalf("%d bytes wait", in.bytes)
		}
	}
	for _, b := range first(in.take(0)) {
		got += int64(len(b.Records))
	}
	if got != sent {
		t.Fatalf("got %d records of %d", got, sent)
	}
}

func first(b []txn.Fetched, _ bool, _ error) []txn.Fetched { return b }

func TestMemoryLimit(t *testing.T) {
	root := t.TempDir() + "/"
	write := func(p, s string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(root+p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+p, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n := memoryLimit(root); n != 0 {
		t.Errorf("no cgroup: %d", n)
	}
	write("proc/self/cgroup", "0::/app\n")
	write("sys/fs/cgroup/app/memory.max", "max\n")
	if n := memoryLimit(root); n != 0 {
		t.Errorf("max: %d", n)
	}
	write("sys/fs/cgroup/app/memory.max", "536870912\n")
	if n := memoryLimit(root); n != 536870912 {
		t.Errorf("cgroup v2: %d", n)
	}
	write("proc/self/cgroup", "9:cpu,memory:/job\n")
	write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n")
	if n := memoryLimit(root); n != 1048576 {
		t.Errorf("cgroup v1: %d", n)
	}
}

func TestConfirmed(t *testing.T) {
	m := func(group, state int64) *mismatchError {
		return &mismatchError{record.TopicPartition{Topic: "in", Partition: 1}, group, state}
	}
	for _, c := range []struct {
		last *mismatchError
		want action
	}{
		{nil, actTakeover},      // another owner may have committed in between
		{m(8, 22), actTakeover}, // somebody goes on committing
		{m(7, 23), actTakeover},
		{m(8, 23), actStop}, // nothing moves: it is not another owner
	} {
		if got := classify(fmt.Errorf("takeover: %w", confirmed(c.last, m(8, 23)))); got != c.want {
			t.Errorf("mismatch after %v: %v, want %v", c.last, got, c.want)
		}
	}
}

// TestSameHistory: the epoch record of a state must be the newest of those that stand before its positions, unless one may be gone.
func TestSameHistory(t *testing.T) {
	raw := func(epoch uint64, owner string) []byte {
		return (&txn.EpochRecord{Epoch: epoch, Owner: owner, Touched: []bool{true}, Positions: []int64{0}}).Append(nil)
	}
	mine := raw(5, "me")
	for _, c := range []struct {
		name  string
		found [][]byte
		blind bool
		same  bool
	}{
		{"it", [][]byte{mine}, false, true},
		{"it, and an older one in the other changelog", [][]byte{raw(3, "me"), mine}, false, true},
		{"nothing is to be found", nil, false, true},
		{"nothing is left", nil, true, true},
		{"an older one is left, and one is gone", [][]byte{raw(3, "me")}, true, true},
		{"an older one", [][]byte{raw(4, "me")}, false, false},
		{"older ones", [][]byte{raw(3, "me"), raw(4, "me")}, false, false},
		{"a newer one", [][]byte{raw(6, "me")}, false, false},
		{"a newer one, and one is gone", [][]byte{raw(6, "me")}, true, false},
		{"another of that epoch", [][]byte{raw(5, "you")}, false, false},
		{"it, and another of that epoch", [][]byte{mine, raw(5, "you")}, false, false},
	} {
		err := sameHistory(5, mine, c.found, c.blind)
		if (err == nil) != c.same || err != nil && (!errors.Is(err, errOtherHistory) || !errors.Is(err, statestore.ErrCorrupt)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := sameHistory(5, mine, [][]byte{{99}}, false); !errors.Is(err, txn.ErrEpochRecord) {
		t.Errorf("a record of a later version: %v", err)
	}
}
