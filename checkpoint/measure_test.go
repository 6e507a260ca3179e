package checkpoint

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/test/s3"
)

// TestMeasureRestore measures how fast checkpoints of four subtasks come from a local S3 server. It is a measurement, run with
// MILLRACE_MEASURE_GB=1: so many times 5,000,000 keys of 200 bytes, about 1 GB.
func TestMeasureRestore(t *testing.T) {
	gb, err := strconv.ParseFloat(os.Getenv("MILLRACE_MEASURE_GB"), 64)
	if err != nil {
		t.Skip("MILLRACE_MEASURE_GB is not set")
	}
	const subtasks = 4
	keys := int(5_000_000 * gb / subtasks)
	server := s3.Start(t)
	blobs, err := blob.Open(t.Context(), "s3://"+s3.Bucket+"/measure", blob.Options{Endpoint: server.Endpoint(), Region: s3.Region,
		PathStyle: true, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	must(t, err)
	var manifests []*Manifest
	var total int64
	for i := range subtasks {
		d, err := pebblestore.OpenDir(t.TempDir(), testApp, pebblestore.Options{})
		must(t, err)
		id := statestore.Identity{App: testApp, ClusterID: "c", Subtask: "0_" + strconv.Itoa(i), Changelogs: []string{"x"}}
		st, err := d.Open(id)
		must(t, err)
		value := make([]byte, 200)
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for at := 0; at < keys; at += 50_000 {
			b := st.NewBatch()
			for k := at; k < min(at+50_000, keys); k++ {
				for j := 0; j < len(value); j += 8 {
					binary.LittleEndian.PutUint64(value[j:], r.Uint64())
				}
				b.Set(binary.BigEndian.AppendUint64([]byte{0, 0, 0, 7}, uint64(k)*0x9e3779b97f4a7c15), value)
			}
			must(t, b.Commit(statestore.Meta{Epoch: uint64(at + 1), EpochRecord: []byte("r"), Positions: []int64{int64(at)}}))
		}
		must(t, st.Flush())
		snap, err := st.(statestore.Checkpointer).Checkpoint()
		must(t, err)
		p := NewPublisher(Options{Blobs: blobs, Identity: id, WallTime: func([]byte) (int64, error) { return 0, nil }})
		done, err := p.Publish(t.Context(), snap, nil)
		must(t, err)
		must(t, errors.Join(snap.Close(), st.Close(), d.Close()))
		found, err := Find(t.Context(), blobs, id)
		must(t, err)
		manifests = append(manifests, found[0].Manifest)
		total += found[0].Manifest.Bytes()
		t.Logf("subtask %d: %d files, %d MiB; published %+v", i, len(found[0].Manifest.Files), found[0].Manifest.Bytes()>>20, done.Epoch)
	}
	if name := os.Getenv("MILLRACE_MEASURE_PROFILE"); name != "" {
		f, err := os.Create(name)
		must(t, err)
		must(t, pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	}
	for rep, slots := range []int{0, 4, 8, 16, 0, 4, 8, 16} {
		d, err := pebblestore.OpenDir(t.TempDir(), testApp, pebblestore.Options{})
		must(t, err)
		runtime.GC()
		o := RestoreOptions{Parallel: 4}
		if slots > 0 {
			o.Slots = NewSlots(slots)
		}
		began, cpu := time.Now(), cpuTime()
		var wg sync.WaitGroup
		var stores [subtasks]statestore.Store
		var downloaded, opened, read [subtasks]time.Duration
		for i, m := range manifests {
			if i > 0 {
				<-time.After(time.Millisecond)
			}
			wg.Go(func() {
				if err := Restore(t.Context(), blobs, m, d, o); err != nil {
					t.Error(err)
					return
				}
				downloaded[i] = time.Since(began)
				st, err := d.Open(m.Identity())
				if err != nil {
					t.Error(err)
					return
				}
				opened[i] = time.Since(began)
				r := rand.New(rand.NewPCG(2, 3))
				for range 100 {
					_, _, err := st.Get(binary.BigEndian.AppendUint64([]byte{0, 0, 0, 7}, r.Uint64N(uint64(keys))*0x9e3779b97f4a7c15))
					if err != nil {
						t.Error(err)
					}
				}
				read[i] = time.Since(began)
				stores[i] = st
			})
		}
		wg.Wait()
		all := time.Since(began)
		t.Logf("run %d, %d slots: %d MiB in %v, %.0f MiB/s, %v of CPU; downloaded %v, opened %v, read %v", rep, slots, total>>20, all.Round(time.Millisecond),
			float64(total>>20)/all.Seconds(), cpuTime()-cpu, downloaded, opened, read)
		for _, st := range stores {
			must(t, st.Close())
		}
		must(t, d.Close())
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
