package blob_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
)

func openTest(t testing.TB, url string, o blob.Options) blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), url, o)
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

func TestDir(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		url := "file://" + t.TempDir() + "/made/for this"
		return func() (blob.Store, error) {
			return blob.Open(t.Context(), url, blob.Options{PartSize: 5 << 20})
		}
	})
}

func TestDirLeavesForeignFilesAlone(t *testing.T) {
	root := t.TempDir()
	s := openTest(t, "file://"+root, blob.Options{})
	for _, name := range []string{"lost+found/x", "a b", "ok/.snapshot~", "~", "~x", "~dir/y"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root, filepath.Join(root, "loop")); err != nil {
		t.Fatal(err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("listed %+v, %v", info, err)
	}
	if found, err := s.AbortUploads(t.Context(), "", 0); err != nil || len(found) != 0 {
		t.Errorf("aborted %+v, %v", found, err)
	}
}

// TestDirSaysWhatIsWrong holds the messages as a user reads them.
func TestDirSaysWhatIsWrong(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "store")
	s := openTest(t, "file://"+dir, blob.Options{})
	if err := s.Put(t.Context(), "a/b", blob.Bytes(nil)); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), "a/c")
	says(t, err, `get blob "a/c" in file://`+dir+`: there is no such blob`)
	says(t, s.Create(t.Context(), "a/b", nil), `create blob "a/b" in file://`+dir+`: the blob exists already`)
	says(t, s.Put(t.Context(), "a/b/c", blob.Bytes(nil)), `put blob "a/b/c" in file://`+dir+`: mkdir `+dir+`/a/b: not a directory; a file and a folder have the same name: remove what Millrace did not write`)
	b := blob.Bytes([]byte("hello"))
	b.SHA256[0] ^= 1
	err = s.Put(t.Context(), "x", b)
	if !errors.Is(err, blob.ErrCorrupt) {
		t.Error(err)
	}
	says(t, err, `put blob "x" in file://`+dir+`: SHA-256 is 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824, not 2df24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824: contents do not match their checksum`)
	// A disk that is gone is no empty one.
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	says(t, s.Put(t.Context(), "x", blob.Bytes(nil)), `put blob "x" in file://`+dir+`: stat `+dir+`: no such file or directory`)
	for _, err := range s.List(t.Context(), "") {
		says(t, err, `list file://`+dir+`: stat `+dir+`: no such file or directory`)
	}
	if err := os.WriteFile(dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = blob.Open(t.Context(), "file://"+dir, blob.Options{})
	says(t, err, `open file://`+dir+`: mkdir `+dir+`: not a directory; a file and a folder have the same name: remove what Millrace did not write`)
}
