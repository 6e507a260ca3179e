// Package blobtest is what every implementation of blob.Store must do, as tests, and the means to make an object store
// fail: an S3 server in the process, an HTTP transport and a store in memory that make faults.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// Place is an empty space of blobs. Each call opens it anew, as another process would; the suite closes what it opens.
type Place func() (blob.Store, error)

// Run tests an implementation. place makes a new place for each test; its stores have a PartSize of 5 MiB.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Place)
	}{
		{"what is put is read", putGet},
		{"large blobs are read from any offset", large},
		{"a torn or changed body leaves no blob", tornBody},
		{"absent blobs are not found", absent},
		{"one of many creators wins", create},
		{"listings are complete and in order", list},
		{"deletes are batched and repeatable", deletes},
		{"bad keys are refused", badKeys},
		{"an ended context ends a call", contexts},
		{"unfinished uploads are found and aborted", uploads},
		{"check leaves nothing behind", checks},
		{"concurrent calls do not disturb each other", concurrent},
		{"random calls agree with a model", model},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, place(t)) })
	}
}

func open(t *testing.T, p Place) blob.Store {
	t.Helper()
	s, err := p()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Random bytes that a seed decides.
func Random(seed uint64, n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(data)
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

func get(t *testing.T, s blob.Store, key string, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s holds %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(want), want)
	}
}

// keys of a listing.
func keys(t *testing.T, s blob.Store, prefix string) []string {
	t.Helper()
	all := []string{}
	for info, err := range s.List(t.Context(), prefix) {
		must(t, err)
		all = append(all, info.Key)
	}
	return all
}

func putGet(t *testing.T, p Place) {
	s := open(t, p)
	for key, data := range map[string][]byte{
		"a": []byte("hello"), "empty": {}, "x/y=1/z_2.sst": []byte("deep"), strings.Repeat("k", 200) + "/" + strings.Repeat("v", 200): []byte("long"),
	} {
		must(t, s.Put(t.Context(), key, blob.Bytes(data)))
		must(t, s.Put(t.Context(), key, blob.Bytes(data))) // again
		get(t, s, key, data)
		get(t, open(t, p), key, data)
		before := time.Now().Add(-time.Hour)
		info, err := s.Stat(t.Context(), key)
		must(t, err)
		if info.Key != key || info.Size != int64(len(data)) || info.Modified.Before(before) || info.Modified.After(before.Add(2*time.Hour)) {
			t.Errorf("stat %s: %+v", key, info)
		}
		for info, err := range s.List(t.Context(), key) {
			must(t, err)
			if info.Key != key || info.Size != int64(len(data)) || info.Modified.Before(before) || info.Modified.After(before.Add(2*time.Hour)) {
				t.Errorf("list %s: %+v", key, info)
			}
		}
		r, err := s.Open(t.Context(), key, int64(len(data)))
		must(t, err)
		if got, err := io.ReadAll(r); err != nil || len(got) != 0 {
			t.Errorf("read %s from its end: %q, %v", key, got, err)
		}
		must(t, r.Close())
		if r, err := s.Open(t.Context(), key, int64(len(data))+1); err == nil || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("open %s behind its end: %v", key, err)
			if err == nil {
				_ = r.Close()
			}
		}
	}
}

func large(t *testing.T, p Place) {
	s := open(t, p)
	data := Random(1, 12<<20+1) // three parts, the last one small
	must(t, s.Put(t.Context(), "large", blob.Bytes(data)))
	for _, offset := range []int{0, 1, 5 << 20, 5<<20 + 7, len(data) - 1} {
		r, err := s.Open(t.Context(), "large", int64(offset))
		must(t, err)
		v := blob.Verify(r, int64(len(data)-offset), sha256.Sum256(data[offset:]))
		got, err := io.ReadAll(v)
		must(t, err)
		if !bytes.Equal(got, data[offset:]) {
			t.Errorf("from offset %d: %d bytes, not the same", offset, len(got))
		}
		must(t, v.Close())
	}
	// A reader may leave early.
	r, err := s.Open(t.Context(), "large", 0)
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 10))
	must(t, err)
	must(t, r.Close())
	// Exactly one part, exactly two.
	for _, n := range []int{5 << 20, 10 << 20} {
		must(t, s.Put(t.Context(), "exact", blob.Bytes(data[:n])))
		get(t, s, "exact", data[:n])
	}
}

// body of data that claims other things, or breaks.
func body(data []byte, size int64, sum [32]byte, breaks error) blob.Body {
	return blob.Body{Size: size, SHA256: sum, Open: func() (io.ReadSeekCloser, error) {
		return &breaking{bytes.NewReader(data), breaks}, nil
	}}
}

type breaking struct {
	*bytes.Reader
	err error // at the end, instead of io.EOF
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) && b.err != nil {
		err = b.err
	}
	return n, err
}

func (b *breaking) Close() error { return nil }

func tornBody(t *testing.T, p Place) {
	s := open(t, p)
	for _, n := range []int{100, 11 << 20} {
		data := Random(2, n)
		sum := sha256.Sum256(data)
		changed := bytes.Clone(data)
		changed[n/2] ^= 1
		want(t, s.Put(t.Context(), "torn", body(changed, int64(n), sum, nil)), blob.ErrCorrupt)
		want(t, s.Put(t.Context(), "torn", body(data[:n-1], int64(n), sum, nil)), blob.ErrCorrupt)
		want(t, s.Put(t.Context(), "torn", body(append(changed[:n:n], 0), int64(n), sha256.Sum256(changed), nil)), blob.ErrCorrupt)
		broken := errors.New("the disk broke")
		want(t, s.Put(t.Context(), "torn", body(data[:n-1], int64(n), sum, broken)), broken)
		want(t, s.Put(t.Context(), "torn", blob.Body{Size: 1, Open: func() (io.ReadSeekCloser, error) { return nil, broken }}), broken)
		if got := keys(t, s, ""); len(got) != 0 {
			t.Errorf("torn puts left %v", got)
		}
		if left, err := s.Uploads(t.Context(), "", 0); err != nil || len(left) != 0 {
			t.Errorf("torn puts left the uploads %+v, %v", left, err)
		}
		// What was there stays.
		must(t, s.Put(t.Context(), "kept", blob.Bytes(data)))
		want(t, s.Put(t.Context(), "kept", body(data[:n-1], int64(n), sum, broken)), broken)
		get(t, s, "kept", data)
		must(t, s.Delete(t.Context(), "kept"))
	}
}

func absent(t *testing.T, p Place) {
	s := open(t, p)
	must(t, s.Put(t.Context(), "some/blob", blob.Bytes([]byte("x"))))
	for _, key := range []string{"other", "some/other", "no/folder", "some"} {
		_, err := s.Get(t.Context(), key)
		want(t, err, blob.ErrNotFound)
		_, err = s.Open(t.Context(), key, 0)
		want(t, err, blob.ErrNotFound)
		_, err = s.Open(t.Context(), key, 7)
		want(t, err, blob.ErrNotFound)
		_, err = s.Stat(t.Context(), key)
		want(t, err, blob.ErrNotFound)
		if blob.IsRetryable(err) || blob.IsDenied(err) {
			t.Errorf("%v: retryable or denied", err)
		}
		must(t, s.Delete(t.Context(), key))
	}
	get(t, s, "some/blob", []byte("x"))
	for _, prefix := range []string{"z", "some/x", "no/folder/"} {
		if got := keys(t, s, prefix); len(got) != 0 {
			t.Errorf("listing of %s: %v", prefix, got)
		}
	}
}

func create(t *testing.T, p Place) {
	s := open(t, p)
	must(t, s.Create(t.Context(), "m/1", []byte("first")))
	want(t, s.Create(t.Context(), "m/1", []byte("second")), blob.ErrExists)
	want(t, s.Create(t.Context(), "m/1", []byte("first")), blob.ErrExists) // equal contents are no excuse
	get(t, s, "m/1", []byte("first"))
	must(t, s.Delete(t.Context(), "m/1"))
	must(t, s.Create(t.Context(), "m/1", []byte("third")))
	get(t, s, "m/1", []byte("third"))
	if err := s.Create(t.Context(), "m/big", make([]byte, blob.MaxSmall+1)); err == nil || !strings.Contains(err.Error(), "one piece") {
		t.Errorf("a created blob above the limit: %v", err)
	}

	const writers = 16
	stores := make([]blob.Store, writers)
	for i := range stores {
		stores[i] = open(t, p)
	}
	for round := range 4 {
		key := fmt.Sprintf("race/%d", round)
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() { errs[i] = s.Create(t.Context(), key, fmt.Appendf(nil, "writer %d", i)) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: writers %d and %d both created it", round, winner, i)
			case err == nil:
				winner = i
			default:
				want(t, err, blob.ErrExists)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody created it", round)
		}
		get(t, s, key, fmt.Appendf(nil, "writer %d", winner))
	}
}

func list(t *testing.T, p Place) {
	s := open(t, p)
	// "-" and "." come before "/", digits, letters, "=" and "_" after it.
	all := []string{"a-b", "a.b", "a/b", "a/b-c/d", "a/b.c", "a/b0", "a/b=/c", "a0", "a=b", "aZ/x", "a_b/c", "b/a/a/a", "b/a/a0", "b/a-/a", "Z", "0"}
	for i := range 40 {
		all = append(all, fmt.Sprintf("many/%c/%d", 'a'+i%3, i))
	}
	for i, key := range all {
		must(t, s.Put(t.Context(), key, blob.Bytes(make([]byte, i))))
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b-", "a-", "b/a", "b/a/a", "many/", "many/b", "Z", "0", "many/c/2"} {
		wanted := slices.DeleteFunc(slices.Clone(all), func(k string) bool { return !strings.HasPrefix(k, prefix) })
		if got := keys(t, s, prefix); !slices.Equal(got, wanted) {
			t.Errorf("listing of %q:\n got %v\nwant %v", prefix, got, wanted)
		}
	}
	n := 0
	for _, err := range s.List(t.Context(), "") {
		must(t, err)
		if n++; n == 3 {
			break // a reader may leave early
		}
	}
}

func deletes(t *testing.T, p Place) {
	s := open(t, p)
	must(t, s.Delete(t.Context()))
	must(t, s.Delete(t.Context(), "never", "there"))
	// More than fit into one request of S3.
	var all []string
	for i := range 1010 {
		all = append(all, fmt.Sprintf("d/%d/%d", i%7, i))
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(all, 130) {
		wg.Go(func() {
			for _, key := range part {
				if err := s.Put(t.Context(), key, blob.Bytes(nil)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	must(t, s.Put(t.Context(), "d/kept", blob.Bytes(nil)))
	if n := len(keys(t, s, "d/")); n != 1011 {
		t.Fatalf("listing has %d keys, want 1011", n)
	}
	must(t, s.Delete(t.Context(), append(all, "d/absent")...))
	must(t, s.Delete(t.Context(), all[:3]...))
	if got := keys(t, s, ""); !slices.Equal(got, []string{"d/kept"}) {
		t.Errorf("after deleting: %v", got)
	}
	// A bad key is told, the others go.
	if err := s.Delete(t.Context(), "bad//key", "d/kept"); err == nil || !strings.Contains(err.Error(), "bad//key") {
		t.Errorf("bad key among others: %v", err)
	}
	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("after deleting all: %v", got)
	}
}

func badKeys(t *testing.T, p Place) {
	s := open(t, p)
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a b", "a\x00b", "\xff", "~a", "a\\b", "a%2fb", "caf\u00e9",
		strings.Repeat("x", 201), strings.Repeat("x/", 400) + "x"} {
		_, getErr := s.Get(t.Context(), key)
		_, openErr := s.Open(t.Context(), key, 0)
		_, statErr := s.Stat(t.Context(), key)
		for name, err := range map[string]error{"put": s.Put(t.Context(), key, blob.Bytes(nil)), "create": s.Create(t.Context(), key, nil),
			"get": getErr, "open": openErr, "stat": statErr, "delete": s.Delete(t.Context(), key)} {
			if err == nil || errors.Is(err, blob.ErrNotFound) || blob.IsRetryable(err) {
				t.Errorf("%s %q: %v", name, key, err)
			}
		}
	}
	for _, prefix := range []string{"/", "a//", "../", "a b"} {
		for _, err := range s.List(t.Context(), prefix) {
			if err == nil {
				t.Errorf("list %q: no error", prefix)
			}
		}
	}
	if r, err := s.Open(t.Context(), "a", -1); err == nil {
		_ = r.Close()
		t.Error("open at offset -1: no error")
	}
}

func contexts(t *testing.T, p Place) {
	s := open(t, p)
	must(t, s.Put(t.Context(), "there", blob.Bytes([]byte("x"))))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, "there")
	_, openErr := s.Open(ctx, "there", 0)
	_, statErr := s.Stat(ctx, "there")
	_, upErr := s.Uploads(ctx, "", 0)
	var listErr error
	for _, err := range s.List(ctx, "") {
		listErr = err
	}
	for name, err := range map[string]error{"put": s.Put(ctx, "new", blob.Bytes(nil)), "large put": s.Put(ctx, "new", blob.Bytes(make([]byte, 6<<20))),
		"create": s.Create(ctx, "new", nil), "get": getErr, "open": openErr, "stat": statErr, "uploads": upErr, "list": listErr, "delete": s.Delete(ctx, "there")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if blob.IsRetryable(err) {
			t.Errorf("%s: retryable although the caller gave up", name)
		}
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{"there"}) {
		t.Errorf("after calls with an ended context: %v", got)
	}
	// Reading ends with the context, too.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	must(t, s.Put(t.Context(), "big", blob.Bytes(Random(3, 8<<20))))
	r, err := s.Open(ctx, "big", 0)
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 10))
	must(t, err)
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("read on after the context ended: %v", err)
	}
	must(t, r.Close())
}

// gated is a body that stops in its middle until it is let go.
type gated struct {
	*bytes.Reader
	at      int64
	reached chan<- struct{}
	gate    <-chan struct{}
	once    *sync.Once
}

func (g *gated) Read(p []byte) (int, error) {
	pos := g.Size() - int64(g.Len())
	if pos >= g.at {
		g.once.Do(func() { close(g.reached) })
		<-g.gate
	} else if rest := g.at - pos; int64(len(p)) > rest {
		p = p[:rest]
	}
	return g.Reader.Read(p)
}

func (g *gated) Close() error { return nil }

func uploads(t *testing.T, p Place) {
	mine, other := open(t, p), open(t, p)
	data := Random(4, 11<<20)
	for _, abort := range []bool{false, true} {
		reached, gate := make(chan struct{}), make(chan struct{})
		var once sync.Once
		done := make(chan error, 1)
		go func() {
			done <- mine.Put(t.Context(), "up/load", blob.Body{Size: int64(len(data)), SHA256: sha256.Sum256(data), Open: func() (io.ReadSeekCloser, error) {
				return &gated{bytes.NewReader(data), 6 << 20, reached, gate, &once}, nil
			}})
		}()
		<-reached
		found, err := other.Uploads(t.Context(), "up", 0)
		must(t, err)
		if len(found) != 1 || found[0].Key != "up/load" || found[0].ID == "" || time.Since(found[0].Started).Abs() > time.Hour {
			t.Errorf("unfinished uploads: %+v", found)
		}
		for _, c := range []struct {
			s      blob.Store
			prefix string
			older  time.Duration
		}{{other, "up", time.Hour}, {other, "elsewhere", 0}, {mine, "up", 0}} {
			if aborted, err := c.s.AbortUploads(t.Context(), c.prefix, c.older); err != nil || len(aborted) != 0 {
				t.Errorf("aborted %+v, %v", aborted, err)
			}
		}
		if got := keys(t, other, ""); len(got) != 0 {
			t.Errorf("visible before it is complete: %v", got)
		}
		if abort {
			aborted, err := other.AbortUploads(t.Context(), "up/", 0)
			must(t, err)
			if len(aborted) != 1 || aborted[0].Key != "up/load" {
				t.Errorf("aborted %+v", aborted)
			}
		}
		close(gate)
		err = <-done
		if abort && err != nil {
			_, err = other.Get(t.Context(), "up/load")
			want(t, err, blob.ErrNotFound)
		} else {
			// A part that was under way may have brought the upload back to life.
			must(t, err)
			get(t, other, "up/load", data)
			must(t, other.Delete(t.Context(), "up/load"))
		}
		if found, err := other.Uploads(t.Context(), "", 0); err != nil || len(found) != 0 {
			t.Errorf("left: %+v, %v", found, err)
		}
	}
}

func checks(t *testing.T, p Place) {
	s := open(t, p)
	must(t, s.Check(t.Context()))
	must(t, s.Check(t.Context()))
	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if left, err := s.Uploads(t.Context(), "", 0); err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// concurrent writers, readers and deleters share folders, which directories make and remove on the way.
func concurrent(t *testing.T, p Place) {
	var wg sync.WaitGroup
	for i := range 8 {
		s := open(t, p)
		wg.Go(func() {
			for n := range 12 {
				key := fmt.Sprintf("c/%d/%d/%d", n%2, n%3, i)
				data := fmt.Appendf(nil, "%d of %d", n, i)
				err := s.Put(t.Context(), key, blob.Bytes(data))
				if err == nil {
					var got []byte
					if got, err = s.Get(t.Context(), key); err == nil && !bytes.Equal(got, data) {
						err = fmt.Errorf("%s holds %q, want %q", key, got, data)
					}
				}
				if err == nil {
					err = s.Delete(t.Context(), key)
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, err := range s.List(t.Context(), "c/") {
					if err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if got := keys(t, open(t, p), ""); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func model(t *testing.T, p Place) {
	s := open(t, p)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	there := map[string][]byte{}
	for range 250 {
		key := fmt.Sprintf("m%d/%d", rnd.IntN(4), rnd.IntN(6))
		data := Random(rnd.Uint64(), rnd.IntN(2000))
		was, exists := there[key]
		switch rnd.IntN(6) {
		case 0:
			must(t, s.Put(t.Context(), key, blob.Bytes(data)))
			there[key] = data
		case 1:
			err := s.Create(t.Context(), key, data)
			if exists {
				want(t, err, blob.ErrExists)
			} else {
				must(t, err)
				there[key] = data
			}
		case 2:
			must(t, s.Delete(t.Context(), key, "m0/absent"))
			delete(there, key)
		case 3:
			if exists {
				get(t, s, key, was)
			} else {
				_, err := s.Get(t.Context(), key)
				want(t, err, blob.ErrNotFound)
			}
		case 4:
			offset := rnd.IntN(len(was) + 1)
			r, err := s.Open(t.Context(), key, int64(offset))
			if !exists {
				want(t, err, blob.ErrNotFound)
				continue
			}
			must(t, err)
			got, err := io.ReadAll(r)
			must(t, err)
			must(t, r.Close())
			if !bytes.Equal(got, was[offset:]) {
				t.Fatalf("%s from %d: %d bytes, want %d", key, offset, len(got), len(was)-offset)
			}
		case 5:
			prefix := key[:rnd.IntN(len(key)+1)]
			wanted := slices.DeleteFunc(slices.Sorted(maps.Keys(there)), func(k string) bool { return !strings.HasPrefix(k, prefix) })
			if got := keys(t, s, prefix); !slices.Equal(got, wanted) {
				t.Fatalf("listing of %q: %v, want %v", prefix, got, wanted)
			}
		}
	}
}
