package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/test/s3"
)

// Where the child process of TestKilledInAnUpload finds its server and its store.
const (
	victimEnv    = "BLOB_TEST_VICTIM"
	victimURLEnv = "BLOB_TEST_VICTIM_URL"
)

const (
	lifeApp  = "orders"
	partSize = 5 << 20
)

// victimValue is the state that the child uploads: three parts.
func victimValue() []byte { return blobtest.Random(11, 2*partSize+1000) }

// lifeMeta of an epoch.
func lifeMeta(epoch uint64) statestore.Meta {
	return statestore.Meta{Epoch: epoch, EpochRecord: []byte("a record"), Positions: []int64{int64(epoch)}}
}

// member is one life of the owner of subtask 0_0.
type member struct {
	dir   statestore.Dir
	store statestore.Store
	pub   *checkpoint.Publisher
}

func lifeIdentity() statestore.Identity {
	return statestore.Identity{App: lifeApp, ClusterID: "cluster", Incarnation: 1, Subtask: "0_0", Changelogs: []string{"topic"}}
}

func newMember(blobs blob.Store) (*member, error) {
	dir := memstore.NewDir(lifeApp)
	store, err := dir.Open(lifeIdentity())
	now := time.Now()
	clock := func() time.Time { now = now.Add(time.Second); return now } // each look is later than the grace time
	return &member{dir, store, checkpoint.NewPublisher(checkpoint.Options{Blobs: blobs, Identity: lifeIdentity(), Owner: "test",
		WallTime: func([]byte) (int64, error) { return 1, nil }, Grace: time.Millisecond, Retain: 2, Parallel: 1, Now: clock})}, err
}

// publish an epoch whose state is one entry.
func (m *member) publish(ctx context.Context, epoch uint64, value []byte) error {
	b := m.store.NewBatch()
	b.Set([]byte{0, 0, 0, 7, 1}, value)
	if err := errors.Join(b.Commit(lifeMeta(epoch)), m.store.Flush()); err != nil {
		return err
	}
	snap, err := m.store.(statestore.Checkpointer).Checkpoint()
	if err != nil {
		return err
	}
	_, err = m.pub.Publish(ctx, snap, nil)
	return errors.Join(err, snap.Close())
}

// TestVictim is the child process of TestKilledInAnUpload: it publishes epoch 2, if it lives long enough. Elsewhere it does
// nothing.
func TestVictim(t *testing.T) {
	endpoint := os.Getenv(victimEnv)
	if endpoint == "" {
		return
	}
	blobs := openTest(t, os.Getenv(victimURLEnv), blob.Options{Endpoint: endpoint, Region: s3.Region, PathStyle: true, AccessKey: s3.AccessKey,
		SecretKey: s3.SecretKey, PartSize: partSize, Concurrency: 1})
	m, err := newMember(blobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.publish(t.Context(), 2, victimValue()); err != nil {
		t.Fatal(err)
	}
}

// assassin stands between the child and the server, and kills the child when the server has done the n-th thing for it.
type assassin struct {
	*httptest.Server
	kill func()

	mu    sync.Mutex
	n     int      // kill after so many
	did   []string // what the server has done
	fired bool
}

func newAssassin(t *testing.T, server *s3.Server, n int) *assassin {
	target, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	a := &assassin{n: n}
	// The child signs the host that it speaks to, and the server hears the same.
	proxy := &httputil.ReverseProxy{Transport: tr, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host
	},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := step(r)
		if strings.HasPrefix(what, "part 2") && a.strike("half of "+what) {
			// The body breaks off, as it does when its sender dies.
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, partSize/2), broken{}))
			defer a.kill()
			proxy.ServeHTTP(w, r) // ends with a panic
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if a.strike(what) {
			a.kill()
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(func() { a.Close(); tr.CloseIdleConnections() })
	return a
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the sender died") }

// strike says whether the child is to be killed now.
func (a *assassin) strike(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.did = append(a.did, what)
	now := len(a.did) == a.n
	a.fired = a.fired || now
	return now
}

// step names a request.
func step(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "begin"
	case q.Has("partNumber"):
		return "part " + q.Get("partNumber")
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return "complete"
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/"):
		return "manifest"
	default:
		return r.Method
	}
}

// TestKilledInAnUpload: a member is killed with SIGKILL after each request of a checkpoint whose file goes up in parts, and
// in the midst of a part. What its successor finds is whole, what it publishes is whole, and no upload stays behind, which
// nobody sees and everybody pays for. The kind of fault, with object storages of others: uploads that are left by a crash are
// kept for ever, or are aborted while a checkpoint needs them.
func TestKilledInAnUpload(t *testing.T) {
	server := s3.Start(t)
	ctx := t.Context()
	steps := map[string]bool{}
	for n := 1; ; n++ {
		storeURL := fmt.Sprintf("s3://%s/killed-%d", s3.Bucket, n)
		blobs := openTest(t, storeURL, realOptions(server))
		first, err := newMember(blobs)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.publish(ctx, 1, []byte("of epoch 1")); err != nil {
			t.Fatal(err)
		}
		a := newAssassin(t, server, n)
		ready := make(chan struct{})
		var p *kafka.Proc
		a.kill = func() { <-ready; p.Kill(t) }
		p = kafka.Run(t, os.Args[0], []string{"-test.run=^TestVictim$"}, victimEnv+"="+a.URL, victimURLEnv+"="+storeURL)
		close(ready)
		code := p.Wait(t, time.Minute)
		a.mu.Lock()
		did, fired := a.did, a.fired
		a.mu.Unlock()
		if !fired {
			if code != 0 {
				t.Fatalf("nobody killed the member, and it ended with %d: %s", code, p.Output())
			}
			break
		}
		steps[did[n-1]] = true
		t.Run(fmt.Sprintf("%d %s", n, did[n-1]), func(t *testing.T) { succeed(t, blobs) })
	}
	for _, want := range []string{"begin", "part 1", "half of part 2", "part 2", "part 3", "complete", "manifest"} {
		if !steps[want] {
			t.Errorf("the member was never killed after: %s", want)
		}
	}
}

// succeed is the next life.
func succeed(t *testing.T, blobs blob.Store) {
	ctx := t.Context()
	allWhole(t, blobs, map[uint64][]byte{1: []byte("of epoch 1"), 2: victimValue()})
	m, err := newMember(blobs)
	if err != nil {
		t.Fatal(err)
	}
	last := []byte("of epoch 9")
	if err := m.publish(ctx, 9, last); err != nil {
		t.Fatal(err)
	}
	epoch := uint64(9)
	collect := func() {
		if _, err := m.pub.Collect(ctx, func() uint64 { epoch += 2; return epoch }); err != nil {
			t.Fatal(err)
		}
	}
	collect()                                          // looks
	collect()                                          // condemns
	collect()                                          // removes
	testutil.Eventually(t, time.Minute, func() error { // the server's clock may lag a second behind
		left, err := blobs.Uploads(ctx, "", 0)
		if len(left) == 0 {
			return err
		}
		collect()
		return fmt.Errorf("uploads are left: %v", left)
	})
	allWhole(t, blobs, map[uint64][]byte{1: []byte("of epoch 1"), 2: victimValue(), 9: last})
	found, err := checkpoint.Find(ctx, blobs, lifeIdentity())
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, f := range found {
		named += len(f.Manifest.Blobs())
	}
	n := 0
	for _, err := range blobs.List(ctx, checkpoint.Prefix(lifeIdentity())+"/blobs/") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != named {
		t.Errorf("%d blobs are there, checkpoints name %d", n, named)
	}
}

// allWhole restores each checkpoint that there is.
func allWhole(t *testing.T, blobs blob.Store, want map[uint64][]byte) {
	t.Helper()
	found, err := checkpoint.Find(t.Context(), blobs, lifeIdentity())
	if err != nil || len(found) == 0 {
		t.Fatalf("found %d checkpoints, %v", len(found), err)
	}
	for _, f := range found {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		dir := memstore.NewDir(lifeApp)
		if err := checkpoint.Restore(t.Context(), blobs, f.Manifest, dir, checkpoint.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		s, err := dir.Open(lifeIdentity())
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := s.Get([]byte{0, 0, 0, 7, 1})
		if err != nil || !bytes.Equal(got, want[f.Epoch]) {
			t.Errorf("epoch %d holds %d bytes, want %d (%v)", f.Epoch, len(got), len(want[f.Epoch]), err)
		}
		if err := errors.Join(s.Close(), dir.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestKilledInACheck: the upload that a member begins to prove that it may does not stay when it is killed right then.
func TestKilledInACheck(t *testing.T) {
	servers(t, func(t *testing.T, open func(*testing.T, func(*blob.Options)) blob.Store) {
		s := open(t, plain)
		dead := open(t, func(o *blob.Options) { // nothing of it reaches the server once the upload has begun
			var begun atomic.Bool
			faulty(t, func(_ int, r *http.Request) blobtest.Fault {
				if begun.Load() {
					return blobtest.Refuse
				}
				begun.Store(step(r) == "begin")
				return blobtest.None
			})(o)
			o.Retries = -1
		})
		if err := dead.Check(t.Context()); err == nil {
			t.Fatal("it could abort its upload")
		}
		if left, err := s.Uploads(t.Context(), "", 0); err != nil || len(left) != 1 {
			t.Fatalf("uploads %v, %v, want one", left, err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := s.Uploads(t.Context(), "", 0); err != nil || len(left) > 0 {
			t.Errorf("uploads are left: %v, %v", left, err)
		}
	})
}
