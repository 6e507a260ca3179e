package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/statestore"
)

// writer is what batches and bulks have in common.
type writer interface {
	Set(key, value []byte)
	Delete(key []byte)
	Commit(m statestore.Meta) error
}

// randomWrites gives both writers the same writes, with few keys, so that most are overwritten and deleted.
func randomWrites(r *rand.Rand, n int, model map[string]string, w writer) {
	for range n {
		key := binary.BigEndian.AppendUint32(nil, 1+r.Uint32N(3))
		key = append(key, fmt.Sprint(r.IntN(1+n/2))...)
		key = append(key, make([]byte, r.IntN(3))...) // keys that are others' prefixes, and end in zeros
		if r.IntN(4) == 0 {
			delete(model, string(key))
			w.Delete(key)
			continue
		}
		value := bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(40)) // empty ones too
		if r.IntN(50) == 0 {
			value = bytes.Repeat(value, 40)
		}
		model[string(key)] = string(value)
		w.Set(key, value)
	}
}

// contents is all that a store holds.
func contents(t testing.TB, s statestore.Store) map[string]string {
	t.Helper()
	all, err := scanAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func scanAll(s statestore.Store) (map[string]string, error) {
	it, err := s.Scan(nil, nil)
	if err != nil {
		return nil, err
	}
	all, last := map[string]string{}, ""
	for it.Next() {
		if last != "" && string(it.Key()) <= last {
			return nil, fmt.Errorf("key %x after %x", it.Key(), last)
		}
		last = string(it.Key())
		all[last] = string(it.Value())
	}
	return all, errors.Join(it.Err(), it.Close())
}

func metaAt(n int) statestore.Meta {
	return statestore.Meta{Epoch: uint64(n), EpochRecord: fmt.Append(nil, "record ", n), Positions: []int64{int64(n), -1}}
}

func equalMeta(a, b statestore.Meta) bool {
	return a.Epoch == b.Epoch && bytes.Equal(a.EpochRecord, b.EpochRecord) && slices.Equal(a.Positions, b.Positions)
}

// TestBulkEqualsBatches writes the same to a store by bulks, of any memory, batches between them, and compares it with what
// a map holds; then once more when it was opened again.
func TestBulkEqualsBatches(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ingested := 0
	for i := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, i))
		mem := vfs.NewMem()
		d, s := openIn(t, mem)
		model := map[string]string{}
		steps := 1 + r.IntN(4)
		for step := range steps {
			if r.IntN(3) == 0 {
				b := s.NewBatch()
				randomWrites(r, r.IntN(300), model, b)
				must(t, b.Commit(metaAt(step)))
				continue
			}
			memory := int64(1) << r.IntN(16)
			b := s.NewBulk(t.Context(), memory)
			for range 1 + r.IntN(8) {
				randomWrites(r, r.IntN(200), model, b)
				if b.Full() {
					break
				}
			}
			if len(b.(*bulk).runs) > 0 {
				ingested++
			}
			must(t, b.Commit(metaAt(step)))
		}
		check := func(when string, s *Store) {
			t.Helper()
			if have := contents(t, s); !maps.Equal(have, model) {
				t.Fatalf("seed %d, round %d, %s: %d entries, want %d", seed, i, when, len(have), len(model))
			}
			if m, ok := s.Meta(); !ok || !equalMeta(m, metaAt(steps-1)) {
				t.Fatalf("seed %d, round %d, %s: meta %+v (%v)", seed, i, when, m, ok)
			}
			for key, value := range model {
				if v, ok, err := s.Get([]byte(key)); !ok || err != nil || string(v) != value {
					t.Fatalf("seed %d, round %d, %s: get %x: %x, %v, %v; want %x", seed, i, when, key, v, ok, err, value)
				}
			}
		}
		check("at once", s)
		must(t, errors.Join(s.Flush(), s.Close(), d.Close()))
		d, s = openIn(t, mem)
		check("opened again", s)
		must(t, errors.Join(s.Close(), d.Close()))
		nothingBeside(t, mem)
	}
	if ingested < 10 {
		t.Errorf("only %d bulks did not fit into memory: the test did not reach what it is for", ingested)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openIn(t testing.TB, fs vfs.FS) (*Dir, *Store) {
	t.Helper()
	d, err := OpenDir("/state", "app", Options{FS: fs, CacheBytes: 1 << 20})
	must(t, err)
	s, err := d.Open(testID)
	must(t, err)
	return d, s.(*Store)
}

// nothingBeside looks for what a bulk has left.
func nothingBeside(t testing.TB, f vfs.FS) {
	t.Helper()
	names, err := f.List("/state/0")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != testID.Subtask {
			t.Fatalf("%s lies beside the store", name)
		}
	}
}

// bulkOf writes all keys of an epoch, many of them twice, in a random order.
func bulkOf(ctx context.Context, s *Store, epoch uint64) statestore.Bulk {
	b := s.NewBulk(ctx, 2*20_000)
	for i := range 2 * testKeys {
		k := fmt.Appendf([]byte{0, 0, 0, 1}, "%03d", i*37%testKeys)
		if i < testKeys {
			if i%3 == 0 {
				b.Delete(k)
			} else {
				b.Set(k, []byte("overwritten"))
			}
			continue
		}
		b.Set(k, value(epoch))
	}
	return b
}

// TestBulkCrashAnywhere cuts the power before each write of a bulk into an empty store, and of one into that: each time what is
// opened is exactly a committed epoch, not older than the last flush, and nothing lies beside it.
func TestBulkCrashAnywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	mem := vfs.NewCrashableMem()
	c := &crashes{fs: mem, every: math.MaxInt64, r: rand.New(rand.NewPCG(seed, 4))}
	d, s := openIn(t, errorfs.Wrap(mem, c))
	c.every = 1
	for epoch := uint64(1); epoch <= 3; epoch++ {
		c.started.Store(epoch)
		b := bulkOf(t.Context(), s, epoch)
		if n := len(b.(*bulk).runs); n < 2 {
			t.Fatalf("%d runs", n)
		}
		must(t, b.Commit(statestore.Meta{Epoch: epoch}))
		must(t, s.Flush())
		c.flushed.Store(epoch)
	}
	must(t, errors.Join(s.Close(), d.Close()))
	between := map[uint64]int{}
	for _, crash := range c.found {
		d, err := OpenDir("/state", "app", Options{FS: crash.fs, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("crash before %s: %v", crash.at, err)
		}
		nothingBeside(t, crash.fs)
		s, err := d.Open(testID)
		if err != nil {
			t.Fatalf("crash before %s: %v", crash.at, err)
		}
		epoch, err := verify(s)
		if err != nil || epoch < crash.low || epoch > crash.top {
			t.Fatalf("crash before %s: epoch %d, flushed %d, committed %d: %v", crash.at, epoch, crash.low, crash.top, err)
		}
		between[epoch]++
		must(t, errors.Join(s.Close(), d.Close()))
	}
	if len(between) != 4 {
		t.Fatalf("crashes by what they left: %v", between)
	}
	t.Logf("%d crashes; by the epoch that they left: %v", len(c.found), between)
}

// TestBulkFaultAnywhere fails the i-th write of a bulk, once and from there on, for all i: Commit says so, and the store is as it
// was when it is opened again.
func TestBulkFaultAnywhere(t *testing.T) {
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("once=%v", once), func(t *testing.T) {
			failed := 0
			for at := int64(1); ; at++ {
				if at > 400 {
					t.Fatal("the work never ends without a fault")
				}
				met := false
				synctest.Test(t, func(t *testing.T) { met = bulkFault(t, at, once) })
				if !met {
					break
				}
				failed++
			}
			if failed < 20 {
				t.Fatalf("only %d writes were failed", failed)
			}
			t.Logf("%d writes failed one after the other", failed)
		})
	}
}

func bulkFault(t *testing.T, at int64, once bool) (met bool) {
	t.Helper()
	mem := vfs.NewMem()
	d, s := openIn(t, mem)
	must(t, errors.Join(bulkOf(t.Context(), s, 1).Commit(statestore.Meta{Epoch: 1}), s.Flush(), s.Close(), d.Close()))
	f := &faults{at: at, once: once, err: syscall.ENOSPC}
	f.healed.Store(true)
	d, s = openIn(t, errorfs.Wrap(mem, f))
	f.healed.Store(false)
	err := bulkOf(t.Context(), s, 2).Commit(statestore.Meta{Epoch: 2})
	met = f.injured.Load() > 0
	if err != nil && (!met || !errors.Is(err, statestore.ErrNoSpace)) {
		t.Fatalf("write %d (%v): %v", at, met, err)
	}
	if err == nil {
		err = s.Flush()
	}
	want := uint64(2)
	if err != nil {
		want = 1
	}
	f.healed.Store(true)
	must(t, errors.Join(s.Close(), d.Close()))
	d, s = openIn(t, mem)
	nothingBeside(t, mem)
	epoch, verr := verify(s)
	if verr != nil || epoch < want {
		t.Fatalf("write %d: epoch %d, want %d or later (%v): %v", at, epoch, want, err, verr)
	}
	must(t, errors.Join(s.Close(), d.Close()))
	return met
}

// TestBulkFailpoints: at each point of a bulk an error leaves the store as it was, or with all of it.
func TestBulkFailpoints(t *testing.T) {
	for name, want := range map[string]uint64{failpoint.MidBulk: 1, failpoint.BeforeIngest: 1, failpoint.AfterIngest: 2} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			d, s := openIn(t, mem)
			must(t, errors.Join(commit(s, 1), s.Flush()))
			p, err := failpoint.Arm(name, func() error { return failpoint.ErrInjected })
			must(t, err)
			err = bulkOf(t.Context(), s, 2).Commit(statestore.Meta{Epoch: 2})
			p.Disarm()
			if !errors.Is(err, failpoint.ErrInjected) || p.Hits() == 0 {
				t.Fatalf("commit: %v, %d hits", err, p.Hits())
			}
			if epoch, err := verify(s); err != nil || epoch != want {
				t.Fatalf("epoch %d, want %d: %v", epoch, want, err)
			}
			nothingBeside(t, mem)
			must(t, errors.Join(s.Close(), d.Close()))
		})
	}
}

// TestBulkEnds: a bulk whose context has ended, or that is discarded, leaves nothing.
func TestBulkEnds(t *testing.T) {
	mem := vfs.NewMem()
	d, s := openIn(t, mem)
	ctx, cancel := context.WithCancelCause(t.Context())
	b := s.NewBulk(ctx, 1<<20)
	for i := range 3 * ctxEvery {
		b.Set(fmt.Appendf([]byte{0, 0, 0, 1}, "%08d", i), make([]byte, 100))
	}
	cause := errors.New("it is not worth it any more")
	cancel(cause)
	if err := b.Commit(metaAt(1)); !errors.Is(err, cause) {
		t.Errorf("commit when the context has ended: %v", err)
	}
	b = bulkOf(t.Context(), s, 2)
	b.Discard()
	b.Discard()
	if err := b.Commit(metaAt(2)); err == nil {
		t.Error("a bulk that was discarded can be committed")
	}
	nothingBeside(t, mem)
	if have := contents(t, s); len(have) != 0 {
		t.Errorf("%d entries", len(have))
	}
	if _, ok := s.Meta(); ok {
		t.Error("there is a meta")
	}
	for what, key := range map[string][]byte{"reserved": metaKey, "too high": lastKey} {
		b := s.NewBulk(t.Context(), 1<<20)
		b.Set(key, nil)
		if err := b.Commit(metaAt(3)); !b.Full() || err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s key: %v", what, err)
		}
	}
	must(t, errors.Join(s.Close(), d.Close()))
}

// TestBulkFull: as many runs as are merged at once make a bulk full, and so does a disk that has no room for the sstables too.
func TestBulkFull(t *testing.T) {
	d, s := openIn(t, vfs.NewMem())
	b := s.NewBulk(t.Context(), 2)
	n := 0
	for ; !b.Full(); n++ {
		if n > 2*maxRuns {
			t.Fatal("it is never full")
		}
		b.Set(fmt.Appendf([]byte{0, 0, 0, 1}, "%08d", n), []byte("v"))
	}
	must(t, b.Commit(metaAt(1)))
	if have := contents(t, s); len(have) != n {
		t.Errorf("%d entries, want %d", len(have), n)
	}
	must(t, errors.Join(s.Close(), d.Close()))

	small := &smallDisk{FS: vfs.NewMem()}
	small.free.Store(1 << 30)
	d, err := OpenDir("/state", "app", Options{FS: small, MinFreeBytes: 1 << 20})
	must(t, err)
	st, err := d.Open(testID)
	must(t, err)
	s = st.(*Store)
	b = bulkOf(t.Context(), s, 1)
	if b.Full() {
		t.Error("it is full on an empty disk")
	}
	b.Discard()
	small.free.Store(1<<20 + 60_000)
	b = bulkOf(t.Context(), s, 1)
	if !b.Full() {
		t.Error("it is not full though the disk is nearly")
	}
	b.Discard()
	must(t, errors.Join(s.Close(), d.Close()))
}

type smallDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}

// TestBulkDamagedRun: what was written beside the store and is not what is read is not taken.
func TestBulkDamagedRun(t *testing.T) {
	for _, damage := range []string{"flipped", "cut", "longer"} {
		t.Run(damage, func(t *testing.T) {
			mem := vfs.NewMem()
			d, s := openIn(t, mem)
			must(t, errors.Join(commit(s, 1), s.Flush()))
			b := bulkOf(t.Context(), s, 2)
			path := b.(*bulk).runs[0].path
			f, err := mem.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
			must(t, err)
			data := make([]byte, b.(*bulk).runs[0].size)
			_, err = f.ReadAt(data, 0)
			must(t, errors.Join(err, f.Close()))
			switch damage {
			case "flipped":
				data[len(data)-10] ^= 1
			case "cut":
				data = data[:len(data)-10]
			case "longer":
				data = slices.Concat(data, []byte{3, 0, 0xff, 0xff, 0xff})
			}
			f, err = mem.Create(path, vfs.WriteCategoryUnspecified)
			must(t, err)
			_, err = f.Write(data)
			must(t, errors.Join(err, f.Close()))
			if err := b.Commit(statestore.Meta{Epoch: 2}); !errors.Is(err, statestore.ErrCorrupt) {
				t.Errorf("commit: %v", err)
			}
			if epoch, err := verify(s); err != nil || epoch != 1 {
				t.Errorf("epoch %d: %v", epoch, err)
			}
			must(t, errors.Join(s.Close(), d.Close()))
		})
	}
}

// TestMeasureBulk measures how long it takes to bring 2,500,000 entries of 200 bytes, in random order, into an empty
// store, by batches of 8 MiB and in bulk. It is a measurement, run with MILLRACE_MEASURE_GB=1.
func TestMeasureBulk(t *testing.T) {
	if os.Getenv("MILLRACE_MEASURE_GB") == "" {
		t.Skip("MILLRACE_MEASURE_GB is not set")
	}
	const keys = 2_500_000
	for _, way := range []string{"bulk", "batches", "bulk", "batches"} {
		d, err := OpenDir(t.TempDir(), "app", Options{})
		must(t, err)
		st, err := d.Open(testID)
		must(t, err)
		s := st.(*Store)
		r := rand.New(rand.NewPCG(1, 2))
		value := make([]byte, 200)
		began := time.Now()
		bulk := s.NewBulk(t.Context(), 90<<20)
		batch := s.NewBatch()
		for k := range keys {
			for j := 0; j < len(value); j += 8 {
				binary.LittleEndian.PutUint64(value[j:], r.Uint64())
			}
			key := benchKey(uint64(k))
			if way == "bulk" {
				bulk.Set(key, value)
			} else if batch.Set(key, value); batch.Len() > 8<<20 {
				must(t, batch.Commit(metaAt(k)))
				batch = s.NewBatch()
			}
		}
		read := time.Since(began)
		if way == "bulk" {
			must(t, bulk.Commit(metaAt(keys)))
		}
		must(t, batch.Commit(metaAt(keys)))
		must(t, s.Flush())
		m := s.db.Metrics()
		t.Logf("%s: %v, in %v all was given; %d MiB on disk, %d MiB written, compaction debt %d MiB", way, time.Since(began).Round(time.Millisecond),
			read.Round(time.Millisecond), s.Size()>>20, (m.Total().TableBytesCompacted+m.Total().TableBytesFlushed+m.Total().TableBytesIngested)>>20, m.Compact.EstimatedDebt>>20)
		must(t, errors.Join(s.Close(), d.Close()))
	}
}
