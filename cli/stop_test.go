package cli

import (
	"strings"
	"testing"
	"time"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/txn"
)

func TestDefaultNamesOfSavepointsAreNames(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC)
	for app, want := range map[string]string{"order-counts": "order-counts-20260301-120005", "..a": "a-20260301-120005", strings.Repeat("a", 200): strings.Repeat("a", 84) + "-20260301-120005"} {
		if got := library.SavepointName(app, at); got != want || checkpoint.CheckName(got) != nil {
			t.Errorf("app %s: %q, %v", app, got, checkpoint.CheckName(got))
		}
	}
}

// editControl changes what the members of an app agree upon, and makes the app if it is not there.
func editControl(t *testing.T, brokers []string, app string, edit func(*txn.ControlState)) {
	t.Helper()
	c, err := txn.Connect(t.Context(), txn.Options{AppID: app, Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	control, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if _, err = control.Update(t.Context(), func(s txn.ControlState) (txn.ControlState, error) {
		edit(&s)
		return s, nil
	}); err != nil {
		t.Fatal(err)
	}
}

func readControl(t *testing.T, brokers []string, app string) txn.ControlState {
	t.Helper()
	c, err := txn.Connect(t.Context(), txn.Options{AppID: app, Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.ReadControl(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStopAndResumeAnAppWithoutMembers(t *testing.T) {
	brokers, folder := fakeKafka(t), t.TempDir()
	call := func(app string, args ...string) (int, string, string) {
		t.Helper()
		return millrace(t, nil, append(args, "--app.id="+app, "--brokers="+strings.Join(brokers, ","), "--checkpoint.url=file://"+folder)...)
	}
	for _, args := range []string{"stop", "stop --savepoint", "resume", "savepoint create"} {
		if code, _, stderr := call("typo", strings.Fields(args)...); code != exitFailed || !strings.Contains(stderr, "was the app started?") {
			t.Errorf("%s of an app that never ran: code %d, %s", args, code, stderr)
		}
	}
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "typo", Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if topics, err := c.AllTopics(t.Context()); err != nil || topics["typo-control"].Partitions != 0 {
		t.Errorf("a mistyped app got a control topic: %v, %v", topics, err)
	}

	editControl(t, brokers, "orders", func(s *txn.ControlState) { s.Incarnation, s.Parallelism, s.ClusterID = 1, []int{2}, "c" })
	for _, args := range []string{"savepoint create", "savepoint create one", "stop --savepoint=one"} {
		code, stdout, stderr := call("orders", strings.Fields(args)...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "no member of the app runs") {
			t.Errorf("%s without members: code %d, %s%s", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := call("orders", "savepoint", "list"); code != exitOK || !strings.HasPrefix(stdout, "0 savepoints of app orders") {
		t.Errorf("what could not begin left something: code %d, %s", code, stdout)
	}
	for args, says := range map[string]string{
		"savepoint create a b":            "2 arguments, wanted is at most one",
		"savepoint create .a":             "want 1 to 100 of letters",
		"stop --savepoint=a/b":            "want 1 to 100 of letters",
		"stop --savepoint --timeout=0s":   "read --timeout 0s: more than 0 is wanted",
		"stop now":                        `unexpected argument "now"`,
		"savepoint create --timeout=-1ms": "more than 0 is wanted",
	} {
		if code, _, stderr := call("orders", strings.Fields(args)...); code != exitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%s: code %d, %s", args, code, stderr)
		}
	}
	code, stdout, stderr := call("orders", "resume")
	if code != exitOK || stdout != "App orders is not stopped.\n" {
		t.Errorf("resume what was not stopped: code %d, %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = call("orders", "stop")
	if code != exitOK || !strings.HasPrefix(stdout, "App orders is stopped.\n") || readControl(t, brokers, "orders").Stopped == nil {
		t.Errorf("stop: code %d, %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = call("orders", "stop", "-o", "json")
	if code != exitOK || !strings.Contains(stdout, `"already": true`) {
		t.Errorf("stop again: code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr = call("orders", "stop", "--savepoint"); code != exitFailed || !strings.Contains(stderr, "the app is stopped") {
		t.Errorf("stop again with a savepoint: code %d, %s", code, stderr)
	}
	code, stdout, stderr = call("orders", "resume")
	if code != exitOK || !strings.HasPrefix(stdout, "App orders goes on. It was stopped at 20") || readControl(t, brokers, "orders").Stopped != nil {
		t.Errorf("resume: code %d, %s%s", code, stdout, stderr)
	}
}
