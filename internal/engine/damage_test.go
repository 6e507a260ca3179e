package engine_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// damagedDir is a directory whose stores open well and cannot be read, as a disk does with blocks that went bad, until
// they are put aside.
type damagedDir struct {
	statestore.Dir
	damaged atomic.Bool
	aside   atomic.Int64
}

type damagedStore struct {
	statestore.Store
	dir *damagedDir
}

func (d *damagedDir) Open(id statestore.Identity) (statestore.Store, error) {
	s, err := d.Dir.Open(id)
	if err != nil {
		return nil, err
	}
	return &damagedStore{s, d}, nil
}

func (d *damagedDir) Quarantine(id statestore.Identity) (string, error) {
	d.aside.Add(1)
	d.damaged.Store(false)
	return d.Dir.Quarantine(id)
}

func (s *damagedStore) Get(key []byte) ([]byte, bool, error) {
	if s.dir.damaged.Load() {
		return nil, false, fmt.Errorf("%w: block 7", statestore.ErrCorrupt)
	}
	return s.Store.Get(key)
}

func (s *damagedStore) Scan(lo, hi []byte) (statestore.Iterator, error) {
	if s.dir.damaged.Load() {
		return nil, fmt.Errorf("%w: block 7", statestore.ErrCorrupt)
	}
	return s.Store.Scan(lo, hi)
}

// TestDamageFoundLate reads a damaged block of the local store after it was opened: the store is put aside and made
// anew from its changelog, and counts go on.
func TestDamageFoundLate(t *testing.T) {
	c := newCluster(t)
	dir := &damagedDir{Dir: memstore.NewDir("words")}
	one := func(o *engine.Options) { o.Parallelism = 1 }
	a := c.start("words", countWords, dir, one)
	c.send(300, 11)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	dir.damaged.Store(true)
	b := c.start("words", countWords, dir, one)
	c.send(300, 11)
	c.drained("words", "in", "words-by-text-repartition")
	b.stop(t)
	if dir.aside.Load() == 0 || !strings.Contains(b.log.String(), "the local store was put aside") {
		t.Errorf("%d stores were put aside; the log:\n%s", dir.aside.Load(), b.log.String())
	}
	checkCounts(t, c.read("out"), 600, 11)
}
