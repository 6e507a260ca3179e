package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/txn"
)

// Faults that users of comparable systems have reported, each tried on Millrace. Those of the commit protocol are in
// package txn, those of windows, decoding and so on beside what they are about; each says "Field report".

// Field report: a process died between the durable changelog and the commit; nobody knew the outcome and it was taken
// for a success. And: after a crash read_committed readers stood before the open transaction until it timed out.
//
// The transaction time-out is ten minutes here: what is waited for is the successor, never the time-out.
func TestDeathBeforeCommit(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_TRANSACTION_TIMEOUT=10m"}
	dir := t.TempDir()
	// The subtasks commit their claims, and nothing more until there is input.
	p := j.worker(dir, fmt.Sprintf("%s=%s:exit@%d", failpoint.Env, failpoint.BeforeEndTxn, partitions+1))
	testutil.Eventually(t, patience, func() error {
		if n := strings.Count(p.Output(), "subtask runs"); n < partitions {
			return fmt.Errorf("%d subtasks run", n)
		}
		return nil
	})
	j.produce(100)
	if code := p.Wait(t, patience); code != 137 {
		t.Fatalf("exit code %d, want 137", code)
	}
	if open := j.openTransactions(); len(open) == 0 {
		t.Fatal("the dead worker left no transaction open: the test tests nothing")
	}
	p = j.worker(dir)
	j.committed(p)
	stop(t, p)
	if open := j.openTransactions(); len(open) > 0 {
		t.Errorf("transactions are open on partitions %v of the output", open)
	}
	j.check()
}

// openTransactions are the partitions of the output that hold records of an undecided transaction.
func (j *job) openTransactions() []int32 {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
	defer cancel()
	adm := j.b.Admin(j.t)
	stable, err := adm.ListCommittedOffsets(ctx, j.out)
	if err != nil {
		j.t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(ctx, j.out)
	if err != nil {
		j.t.Fatal(err)
	}
	var open []int32
	ends.Each(func(e kadm.ListedOffset) {
		if s, ok := stable.Lookup(j.out, e.Partition); ok && s.Offset < e.Offset {
			open = append(open, e.Partition)
		}
	})
	return open
}

// Field report: a producer whose transaction the broker had timed out got INVALID_PRODUCER_EPOCH, and users could not
// tell how to go on.
//
// The worker is stopped in the midst of a transaction until the broker has aborted it. It is still a member of its group,
// so when it wakes up it takes over again by itself.
func TestTransactionTimesOut(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_TRANSACTION_TIMEOUT=3s", "MILLRACE_GROUP_SESSION_TIMEOUT=60s", "MILLRACE_COMMIT_MAX_LATENCY=500ms", "MILLRACE_COMMIT_QUIET=500ms"}
	p := j.worker(t.TempDir())
	stopFeed := j.feed(5)
	j.progress()
	testutil.Eventually(t, patience, func() error {
		p.Signal(t, syscall.SIGSTOP)
		if len(j.openTransactions()) == 0 {
			p.Signal(t, syscall.SIGCONT)
			return errors.New("the worker was never stopped within a transaction")
		}
		return nil
	})
	testutil.Eventually(t, patience, func() error {
		if open := j.openTransactions(); len(open) > 0 {
			return fmt.Errorf("transactions are open on partitions %v", open)
		}
		return nil
	})
	p.Signal(t, syscall.SIGCONT)
	p.WaitOutput(t, txn.ErrFenced.Error(), patience)
	j.progress()
	stopFeed()
	j.committed(p)
	stop(t, p)
	j.check()
}

// Field report: two producers of one identity fenced each other in an endless loop, with a rebalance each time.
//
// Two processes with one group instance id: the one that came first ends with the reason, the other goes on undisturbed.
func TestSameIdentityTwice(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_GROUP_INSTANCE_ID=one"}
	first := j.worker(t.TempDir())
	stopFeed := j.feed(5)
	j.progress()
	second := j.worker(t.TempDir())
	if code := first.Wait(t, patience); code != 1 || !strings.Contains(first.Output(), txn.ErrFencedInstance.Error()) || !strings.Contains(first.Output(), "one") {
		t.Errorf("exit code %d, want 1 and the instance id that another process took:\n%s", code, first.Output())
	}
	j.progress()
	stopFeed()
	j.committed(second)
	stop(t, second)
	// Until its next heartbeat tells the first one, each may fence the other a time or two.
	if n := strings.Count(second.Output(), restarted); n > 4*partitions {
		t.Errorf("subtasks of the second process started again %d times", n)
	}
	j.check()
}

// TestOffsetsResetByHand moves the group's offsets while nobody runs, as kafka-consumer-groups.sh --reset-offsets does
// (I2): the start refuses, names both positions and the setting that picks one, and with it goes on exactly.
func TestOffsetsResetByHand(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	dir := t.TempDir()
	p := j.worker(dir)
	j.produce(500)
	j.committed(p)
	stop(t, p)
	was := j.resetOffset(0, 3)
	fails(t, j, 1, j.in+"/0", "committed offset is 3", fmt.Sprintf("up to %d", was), "start.offsets=state", "start.offsets=group") // without local state
	refused := j.worker(dir)
	if code := refused.Wait(t, patience); code != 1 || !strings.Contains(refused.Output(), "start.offsets=state") {
		t.Errorf("with its local state: exit code %d, want 1 and what to do:\n%s", code, refused.Output())
	}
	j.produce(500)
	p = j.worker(dir, "MILLRACE_START_OFFSETS=state")
	j.committed(p)
	stop(t, p)
	j.check()
	p = j.worker(dir) // the setting is for one start only
	j.produce(100)
	j.committed(p)
	stop(t, p)
	j.check()
}

// resetOffset sets the group's offset of an input partition, with no member in the group, and returns the one before.
func (j *job) resetOffset(partition int32, to int64) int64 {
	j.t.Helper()
	adm := j.b.Admin(j.t)
	var was int64
	testutil.Eventually(j.t, patience, func() error {
		offs, err := adm.FetchOffsets(j.t.Context(), j.app)
		if err != nil {
			return err
		}
		o, ok := offs.Lookup(j.in, partition)
		if !ok {
			return fmt.Errorf("the group has no offset of %s/%d", j.in, partition)
		}
		was = o.At
		var set kadm.Offsets
		set.AddOffset(j.in, partition, to, -1)
		return adm.CommitAllOffsets(j.t.Context(), j.app, set) // fails while a member has not left yet
	})
	return was
}

// Field report: a rebalance during the recovery of changelogs crashed the loop, and partitions were never read.
//
// Four workers without local state start at once on an app with a large changelog: each comes to run its share.
func TestReplicasRestoreAtOnce(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.src = newSource(7, 40_000)
	dir := t.TempDir()
	p := j.worker(dir)
	for range 10 {
		j.produce(5000)
	}
	j.committed(p)
	stop(t, p)
	var ps []*kafka.Proc
	for range 4 {
		ps = append(ps, j.worker(t.TempDir()))
	}
	stopFeed := j.feed(5)
	for _, p := range ps {
		p.WaitOutput(t, "subtask runs", patience)
	}
	j.progress()
	stopFeed()
	j.committed(ps...)
	stop(t, ps...)
	restored := 0
	for _, p := range ps {
		restored += strings.Count(p.Output(), "state restored")
		if strings.Contains(p.Output(), restarted) {
			t.Error("a subtask started again while the members restored")
		}
	}
	if restored < partitions {
		t.Errorf("%d restores, want one of each subtask at least: the test tests nothing", restored)
	}
	j.check()
}

// Field report: a query was RUNNING and dead, since its output topic had been deleted; its close blocked.
//
// The output topic is deleted while the job runs: the status says what is wrong, SIGTERM ends the process within
// shutdown.timeout, and the exit code tells that it did not end well.
func TestOutputRemoved(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	addr := freeAddr(t)
	j.env = []string{"MILLRACE_LISTEN=" + addr}
	p := j.worker(t.TempDir())
	j.produce(500)
	j.committed(p)
	if _, err := b.Admin(t).DeleteTopic(t.Context(), j.out); err != nil {
		t.Fatal(err)
	}
	j.produce(500)
	testutil.Eventually(t, patience, func() error {
		var st engine.Status
		if err := getJSON("http://"+addr+"/api/v1/status", &st); err != nil {
			return err
		}
		if strings.Contains(st.Error, j.out) {
			return nil
		}
		for _, s := range st.Subtasks {
			if strings.Contains(s.Error, j.out) {
				return nil
			}
		}
		return fmt.Errorf("the status does not name the topic: %+v", st)
	})
	if code := p.Term(t, 10*time.Second); code != 1 || !strings.Contains(p.Output(), j.out) {
		t.Errorf("exit code %d, want 1 and the topic's name:\n%s", code, p.Output())
	}
}

// Field report: a source whose next offset retention had deleted stayed alive and made no progress.
//
// The job stops, with the partition, both offsets and what to do; done as told, it goes on.
func TestRetentionOvertakes(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	dir := t.TempDir()
	p := j.worker(dir)
	j.produce(500)
	j.committed(p)
	stop(t, p)
	counted := len(j.src.truth)
	j.produce(500)
	adm := j.b.Admin(t)
	ends, err := adm.ListEndOffsets(t.Context(), j.in)
	if err != nil {
		t.Fatal(err)
	}
	var before kadm.Offsets
	ends.Each(func(e kadm.ListedOffset) { before.AddOffset(e.Topic, e.Partition, e.Offset-10, -1) })
	deleted, err := adm.DeleteRecords(t.Context(), before)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	p = j.worker(dir)
	if code := p.Wait(t, patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	said := regexp.MustCompile(`read (\S+)/(\d+) at offset (\d+): out of range, the partition holds offsets (\d+) to (\d+); (\d+) offsets were deleted .* start once with start.offsets=group`).FindStringSubmatch(p.Output())
	if said == nil || said[1] != j.in {
		t.Fatalf("the output does not say what is out of range, and what to do:\n%s", p.Output())
	}
	if strings.Contains(p.Output(), restarted) {
		t.Error("a subtask tried again what cannot succeed")
	}
	for partition := range j.parts {
		at, _ := before.Lookup(j.in, partition)
		was := j.resetOffset(partition, at.At)
		if said[2] == fmt.Sprint(partition) {
			want := []string{fmt.Sprint(was), fmt.Sprint(at.At), fmt.Sprint(at.At + 10), fmt.Sprint(at.At - was)}
			if !slices.Equal(said[3:], want) {
				t.Errorf("offset, start, end and number of deleted offsets are %v, want %v", said[3:], want)
			}
		}
	}
	// What is left is counted on top of what was.
	rest := j.b.Read(t, j.in)
	if len(rest) != 10*partitions {
		t.Fatalf("%d records are left, want %d", len(rest), 10*partitions)
	}
	j.src.truth = j.src.truth[:counted:counted]
	for _, r := range rest {
		j.src.truth = append(j.src.truth, eventOf(t, r))
	}
	p = j.worker(dir, "MILLRACE_START_OFFSETS=group")
	j.committed(p)
	stop(t, p)
	checkRunningTotal(t, j.src.truth, j.b.Read(t, j.out))
}

// eventOf reads an input record back.
func eventOf(t *testing.T, r *kgo.Record) event {
	t.Helper()
	var row struct {
		User   string  `json:"user"`
		Amount float64 `json:"amount"`
		TS     int64   `json:"ts"`
	}
	decode(t, r, &row)
	return event{user: row.User, cents: cents(row.Amount), ts: row.TS}
}

// local is a worker in this process, for topologies that no example has.
type local struct {
	w      *engine.Worker
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	log    *testutil.Log
}

// local starts a member of the app. dir keeps its state.
func (j *job) local(topology func(*processor.Topology), dir statestore.Dir, change ...func(*engine.Options)) *local {
	j.t.Helper()
	top := processor.New()
	topology(top)
	plan, err := top.Plan()
	if err != nil {
		j.t.Fatal(err)
	}
	m := &local{done: make(chan struct{}), log: &testutil.Log{}}
	o := engine.Options{Plan: plan, Dir: dir, LeaveOnStop: true, Logger: slog.New(slog.NewTextHandler(m.log, nil)),
		BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond, MaxAttempts: 5,
		Kafka: txn.Options{AppID: j.app, Brokers: j.b.Brokers(), RequestTimeout: 5 * time.Second}}
	for _, fn := range change {
		fn(&o)
	}
	m.w = engine.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.w.Run(ctx)
	}()
	j.t.Cleanup(func() {
		cancel()
		<-m.done
		if j.t.Failed() {
			j.t.Logf("a worker's log:\n%s", m.log.String())
		}
	})
	return m
}

// wait waits until the worker ends by itself.
func (m *local) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-m.done:
		return m.err
	case <-time.After(patience):
		t.Fatal("the worker has not ended")
		return nil
	}
}

func (m *local) stop(t *testing.T) {
	t.Helper()
	m.cancel()
	if err := m.wait(t); err != nil {
		t.Fatalf("graceful stop: %v", err)
	}
}

type purchase struct {
	User string `json:"user"`
	N    int64  `json:"n,omitempty"`
}

// countByUser counts purchases by user behind a repartition topic.
func (j *job) countByUser(top *processor.Topology) {
	byUser := processor.KeyBy(processor.From(top, processor.Topic[purchase]{Name: j.in}), "by-user", func(p purchase) string { return p.User })
	processor.ToTopic(processor.RunningAggregate(byUser, "count", processor.Count[purchase](), func(user string, n int64, _ purchase) purchase {
		return purchase{user, n}
	}), j.out)
}

// ended waits for a worker's end and checks what it says.
func (m *local) ended(t *testing.T, want ...string) {
	t.Helper()
	err := m.wait(t)
	if err == nil {
		t.Fatal("the worker ended without an error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the worker ended with %q, which does not say %q", err, w)
		}
	}
	if st := m.w.Status(); st.State != engine.StateFailed || st.Error != err.Error() {
		t.Errorf("the status is %s: %s", st.State, st.Error)
	}
}

// Field report: a reader met a record of its own repartition topic that it could not decode, logged it and went on.
//
// A record that no member of the app has written stands on an internal topic: the job stops and says where, and a new
// start does too. Skipping it would hide that something is wrong with its own data.
func TestCorruptInternalRecord(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	repartition := func(topic string, partition int32, offset int64) string {
		return fmt.Sprintf("topic %s partition %d offset %d", topic, partition, offset)
	}
	for _, c := range []struct {
		name, topic string
		value       []byte
		says        func(topic string, partition int32, offset int64) string
	}{
		{"repartition record", "by-user-repartition", []byte("\x00junk"), repartition},
		{"repartition frame", "by-user-repartition", []byte("\xffjunk"), repartition},
		{"repartition null", "by-user-repartition", nil, repartition},
		{"epoch record", "1-changelog", []byte("\xffjunk"), func(topic string, partition int32, offset int64) string {
			return fmt.Sprintf("changelog %s/%d at offset %d", topic, partition, offset)
		}},
		// Whether the value of a key can be read is known when it is, and the offset no more.
		{"state", "1-changelog", []byte("\xffjunk"), func(topic string, partition int32, _ int64) string {
			return fmt.Sprintf("%s, partition %d", topic, partition)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, b, totalJob)
			keep := func(o *engine.Options) { o.HouseKeeping = time.Hour } // nothing is deleted
			m := j.local(j.countByUser, memstore.NewDir(j.app), keep)
			j.produce(200)
			j.committed()
			bad := &kgo.Record{Topic: j.app + "-" + c.topic, Value: c.value}
			testutil.Eventually(t, patience, func() error { // the key and the partition of a good one
				for _, r := range b.Read(t, bad.Topic) {
					if epoch := bytes.Equal(r.Key, statestore.MetaKey()); epoch == (c.name == "epoch record") && (epoch || !bytes.HasPrefix(r.Key, make([]byte, 4))) {
						bad.Key, bad.Partition = r.Key, r.Partition
						return nil
					}
				}
				return errors.New("no record yet")
			})
			restores := strings.HasSuffix(bad.Topic, "changelog")
			if restores {
				m.stop(t)
			}
			cl := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := cl.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
				t.Fatal(err)
			}
			says := c.says(bad.Topic, bad.Partition, bad.Offset)
			if !restores {
				m.ended(t, says)
			}
			j.local(j.countByUser, memstore.NewDir(j.app), keep).ended(t, says)
		})
	}
}

// Field report: a topic was deleted and created again under a running job: silence, or offsets of the old topic were
// used for the new one.
//
// (The input is in TestTopicMadeAnew.)
func TestWrittenTopicMadeAnew(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	for _, which := range []string{"output", "changelog", "repartition"} {
		t.Run(which, func(t *testing.T) {
			j := newJob(t, b, totalJob)
			dir := memstore.NewDir(j.app)
			change := func(o *engine.Options) {
				o.ShutdownTimeout, o.HouseKeeping = 2*time.Second, time.Hour
				if which == "repartition" { // what was read of it is deleted when the house is kept
					o.HouseKeeping = 300 * time.Millisecond
				}
			}
			m := j.local(j.countByUser, dir, change)
			j.produce(400)
			j.committed()
			testutil.Eventually(t, patience, func() error { // every producer has met the topics that it knows
				if n := len(b.Read(t, j.out)); n != 400 {
					return fmt.Errorf("%d results", n)
				}
				return nil
			})
			topic := map[string]string{"output": j.out, "changelog": j.app + "-1-changelog", "repartition": j.app + "-by-user-repartition"}[which]
			adm := b.Admin(t)
			idOf := func() (string, error) {
				topics, err := adm.ListTopics(t.Context(), topic)
				if err == nil && topics[topic].Err != nil {
					err = topics[topic].Err
				}
				return txn.TopicIDString(topics[topic].ID), err
			}
			was, err := idOf()
			if err != nil {
				t.Fatal(err)
			}
			configs := map[string]*string{}
			if which == "changelog" {
				configs["cleanup.policy"] = kadm.StringPtr("compact")
			}
			if _, err := adm.DeleteTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, patience, func() error {
				_, err := adm.CreateTopic(t.Context(), partitions, 1, configs, topic)
				return err
			})
			var now string
			testutil.Eventually(t, patience, func() error {
				if now, err = idOf(); err == nil && now == was {
					err = errors.New("the topic id is the old one")
				}
				return err
			})
			fresh := make([]*kgo.Record, 200)
			for i := range fresh {
				fresh[i] = &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: []byte("new")}
			}
			b.Produce(t, fresh...)
			j.produce(200)
			m.ended(t, topic, "created again", was, now)
			j.local(j.countByUser, dir, change).ended(t, topic, "created again", was, now)
			if n := len(b.Read(t, topic)); n != len(fresh) {
				t.Errorf("%d of %d records of the new topic are left, or more were written", n, len(fresh))
			}
		})
	}
}

// Field report: an aggregate grew past max.message.bytes; the send to its changelog killed the stream, again and again.
//
// The worker stops once, and names state, key and size; with a larger max.message.bytes it goes on exactly. The size is
// that before compression, so that what fits today does not depend on how well it compresses.
func TestGrowingAggregate(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	topology := func(top *processor.Topology) {
		users := processor.FromKeyed(top, format.String(), processor.Topic[purchase]{Name: j.in})
		processor.ToTopic(processor.Process(users, "hoard", func(ctx *processor.KeyedContext[string, purchase, purchase]) {
			all := processor.Value[[]string](ctx, "all")
			ctx.OnRecord(func(p purchase) error {
				all.Set(append(all.Get(), strings.Repeat("x", 100_000)))
				ctx.Emit(p)
				return nil
			})
		}), j.out)
	}
	dir := memstore.NewDir(j.app)
	m := j.local(topology, dir)
	e := event{user: "u000007", cents: 100, ts: baseTS}
	for range 20 {
		b.Produce(t, records(j.in, []event{e})...)
	}
	m.ended(t, `state "hoard/all"`, `key "u000007"`, "bytes", "max.message.bytes")
	if strings.Contains(m.log.String(), restarted) {
		t.Error("the subtask tried again what cannot succeed")
	}
	size := "4000000"
	res, err := b.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &size}}, j.app+"-0-changelog")
	if err == nil {
		err = res[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	m = j.local(topology, dir)
	j.committed()
	m.stop(t)
	if rows := b.Read(t, j.out); len(rows) != 20 {
		t.Errorf("%d rows, want one of each of 20 records", len(rows))
	}
}
