package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// noon is when the savepoints of these tests begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// testSavepoint is a completed one.
func testSavepoint() *checkpoint.Savepoint {
	stores := []checkpoint.Store{
		{Name: "per-user/windows", ID: 1, Kind: uint8(statestore.KindWindows), KeyType: "string", ValueType: "total{n int64, sum float64}", Expiring: true},
		{Name: "per-user/timers", ID: 2, Kind: uint8(statestore.KindTimers), KeyType: "string", ValueType: "bytes"},
	}
	part := func(subtask string, epoch uint64, entries, size int64) *checkpoint.Manifest {
		return &checkpoint.Manifest{Subtask: subtask, Epoch: epoch, Entries: entries, Owner: "host-1", Stores: stores,
			Files: []checkpoint.File{{Name: "part-000001", Size: size, Entries: entries}}}
	}
	return &checkpoint.Savepoint{
		ID: "k7q2", Name: "before-v2", Status: checkpoint.StatusCompleted, App: "order-counts", ClusterID: "cluster-1", Incarnation: 2,
		Expected: []string{"0_0", "0_1"}, Began: noon.UnixMilli(), Deadline: noon.Add(10 * time.Minute).UnixMilli(), Ended: noon.Add(3200 * time.Millisecond).UnixMilli(),
		Owner: "ann@host-1", Version: "v0.3.0", Subtasks: []*checkpoint.Manifest{part("0_0", 1041, 500_000, 36<<20), part("0_1", 998, 1, 177)},
	}
}

func TestSavepointTexts(t *testing.T) {
	now := noon.Add(75 * time.Hour)
	done := testSavepoint()
	running, failed, abandoned := *done, *done, *done
	running.Name, running.Status, running.Subtasks, running.Ended, running.Began = "now", checkpoint.StatusRunning, nil, 0, now.Add(-90*time.Second).UnixMilli()
	running.Deadline = now.Add(510 * time.Second).UnixMilli()
	failed.Name, failed.Status, failed.Subtasks, failed.Reason = "failed-one", checkpoint.StatusFailed, nil, "subtask 0_1 moved to member m-2:\nit was killed"
	abandoned.Name, abandoned.Status, abandoned.Subtasks, abandoned.Ended, abandoned.Reason = "nobody", checkpoint.StatusAbandoned, nil, 0, "nobody told how it ended until 2026-03-01T12:10:00Z"
	listed := func(sp checkpoint.Savepoint) savepointJSON {
		return savepointJSON{api.NewListedSavepoint(checkpoint.Listed{Name: sp.Name, Savepoint: &sp, Usage: checkpoint.Usage{Blobs: 3, Bytes: 4711}})}
	}
	l := savepointList{App: "order-counts", Store: "s3://bucket/prefix", Savepoints: []savepointJSON{listed(running), listed(*done), listed(failed), listed(abandoned),
		{api.NewListedSavepoint(checkpoint.Listed{Name: "odd", Err: fmt.Errorf("read savepoint odd: %w", checkpoint.ErrCorrupt), Usage: checkpoint.Usage{Blobs: 1, Bytes: 20}})}}}
	l.Savepoints[0].Written = 1
	text := func(name string, write func(w *strings.Builder) error) {
		t.Helper()
		var sb strings.Builder
		if err := write(&sb); err != nil {
			t.Fatal(err)
		}
		golden(t, name, sb.String())
	}
	text("savepoint-list", func(sb *strings.Builder) error { return l.write(sb, now) })
	text("savepoint-list-none", func(sb *strings.Builder) error {
		return savepointList{App: "order-counts", Store: "s3://bucket/prefix"}.write(sb, now)
	})
	text("savepoint-list-json", func(sb *strings.Builder) error { return (&appCall{out: sb}).writeJSON(l) })
	text("savepoint-show", func(sb *strings.Builder) error {
		for _, sp := range []*checkpoint.Savepoint{done, &running, &failed} {
			if err := newSavepointJSON(sp).write(sb, "s3://bucket/prefix", now); err != nil {
				return err
			}
			sb.WriteByte('\n')
		}
		return nil
	})
	text("savepoint-show-json", func(sb *strings.Builder) error { return (&appCall{out: sb}).writeJSON(newSavepointJSON(done)) })
}

func TestPeopleReadSizesAndSpans(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 10188: "9.9 KiB", 10200: "10 KiB", 3 << 29: "1.5 GiB", 1 << 62: "4096 PiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 40 * time.Millisecond: "0.0s", 3210 * time.Millisecond: "3.2s", 59 * time.Second: "59s", 90 * time.Second: "1m30s",
		26*time.Hour + 59*time.Minute: "1d2h", 3*time.Hour + 2*time.Minute: "3h2m"} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// makeSavepoint writes a completed savepoint of one subtask.
func makeSavepoint(t *testing.T, blobs blob.Store, app, name string) {
	t.Helper()
	saved := checkpoint.NewSavepoints(blobs, app, nil, nil)
	sp, err := saved.Begin(t.Context(), checkpoint.Savepoint{Name: name, ClusterID: "c", Incarnation: 1, Expected: []string{"0_0"}, Deadline: time.Now().Add(time.Minute).UnixMilli(), Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	dir := memstore.NewDir(app)
	defer dir.Close()
	store, err := dir.Open(statestore.Identity{App: app, ClusterID: "c", Incarnation: 1, Subtask: "0_0", Changelogs: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	batch := store.NewBatch()
	for i := range 1000 {
		batch.Set(fmt.Appendf([]byte{0, 0, 0, 7}, "%04d", i), []byte("value"))
	}
	if err := batch.Commit(statestore.Meta{Epoch: 3, EpochRecord: []byte("r"), Positions: []int64{5}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Flush(); err != nil {
		t.Fatal(err)
	}
	snap, err := store.(statestore.Checkpointer).Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snap.Close() }()
	if _, err := saved.Write(t.Context(), sp, snap, checkpoint.WriteOptions{WallTime: func([]byte) (int64, error) { return 1, nil }}); err != nil {
		t.Fatal(err)
	}
	if _, err := saved.Complete(t.Context(), sp); err != nil {
		t.Fatal(err)
	}
}

// answered runs a command line with answers to what it asks.
func answered(t *testing.T, answers string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRootCommand(&Options{}, nil)
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(answers))
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestSavepointsAreListedVerifiedAndDeleted(t *testing.T) {
	folder := t.TempDir()
	blobs, err := blob.Open(t.Context(), "file://"+folder, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	makeSavepoint(t, blobs, "orders", "one")
	makeSavepoint(t, blobs, "orders", "two")
	makeSavepoint(t, blobs, "orders-eu", "theirs")
	common := []string{"--app.id=orders", "--checkpoint.url=file://" + folder, "--brokers=" + strings.Join(fakeKafka(t), ",")}
	call := func(args ...string) (int, string, string) {
		t.Helper()
		return millrace(t, nil, append(args, common...)...)
	}
	code, stdout, stderr := call("savepoint", "list")
	if code != exitOK || !strings.Contains(stdout, "2 savepoints of app orders in file://") || strings.Contains(stdout, "theirs") || stderr != "" {
		t.Errorf("list: code %d, %s%s", code, stdout, stderr)
	}
	var l savepointList
	code, stdout, stderr = call("savepoint", "list", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &l); code != exitOK || err != nil || len(l.Savepoints) != 2 || l.Savepoints[0].Status != checkpoint.StatusCompleted {
		t.Errorf("list: code %d, %v, %s%s", code, err, stdout, stderr)
	}
	code, stdout, stderr = call("savepoint", "show", "one")
	if code != exitOK || !strings.Contains(stdout, "1000 entries in 1 file") || !strings.Contains(stdout, "--start.mode=savepoint:one") {
		t.Errorf("show: code %d, %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = call("savepoint", "verify", "one")
	if code != exitOK || !strings.Contains(stdout, "Savepoint one is whole: 1000 entries in 1 file") || stderr != "" {
		t.Errorf("verify: code %d, %s%s", code, stdout, stderr)
	}
	for _, verb := range []string{"show", "verify", "delete"} {
		code, stdout, stderr = call("savepoint", verb, "three")
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "there is no such savepoint") || !strings.Contains(stderr, "millrace savepoint list shows") {
			t.Errorf("%s of none: code %d, %s%s", verb, code, stdout, stderr)
		}
		if code, _, stderr = call("savepoint", verb, "../two"); code != exitUsage || !strings.Contains(stderr, "want 1 to 100 of letters") {
			t.Errorf("%s of a bad name: code %d, %s", verb, code, stderr)
		}
		if code, _, stderr = millrace(t, nil, "savepoint", verb, "one", "--app.id=orders"); code != exitUsage || !strings.Contains(stderr, "checkpoint.url is not set") {
			t.Errorf("%s without a store: code %d, %s", verb, code, stderr)
		}
	}
	parts, err := filepath.Glob(filepath.Join(folder, "orders/savepoints/two/0_0/*-*"))
	if err != nil || len(parts) != 1 {
		t.Fatal(parts, err)
	}
	data, err := os.ReadFile(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(parts[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr = call("savepoint", "verify", "two"); code != exitFailed || !strings.Contains(stderr, "part-000001") {
		t.Errorf("verify of a damaged one: code %d, %s", code, stderr)
	}

	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, "orders/savepoints", name, "begin"))
		return err == nil
	}
	stdout, _, err = answered(t, "n\n", append([]string{"savepoint", "delete", "one"}, common...)...)
	if err == nil || !strings.Contains(err.Error(), "nothing was deleted: not confirmed") || !strings.Contains(stdout, "Savepoint one of app orders in file://") || !there("one") {
		t.Errorf("answered no: %v, %s", err, stdout)
	}
	stdout, _, err = answered(t, "y\n", append([]string{"savepoint", "delete", "one"}, common...)...)
	if err != nil || !strings.Contains(stdout, "Savepoint one is deleted: 4 blobs") || there("one") {
		t.Errorf("answered yes: %v, %s", err, stdout)
	}
	code, stdout, stderr = call("savepoint", "delete", "two", "--yes", "-o", "json")
	if code != exitOK || !strings.Contains(stdout, `"deleted": "two"`) || there("two") {
		t.Errorf("delete: code %d, %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(folder, "orders-eu/savepoints/theirs/manifest")); err != nil {
		t.Error("another app's savepoint:", err)
	}
}

// TestSavepointsOnS3: the commands take all keys of the object storage, secrets from files too.
func TestSavepointsOnS3(t *testing.T) {
	fake := blobtest.NewFake(t)
	blobs, err := blob.Open(t.Context(), fake.URL("prefix"), fake.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	makeSavepoint(t, blobs, "orders", "one")
	secret := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(secret, []byte(blobtest.FakeSecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := fake.Options()
	environ := []string{"MILLRACE_BROKERS=127.0.0.1:1", "MILLRACE_REQUEST_TIMEOUT=300ms", "MILLRACE_APP_ID=orders", "MILLRACE_CHECKPOINT_URL=" + fake.URL("prefix"), "MILLRACE_CHECKPOINT_S3_ENDPOINT=" + o.Endpoint, "MILLRACE_CHECKPOINT_S3_REGION=" + o.Region,
		"MILLRACE_CHECKPOINT_S3_PATH_STYLE=true", "MILLRACE_CHECKPOINT_S3_ACCESS_KEY=" + o.AccessKey, "MILLRACE_CHECKPOINT_S3_SECRET_KEY_FILE=" + secret}
	if code, _, stderr := millrace(t, environ, "savepoint", "delete", "one", "--yes"); code != exitFailed || !strings.Contains(stderr, "whether an app still begins from it cannot be asked") ||
		!strings.Contains(stderr, "--force") {
		t.Errorf("delete without brokers: code %d, %s", code, stderr)
	}
	for _, c := range []struct{ args, says string }{
		{"savepoint list", "1 savepoint of app orders in " + fake.URL("prefix")},
		{"savepoint verify one", "Savepoint one is whole: 1000 entries"},
		{"savepoint delete one --yes --force", "Savepoint one is deleted: 4 blobs"},
		{"savepoint list", "0 savepoints"},
	} {
		if code, stdout, stderr := millrace(t, environ, strings.Fields(c.args)...); code != exitOK || !strings.Contains(stdout, c.says) {
			t.Errorf("%s: code %d, %s%s", c.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := millrace(t, environ[:len(environ)-1], "savepoint", "list"); code != exitUsage || strings.Contains(stderr, blobtest.FakeSecretKey) {
		t.Errorf("half of the credentials: code %d, %s", code, stderr)
	}
}
