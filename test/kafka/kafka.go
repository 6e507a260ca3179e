// Package kafka brings real Apache Kafka brokers to tests: it fetches the jars from Maven's central repository once,
// starts KRaft brokers (broker and controller in one JVM) as child processes on free loopback ports, and stops them.
// It also builds Go programs and runs them as child processes, so that a test can kill them.
//
// A test that needs just any broker takes Shared, which is started once per test binary; one that stops or kills its
// broker, or needs it with other settings, takes its own from Start. A package that uses Shared has
//
//	func TestMain(m *testing.M) { kafka.Main(m) }
//
// What it needs: a Java runtime 17 or newer and, for the first run, Maven. Their absence fails a test; only
// MILLRACE_SKIP_KAFKA=1 turns these tests off, and then each says so.
//
// Environment: MILLRACE_TEST_CACHE is the folder that keeps the jars (default: millrace-test in the user's cache
// folder), MILLRACE_KAFKA_LOG the brokers' log level (default warn).
package kafka

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Versions of Apache Kafka that the tests run on.
const (
	V4 = "4.4.0" // the default
	V3 = "3.9.1" // the last line before 4.0, without transaction.version 2
)

// SkipEnv turns the tests on real brokers off when it is set to 1.
const SkipEnv = "MILLRACE_SKIP_KAFKA"

// Main runs the tests of a package, stops what Shared started, and checks that no goroutine is left. It does not
// return.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if err := stopShared(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, "stop shared broker:", err)
		code = max(code, 1)
	}
	if err := removeBuilds(); err != nil {
		fmt.Fprintln(os.Stderr, "remove built programs:", err)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left at the end of the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// skip ends the test if the user turned brokers off.
func skip(t testing.TB) {
	t.Helper()
	if os.Getenv(SkipEnv) == "1" {
		t.Skipf("NOT TESTED: needs a real Kafka broker and %s=1 is set", SkipEnv)
	}
}
