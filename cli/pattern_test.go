package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/txn"
)

// TestTopicsOfAPattern: an app reads a topic that comes while it runs, from its first record on, although the table begins with
// the newest records, and goes on with its state.
func TestTopicsOfAPattern(t *testing.T) {
	brokers := fakeKafka(t)
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "found", Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topic := func(name string, partitions int32) {
		t.Helper()
		if _, err := c.EnsureTopics(t.Context(), []txn.TopicSpec{{Name: name, Partitions: partitions, ReplicationFactor: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	topic("ev-b", 2)
	topic("totals", 1)
	script := filepath.Join(t.TempDir(), "found.sql")
	if err := os.WriteFile(script, []byte(`
CREATE TABLE events (u STRING) WITH ('connector' = 'kafka', 'topic-pattern' = 'ev-.', 'format' = 'json', 'scan.startup.mode' = 'latest-offset',
  'scan.topic-partition-discovery.interval' = '100 ms');
CREATE TABLE totals (u STRING, n BIGINT, PRIMARY KEY (u) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'totals', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO totals SELECT u, COUNT(*) FROM events GROUP BY u;`), 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(topic string, values ...string) {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for _, v := range values {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(`{"u":"` + v + `"}`)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// committed waits for the newest total of each user.
	committed := func(want ...string) {
		t.Helper()
		tp := record.TopicPartition{Topic: "totals"}
		testutil.Eventually(t, patience, func() error {
			var got []string
			stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
			if err == nil {
				err = c.ReadCommitted(t.Context(), tp, 0, stable[tp], func(r record.Record) error {
					got = append(got, string(r.Value))
					return nil
				})
			}
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("totals are %v, want %v", got, want)
			}
			return err
		})
	}
	put("ev-b", "old")
	run := runSQL(t, "--brokers="+strings.Join(brokers, ","), "--state.dir="+t.TempDir(), "--listen=off", "--log.level=error", script)
	// The first record that counts is written when the app reads.
	testutil.Eventually(t, patience, func() error {
		tps := []record.TopicPartition{{Topic: "ev-b"}, {Topic: "ev-b", Partition: 1}}
		offs, err := c.CommittedOffsets(t.Context(), "found", tps)
		for _, tp := range tps {
			if off, ok := offs[tp]; err == nil && (!ok || off < 0) {
				err = fmt.Errorf("%v has no committed offset", tp)
			}
		}
		return err
	})
	put("ev-b", "ann")
	committed(`{"u":"ann","n":1}`)
	topic("other", 2)
	topic("ev-a", 2)
	put("ev-a", "ann")
	committed(`{"u":"ann","n":1}`, `{"u":"ann","n":2}`)
	put("ev-b", "ann")
	committed(`{"u":"ann","n":1}`, `{"u":"ann","n":2}`, `{"u":"ann","n":3}`)
	if code := run.end(); code != exitOK {
		t.Fatalf("stopped with code %d: %s", code, run.stderr)
	}
}
