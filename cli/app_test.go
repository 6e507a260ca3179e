package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/txn"
)

func TestRemovalTexts(t *testing.T) {
	full := func() *engine.Remains {
		return &engine.Remains{
			App: "order-counts", ClusterID: "cluster-1", State: txn.ControlState{Incarnation: 2}, Control: txn.TopicInfo{Name: "order-counts-control", Partitions: 1},
			Group:      "Empty",
			Topics:     []engine.OwnTopic{{Name: "order-counts-0-changelog", Partitions: 8}, {Name: "order-counts-i2-0-changelog", Partitions: 8}},
			Unclear:    []engine.Unclear{{Name: "order-counts-eu-x-repartition", Why: "it may be one of app order-counts-eu, too"}},
			DeadLetter: &engine.OwnTopic{Name: "order-counts-dead-letter", Partitions: 1}, Letters: 12,
			Subtasks: make([]record.SubtaskID, 8), External: []string{"order-counts-out", "orders"},
			Store: "s3://bucket/prefix", Checkpoints: map[uint64]checkpoint.Usage{1: {Blobs: 20, Bytes: 3 << 30}, 2: {Blobs: 9, Bytes: 1 << 29}},
			Savepoints: []checkpoint.Listed{{Name: "before-v2", Usage: checkpoint.Usage{Blobs: 4, Bytes: 9 << 20}}},
		}
	}
	text := func(name string, r *engine.Remains, opts engine.RemoveOptions, state *pebblestore.Dir) {
		t.Helper()
		call := &appCall{app: r.App}
		call.config.State.Dir = "/var/lib/order-counts"
		rm := removal{call: call, remains: r, opts: opts, state: state, timeout: 6 * time.Second}
		var sb strings.Builder
		if err := rm.write(&sb); err != nil {
			t.Fatal(err)
		}
		if name == "app-delete-all" {
			sb.WriteByte('\n')
			if err := (&appCall{out: &sb}).writeJSON(rm.plan()); err != nil {
				t.Fatal(err)
			}
		}
		golden(t, name, sb.String())
	}
	text("app-reset", full(), engine.RemoveOptions{}, nil)
	text("app-delete", full(), engine.RemoveOptions{Delete: true}, nil)
	text("app-delete-all", full(), engine.RemoveOptions{Delete: true, DeadLetters: true, Savepoints: true}, &pebblestore.Dir{})
	r := full()
	r.State.Stopped = &txn.Stopped{At: noon.UnixMilli(), By: "ann@host-1 (millrace app reset)", Removal: true}
	r.Members = []txn.GroupMember{{ID: "m-1", InstanceID: "order-counts-1", ClientID: "millrace-order-counts", Host: "/10.0.0.5"}, {ID: "m-2", ClientID: "c", Host: "host-2"}}
	r.Checkpoints, r.Savepoints, r.Store, r.Unclear = nil, nil, "", nil
	text("app-reset-again", r, engine.RemoveOptions{}, nil)
	text("app-reset-nothing", &engine.Remains{App: "order-counts", ClusterID: "cluster-1", State: txn.ControlState{Incarnation: 3}, Control: r.Control}, engine.RemoveOptions{}, nil)
	text("app-delete-nothing", &engine.Remains{App: "order-counts", ClusterID: "cluster-1", Store: "file:///checkpoints"}, engine.RemoveOptions{Delete: true}, nil)
}

// left is what of two apps is on the brokers and in object storage.
func left(t *testing.T, brokers []string, folder string) []string {
	t.Helper()
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "x", Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topics, err := c.AllTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(maps.Keys(topics))
	if err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, folder+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// abandoned makes what two apps leave, orders in incarnation 2 and orders-eu, and a zombie that holds a transaction of orders
// open. It returns what must be there when orders is reset.
func abandoned(t *testing.T, brokers []string, folder string) (kept []string) {
	t.Helper()
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "orders", Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ours := []string{"orders-0-changelog", "orders-by-user-repartition", "orders-i2-0-changelog", "orders-i2-1-changelog", "orders-i2-by-user-repartition"}
	theirs := []string{"orders-eu-0-changelog", "orders-eu-by-user-repartition", "orders-eu-dead-letter"}
	others := []string{"in", "out", "orders-dead-letter"}
	var specs []txn.TopicSpec
	for _, n := range slices.Concat(ours, theirs, others) {
		specs = append(specs, txn.TopicSpec{Name: n, Partitions: 2, ReplicationFactor: 1})
	}
	infos, err := c.EnsureTopics(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(names ...string) map[string]string {
		m := map[string]string{}
		for _, n := range names {
			m[n] = txn.TopicIDString(infos[n].ID)
		}
		return m
	}
	const topology = `{"subs":[{"id":0,"parallelism":2,"inputs":[{"topic":"in","partitions":2}]},{"id":1,"parallelism":2,"inputs":[{"topic":"by-user","internal":true,"partitions":2}]}]}`
	editControl(t, brokers, "orders", func(s *txn.ControlState) {
		s.Incarnation, s.Origin, s.Topology, s.Parallelism, s.ClusterID = 2, "fresh", json.RawMessage(topology), []int{2, 2}, c.ID()
		s.TopicIDs, s.Old = ids(append(slices.Clone(ours[2:]), others...)...), ids(ours[:2]...)
	})
	editControl(t, brokers, "orders-eu", func(s *txn.ControlState) {
		s.Incarnation, s.Topology, s.Parallelism, s.TopicIDs = 1, json.RawMessage(topology), []int{2, 2}, ids(append(theirs, "in", "out")...)
	})
	adm := kadm.NewClient(openForeign(t, brokers, "orders-1-1", "out"))
	for _, group := range []string{"orders", "orders-eu"} {
		if err := adm.CommitAllOffsets(t.Context(), group, kadm.OffsetsFromRecords(kgo.Record{Topic: "in", Offset: 7})); err != nil {
			t.Fatal(err)
		}
	}
	blobs, err := blob.Open(t.Context(), "file://"+folder, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	for _, key := range []string{"orders/1/0_0/manifests/1", "orders/1/0_0/blobs/x", "orders/2/0_1/manifests/1", "orders-eu/1/0_0/manifests/1"} {
		if err := blobs.Create(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	makeSavepoint(t, blobs, "orders", "one")
	all := left(t, brokers, folder)
	return slices.DeleteFunc(all, func(n string) bool {
		return slices.Contains(ours, n) || strings.HasPrefix(n, "orders/1") || strings.HasPrefix(n, "orders/2")
	})
}

// offsetsOf are the offsets that a group has committed.
func offsetsOf(t *testing.T, brokers []string, group string) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	offsets, _ := kadm.NewClient(cl).FetchOffsets(t.Context(), group) // an error if the group is gone
	return len(offsets)
}

// TestAppRemovalIsFinishedWhereverItWasCutOff: reset and delete are cut off before each step, and done again.
func TestAppRemovalIsFinishedWhereverItWasCutOff(t *testing.T) {
	for _, everything := range []bool{false, true} {
		at := 1
		for cutOffAndFinished(t, everything, at) {
			at++
		}
		if at < 8 {
			t.Errorf("delete %v has %d steps only", everything, at-1)
		}
	}
}

// cutOffAndFinished removes an app, cut off before a step, and once more. It says whether there was such a step.
func cutOffAndFinished(t *testing.T, everything bool, at int) bool {
	t.Helper()
	brokers, folder := fakeKafka(t), t.TempDir()
	kept := abandoned(t, brokers, folder)
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "orders", Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	blobs, err := blob.Open(t.Context(), "file://"+folder, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	remains, err := engine.LookAt(t.Context(), c, blobs, "orders")
	if err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut off")
	steps, last := 0, ""
	err = remains.Remove(t.Context(), c, blobs, engine.RemoveOptions{Delete: everything, Savepoints: everything, By: "test", Step: func(what string) error {
		if steps++; steps == at {
			last = what
			return cut
		}
		return nil
	}})
	whole := err == nil
	if !whole && !errors.Is(err, cut) {
		t.Fatal(err)
	}
	name := fmt.Sprintf("delete %v, cut off before step %d (%s)", everything, at, last)
	if s := readControlIfThere(t, c); !whole && at > 1 && (s.Incarnation != 3 || s.Stopped == nil || !s.Stopped.Removal || s.TopicIDs["in"] == "") {
		t.Errorf("%s: the app is not held: %+v", name, s)
	}
	verb, extra := "reset", []string(nil)
	if everything {
		verb, extra = "delete", []string{"--savepoints"}
	}
	args := append([]string{"app", verb, "--yes", "--app.id=orders", "--brokers=" + strings.Join(brokers, ","), "--checkpoint.url=file://" + folder}, extra...)
	for range 2 { // of which the second finds nothing
		if code, stdout, stderr := millrace(t, nil, args...); code != exitOK {
			t.Fatalf("%s: then code %d, %s%s", name, code, stdout, stderr)
		}
	}
	if everything {
		kept = slices.DeleteFunc(kept, func(n string) bool { return n == "orders-control" || strings.HasPrefix(n, "orders/savepoints/") })
	} else if s := readControl(t, brokers, "orders"); s.Incarnation != 3 || s.Stopped != nil || s.Topology != nil || s.TopicIDs != nil || s.Old != nil || !slices.Contains(s.Past, "fresh") || !strings.HasPrefix(s.Origin, "fresh#reset-") {
		t.Errorf("%s: the control state is %+v", name, s)
	}
	if got := left(t, brokers, folder); !slices.Equal(got, kept) {
		t.Errorf("%s: left are\n%v, want\n%v", name, got, kept)
	}
	if a, b := offsetsOf(t, brokers, "orders"), offsetsOf(t, brokers, "orders-eu"); a != 0 || b != 1 {
		t.Errorf("%s: groups have %d and %d offsets", name, a, b)
	}
	tp := record.TopicPartition{Topic: "out", Partition: 1}
	testutil.Eventually(t, patience, func() error {
		stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
		if err == nil && stable[tp] != 2 {
			err = fmt.Errorf("%s: the zombie's transaction is open", name)
		}
		return err
	})
	return !whole
}

func readControlIfThere(t *testing.T, c *txn.Cluster) txn.ControlState {
	t.Helper()
	s, err := c.ReadControl(t.Context(), "orders")
	if err != nil && !errors.Is(err, txn.ErrNoApp) {
		t.Fatal(err)
	}
	return s
}

func TestAppRemovalAsks(t *testing.T) {
	brokers, folder, state := fakeKafka(t), t.TempDir(), t.TempDir()
	kept := abandoned(t, brokers, folder)
	before := left(t, brokers, folder)
	dir, err := pebblestore.OpenDir(state, "orders", pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := dir.Open(statestore.Identity{App: "orders", ClusterID: "c", Incarnation: 2, Subtask: "0_0", Changelogs: []string{"x"}})
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	common := []string{"--app.id=orders", "--brokers=" + strings.Join(brokers, ","), "--checkpoint.url=file://" + folder, "--state.dir=" + state}
	ask := func(answers string, args ...string) (string, string, error) {
		t.Helper()
		return answered(t, answers, append(append([]string{"app"}, args...), common...)...)
	}
	for _, args := range []string{"reset", "delete", "delete --dead-letters --savepoints -o json"} {
		stdout, _, err := ask("n\n", strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), "nothing was changed: not confirmed") || !slices.Equal(left(t, brokers, folder), before) {
			t.Errorf("%s, answered no: %v, %s", args, err, stdout)
		}
	}
	if _, _, err := ask("y\n", "delete", "--state"); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("the state directory is open: %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := ask("", "delete", "--dry-run", "-o", "json", "--state")
	var plan removalPlan
	if jerr := json.Unmarshal([]byte(stdout), &plan); err != nil || jerr != nil || plan.Done || len(plan.Topics) != 6 || plan.Fenced != 4 || plan.State != state || stderr != "" || !slices.Equal(left(t, brokers, folder), before) {
		t.Errorf("dry run: %v, %v, %s%s", err, jerr, stdout, stderr)
	}

	// A member is active.
	member, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.ConsumerGroup("orders"), kgo.InstanceID("orders-1"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	testutil.Eventually(t, patience, func() error {
		stdout, _, err := ask("", "reset", "--yes", "--dry-run")
		if err == nil || !strings.Contains(err.Error(), "has 1 active member: stop them first") || !strings.Contains(stdout, "orders-1 (client ") {
			return fmt.Errorf("%w: %s", err, stdout)
		}
		return nil
	})
	if _, _, err := ask("", "reset", "--yes"); err == nil || !slices.Equal(left(t, brokers, folder), before) {
		t.Errorf("reset with an active member: %v", err)
	}
	if _, err := kadm.NewClient(member).LeaveGroup(t.Context(), kadm.LeaveGroup("orders").InstanceIDs("orders-1")); err != nil {
		t.Fatal(err)
	}
	member.Close()

	// Yes to the app, no to its dead letters.
	stdout, stderr, err = ask("y\nn\n", "delete", "--state")
	kept = slices.DeleteFunc(kept, func(n string) bool { return n == "orders-control" })
	if err != nil || !strings.Contains(stdout, "Delete the dead letters in orders-dead-letter, too") || !strings.Contains(stdout, "App orders is deleted.") ||
		!strings.Contains(stderr, "fence 4 transactional ids") || !slices.Equal(left(t, brokers, folder), kept) {
		t.Errorf("delete: %v, %s%s, left %v, want %v", err, stdout, stderr, left(t, brokers, folder), kept)
	}
	if there, err := pebblestore.IsDir(state); there || err != nil {
		t.Errorf("the state directory is there: %v, %v", there, err)
	}
	stdout, _, err = ask("y\nyes\n", "delete", "--savepoints")
	kept = slices.DeleteFunc(kept, func(n string) bool {
		return n == "orders-dead-letter" || strings.HasPrefix(n, "orders/")
	})
	if err != nil || !slices.Equal(left(t, brokers, folder), kept) {
		t.Errorf("delete the rest: %v, %s, left %v, want %v", err, stdout, left(t, brokers, folder), kept)
	}
	stdout, _, err = ask("", "delete")
	if err != nil || !strings.HasPrefix(stdout, "Nothing is there of app orders") {
		t.Errorf("delete nothing: %v, %s", err, stdout)
	}
	if code, _, stderr := millrace(t, nil, "app", "delete", "--app.id=orders", "--savepoints"); code != exitUsage || !strings.Contains(stderr, "checkpoint.url is not set") {
		t.Errorf("savepoints of nowhere: code %d, %s", code, stderr)
	}
}

func TestApp(t *testing.T) { testApp(t, fakeKafka(t), "orders") }

func TestAppOnKafka(t *testing.T) {
	b := kafka.Shared(t)
	testApp(t, b.Brokers(), b.CreateTopic(t, 2, nil))
}

// program runs in a process of its own as far as it knows.
type program struct {
	cancel context.CancelFunc
	ended  chan error
}

// wait waits until it ends by itself.
func (p program) wait() error {
	defer p.cancel()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		return errors.New("it does not end")
	}
}

// end stops it.
func (p program) end() error {
	p.cancel()
	return p.wait()
}

// runApp runs a program that counts by key.
func runApp(t *testing.T, cfg configs.Config, in, out string) program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := program{cancel, make(chan error, 1)}
	go func() {
		p.ended <- library.Run(ctx, cfg.App.ID, func(top *processor.Topology) {
			words := processor.KeyBy(processor.From(top, processor.Topic[string]{Name: in, Value: format.String()}), "by-word", func(s string) string { return s })
			counts := processor.RunningAggregate(words, "count", processor.Fold(func(n *int64, _ string) { *n++ }), func(w string, n int64, _ string) string { return fmt.Sprintf("%s=%d", w, n) })
			processor.To(counts, processor.SinkTopic[string]{Name: out, Value: format.String()})
		}, cfg)
	}()
	return p
}

// testApp runs an app, resets it, runs it again, and deletes it.
func testApp(t *testing.T, brokers []string, in string) {
	app, folder, state := kafka.RandomName("app"), t.TempDir(), t.TempDir()
	out := in + "-out"
	c, err := txn.Connect(t.Context(), txn.Options{AppID: app, Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopics(t.Context(), []txn.TopicSpec{{Name: out, Partitions: 1, ReplicationFactor: 1}}); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: in, Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cfg := configs.Default()
	cfg.App.ID, cfg.Brokers, cfg.State.Dir, cfg.Checkpoint.URL, cfg.Listen, cfg.Log.Level = app, brokers, state, "file://"+folder, "off", "warn"
	cfg.Checkpoint.Interval, cfg.Checkpoint.MinPause = 100*time.Millisecond, 10*time.Millisecond
	tp := record.TopicPartition{Topic: out}
	// results are the counts in the output that were committed from an offset on.
	results := func(from int64) (counts []string, end int64) {
		t.Helper()
		stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
		if err == nil {
			err = c.ReadCommitted(t.Context(), tp, from, stable[tp], func(r record.Record) error {
				counts = append(counts, string(r.Value))
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return counts, stable[tp]
	}
	want := []string{"a=1", "a=2", "a=3"}
	await := func(from int64, what string) (end int64) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			var got []string
			if got, end = results(from); !slices.Equal(got, want) {
				return fmt.Errorf("%s: the results are %v", what, got)
			}
			return nil
		})
		return end
	}
	call := func(args ...string) (int, string, string) {
		t.Helper()
		return millrace(t, nil, append(args, "--app.id="+app, "--brokers="+strings.Join(brokers, ","), "--checkpoint.url="+cfg.Checkpoint.URL, "--state.dir="+state)...)
	}

	stop := runApp(t, cfg, in, out)
	end := await(0, "first life")
	if code, _, stderr := call("app", "reset", "--yes"); code != exitFailed || !strings.Contains(stderr, "has 1 active member") {
		t.Errorf("reset of a running app: code %d, %s", code, stderr)
	}
	if err := stop.end(); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call("app", "reset", "--yes")
	if code != exitOK || !strings.Contains(stdout, "begin with incarnation 2") {
		t.Fatalf("reset: code %d, %s%s", code, stdout, stderr)
	}
	t.Log("\n" + stdout + stderr)

	stop = runApp(t, cfg, in, out)
	end = await(end, "second life")
	if err := stop.end(); err != nil {
		t.Fatal(err)
	}
	topics, err := c.AllTopics(t.Context())
	if err != nil || topics[app+"-i2-1-changelog"].Partitions == 0 || topics[app+"-1-changelog"].Partitions != 0 {
		t.Errorf("the second life has the topics %v, %v", slices.Sorted(maps.Keys(topics)), err)
	}

	if code, stdout, stderr = call("app", "delete", "--yes", "--state", "--dead-letters"); code != exitOK || !strings.Contains(stdout, "is deleted") {
		t.Fatalf("delete: code %d, %s%s", code, stdout, stderr)
	}
	t.Log("\n" + stdout + stderr)
	if topics, err = c.AllTopics(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name := range topics {
		if strings.HasPrefix(name, app) {
			t.Errorf("topic %s is left", name)
		}
	}
	if blobs := left(t, brokers, folder); slices.ContainsFunc(blobs, func(n string) bool { return strings.HasPrefix(n, app+"/") }) {
		t.Errorf("blobs are left: %v", blobs)
	}
	if state, _, err := c.GroupState(t.Context()); err != nil || state != "" {
		t.Errorf("the group is %q, %v", state, err)
	}
	if got, _ := results(0); len(got) != 6 {
		t.Errorf("the output is %v", got)
	}
	// The app can be there again, as if it never was.
	stop = runApp(t, cfg, in, out)
	await(end, "after the deletion")
	if err := stop.end(); err != nil {
		t.Fatal(err)
	}
	if s := readControl(t, brokers, app); s.Incarnation != 1 {
		t.Errorf("the incarnation is %d", s.Incarnation)
	}
}
