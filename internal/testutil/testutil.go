// Package testutil has what tests of several packages share: waiting for a condition, a log, the goroutine-leak check and a
// proxy that makes network faults.
package testutil

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests and fails if goroutines are left at the end:
//
//	func TestMain(m *testing.M) { testutil.Main(m) }
func Main(m *testing.M, options ...goleak.Option) { goleak.VerifyTestMain(m, options...) }

// pollInterval is how often Eventually looks.
const pollInterval = 5 * time.Millisecond

// Eventually calls cond until it returns nil. The test fails with cond's last error when that has not happened within
// timeout; choose it long, since only a failing test waits for it.
func Eventually(t testing.TB, timeout time.Duration, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %s: %v", timeout, err)
			return
		}
		time.Sleep(pollInterval)
	}
}
