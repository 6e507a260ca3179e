// Package examples holds example programs; its tests run them on a real broker.
package examples

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

const (
	partitions = 4
	records    = 20_000
	windowSize = 10_000 // ms
)

type event struct {
	User   string  `json:"user"`
	Item   string  `json:"item"`
	Amount float64 `json:"amount"`
	TS     int64   `json:"ts"`
	Note   string  `json:"note"`
}

func (e event) cents() int64 { return int64(math.Round(e.Amount * 100)) }

// generate makes the input: 5 ms of event time from record to record, less than 2 s out of order.
func generate(seed uint64) []event {
	rnd := rand.New(rand.NewPCG(seed, 1))
	events := make([]event, records)
	for i := range events {
		events[i] = event{
			User: fmt.Sprintf("u%03d", rnd.IntN(200)), Item: fmt.Sprintf("i%03d", rnd.IntN(1000)),
			Amount: float64(rnd.IntN(10_000)) / 100, TS: 1_700_000_000_000 + int64(i)*5 - rnd.Int64N(2000), Note: "ring \"twice\"",
		}
	}
	return events
}

// fill writes the events, and to each partition one of a user that no test counts, which closes all windows.
func fill(t *testing.T, b *kafka.Broker, topic string, events []event) {
	t.Helper()
	closing := map[int32]string{}
	for i := 0; len(closing) < partitions; i++ {
		user := fmt.Sprintf("zz%d", i)
		closing[format.Partition([]byte(user), partitions)] = user
	}
	all := events
	for _, user := range closing {
		all = append(all, event{User: user, TS: events[len(events)-1].TS + 60_000})
	}
	recs := make([]*kgo.Record, len(all))
	for i, e := range all {
		v, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		recs[i] = &kgo.Record{Topic: topic, Key: []byte(e.User), Value: v}
	}
	b.Produce(t, recs...)
}

// runExample runs a program until its output has as many rows as wanted, stops it gracefully and returns the rows.
func runExample[R any](t *testing.T, name string, events []event, want int) []R {
	t.Helper()
	b := kafka.Shared(t)
	in, out := b.CreateTopic(t, partitions, nil), b.CreateTopic(t, partitions, nil)
	fill(t, b, in, events)
	bin := kafka.Build(t, "github.com/millrace-stream/millrace/examples/"+name)
	p := kafka.Run(t, bin, []string{"--in", in, "--out", out},
		"MILLRACE_BROKERS="+strings.Join(b.Brokers(), ","), "MILLRACE_APP_ID="+kafka.RandomName(name),
		"MILLRACE_STATE_DIR="+t.TempDir(), "MILLRACE_LISTEN=off", "MILLRACE_INTERNAL_REPLICATION_FACTOR=1")
	var rows []R
	testutil.Eventually(t, time.Minute, func() error {
		rows = rows[:0]
		for _, r := range b.Read(t, out) {
			if strings.HasPrefix(string(r.Key), "zz") {
				continue
			}
			var row R
			if err := json.Unmarshal(r.Value, &row); err != nil {
				t.Fatalf("read row %s: %v", r.Value, err)
			}
			if p := format.Partition(r.Key, partitions); p != r.Partition {
				t.Fatalf("key %s is on partition %d, Kafka's partitioner says %d", r.Key, r.Partition, p)
			}
			rows = append(rows, row)
		}
		if !p.Running() {
			t.Fatalf("%s has ended", name)
		}
		if len(rows) < want {
			return fmt.Errorf("%d rows, want %d", len(rows), want)
		}
		return nil
	})
	if code := p.Term(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	if len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	return rows
}

func TestCopy(t *testing.T) {
	events := generate(1)
	want := map[string][]event{}
	n := 0
	for _, e := range events {
		if e.Amount >= 1 {
			want[e.User] = append(want[e.User], e)
			n++
		}
	}
	for _, e := range runExample[event](t, "copy", events, n) {
		if len(want[e.User]) == 0 || want[e.User][0] != e {
			t.Fatalf("got %+v, of this user %d rows are left, the next is %+v", e, len(want[e.User]), want[e.User][:min(1, len(want[e.User]))])
		}
		want[e.User] = want[e.User][1:]
	}
}

func TestRunningTotal(t *testing.T) {
	type row struct {
		User  string
		Count int64
		Sum   float64
		TS    int64
	}
	events := generate(2)
	want := map[string][]row{}
	sums := map[string]int64{}
	for _, e := range events {
		sums[e.User] += e.cents()
		want[e.User] = append(want[e.User], row{e.User, int64(len(want[e.User]) + 1), float64(sums[e.User]) / 100, e.TS})
	}
	seen := map[string]int{}
	for _, r := range runExample[row](t, "running-total", events, len(events)) {
		i := seen[r.User]
		if i >= len(want[r.User]) || want[r.User][i] != r {
			t.Fatalf("row %d of its user is %+v, want one of %d rows: %+v", i, r, len(want[r.User]), want[r.User][min(i, len(want[r.User])-1)])
		}
		seen[r.User]++
	}
}

func TestWindowCount(t *testing.T) {
	type key struct {
		User       string
		Start, End int64
	}
	type row struct {
		key
		Count int64
		Sum   float64
	}
	events := generate(3)
	counts, sums := map[key]int64{}, map[key]int64{}
	for _, e := range events {
		start := e.TS - e.TS%windowSize
		k := key{e.User, start, start + windowSize}
		counts[k]++
		sums[k] += e.cents()
	}
	for _, r := range runExample[row](t, "window-count", events, len(counts)) {
		if want := (row{r.key, counts[r.key], float64(sums[r.key]) / 100}); r != want {
			t.Fatalf("got %+v, want %+v (a count of 0: no such window, or a second row of it)", r, want)
		}
		delete(counts, r.key)
	}
	if len(counts) != 0 {
		t.Errorf("%d windows have no row", len(counts))
	}
}
