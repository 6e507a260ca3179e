package pebblestore

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/statestore"
)

// TestManyStores works on several stores of one Dir at once, with restarts: they share caches and compactions, and
// nothing else.
func TestManyStores(t *testing.T) {
	const stores, restarts, epochs = 6, 3, 20
	mem := vfs.NewMem()
	d, err := OpenDir("/state", "app", Options{FS: mem, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	work := func(id statestore.Identity) error {
		last := uint64(0)
		for range restarts {
			st, err := d.Open(id)
			if err != nil {
				return err
			}
			for range epochs {
				last++
				if err := errors.Join(commit(st, last), st.Flush()); err != nil {
					return err
				}
				// A store looks at its level 0 after a flush, so that each opening may add one.
				if n := st.(*Store).db.Metrics().Levels[0].Sublevels; n > maxL0+restarts {
					return fmt.Errorf("%d sublevels after a flush: compaction does not keep up", n)
				}
			}
			if epoch, err := verify(st); epoch != last || err != nil {
				return fmt.Errorf("epoch %d, want %d: %w", epoch, last, err)
			}
			if err := st.Close(); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			id := testID
			id.Subtask = fmt.Sprintf("0_%d", i)
			if err := work(id); err != nil {
				t.Errorf("store %s: %v", id.Subtask, err)
			}
		})
	}
	wg.Wait()
	if d.compactions.running != 0 || len(d.compactions.waiting) != 0 {
		t.Fatalf("%d compactions run and %d wait in closed stores", d.compactions.running, len(d.compactions.waiting))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
