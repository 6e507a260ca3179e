package blob

import (
	"errors"
	"testing"
)

func TestDirRoundTrip(t *testing.T) {
	s, err := Open(t.Context(), "file://"+t.TempDir()+"/a/b", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "x/y", Bytes([]byte("hello"))); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "x/y")
	if err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := s.Create(t.Context(), "x/y", nil); !errors.Is(err, ErrExists) {
		t.Fatal(err)
	}
}
