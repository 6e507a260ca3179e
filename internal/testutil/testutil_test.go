package testutil

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// recorder is a testing.TB that notes a failure instead of ending the test.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func TestEventually(t *testing.T) {
	calls := 0
	Eventually(t, time.Minute, func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
	var r recorder
	Eventually(&r, 20*time.Millisecond, func() error { return errors.New("never so") })
	if want := "still not so after 20ms: never so"; r.failure != want {
		t.Errorf("failure is %q, want %q", r.failure, want)
	}
}

// upper answers each line and counts what it got.
func upper(t *testing.T) (addr string, got *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got = new(atomic.Int64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					got.Add(1)
					_, _ = fmt.Fprintf(c, "got %s\n", lines.Text())
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return ln.Addr().String(), got
}

func TestProxy(t *testing.T) {
	addr, got := upper(t)
	p := NewProxy(t, addr)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, wait time.Duration) (string, error) {
		_ = c.SetDeadline(time.Now().Add(wait))
		if _, err := io.WriteString(c, "a\n"); err != nil {
			return "", err
		}
		return bufio.NewReader(c).ReadString('\n')
	}

	c := dial()
	if answer, err := ask(c, time.Minute); answer != "got a\n" {
		t.Fatalf("answer %q, %v", answer, err)
	}

	p.DropReplies()
	if answer, err := ask(c, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("replies dropped: answer %q, %v; want none", answer, err)
	}
	Eventually(t, time.Minute, func() error {
		if n := got.Load(); n != 2 {
			return fmt.Errorf("the server got %d lines, want 2", n)
		}
		return nil
	})

	p.Cut()
	if answer, err := ask(c, time.Minute); err == nil {
		t.Errorf("cut: answer %q", answer)
	}
	if answer, err := ask(dial(), time.Minute); err == nil {
		t.Errorf("cut: a new connection got the answer %q", answer)
	}

	p.Restore()
	p.Delay(30 * time.Millisecond)
	start := time.Now()
	if answer, err := ask(dial(), time.Minute); answer != "got a\n" {
		t.Errorf("restored: answer %q, %v", answer, err)
	}
	if took := time.Since(start); took < 60*time.Millisecond {
		t.Errorf("delayed by 30ms each way, the answer came after %s", took)
	}
}
