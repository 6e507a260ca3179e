package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/doctor"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/txn"
)

// sqlTopics makes the topics of order-totals.sql, but for orders, which a broker of these tests has.
func sqlTopics(t *testing.T, brokers []string) *txn.Cluster {
	t.Helper()
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "order-totals", Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.EnsureTopics(t.Context(), []txn.TopicSpec{{Name: "order-counts", Partitions: 2, ReplicationFactor: 1}, {Name: "user-totals", Partitions: 2, ReplicationFactor: 1}}); err != nil {
		t.Fatal(err)
	}
	return c
}

// produce writes values to partition 0 of orders.
func produce(t *testing.T, brokers []string, values ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, v := range values {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckOnABroker finds what is wrong with topics and records.
func TestCheckOnABroker(t *testing.T) {
	brokers := fakeKafka(t)
	args := []string{"check", "--format", "json", "--members", "5", "--brokers=" + strings.Join(brokers, ","), "--state.dir=" + t.TempDir(), orderTotals}
	check := func(wantCode int) map[string]doctor.Check {
		t.Helper()
		code, stdout, stderr := millrace(t, nil, args...)
		var r struct{ Checks []doctor.Check }
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != wantCode {
			t.Fatalf("code %d, want %d, %v: %s%s", code, wantCode, err, stdout, stderr)
		}
		byName := map[string]doctor.Check{}
		for _, c := range r.Checks {
			byName[c.Name] = c
		}
		return byName
	}
	if c := check(exitFailed)["topics"]; c.Status != doctor.Fail || !strings.Contains(c.Found, "output order-counts") || !strings.Contains(c.Found, "output user-totals") {
		t.Errorf("topics that are missing: %+v", c)
	}
	sqlTopics(t, brokers)
	produce(t, brokers, `{"id":1,"user":"ann","amount":1,"ts":"2024-05-01T12:00:10Z"}`, `{"id":2,"user":"ann","amount":1,"ts":"2024-05-01T12:00:03Z"}`,
		`{"id":3,"user":"ann","amount":"much","ts":"2024-05-01T12:00:11Z"}`)
	got := check(exitOK)
	for name, want := range map[string]string{
		"topics":           "ok order-counts (2 partitions), orders (2 partitions), user-totals (2 partitions)",
		"members":          "warn the topics have work for up to 2 members: 3 of 5 are idle",
		"decoding":         "warn table orders: 1 record of the sample cannot be decoded",
		"order":            "warn table orders: 1 of 2 records are behind the watermark of their partition, by up to 5s",
		"event time":       "ok table orders from 2024-05-01 12:00:03 to 2024-05-01 12:00:10",
		"quiet partitions": "warn table orders: 1 of 2 partitions have no records",
		"commits":          "ok",
	} {
		c := got[name]
		if s := string(c.Status) + " " + c.Found; !strings.HasPrefix(s, want) && !strings.Contains(s, want) {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
		if c.Status == doctor.Warn && len(c.Do) == 0 {
			t.Errorf("%s does not say what to do", name)
		}
	}
	produce(t, brokers, `{"id":4,"user":"ann","amount":1,"ts":"1970-01-20T20:00:12Z"}`)
	if c := check(exitOK)["event time"]; c.Status != doctor.Warn || !strings.Contains(c.Found, "look as if seconds were read as milliseconds") {
		t.Errorf("seconds: %+v", c)
	}
}

// sqlRun is a script that runs.
type sqlRun struct {
	stop   context.CancelFunc
	ended  chan int
	stderr *bytes.Buffer // to be read when it has ended
}

func runSQL(t *testing.T, args ...string) *sqlRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &sqlRun{cancel, make(chan int, 1), &bytes.Buffer{}}
	var stdout bytes.Buffer
	go func() { r.ended <- Run(ctx, Options{}, append([]string{"run"}, args...), nil, &stdout, r.stderr) }()
	t.Cleanup(cancel)
	return r
}

// end stops it and gives the exit code.
func (r *sqlRun) end() int {
	r.stop()
	return <-r.ended
}

// TestRunOnABroker runs a script, stops it and goes on with it: totals go on where they were, the window is counted once,
// and a script that would give up state is refused, with what it would give up, until that is agreed to.
func TestRunOnABroker(t *testing.T) {
	brokers := fakeKafka(t)
	c := sqlTopics(t, brokers)
	// committed waits for the committed rows of a topic.
	committed := func(topic string, want ...string) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			var got []string
			for p := range int32(2) {
				tp := record.TopicPartition{Topic: topic, Partition: p}
				stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
				if err == nil {
					err = c.ReadCommitted(t.Context(), tp, 0, stable[tp], func(r record.Record) error {
						got = append(got, string(r.Value))
						return nil
					})
				}
				if err != nil {
					return err
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%s has %v, want %v", topic, got, want)
			}
			return nil
		})
	}
	state := t.TempDir()
	flags := []string{"--brokers=" + strings.Join(brokers, ","), "--state.dir=" + state, "--listen=off", "--log.level=error"}
	first := runSQL(t, append(flags, orderTotals)...)
	produce(t, brokers, `{"id":1,"user":"ann","amount":1.5,"ts":"2024-05-01T12:00:01Z"}`)
	committed("user-totals", `{"user":"ann","n":1,"amount":1.5}`)
	if code := first.end(); code != exitOK {
		t.Fatalf("stopped with code %d: %s", code, first.stderr)
	}

	edited := filepath.Join(t.TempDir(), "edited.sql")
	text, err := os.ReadFile(orderTotals)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("INTERVAL '10' SECOND"), []byte("INTERVAL '20' SECOND"), 1)
	if err := os.WriteFile(edited, text, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := millrace(t, nil, append([]string{"run", "--check-state", edited}, flags...)...)
	if code != exitFailed || !strings.Contains(stdout, "dropped") || !strings.Contains(stdout, "kept") {
		t.Errorf("--check-state: code %d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = millrace(t, nil, append([]string{"run", "--duration=60s", edited}, flags...)...)
	if code != exitFailed || !strings.Contains(stderr, "dropped") || !strings.Contains(stderr, "--start.allow-dropped-state") {
		t.Errorf("a script that gives up state: code %d: %s%s", code, stdout, stderr)
	}

	second := runSQL(t, append(flags, "--start.allow-dropped-state", edited)...)
	produce(t, brokers, `{"id":2,"user":"ann","amount":1,"ts":"2024-05-01T12:00:41Z"}`)
	committed("user-totals", `{"user":"ann","n":1,"amount":1.5}`, `{"user":"ann","n":2,"amount":2.5}`)
	if code := second.end(); code != exitOK {
		t.Fatalf("stopped with code %d: %s", code, second.stderr)
	}
}
