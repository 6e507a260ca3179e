package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestClusterComesBackOlder puts an older snapshot of its disk under the cluster, so that records are gone that were committed. The
// operations guide promises: a state directory that is ahead of its changelog is refused; with an empty one the app goes on, and
// checkpoints that are ahead are put aside, so that new ones take their place. State directories that were forgotten then are
// not used either, once their changelog has grown past them.
func TestClusterComesBackOlder(t *testing.T) {
	t.Parallel()
	if !soak() {
		t.Skip("restarts a broker of its own four times; set MILLRACE_TEST_SOAK=1")
	}
	b := kafka.Start(t)
	j := newJob(t, b, totalJob)
	url := "file://" + t.TempDir()
	blobs := openBlobs(t, url, blob.Options{})
	j.env = []string{"MILLRACE_CHECKPOINT_URL=" + url, "MILLRACE_CHECKPOINT_INTERVAL=200ms", "MILLRACE_CHECKPOINT_MIN_PAUSE=0", "MILLRACE_STATE_WRITE_BEHIND_INTERVAL=100ms"}
	// newest are the epochs of the newest checkpoints, once each subtask has one above that in after.
	newest := func(after map[string]uint64) map[string]uint64 {
		t.Helper()
		epochs := map[string]uint64{}
		testutil.Eventually(t, patience, func() error {
			all, err := checkpoint.List(t.Context(), blobs, j.app)
			if err != nil {
				return err
			}
			clear(epochs)
			for _, e := range all {
				epochs[e.Subtask] = max(epochs[e.Subtask], e.Epoch)
			}
			for k := range partitions {
				if id := subtaskName(k); epochs[id] <= after[id] {
					return fmt.Errorf("the newest checkpoint of subtask %s is of epoch %d, the one before of %d", id, epochs[id], after[id])
				}
			}
			return nil
		})
		return epochs
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	dir, forgotten, snapshot := t.TempDir(), filepath.Join(t.TempDir(), "forgotten"), filepath.Join(t.TempDir(), "snapshot")
	p := j.worker(dir)
	j.produce(500)
	j.committed(p)
	early := newest(nil)
	stop(t, p)
	must(b.Stop())
	must(os.CopyFS(snapshot, os.DirFS(b.DataDir())))
	must(b.Restart())
	kept := len(j.src.truth)
	p = j.worker(dir)
	for range 5 { // epochs
		j.produce(100)
		j.committed(p)
	}
	lost := newest(early)
	stop(t, p)
	must(os.CopyFS(forgotten, os.DirFS(dir)))

	must(b.Stop())
	must(os.RemoveAll(b.DataDir()))
	must(os.CopyFS(b.DataDir(), os.DirFS(snapshot)))
	must(b.Restart())
	j.src.truth = j.src.truth[:kept:kept]
	p = j.worker(dir)
	if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Output(), "records that were committed are gone") {
		t.Errorf("a state directory that is ahead: exit code %d, want 1:\n%s", code, p.Output())
	}
	wipe(t, dir)
	p = j.worker(dir)
	for range 10 {
		j.produce(100)
		j.committed(p)
	}
	testutil.Eventually(t, patience, func() error {
		if n := strings.Count(p.Output(), "a checkpoint was put aside"); n < partitions {
			return fmt.Errorf("%d checkpoints were put aside", n)
		}
		return nil
	})
	newest(lost)
	stop(t, p)
	p = j.worker(forgotten)
	j.produce(500)
	j.committed(p)
	stop(t, p)
	if n := strings.Count(p.Output(), "the local store was put aside"); n != partitions {
		t.Errorf("%d of %d state directories of what is lost were put aside:\n%s", n, partitions, p.Output())
	}
	j.check()
}

// TestStartWithoutTheBucket starts a job whose object storage cannot be reached: it says so, works, and has its state from the changelog
// when its disk is lost. One that answers that there is no such bucket, or that it does not know the credentials, is refused.
func TestStartWithoutTheBucket(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	fake := blobtest.NewFake(t)
	s3 := func(url, endpoint, key string) []string {
		return []string{"MILLRACE_CHECKPOINT_URL=" + url, "MILLRACE_CHECKPOINT_S3_ENDPOINT=" + endpoint, "MILLRACE_CHECKPOINT_S3_PATH_STYLE=true",
			"MILLRACE_CHECKPOINT_S3_REGION=" + blobtest.FakeRegion, "MILLRACE_CHECKPOINT_S3_ACCESS_KEY=" + key, "MILLRACE_CHECKPOINT_S3_SECRET_KEY=" + blobtest.FakeSecretKey}
	}
	for what, env := range map[string][]string{
		`there is no bucket "nowhere"`:               s3("s3://nowhere/x", fake.Options().Endpoint, blobtest.FakeAccessKey),
		"the server does not know these credentials": s3(fake.URL("x"), fake.Options().Endpoint, "somebody"),
	} {
		p := j.worker(t.TempDir(), env...)
		if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Output(), what) || !strings.Contains(p.Output(), "check checkpoint.url") {
			t.Errorf("exit code %d, want 1 and %q:\n%s", code, what, p.Output())
		}
	}
	j.env = s3(fake.URL("x"), "http://"+freeAddr(t), blobtest.FakeAccessKey)
	dir := t.TempDir()
	for range 2 {
		p := j.worker(dir)
		p.WaitOutput(t, "the object storage of checkpoints does not answer; processing starts without it", patience)
		j.produce(500)
		j.committed(p)
		stop(t, p)
		wipe(t, dir)
	}
	j.check()
}
