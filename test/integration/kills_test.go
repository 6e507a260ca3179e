package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/test/s3"
	"github.com/millrace-stream/millrace/txn"
)

// memberJob is a job whose workers take a checkpoint every 200 ms, restore from one wherever they can, and soon remove what is
// not needed any more.
func memberJob(t *testing.T, b brokers, url string, grace, timeout time.Duration) *job {
	t.Helper()
	j := newJob(t, b, totalJob)
	j.main = "test/integration/member"
	j.env = []string{"MILLRACE_CHECKPOINT_URL=" + url, "MILLRACE_CHECKPOINT_INTERVAL=200ms", "MILLRACE_CHECKPOINT_MIN_PAUSE=0",
		"MILLRACE_CHECKPOINT_RETAIN=2", fmt.Sprintf("MILLRACE_CHECKPOINT_TIMEOUT=%s", timeout), fmt.Sprintf("MEMBER_GRACE=%s", grace), "MEMBER_PREFER=1",
		"MILLRACE_STATE_WRITE_BEHIND_INTERVAL=100ms", "MILLRACE_GROUP_SESSION_TIMEOUT=3s", "MILLRACE_RESTART_MAX_ATTEMPTS=100",
		"MILLRACE_RESTART_BACKOFF_MAX=1s"}
	return j
}

// TestCheckpointFailpoints lets a worker end itself, as if it were killed, at each named point of an upload, a manifest, a
// collection and a restore, under load. Whatever is left behind, on its disk and in the object storage, state that is
// restored from it is what the input makes.
func TestCheckpointFailpoints(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	j := memberJob(t, kafka.Shared(t), url, 1500*time.Millisecond, time.Second)
	v := newVerifier(j, openBlobs(t, url, blob.Options{}))
	dir := t.TempDir()
	stopFeed := j.feed(10)
	first := j.worker(dir)
	j.progress()
	v.published(1)
	first.Kill(t)
	for _, c := range []struct {
		point string
		n     int
		wipe  bool // the disk before
	}{
		{failpoint.AfterUploadBlob, 3, false},
		{failpoint.BeforeManifest, 3, false},
		{failpoint.AfterManifest, 3, false},
		{failpoint.MidCollect, 1, false},
		{failpoint.MidCollect, 4, false},
		{failpoint.MidRestore, 2, false},
		{failpoint.MidRestore, 3, true},
		{failpoint.BeforeAdopt, 1, true},
		{failpoint.BeforeAdopt, 2, false},
	} {
		if c.wipe {
			wipe(t, dir)
		}
		p := j.worker(dir, fmt.Sprintf("%s=%s:exit@%d", failpoint.Env, c.point, c.n))
		if code := p.Wait(t, patience); code != 137 {
			t.Fatalf("%s: exit code %d, want 137:\n%s", c.point, code, p.Output())
		}
		v.compare()
		v.disk(dir)
	}
	p := j.worker(dir)
	j.progress()
	stopFeed()
	j.committed(p)
	stop(t, p)
	j.check()
	t.Log(v)
}

// TestKillSeries kills three workers in turn under load, wipes the disk of half of them, and brings them back at once or
// later. After each kill the state that is on the dead one's disk, in the newest checkpoints and in the changelogs is compared
// with what the input makes up to the same offsets; in the end also each row of the output.
func TestKillSeries(t *testing.T) {
	t.Parallel()
	kills := 4
	if soak() {
		kills = 50
	}
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		url := "file://" + t.TempDir()
		killSeries(t, kills, url, blob.Options{}, nil)
	})
	t.Run("s3", func(t *testing.T) {
		if !soak() {
			t.Skip("NOT TESTED: takes minutes; make soak, or MILLRACE_TEST_SOAK=1")
		}
		server := s3.Start(t)
		url := "s3://" + s3.Bucket + "/kills"
		o := blob.Options{Endpoint: server.Endpoint(), Region: s3.Region, PathStyle: true, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey}
		killSeries(t, kills, url, o, []string{"MILLRACE_CHECKPOINT_S3_ENDPOINT=" + o.Endpoint, "MILLRACE_CHECKPOINT_S3_REGION=" + o.Region,
			"MILLRACE_CHECKPOINT_S3_PATH_STYLE=true", "MILLRACE_CHECKPOINT_S3_ACCESS_KEY=" + o.AccessKey, "MILLRACE_CHECKPOINT_S3_SECRET_KEY=" + o.SecretKey})
	})
}

func killSeries(t *testing.T, kills int, url string, o blob.Options, env []string) {
	rnd := seeded(t)
	b := kafka.Start(t)
	j := memberJob(t, b, url, 8*time.Second, 4*time.Second)
	j.env = append(j.env, env...)
	j.env = append(j.env, fmt.Sprintf("MEMBER_STANDBYS=%d", rnd.IntN(2)))
	v := newVerifier(j, openBlobs(t, url, o))
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	ps := make([]*kafka.Proc, len(dirs))
	ways := map[string]int{}
	count := func(p *kafka.Proc) { // how it restored
		for line := range strings.Lines(p.Output()) {
			if _, way, ok := strings.Cut(line, `msg="state restored" `); ok {
				_, way, _ = strings.Cut(way, "way=")
				ways[strings.Trim(strings.TrimSpace(way), `"`)]++ // it is the last one of the line
			}
		}
	}
	for i, dir := range dirs {
		ps[i] = j.worker(dir)
	}
	stopFeed := j.feed(10)
	// alive starts workers again that ended, as their supervisor would, until the input is nearly caught up with.
	alive := func() {
		t.Helper()
		testutil.Eventually(t, 2*patience, func() error {
			for i, p := range ps {
				if !p.Running() {
					count(p)
					ps[i] = j.worker(dirs[i])
				}
			}
			lag, err := j.lag()
			if err == nil && lag > 2000 {
				err = fmt.Errorf("lag %d", lag)
			}
			return err
		})
	}
	j.progress()
	v.published(1)
	for round := range kills {
		i := rnd.IntN(len(ps))
		pause(time.Duration(rnd.IntN(1000)) * time.Millisecond)
		ps[i].Kill(t)
		v.disk(dirs[i])
		if rnd.IntN(2) == 0 {
			wipe(t, dirs[i])
		}
		count(ps[i])
		if rnd.IntN(2) == 0 {
			ps[i] = j.worker(dirs[i])
			ps[i].WaitOutput(t, "msg=", patience)
		} else {
			j.progress() // of every partition: others have taken over
			ps[i] = j.worker(dirs[i])
		}
		pause(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		alive()
		v.compare()
		if t.Failed() {
			t.Fatalf("after kill %d", round+1)
		}
	}
	stopFeed()
	testutil.Eventually(t, 2*patience, func() error {
		alive()
		lag, err := j.lag()
		if err == nil && lag != 0 {
			err = fmt.Errorf("lag %d", lag)
		}
		return err
	})
	stop(t, ps...)
	j.check()
	for i, p := range ps {
		count(p)
		v.disk(dirs[i])
	}
	v.compare()
	t.Logf("%d kills, %d records; restored from %v; %s", kills, len(j.src.truth), ways, v)
	if ways["checkpoint"] == 0 || v.checkpoints == 0 || v.stores == 0 {
		t.Error("the series did not reach what it is for")
	}
}

// wipe removes what is in a state directory, the name of the member included: it comes back as another one.
func wipe(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

func openBlobs(t testing.TB, url string, o blob.Options) blob.Store {
	t.Helper()
	blobs, err := blob.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blobs.Close(); err != nil {
			t.Error(err)
		}
	})
	return blobs
}

// verifier recomputes the state of a running job from its committed input, and compares it with what is kept anywhere. Each copy
// of the state carries the epoch record that it belongs to, whose offsets say which part of the input it must hold.
type verifier struct {
	j     *job
	blobs blob.Store
	ids   map[string]statestore.Identity // by subtask
	input []*kgo.Record
	ends  map[int32]int64 // of input

	folds, stores, checkpoints int // compared
}

func newVerifier(j *job, blobs blob.Store) *verifier {
	return &verifier{j: j, blobs: blobs, ids: map[string]statestore.Identity{}}
}

func (v *verifier) String() string {
	return fmt.Sprintf("compared %d changelogs, %d stores on disk, %d checkpoints", v.folds, v.stores, v.checkpoints)
}

// state compares one copy.
func (v *verifier) state(what string, store statestore.Store, last *txn.EpochRecord, k int) {
	v.j.t.Helper()
	offsets := map[int32]int64{}
	behind := false
	for _, in := range last.Inputs {
		offsets[in.Partition] = in.Offset
		behind = behind || in.Offset > v.ends[in.Partition]
	}
	if behind { // more was written and processed since
		v.input, v.ends = v.j.b.Read(v.j.t, v.j.in), map[int32]int64{}
		for _, r := range v.input {
			v.ends[r.Partition] = r.Offset + 1
		}
	}
	want := v.j.recompute(v.input, k, partitions, func(p int32) int64 { return offsets[p] })
	v.j.compare(what, subtaskState{index: k, store: store, last: last}, want)
}

// compare the changelogs and the newest checkpoints.
func (v *verifier) compare() {
	v.j.t.Helper()
	ctx, cancel := context.WithTimeout(v.j.t.Context(), patience)
	defer cancel()
	states := v.j.restore(ctx, v.j.b.Admin(v.j.t), false)
	for k, s := range states {
		v.state("changelog", s.store, s.last, k)
		v.folds++
	}
	v.learn(ctx)
	for k := range partitions {
		v.checkpoint(ctx, k)
	}
}

// learn whose checkpoints there are.
func (v *verifier) learn(ctx context.Context) {
	v.j.t.Helper()
	all, err := checkpoint.List(ctx, v.blobs, v.j.app)
	if err != nil {
		v.j.t.Fatal(err)
	}
	for _, e := range all {
		if _, ok := v.ids[e.Subtask]; ok {
			continue
		}
		data, err := v.blobs.Get(ctx, e.Key)
		if errors.Is(err, blob.ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			v.j.t.Fatal(err)
		}
		m, err := checkpoint.DecodeManifest(data)
		if err != nil {
			v.j.t.Fatalf("%s: %v", e.Key, err)
		}
		v.ids[e.Subtask] = m.Identity()
	}
}

// published waits until each subtask has n checkpoints.
func (v *verifier) published(n int) {
	v.j.t.Helper()
	testutil.Eventually(v.j.t, patience, func() error {
		all, err := checkpoint.List(v.j.t.Context(), v.blobs, v.j.app)
		if err != nil {
			return err
		}
		have := map[string]int{}
		for _, e := range all {
			have[e.Subtask]++
		}
		for k := range partitions {
			if id := subtaskName(k); have[id] < n {
				return fmt.Errorf("subtask %s has %d checkpoints", id, have[id])
			}
		}
		return nil
	})
}

func subtaskName(k int) string { return record.SubtaskID{Index: k}.String() }

// checkpoint restores the newest one of subtask k and compares it. Others may publish and remove meanwhile.
func (v *verifier) checkpoint(ctx context.Context, k int) {
	v.j.t.Helper()
	id, ok := v.ids[subtaskName(k)]
	if !ok {
		return
	}
	for try := 1; ; try++ {
		found, err := checkpoint.Find(ctx, v.blobs, id)
		if err != nil {
			v.j.t.Fatal(err)
		}
		if len(found) == 0 {
			v.j.t.Fatalf("subtask %s has no checkpoint any more", id.Subtask)
		}
		m := found[0].Manifest
		if m == nil {
			v.j.t.Fatalf("the newest checkpoint of subtask %s: %v", id.Subtask, found[0].Err)
		}
		dir, err := pebblestore.OpenDir(v.j.t.TempDir(), v.j.app, pebblestore.Options{CacheBytes: 1 << 20})
		if err != nil {
			v.j.t.Fatal(err)
		}
		err = checkpoint.Restore(ctx, v.blobs, m, dir, checkpoint.RestoreOptions{})
		if err == nil {
			v.open("checkpoint", dir, id, m.Epoch)
			v.checkpoints++
		}
		if cerr := dir.Close(); cerr != nil {
			v.j.t.Fatal(cerr)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, checkpoint.ErrMissing) || try == 5 {
			v.j.t.Fatalf("restore the newest checkpoint of subtask %s: %v", id.Subtask, err)
		}
	}
}

// disk compares all stores in a copy of the state directory of a process that is dead.
func (v *verifier) disk(path string) {
	v.j.t.Helper()
	copied := filepath.Join(v.j.t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(path)); err != nil {
		v.j.t.Fatal(err)
	}
	dir, err := pebblestore.OpenDir(copied, v.j.app, pebblestore.Options{CacheBytes: 1 << 20})
	if err != nil {
		v.j.t.Fatal(err)
	}
	v.learn(v.j.t.Context())
	for _, id := range v.ids {
		subtasks, err := dir.Subtasks(id.Incarnation)
		if err != nil {
			v.j.t.Fatal(err)
		}
		if slices.Contains(subtasks, id.Subtask) {
			v.open("store on disk", dir, id, math.MaxUint64)
		}
	}
	if err := dir.Close(); err != nil {
		v.j.t.Fatal(err)
	}
	if err := os.RemoveAll(copied); err != nil {
		v.j.t.Fatal(err)
	}
}

// open a store and compare it, if it holds an epoch; MaxUint64 is any.
func (v *verifier) open(what string, dir *pebblestore.Dir, id statestore.Identity, epoch uint64) {
	v.j.t.Helper()
	store, err := dir.Open(id)
	if err != nil {
		v.j.t.Fatalf("open the %s of subtask %s: %v", what, id.Subtask, err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			v.j.t.Error(err)
		}
	}()
	meta, ok := store.Meta()
	if !ok || meta.Epoch == 0 {
		if epoch != math.MaxUint64 {
			v.j.t.Errorf("the %s of subtask %s holds no epoch, want %d", what, id.Subtask, epoch)
		}
		return // a restore was cut off at its start
	}
	if epoch != math.MaxUint64 && meta.Epoch != epoch {
		v.j.t.Errorf("the %s of subtask %s holds epoch %d, want %d", what, id.Subtask, meta.Epoch, epoch)
	}
	last, err := txn.DecodeEpochRecord(meta.EpochRecord)
	if err != nil {
		v.j.t.Fatalf("epoch record of the %s of subtask %s: %v", what, id.Subtask, err)
	}
	sub, err := record.ParseSubtaskID(id.Subtask)
	if err != nil {
		v.j.t.Fatal(err)
	}
	v.state(what, store, last, sub.Index)
	if what == "store on disk" {
		v.stores++
	}
}
