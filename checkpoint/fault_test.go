package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/failpoint"
)

var errBroken = errors.New("503 slow down")

// fault is how a call fails.
type fault int

const (
	failBefore fault = iota // the store does nothing
	failAfter               // the store does it, and its answer is lost
	failTorn                // the store does half of it
)

func (f fault) String() string {
	return [...]string{"before it is done", "after it is done", "in its midst"}[f]
}

// breakCall makes the n-th call fail.
func breakCall(blobs *blobtest.Memory, n int, how fault) (fired *bool) {
	var calls atomic.Int64
	fired = new(bool)
	blobs.Hook = func(_ context.Context, _, _ string, do func() error) error {
		if calls.Add(1) != int64(n) {
			return do()
		}
		*fired = true
		switch how {
		case failTorn:
			return blobtest.ErrTorn
		case failAfter:
			if err := do(); err != nil {
				return err
			}
		}
		return errBroken
	}
	return fired
}

// tell says in which run something failed.
func tell(t *testing.T, run string) {
	if t.Failed() {
		t.Log(run)
	}
}

// faults runs a scenario once for each call to the store that it makes, with that call failing, and once for each time it
// passes each of some failpoints. The scenario begins the fault, and ends it.
func faults(t *testing.T, points []string, run func(t *testing.T, fault func(blobs *blobtest.Memory) (heal func()))) {
	for _, how := range []fault{failBefore, failAfter, failTorn} {
		for n := 1; ; n++ {
			var fired *bool
			synctest.Test(t, func(t *testing.T) { // it ends the test when something failed in it
				defer tell(t, fmt.Sprintf("with call %d failing %s", n, how))
				run(t, func(blobs *blobtest.Memory) func() {
					fired = breakCall(blobs, n, how)
					return func() { blobs.Hook = nil }
				})
			})
			if !*fired {
				t.Logf("%d calls failed %s", n-1, how)
				break
			}
		}
	}
	for _, name := range points {
		for n := int64(1); ; n++ {
			hits := atomic.Int64{}
			synctest.Test(t, func(t *testing.T) {
				defer tell(t, fmt.Sprintf("failpoint %s, passed the %d. time", name, n))
				run(t, func(*blobtest.Memory) func() {
					point, err := failpoint.Arm(name, func() error {
						if hits.Add(1) == n {
							return failpoint.ErrInjected
						}
						return nil
					})
					must(t, err)
					return point.Disarm
				})
			})
			if hits.Load() < n {
				if n == 1 {
					t.Fatalf("failpoint %s was not passed", name)
				}
				t.Logf("failpoint %s: %d times", name, n-1)
				break
			}
		}
	}
}

// TestAnyFaultOfPublishAndCollect: afterwards checkpoints go on, each that is there can be restored, and no garbage stays.
func TestAnyFaultOfPublishAndCollect(t *testing.T) {
	points := []string{failpoint.AfterUploadBlob, failpoint.BeforeManifest, failpoint.AfterManifest, failpoint.MidCollect}
	faults(t, points, func(t *testing.T, fault func(*blobtest.Memory) func()) {
		ctx, blobs := t.Context(), blobtest.NewMemory()
		d := newDisk(t, "0_0")
		o := Options{Blobs: blobs, Identity: d.id, Owner: "one", WallTime: wallTime, Parallel: 1, Retain: 2}
		p := NewPublisher(o)
		history := map[uint64]map[string]string{}
		epoch := uint64(0)
		commit := func() {
			epoch++
			d.commit(epoch, fmt.Sprintf("%02d", epoch%3), large(fmt.Sprint(epoch)), "small", fmt.Sprint(epoch))
			history[epoch] = d.content()
		}
		check := func() {
			t.Helper()
			found, err := Find(ctx, blobs, d.id)
			must(t, err)
			for _, f := range found {
				must(t, f.Err)
				other := newDisk(t, "0_0")
				must(t, other.restore(ctx, blobs, f.Manifest))
				if !maps.Equal(other.content(), history[f.Epoch]) {
					t.Errorf("epoch %d was restored with other contents", f.Epoch)
				}
			}
		}
		round := func() (err error) {
			commit()
			snap := d.snapshot()
			_, err = p.Publish(ctx, snap, nil)
			after(ctx, 8*time.Minute)
			commit()
			commit()
			_, err2 := p.Collect(ctx, func() uint64 { return epoch })
			return errors.Join(err, err2)
		}
		must(t, round())
		must(t, round())
		heal := fault(blobs)
		for range 7 { // until blobs are removed, too
			_ = round() // an alarm, no more
		}
		heal()
		check()
		p = NewPublisher(o) // the process was restarted
		must(t, round())
		check()
		found, err := Find(ctx, blobs, d.id)
		must(t, err)
		if found[0].Epoch != epoch-2 {
			t.Errorf("the newest checkpoint is of epoch %d, not %d", found[0].Epoch, epoch-2)
		}
		for range 3 {
			must(t, round())
		}
		check()
		for range 10 { // nothing new any more
			after(ctx, 10*time.Minute)
			epoch += 2
			_, err := p.Collect(ctx, func() uint64 { return epoch })
			must(t, err)
		}
		named := map[string]bool{}
		if found, err = Find(ctx, blobs, d.id); err != nil || len(found) != 2 {
			t.Fatalf("%d checkpoints at the end, %v", len(found), err)
		}
		for _, f := range found {
			for _, b := range f.Manifest.Blobs() {
				named[blobKey(Prefix(d.id), b)] = true
			}
		}
		if keys := blobs.Keys(Prefix(d.id) + "/blobs/"); !slices.Equal(keys, slices.Sorted(maps.Keys(named))) {
			t.Errorf("blobs %v, of which are named %v", keys, named)
		}
		if len(blobs.Unfinished) > 0 {
			t.Errorf("unfinished uploads %v", blobs.Unfinished)
		}
	})
}

// noise is a value that no store compresses to what travels in the manifest.
func noise(seed uint64) string { return string(blobtest.Random(seed, 2*maxInline)) }

// TestAnyFaultOfRestore: the store is the old one, and the next attempt succeeds.
func TestAnyFaultOfRestore(t *testing.T) {
	t.Run("memory", func(t *testing.T) { anyFaultOfRestore(t, newDisk) })
	t.Run("files", func(t *testing.T) { anyFaultOfRestore(t, newFileDisk) })
}

func anyFaultOfRestore(t *testing.T, newDisk func(testing.TB, string) *disk) {
	faults(t, []string{failpoint.MidRestore, failpoint.BeforeAdopt}, func(t *testing.T, fault func(*blobtest.Memory) func()) {
		ctx, blobs := t.Context(), blobtest.NewMemory()
		d := newDisk(t, "0_0")
		for epoch := uint64(1); epoch <= 20; epoch++ {
			d.commit(epoch, fmt.Sprint(epoch), noise(epoch))
		}
		// Publishing passes none of the failpoints.
		_, err := publisher(blobs, "0_0", "one").Publish(ctx, d.snapshot(), nil)
		must(t, err)
		other := newDisk(t, "0_0")
		other.commit(2, "own", "state")
		attempt := func() error {
			found, err := Find(ctx, blobs, d.id)
			if err != nil {
				return err
			}
			if found[0].Err != nil {
				return found[0].Err
			}
			return other.restore(ctx, blobs, found[0].Manifest)
		}
		heal := fault(blobs)
		err = attempt()
		heal()
		if err != nil {
			if IsUnusable(err) {
				t.Errorf("a fault that passes condemned the checkpoint: %v", err)
			}
			if got := other.content(); len(got) != 1 || got["own"] != "state" {
				t.Errorf("the store was touched")
			}
			other.clean()
			must(t, attempt())
		}
		if !maps.Equal(other.content(), d.content()) {
			t.Error("restored other contents")
		}
	})
}

// TestAnyFaultOfSavepoint: it is completed and whole, or it can be deleted and made again; deleting too.
func TestAnyFaultOfSavepoint(t *testing.T) {
	points := []string{failpoint.MidSavepoint, failpoint.BeforeSavepointManifest, failpoint.AfterSavepointManifest, failpoint.MidLoad,
		failpoint.MidDelete}
	faults(t, points, func(t *testing.T, fault func(*blobtest.Memory) func()) {
		ctx, blobs := t.Context(), blobtest.NewMemory()
		s := NewSavepoints(blobs, testApp, nil, nil)
		var disks []*disk
		for _, subtask := range []string{"0_0", "0_1"} {
			d := newFileDisk(t, subtask)
			d.commit(1, fill(subtask)...)
			disks = append(disks, d)
		}
		create := func() error {
			sp, err := s.Begin(ctx, Savepoint{Name: "v1", ClusterID: "cluster-1", Incarnation: 2, Expected: []string{"0_0", "0_1"},
				Deadline: time.Now().Add(time.Minute).UnixMilli()})
			if err != nil {
				return err
			}
			for _, d := range disks {
				if _, err := write(s, sp, d.snapshot()); err != nil {
					_, ferr := s.Fail(ctx, sp, err.Error())
					return errors.Join(err, ferr)
				}
			}
			_, err = s.Complete(ctx, sp)
			return err
		}
		use := func() (map[string]string, error) {
			sp, err := s.Show(ctx, "v1")
			if err != nil {
				return nil, err
			}
			return load(s, sp, "0_1")
		}
		remove := func() error {
			_, err := s.Delete(ctx, "v1")
			if errors.Is(err, ErrNoSavepoint) {
				return nil
			}
			return err
		}
		heal := fault(blobs)
		err := create()
		if got, useErr := use(); err == nil && useErr == nil && !maps.Equal(got, disks[1].content()) {
			t.Error("loaded other contents without an error")
		}
		deleteErr := remove()
		heal()
		if deleteErr == nil && len(blobs.Keys(""))+len(blobs.Unfinished) > 0 {
			t.Errorf("deleted, but left %v and unfinished uploads %v", blobs.Keys(""), blobs.Unfinished)
		}
		after(ctx, 2*time.Minute)
		if sp, err := s.Show(ctx, "v1"); err == nil {
			switch sp.Status {
			case StatusCompleted:
				_, err := s.Verify(ctx, "v1", nil)
				must(t, err)
			case StatusFailed, StatusAbandoned:
			default:
				t.Errorf("it is %s", sp.Status)
			}
		}
		must(t, remove())
		must(t, create())
		got, err := use()
		must(t, err)
		if !maps.Equal(got, disks[1].content()) {
			t.Error("loaded other contents")
		}
		_, err = s.Verify(ctx, "v1", nil)
		must(t, err)
		must(t, remove())
		if keys := blobs.Keys(""); len(keys)+len(blobs.Unfinished) > 0 {
			t.Errorf("left %s, unfinished uploads %v", strings.Join(keys, " "), blobs.Unfinished)
		}
	})
}
