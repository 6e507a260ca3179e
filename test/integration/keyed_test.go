package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// newKeyedJob is a job of keyed-totals.sql, with n people on twice as many partitions as there are of events.
func newKeyedJob(t *testing.T, n int) *job {
	t.Helper()
	j := newSQLJob(t)
	people := j.b.CreateTopic(t, 2*partitions, nil)
	j.env = append(j.env, "PEOPLE="+people)
	rs := make([]*kgo.Record, n)
	for i := range rs {
		user := fmt.Sprintf("u%06d", i)
		rs[i] = &kgo.Record{Topic: people, Key: []byte(user), Value: fmt.Appendf(nil, `{"user":%q,"city":%q}`, user, cityOf(user))}
	}
	j.b.Produce(t, rs...)
	return j
}

func cityOf(user string) string { return "city of " + user }

// checkTotals compares the last row of each user with the events, and looks at every row on the way: counts only go up.
func (j *job) checkTotals() {
	j.t.Helper()
	want := map[string]total{}
	for _, e := range j.src.truth {
		w := want[e.user]
		want[e.user] = total{w.n + 1, w.cents + e.cents}
	}
	got := map[string]total{}
	for _, r := range j.b.Read(j.t, j.out) {
		if len(r.Value) == 0 { // an update may be a withdrawal and a new row
			continue
		}
		var row struct {
			User, City string
			Count      int64
			Sum        json.Number
		}
		decode(j.t, r, &row)
		if flushUser(row.User) {
			continue
		}
		sum, err := row.Sum.Float64()
		if err != nil || row.City != cityOf(row.User) || row.Count <= got[row.User].n {
			j.t.Fatalf("%s behind a count of %d", r.Value, got[row.User].n)
		}
		got[row.User] = total{row.Count, cents(sum)}
	}
	for user, w := range want {
		if got[user] != w {
			j.t.Errorf("%s ends with %+v, want %+v", user, got[user], w)
		}
	}
}

// TestSQLPartitionedByKey groups a topic and joins it with another, both keyed as the script wants it: there is no repartition
// topic, and each event counts once, on two members, after a rescale to half the subtasks, and after a restore from checkpoints.
func TestSQLPartitionedByKey(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	j := newKeyedJob(t, 400_000) // so many that a checkpoint is nearer than the changelog
	j.env = append(j.env, "MILLRACE_CHECKPOINT_URL="+url, "MILLRACE_CHECKPOINT_INTERVAL=200ms", "MILLRACE_CHECKPOINT_MIN_PAUSE=0")
	const script = "keyed-totals.sql"
	dirs := []string{t.TempDir(), t.TempDir()}
	members := []*kafka.Proc{j.script(dirs[0], script), j.script(dirs[1], script)}
	stopFeed := j.feed(10)
	j.progress()
	j.rescale(2)
	j.progress()
	topics, err := j.b.Admin(t).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range topics {
		if strings.HasPrefix(name, j.app) && strings.Contains(name, "repartition") {
			t.Errorf("there is a repartition topic %s", name)
		}
	}

	blobs := openBlobs(t, url, blob.Options{})
	testutil.Eventually(t, patience, func() error {
		all, err := checkpoint.List(t.Context(), blobs, j.app)
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, e := range all {
			if e.Incarnation == 2 {
				have[e.Subtask] = true
			}
		}
		if len(have) < 2 {
			return fmt.Errorf("checkpoints of %v", have)
		}
		return nil
	})
	for i, p := range members {
		p.Kill(t)
		wipe(t, dirs[i])
	}
	members = []*kafka.Proc{j.script(dirs[0], script), j.script(dirs[1], script)}
	j.progress()
	stopFeed()
	j.committed(members...)
	restored := 0
	for _, p := range members {
		restored += strings.Count(p.Output(), "restoring from a checkpoint")
	}
	if restored < 2 {
		t.Errorf("%d restores from a checkpoint, want one of each subtask", restored)
	}
	stop(t, members...)
	j.settled(j.out)
	j.checkTotals()
}

// TestSQLNotPartitionedByKey declares topics as keyed that are not: the app stops, says which record lies where, and what to do.
func TestSQLNotPartitionedByKey(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		key  []byte
		want string
	}{
		"another partition": {[]byte("u000001"), `key "u000001" is on partition`},
		"no key":            {nil, "the record has no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newKeyedJob(t, 10)
			j.produce(100)
			p := j.script(t.TempDir(), "keyed-totals.sql", "MILLRACE_ERRORS_DECODE=skip")
			j.committed(p)
			at := format.Partition([]byte("u000001"), partitions)
			cl := j.b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			rec := &kgo.Record{Topic: j.in, Partition: (at + 1) % partitions, Key: wrong.key, Value: event{user: "u000001", cents: 100}.value()}
			if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if code := p.Wait(t, patience); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, want := range []string{wrong.want, "events says 'partitioned-by' = 'key', which is not so: take the option away"} {
				if !strings.Contains(p.Output(), want) {
					t.Errorf("the error does not say %q:\n%s", want, p.Output())
				}
			}
		})
	}
}
