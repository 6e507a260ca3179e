package memstore_test

import (
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/storetest"
)

type world struct{ *memstore.Disk }

func (w world) Open(app string) (statestore.Dir, error) {
	d, err := w.Disk.Open(app)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (w world) Crash(testing.TB) { w.Disk.Crash() }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.World { return world{memstore.NewDisk()} })
}

// The memory store is exact where Pebble may be early: only what was flushed is there again.
func TestReopenFindsTheLastFlush(t *testing.T) {
	disk := memstore.NewDisk()
	d, err := disk.Open("app")
	if err != nil {
		t.Fatal(err)
	}
	id := statestore.Identity{App: "app", Subtask: "0_0"}
	s, err := d.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range 3 {
		b := s.NewBatch()
		b.Set([]byte{0, 0, 0, 1, 1}, []byte{byte(epoch)})
		if err := b.Commit(statestore.Meta{Epoch: uint64(epoch)}); err != nil {
			t.Fatal(err)
		}
		if epoch == 1 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	disk.Crash()
	if err := s.Flush(); err == nil {
		t.Fatal("a store of before the crash still writes")
	}
	if d, err = disk.Open("app"); err != nil {
		t.Fatal(err)
	}
	if s, err = d.Open(id); err != nil {
		t.Fatal(err)
	}
	v, ok, err := s.Get([]byte{0, 0, 0, 1, 1})
	if m, _ := s.Meta(); m.Epoch != 1 || !ok || err != nil || v[0] != 1 {
		t.Fatalf("epoch %d, value %v %v %v; want epoch 1", m.Epoch, v, ok, err)
	}
}

// A Store without a Dir has all but the Dir.
func TestNew(t *testing.T) {
	s := memstore.New()
	b := s.NewBatch()
	b.Set([]byte{0, 0, 0, 1, 1}, []byte("v"))
	if err := b.Commit(statestore.Meta{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := s.Get([]byte{0, 0, 0, 1, 1}); string(v) != "v" || !ok || err != nil {
		t.Fatal(v, ok, err)
	}
	if s.Size() != 6 {
		t.Fatalf("size %d, want 6 bytes of key and value", s.Size())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// NewDir has a disk of its own, which is locked by it.
func TestNewDir(t *testing.T) {
	d := memstore.NewDir("app")
	s, err := d.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
