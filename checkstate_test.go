package millrace

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// TestCheckStateFlag asks with --check-state what a program would do, before and after the app's first start.
func TestCheckStateFlag(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "in", "out"), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	windows := func(size time.Duration) func(*processor.Topology) {
		return func(t *processor.Topology) {
			keyed := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "in"})
			processor.ToTopic(processor.Aggregate(keyed.Window(window.Tumbling(size)), "count", processor.Count[int64](),
				func(_ processor.Window[string], n int64) int64 { return n }), "out")
		}
	}
	none := func(t *processor.Topology) {
		processor.ToTopic(processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "in"}), "out")
	}
	check := func(topology func(*processor.Topology), args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		args = append([]string{"--brokers=" + strings.Join(fake.ListenAddrs(), ",")}, args...)
		code = run("counts", topology, args, nil, &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	if code, out, errs := check(windows(time.Minute), "--check-state"); code != exitOK || out != "App counts has no state that this start would go on with: it begins empty.\n" {
		t.Fatalf("before the first start: exit code %d\n%s%s", code, out, errs)
	}

	cfg := configs.Default()
	cfg.Brokers, cfg.State.Store, cfg.Listen, cfg.Log.Level = fake.ListenAddrs(), "memory", configs.ListenOff, "error"
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, "counts", windows(time.Minute), cfg) }()
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	testutil.Eventually(t, 30*time.Second, func() error {
		offsets, err := kadm.NewClient(cl).FetchOffsets(ctx, "counts")
		if err == nil && len(offsets["in"]) < 2 {
			err = fmt.Errorf("%d partitions are claimed", len(offsets["in"]))
		}
		return err
	})
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name     string
		topology func(*processor.Topology)
		args     []string
		code     int
		want     string
	}{
		{"the same program", windows(time.Minute), []string{"--check-state"}, exitOK, "count     windows  kept     -\ninput in  -        kept     -\n"},
		{"spelt out", windows(time.Minute), []string{"--check-state=latest"}, exitOK, "count     windows  kept"},
		{"other windows", windows(time.Hour), []string{"--check-state"}, exitFailed, "count     windows  incompatible  its windows were tumbling 1m0s, and are tumbling 1h0m0s now"},
		{"state removed", none, []string{"--check-state"}, exitFailed, "count     windows  dropped  no operator has it any more"},
		{"state removed and allowed", none, []string{"--check-state", "--allow-dropped-state"}, exitOK, "count     windows  dropped  no operator has it any more; its entries are given up"},
		{"fresh", windows(time.Hour), []string{"--check-state=fresh"}, exitOK, "begins empty"},
		{"a savepoint without a store", none, []string{"--check-state=savepoint:first"}, exitFailed, "set checkpoint.url"},
		{"nonsense", none, []string{"--check-state=nonsense"}, exitUsage, "start.mode"},
	} {
		code, out, errs := check(c.topology, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", c.name, code, c.code, c.want, out, errs)
		}
		if code == exitFailed && !strings.Contains(errs, "cannot take over the state") && !strings.Contains(errs, "set checkpoint.url") {
			t.Errorf("%s: stderr does not say why: %s", c.name, errs)
		}
	}
}
