package txn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestZombieWakesBeforeItsFirstInit: a process stood still between the session's word and its first InitProducerID, and
// another has taken over and works. The zombie's InitProducerID comes later than the owner's, so it is the owner that is
// fenced; the group still says that the owner owns, and that the zombie is no member. (With whole workers:
// internal/sim.)
func TestZombieWakesBeforeItsFirstInit(t *testing.T) {
	brokers := map[string]func() []string{"fake": func() []string { return fakeKafka(t).ListenAddrs() }}
	if !testing.Short() {
		brokers["4.4"] = func() []string { return kafka.Shared(t).Brokers() }
	}
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, start(), nil)
			owner := r.open()
			r.write(owner, "a")
			if err := owner.cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			old := Ownership{MemberID: "gone-since", Generation: 1}
			zombie, err := r.c.OpenProducer(t.Context(), record.SubtaskID{}, r.topics(), func() (Ownership, bool) { return old, true })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(zombie.Close)
			r.write(zombie, "zombie")
			res := zombie.Commit(t.Context(), r.epoch(1, 99), func() (Ownership, bool) { return old, true }, noWait)
			if res.Outcome != Aborted || !IsNotMember(res.Err) {
				t.Errorf("the zombie's commit: outcome %d (%v), want aborted, since it is no member", res.Outcome, res.Err)
			}
			zombie.Close()
			if res := r.commit(owner, 1, 10); res.Outcome != Fenced || !IsFenced(res.Err) || IsNotMember(res.Err) {
				t.Errorf("the owner's commit: outcome %d (%v), want fenced", res.Outcome, res.Err)
			}
			owner.Close()
			owner = r.open()
			r.write(owner, "a")
			r.mustCommit(owner, 1, 10)
			r.wantVisible("a")
			r.wantOffsets(10)
		})
	}
}

// Field report: four replicas that restored large changelogs at once seemed to go backwards, and one position was -1001.
//
// (That all come to run: test/integration TestReplicasRestoreAtOnce.)
func TestRestoreProgressIsMonotone(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), func(o *Options) { o.FetchMaxPartBytes = 1000 })
	p := r.open()
	for n := range uint64(60) {
		r.write(p, fmt.Sprint(n), strings.Repeat("v", 200))
		r.mustCommit(p, n+1, int64(n))
	}
	k.Compact()
	p.Close()
	r.open()
	type progress struct{ records, bytes, remaining int64 }
	var all []progress
	var applied, size int64
	end, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: r.changelog, From: []int64{-1, -1}, Progress: func(records, bytes, remaining int64) {
		all = append(all, progress{records, bytes, remaining})
		if records != applied || bytes != size {
			t.Errorf("progress tells %d records, %d bytes; %d and %d were handed over", records, bytes, applied, size)
		}
	}}, func(_ int, offset int64, key, value []byte) error {
		if offset < 0 {
			t.Errorf("record at offset %d", offset)
		}
		applied++
		size += int64(len(key) + len(value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("%d reports of progress: the changelog was not read in chunks", len(all))
	}
	for i, now := range all[1:] {
		if was := all[i]; now.records < was.records || now.bytes < was.bytes || now.remaining >= was.remaining {
			t.Errorf("progress went from %+v to %+v", was, now)
		}
	}
	last := all[len(all)-1]
	if last.remaining != 0 || last.records != end.Records || last.bytes != end.Bytes || end.Positions[0] != end.End[0] {
		t.Errorf("the last progress is %+v, the end %+v", last, end)
	}
	if first := all[0]; first.remaining >= end.End[0] || first.remaining <= 0 {
		t.Errorf("the first progress is %+v of %d offsets", first, end.End[0])
	}
}
