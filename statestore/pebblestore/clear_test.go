package pebblestore

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
)

// TestClear: the stores of all incarnations go, what the app keeps beside them only if everything is to go, and what is
// not ours stays.
func TestClear(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if is, err := IsDir(path); is || err != nil {
		t.Fatal(is, err)
	}
	open := func(app string) *Dir {
		t.Helper()
		d, err := OpenDir(path, app, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open("a")
	for inc := uint64(1); inc < 3; inc++ {
		s, err := d.Open(statestore.Identity{App: "a", ClusterID: "c", Incarnation: inc, Subtask: "0_0", Changelogs: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	id, err := d.InstanceID()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(path, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	clear := func(d *Dir, everything bool, want ...string) {
		t.Helper()
		for range 2 {
			if err := d.Clear(everything); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(path)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || !slices.Equal(names, want) {
			t.Fatalf("left are %v, want %v; %v", names, want, err)
		}
	}
	if is, err := IsDir(path); !is || err != nil {
		t.Fatal(is, err)
	}
	clear(d, false, "FORMAT", "INSTANCE", "LOCK", "lost+found")
	d = open("a")
	if again, err := d.InstanceID(); err != nil || again != id {
		t.Fatalf("instance id %q, was %q, %v", again, id, err)
	}
	clear(d, true, "LOCK", "lost+found")
	if is, err := IsDir(path); is || err != nil {
		t.Fatal(is, err)
	}
	if err := open("another").Close(); err != nil {
		t.Fatal(err)
	}
}
