package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/test/s3"
)

// servers are the fake and the real one; each call of open gets another prefix.
func servers(t *testing.T, test func(t *testing.T, open func(t *testing.T, change func(*blob.Options)) blob.Store)) {
	t.Run("fake", func(t *testing.T) {
		f := blobtest.NewFake(t)
		test(t, func(t *testing.T, change func(*blob.Options)) blob.Store {
			o := f.Options()
			change(&o)
			return openTest(t, f.URL(prefixOf(t)), o)
		})
	})
	t.Run("real", func(t *testing.T) {
		server := s3.Start(t)
		test(t, func(t *testing.T, change func(*blob.Options)) blob.Store {
			o := realOptions(server)
			change(&o)
			return openTest(t, "s3://"+s3.Bucket+"/"+prefixOf(t), o)
		})
	})
}

// prefixOf a test is its name.
func prefixOf(t *testing.T) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
}

// faulty is a change of options that puts faults before the server.
func faulty(t *testing.T, decide func(int, *http.Request) blobtest.Fault) func(*blob.Options) {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return func(o *blob.Options) { o.Transport = &blobtest.Faults{Base: tr, Decide: decide} }
}

func plain(*blob.Options) {}

var (
	small = []byte("a manifest of writer 7")
	big   = blobtest.Random(9, 5<<20+1000) // two parts
)

// calls are all that a store does, each with what must hold before and after it.
var calls = []struct {
	name   string
	before func(ctx context.Context, s blob.Store) error
	call   func(ctx context.Context, s blob.Store) error
	after  func(ctx context.Context, s blob.Store) error
}{
	{"put", nil, func(ctx context.Context, s blob.Store) error { return s.Put(ctx, "small", blob.Bytes(small)) }, holds("small", small)},
	{"put large", nil, func(ctx context.Context, s blob.Store) error { return s.Put(ctx, "big", blob.Bytes(big)) }, holds("big", big)},
	{"create", nil, func(ctx context.Context, s blob.Store) error { return s.Create(ctx, "m", small) }, holds("m", small)},
	{"create where one is", func(ctx context.Context, s blob.Store) error { return s.Create(ctx, "m", big[:100]) },
		func(ctx context.Context, s blob.Store) error {
			if err := s.Create(ctx, "m", small); !errors.Is(err, blob.ErrExists) {
				return fmt.Errorf("got %w, want ErrExists", err)
			}
			return nil
		}, holds("m", big[:100])},
	{"get", putSmall, holds("small", small), nil},
	{"open", func(ctx context.Context, s blob.Store) error { return s.Put(ctx, "big", blob.Bytes(big)) }, func(ctx context.Context, s blob.Store) error {
		r, err := s.Open(ctx, "big", 1000)
		if err != nil {
			return err
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, big[1000:]) {
			err = fmt.Errorf("read %d bytes, not the same", len(got))
		}
		return err
	}, nil},
	{"stat", putSmall, func(ctx context.Context, s blob.Store) error {
		info, err := s.Stat(ctx, "small")
		if err == nil && info.Size != int64(len(small)) {
			err = fmt.Errorf("size %d", info.Size)
		}
		return err
	}, nil},
	{"list", putSmall, func(ctx context.Context, s blob.Store) error {
		n := 0
		for _, err := range s.List(ctx, "") {
			if err != nil {
				return err
			}
			n++
		}
		if n != 1 {
			return fmt.Errorf("listed %d", n)
		}
		return nil
	}, nil},
	{"delete", putSmall, func(ctx context.Context, s blob.Store) error { return s.Delete(ctx, "small", "absent") }, func(ctx context.Context, s blob.Store) error {
		if _, err := s.Stat(ctx, "small"); !errors.Is(err, blob.ErrNotFound) {
			return fmt.Errorf("after deleting: %w", err)
		}
		return nil
	}},
	{"uploads", nil, func(ctx context.Context, s blob.Store) error { _, err := s.Uploads(ctx, "", 0); return err }, nil},
}

func putSmall(ctx context.Context, s blob.Store) error {
	return s.Put(ctx, "small", blob.Bytes(small))
}

func holds(key string, want []byte) func(context.Context, blob.Store) error {
	return func(ctx context.Context, s blob.Store) error {
		got, err := s.Get(ctx, key)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%s holds %d other bytes", key, len(got))
		}
		return err
	}
}

// TestFaultsThatPass: two faults in a row cost nothing but time.
func TestFaultsThatPass(t *testing.T) {
	servers(t, func(t *testing.T, open func(*testing.T, func(*blob.Options)) blob.Store) {
		for name, fault := range map[string]blobtest.Fault{"slow down": blobtest.SlowDown, "refuse": blobtest.Refuse, "torn body": blobtest.TornBody,
			"lost reply": blobtest.LostReply, "cut reply": blobtest.CutReply, "hang": blobtest.Hang, "hanging reply": blobtest.HangReply} {
			for _, c := range calls {
				t.Run(name+"/"+c.name, func(t *testing.T) {
					good := open(t, plain)
					bad := open(t, func(o *blob.Options) {
						faulty(t, blobtest.First(2, fault, "", ""))(o)
						if fault == blobtest.Hang || fault == blobtest.HangReply {
							o.Timeout = 100 * time.Millisecond
						}
					})
					for _, step := range []struct {
						s  blob.Store
						do func(context.Context, blob.Store) error
					}{{good, c.before}, {bad, c.call}, {good, c.after}} {
						if step.do != nil {
							if err := step.do(t.Context(), step.s); err != nil {
								t.Fatal(err)
							}
						}
					}
				})
			}
		}
	})
}

// TestFaultsThatStay: a call ends with an error that says that it may be tried again, and leaves whole blobs or none.
func TestFaultsThatStay(t *testing.T) {
	servers(t, func(t *testing.T, open func(*testing.T, func(*blob.Options)) blob.Store) {
		for name, fault := range map[string]blobtest.Fault{"slow down": blobtest.SlowDown, "refuse": blobtest.Refuse, "lost reply": blobtest.LostReply, "hang": blobtest.Hang} {
			for _, c := range calls {
				t.Run(name+"/"+c.name, func(t *testing.T) {
					good := open(t, plain)
					bad := open(t, func(o *blob.Options) {
						faulty(t, blobtest.Always(fault))(o)
						o.Retries = 2
						if fault == blobtest.Hang {
							o.Timeout = 20 * time.Millisecond
						}
					})
					if c.before != nil {
						if err := c.before(t.Context(), good); err != nil {
							t.Fatal(err)
						}
					}
					err := c.call(t.Context(), bad)
					if !blob.IsRetryable(err) || blob.IsDenied(err) || errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrExists) {
						t.Errorf("not retryable: %v", err)
					}
					whole(t, good)
				})
			}
		}
	})
}

// whole checks that whatever blobs there are have the contents that they should have.
func whole(t *testing.T, s blob.Store) {
	t.Helper()
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc([][]byte{small, big, big[:100]}, func(b []byte) bool { return bytes.Equal(b, got) }) {
			t.Errorf("%s is torn: %d bytes", info.Key, len(got))
		}
	}
}

// TestEachRequestFails: one after the other, each request of a series of calls fails, with and without retries.
func TestEachRequestFails(t *testing.T) {
	series := func(ctx context.Context, s blob.Store) error {
		for _, c := range calls[:3] {
			if err := cmpOr(func() error { return c.call(ctx, s) }, func() error { return c.after(ctx, s) }); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		for _, err := range s.List(ctx, "") {
			if err != nil {
				return err
			}
		}
		return s.Delete(ctx, "small", "big")
	}
	f := blobtest.NewFake(t)
	faults := map[string]blobtest.Fault{"slow down": blobtest.SlowDown, "refuse": blobtest.Refuse, "torn body": blobtest.TornBody,
		"lost reply": blobtest.LostReply, "cut reply": blobtest.CutReply}
	if testing.Short() {
		faults = map[string]blobtest.Fault{"lost reply": blobtest.LostReply}
	}
	for name, fault := range faults {
		for _, retries := range []int{-1, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, retries), func(t *testing.T) {
				reached := true
				for i := 1; reached; i++ {
					reached = false
					o := f.Options()
					o.Retries = retries
					faulty(t, func(n int, _ *http.Request) blobtest.Fault {
						if n != i {
							return blobtest.None
						}
						reached = true
						return fault
					})(&o)
					url := f.URL(fmt.Sprintf("%s/%d", prefixOf(t), i))
					good := openTest(t, url, f.Options())
					err := series(t.Context(), openTest(t, url, o))
					switch {
					case err != nil && retries > 0:
						t.Errorf("request %d: %v", i, err)
					case err != nil && !blob.IsRetryable(err):
						t.Errorf("request %d: not retryable: %v", i, err)
					}
					whole(t, good)
					// The caller's own retry ends well, whatever was done before.
					if err != nil {
						if err := good.Delete(t.Context(), "m"); err != nil {
							t.Fatal(err)
						}
						if err := series(t.Context(), good); err != nil {
							t.Errorf("after request %d failed: %v", i, err)
						}
					}
					if _, err := good.AbortUploads(t.Context(), "", 0); err != nil {
						t.Fatal(err)
					}
					if !reached && i <= 8 {
						t.Errorf("the series has %d requests only", i-1)
					}
				}
			})
		}
	}
}

func cmpOr(fns ...func() error) error {
	for _, fn := range fns {
		if err := fn(); err != nil {
			return err
		}
	}
	return nil
}

// TestCreateWhoseAnswersAreLost: the server creates it at the first request; no answer ever arrives.
func TestCreateWhoseAnswersAreLost(t *testing.T) {
	servers(t, func(t *testing.T, open func(*testing.T, func(*blob.Options)) blob.Store) {
		lostPuts := func(_ int, r *http.Request) blobtest.Fault {
			if r.Method == http.MethodPut {
				return blobtest.LostReply
			}
			return blobtest.None
		}
		t.Run("it can be read back", func(t *testing.T) {
			s := open(t, func(o *blob.Options) { faulty(t, lostPuts)(o); o.Retries = 2 })
			if err := s.Create(t.Context(), "m", small); err != nil {
				t.Error(err)
			}
		})
		t.Run("it can be read back although no request was repeated", func(t *testing.T) {
			s := open(t, func(o *blob.Options) { faulty(t, lostPuts)(o); o.Retries = -1 })
			if err := s.Create(t.Context(), "m", small); err != nil {
				t.Error(err)
			}
		})
		t.Run("it was there before", func(t *testing.T) {
			if err := open(t, plain).Create(t.Context(), "m", []byte("of another")); err != nil {
				t.Fatal(err)
			}
			s := open(t, func(o *blob.Options) { faulty(t, lostPuts)(o); o.Retries = 2 })
			err := s.Create(t.Context(), "m", small)
			var e *blob.Error
			if !errors.Is(err, blob.ErrExists) || !errors.As(err, &e) || e.Unknown {
				t.Error(err)
			}
		})
		t.Run("it cannot be read back", func(t *testing.T) {
			s := open(t, func(o *blob.Options) { faulty(t, blobtest.Always(blobtest.LostReply))(o); o.Retries = 2 })
			err := s.Create(t.Context(), "m", small)
			var e *blob.Error
			if !errors.As(err, &e) || !e.Unknown || !blob.IsRetryable(err) {
				t.Error(err)
			}
			if err := holds("m", small)(t.Context(), open(t, plain)); err != nil {
				t.Error(err)
			}
		})
		t.Run("another was faster", func(t *testing.T) {
			other := open(t, plain)
			var once sync.Once
			s := open(t, faulty(t, func(_ int, r *http.Request) (f blobtest.Fault) {
				once.Do(func() {
					if err := other.Create(t.Context(), "m", []byte("of another")); err != nil {
						t.Error(err)
					}
					f = blobtest.Refuse
				})
				return f
			}))
			if err := s.Create(t.Context(), "m", small); !errors.Is(err, blob.ErrExists) {
				t.Error(err)
			}
		})
		t.Run("the caller stops waiting", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := open(t, faulty(t, func(int, *http.Request) blobtest.Fault { cancel(); return blobtest.Hang }))
			err := s.Create(ctx, "m", small)
			var e *blob.Error
			if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || !e.Unknown || blob.IsRetryable(err) {
				t.Error(err)
			}
		})
	})
}

// TestLostAnswersOfUploads: at each step of a multipart upload.
func TestLostAnswersOfUploads(t *testing.T) {
	servers(t, func(t *testing.T, open func(*testing.T, func(*blob.Options)) blob.Store) {
		for _, step := range []struct {
			name, method, query string
			orphans             int
		}{{"begin", "POST", "uploads", 1}, {"part", "PUT", "partNumber=2", 0}, {"complete", "POST", "uploadId", 0}} {
			t.Run(step.name, func(t *testing.T) {
				s := open(t, faulty(t, blobtest.First(1, blobtest.LostReply, step.method, step.query)))
				if err := s.Put(t.Context(), "big", blob.Bytes(big)); err != nil {
					t.Fatal(err)
				}
				if err := holds("big", big)(t.Context(), s); err != nil {
					t.Error(err)
				}
				// An upload whose beginning was not heard of is nobody's: the clean-up finds it.
				aborted, err := s.AbortUploads(t.Context(), "", 0)
				if err != nil || len(aborted) != step.orphans {
					t.Errorf("aborted %+v, %v, want %d", aborted, err, step.orphans)
				}
				if err := holds("big", big)(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestReadersGoOn: every connection breaks after half of what is left.
func TestReadersGoOn(t *testing.T) {
	servers(t, func(t *testing.T, open func(*testing.T, func(*blob.Options)) blob.Store) {
		if err := open(t, plain).Put(t.Context(), "big", blob.Bytes(big)); err != nil {
			t.Fatal(err)
		}
		b := blob.Bytes(big)
		s := open(t, faulty(t, blobtest.First(15, blobtest.CutReply, "GET", "")))
		r, err := s.Open(t.Context(), "big", 0)
		if err != nil {
			t.Fatal(err)
		}
		v := blob.Verify(r, b.Size, b.SHA256)
		if n, err := io.Copy(io.Discard, v); err != nil || n != b.Size {
			t.Errorf("read %d, %v", n, err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Error("a closed reader reads")
		}
	})
}

// TestServerKilledInAnUpload: parts that were acknowledged outlive a kill -9, and the upload ends well.
func TestServerKilledInAnUpload(t *testing.T) {
	server := s3.Start(t)
	o := realOptions(server)
	o.Backoff = 50 * time.Millisecond
	var once sync.Once
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	o.Transport = &blobtest.Faults{Base: tr, Decide: func(_ int, r *http.Request) blobtest.Fault {
		if strings.Contains(r.URL.RawQuery, "partNumber=2") {
			once.Do(func() { server.Kill(t); server.Restart(t) })
		}
		return blobtest.None
	}}
	s := openTest(t, "s3://"+s3.Bucket+"/killed", o)
	if err := s.Put(t.Context(), "big", blob.Bytes(big)); err != nil {
		t.Fatal(err)
	}
	if err := holds("big", big)(t.Context(), s); err != nil {
		t.Error(err)
	}
}
