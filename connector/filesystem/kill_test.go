package filesystem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/filesystem"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// The environment of a child: where the broker is, and the script.
const brokerEnv, scriptEnv = "FILESYSTEM_TEST_BROKER", "FILESYSTEM_TEST_SCRIPT"

func TestMain(m *testing.M) {
	if broker := os.Getenv(brokerEnv); broker != "" {
		if err := child(broker, os.Getenv(scriptEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // of TestMain
		}
		os.Exit(0) //nolint:forbidigo // of TestMain
	}
	testutil.Main(m)
}

// child is a process that runs a script to its end, or to the failpoint that kills it.
func child(broker, script string) error {
	if err := failpoint.ArmSpec(os.Getenv(failpoint.Env)); err != nil {
		return err
	}
	app, errs := sql.Script("kill.sql", script, sql.Options{Connectors: connector.Registry{"datagen": datagen.New(), "filesystem": filesystem.New(format.RowFormats{"json": format.JSONRows()})}})
	if errs.Err() != nil {
		return errs.Err()
	}
	plan, err := app.Topology.Plan()
	if err != nil {
		return err
	}
	return engine.New(engine.Options{Plan: plan, Dir: memstore.NewDir("kill"), CommitMaxLatency: 20 * time.Millisecond, CommitQuiet: 5 * time.Millisecond,
		Kafka: txn.Options{AppID: "kill", Brokers: []string{broker}, InstanceID: "kill-0", SessionTimeout: 2 * time.Second, HeartbeatInterval: 300 * time.Millisecond}}).Run(context.Background())
}

// TestKilled: a process that ends at once at any step, again and again, leaves each row once.
func TestKilled(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	dir := t.TempDir()
	const n = 1500
	kills := 0
	for i, point := range []string{
		failpoint.AfterPrepare + ":exit@4", failpoint.BeforeFlush + ":exit@5", failpoint.AfterEndTxn + ":exit@6", failpoint.MidFinish + ":exit@5",
		failpoint.MidBegin + ":exit", failpoint.AfterBegin + ":exit", failpoint.AfterEndTxn + ":exit@4", failpoint.MidBegin + ":exit@2", failpoint.BeforeEndTxn + ":exit@5", "",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), brokerEnv+"="+fake.ListenAddrs()[0], scriptEnv+"="+script(dir, n, 1, ", 'sink.rolling-policy.file-size' = '600 b'"), failpoint.Env+"="+point)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil: // the input has ended
		case errors.As(err, &exit) && exit.ExitCode() == 137:
			kills++
			if point == "" {
				t.Fatal("the last process was killed")
			}
		default:
			t.Fatalf("process %d, %s: %v\n%s", i, point, err, bytes.TrimSpace(out))
		}
	}
	got, _ := lines(dir)
	if !slices.Equal(got, want(n)) {
		t.Errorf("%d rows show, want %d", len(got), n)
	}
	if kills < 6 {
		t.Errorf("%d processes were killed", kills)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "part=") && e.Name() != ".millrace" {
			t.Errorf("the folder has %s", e.Name())
		}
	}
}
