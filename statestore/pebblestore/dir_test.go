package pebblestore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/statestore"
)

// TestOpenDirRefuses: what can be wrong with a state directory, and what the error says.
func TestOpenDirRefuses(t *testing.T) {
	write := func(name, data string) func(string) error {
		return func(dir string) error {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644)
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(dir string) error
		is      error
		says    []string
	}{
		{"newer format", write("FORMAT", `{"format":2,"app":"app"}`), statestore.ErrFormat, []string{"format 2", "up to 1", "newer version"}},
		{"other app", write("FORMAT", `{"format":1,"app":"billing"}`), statestore.ErrForeign, []string{`"billing"`, `"app"`, "state.dir"}},
		{"garbage", write("FORMAT", "\x00\x00"), statestore.ErrCorrupt, []string{"FORMAT", "empty the directory"}},
		{"empty format file", write("FORMAT", ""), statestore.ErrCorrupt, []string{"FORMAT"}},
		{"no app", write("FORMAT", `{"format":1}`), statestore.ErrCorrupt, []string{"FORMAT"}},
		{"somebody's files", write("thesis.txt", "text"), statestore.ErrForeign, []string{"thesis.txt", "empty directory"}},
		{"state without a format file", write("1/0_0/CURRENT", ""), statestore.ErrForeign, []string{"holds 1;"}},
		{"a file", func(dir string) error { return os.WriteFile(dir, nil, 0o644) }, nil, []string{"make state directory", "not a directory"}},
		{"a lock that is a folder", func(dir string) error { return os.MkdirAll(dir+"/LOCK", 0o755) }, nil, []string{"lock state directory", "is a directory"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := test.prepare(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time too: no lock is left behind
				_, err := OpenDir(dir, "app", Options{})
				if err == nil || test.is != nil && !errors.Is(err, test.is) || test.is == nil && errors.Is(err, statestore.ErrLocked) {
					t.Fatalf("error %v, want %v", err, test.is)
				}
				for _, s := range append(test.says, dir) {
					if !strings.Contains(err.Error(), s) {
						t.Fatalf("error %q does not say %q", err, s)
					}
				}
			}
		})
	}
	if _, err := OpenDir("", "app", Options{}); err == nil {
		t.Fatal("no path")
	}
	if _, err := OpenDir(t.TempDir(), "", Options{}); err == nil {
		t.Fatal("no app")
	}
}

// TestOpenDirTakes: leftovers of a crash at the first start, and what a fresh volume holds.
func TestOpenDirTakes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LOCK", "FORMAT.tmp", ".snapshot"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(dir, "app", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestInstanceIDDamaged(t *testing.T) {
	for _, data := range []string{"", "\n", "a b", "x/y", strings.Repeat("a", 250), "\x00\x00\x00"} {
		dir := t.TempDir()
		d, err := OpenDir(dir, "app", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "INSTANCE"), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := d.InstanceID(); !errors.Is(err, statestore.ErrCorrupt) || !strings.Contains(err.Error(), "remove the file") {
			t.Fatalf("%q: %v", data, err)
		}
		// An id set by hand is fine.
		if err := os.WriteFile(filepath.Join(dir, "INSTANCE"), []byte("orders-0"), 0o644); err != nil {
			t.Fatal(err)
		}
		if id, err := d.InstanceID(); id != "orders-0" || err != nil {
			t.Fatal(id, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

const lockVar = "PEBBLESTORE_TEST_LOCK"

// TestLockedByAnotherProcess starts this test again as the process that holds the directory, then kills it.
func TestLockedByAnotherProcess(t *testing.T) {
	if dir := os.Getenv(lockVar); dir != "" {
		d, err := OpenDir(dir, "app", Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		s, err := d.Open(testID)
		if err != nil {
			fmt.Println(err)
			return
		}
		for epoch := uint64(1); epoch <= 3; epoch++ {
			if err := errors.Join(commit(s, epoch), s.Flush()); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println("holding")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone or kills us
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockedByAnotherProcess$")
	cmd.Env = append(os.Environ(), lockVar+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "holding\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	_, err = OpenDir(dir, "app", Options{})
	if !errors.Is(err, statestore.ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "stop the other process") {
		t.Fatalf("error %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	_ = in.Close()
	// A killed process leaves neither lock nor damage.
	d, err := OpenDir(dir, "app", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	if epoch, err := verify(s); epoch != 3 || err != nil {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// sample makes a store of some epochs in several levels and returns the file system that holds it.
func sample(t testing.TB) (*vfs.MemFS, []string) {
	t.Helper()
	mem := vfs.NewMem()
	d, err := OpenDir("/state", "app", Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := uint64(1); epoch <= 5; epoch++ {
		if err := errors.Join(commit(s, epoch), s.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := mem.List("/state/0/0_0")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return mem, files
}

// damaged opens and reads a store after something was done to its files: it is whole (at an epoch that was flushed),
// or the error is ErrCorrupt; after a wipe it can be used again.
func damaged(t testing.TB, what string, mem *vfs.MemFS) (whole bool) {
	t.Helper()
	d, err := OpenDir("/state", "app", Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err == nil {
		var epoch uint64
		epoch, err = verify(s)
		whole = err == nil
		for i := range testKeys { // point reads tell the same story
			_, _, gerr := s.Get(fmt.Appendf([]byte{0, 0, 0, 1}, "%03d", i))
			if gerr != nil && !errors.Is(gerr, statestore.ErrCorrupt) {
				t.Fatalf("%s: get: %v", what, gerr)
			}
		}
		if !whole && strings.Contains(err.Error(), "in epoch") {
			t.Fatalf("%s: silently wrong: %v", what, err)
		}
		if !whole { // writing on is refused
			if err := errors.Join(commit(s, epoch+1), s.Flush()); err != nil && !errors.Is(err, statestore.ErrCorrupt) {
				t.Fatalf("%s: write: %v", what, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatalf("%s: close: %v", what, err)
		}
	}
	if err != nil {
		if !errors.Is(err, statestore.ErrCorrupt) || !strings.Contains(err.Error(), "wipe it") {
			t.Fatalf("%s: error %v is not ErrCorrupt with the remedy", what, err)
		}
	}
	if err := d.Wipe(testID); err != nil {
		t.Fatalf("%s: wipe: %v", what, err)
	}
	if s, err = d.Open(testID); err != nil {
		t.Fatalf("%s: open after the wipe: %v", what, err)
	}
	if _, ok := s.Meta(); ok {
		t.Fatalf("%s: meta after the wipe", what)
	}
	if err := errors.Join(commit(s, 1), s.Flush(), s.Close(), d.Close()); err != nil {
		t.Fatalf("%s: work after the wipe: %v", what, err)
	}
	return whole
}

// rewrite replaces the content of a file.
func rewrite(t testing.TB, fs vfs.FS, path string, change func([]byte) []byte) {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	data = change(slices.Clone(data))
	if f, err = fs.Create(path, vfs.WriteCategoryUnspecified); err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedFiles removes, empties, cuts and flips each file of a store.
func TestDamagedFiles(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	_, files := sample(t)
	found := 0
	try := func(name, what string, do func(fs vfs.FS, path string)) {
		mem, now := sample(t)
		if !slices.Contains(now, name) { // compaction chose other file numbers this time
			return
		}
		do(mem, "/state/0/0_0/"+name)
		if !damaged(t, name+" "+what, mem) {
			found++
		}
	}
	for _, name := range files {
		if name == "LOCK" {
			continue
		}
		try(name, "removed", func(fs vfs.FS, path string) {
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
		try(name, "emptied", func(fs vfs.FS, path string) {
			rewrite(t, fs, path, func([]byte) []byte { return nil })
		})
		for range 5 {
			try(name, "cut", func(fs vfs.FS, path string) {
				rewrite(t, fs, path, func(b []byte) []byte { return b[:r.IntN(len(b)+1)] })
			})
		}
		for range 12 {
			try(name, "flipped", func(fs vfs.FS, path string) {
				rewrite(t, fs, path, func(b []byte) []byte {
					if len(b) > 0 {
						b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
					}
					return b
				})
			})
		}
	}
	if found < 20 {
		t.Fatalf("only %d damages were noticed", found)
	}
}

// TestMissingFileOnDisk: the real file system has its own error for it.
func TestMissingFileOnDisk(t *testing.T) {
	for _, pattern := range []string{"*.sst", "MANIFEST-*"} {
		dir := t.TempDir()
		d, err := OpenDir(dir, "app", Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Open(testID)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(commit(s, 1), s.Flush(), s.Close()); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "0", "0_0", pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Open(testID); !errors.Is(err, statestore.ErrCorrupt) {
			t.Fatalf("without %s: %v", pattern, err)
		}
		if err := d.Wipe(testID); err != nil {
			t.Fatal(err)
		}
		if s, err = d.Open(testID); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreOfAnotherLife says what to do with a store whose changelogs were made anew, as after a reset by hand.
func TestStoreOfAnotherLife(t *testing.T) {
	d, err := OpenDir("state", "app", Options{FS: vfs.NewMem(), MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	id := statestore.Identity{App: "app", ClusterID: "c", Incarnation: 1, Subtask: "0_0", Changelogs: []string{"old"}}
	s, err := d.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	if err := errors.Join(b.Commit(statestore.Meta{}), s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	id.Changelogs = []string{"new"}
	_, err = d.Open(id)
	if !errors.Is(err, statestore.ErrForeign) || !strings.Contains(err.Error(), "empty the state directory") {
		t.Errorf("got %v, want what to do", err)
	}
}
