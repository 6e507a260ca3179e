// Package integration runs the examples as child processes against real brokers, kills and restarts them, and checks the
// committed output against what the input says it must be.
package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
)

// event is one generated input record of the three workloads.
type event struct {
	user  string
	cents int64
	ts    int64 // event time, ms
}

const (
	baseTS     = int64(1_700_000_000_000) // a multiple of ten seconds
	outOfOrder = 2000                     // ms, exclusive bound
	windowMs   = 10_000

	// What is the same in all events. The quotes must be escaped.
	item = "i0001"
	note = `leave it at the "side door", please, and ring twice for the parcel`
)

// source yields deterministic events: +1 ms each, up to two seconds out of order, users unevenly frequent.
type source struct {
	rnd   *rand.Rand
	zipf  *rand.Zipf
	n     int64
	truth []event
}

func newSource(seed uint64, users int) *source {
	r := rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	return &source{rnd: r, zipf: rand.NewZipf(r, 1.05, 20, uint64(users-1))}
}

// next makes n events and remembers them as truth.
func (s *source) next(n int) []event {
	at := len(s.truth)
	for range n {
		e := event{user: fmt.Sprintf("u%06d", s.zipf.Uint64()), cents: s.rnd.Int64N(10_000), ts: baseTS + s.n - s.rnd.Int64N(outOfOrder)}
		s.truth = append(s.truth, e)
		s.n++
	}
	return s.truth[at:]
}

func (e event) value() []byte {
	b := []byte(`{"user":"` + e.user + `","item":"` + item + `","amount":`)
	b = strconv.AppendInt(b, e.cents/100, 10)
	b = fmt.Appendf(b, ".%02d", e.cents%100)
	b = append(b, `,"ts":`...)
	b = strconv.AppendInt(b, e.ts, 10)
	b = append(b, `,"note":`...)
	return append(strconv.AppendQuote(b, note), '}')
}

// records turns events into records for a topic with the given number of partitions (the producer picks them).
func records(topic string, events []event) []*kgo.Record {
	rs := make([]*kgo.Record, len(events))
	for i, e := range events {
		rs[i] = &kgo.Record{Topic: topic, Key: []byte(e.user), Value: e.value()}
	}
	return rs
}

// flushRecords are one record for each partition, of users that no workload counts, whose event time closes all
// windows up to ts.
func flushRecords(topic string, partitions int32, ts int64) []*kgo.Record {
	rs := make([]*kgo.Record, 0, partitions)
	done := map[int32]bool{}
	for i := 0; len(rs) < int(partitions); i++ {
		e := event{user: fmt.Sprintf("zz%05d", i), ts: ts}
		if p := format.Partition([]byte(e.user), partitions); !done[p] {
			done[p] = true
			rs = append(rs, &kgo.Record{Topic: topic, Key: []byte(e.user), Value: e.value()})
		}
	}
	return rs
}

func flushUser(u string) bool { return len(u) > 1 && u[0] == 'z' }

type total struct{ n, cents int64 }

type windowKey struct {
	user  string
	start int64
}

func cents(f float64) int64 { return int64(math.Round(f * 100)) }

// checkCopy verifies W0: every event of at least 1.00 once, in order per user.
func checkCopy(t testing.TB, truth []event, out []*kgo.Record) {
	t.Helper()
	want := map[string][]event{}
	n := 0
	for _, e := range truth {
		if e.cents >= 100 {
			want[e.user] = append(want[e.user], e)
			n++
		}
	}
	got := 0
	for _, r := range out {
		var row struct {
			User   string  `json:"user"`
			Item   string  `json:"item"`
			Amount float64 `json:"amount"`
			TS     int64   `json:"ts"`
			Note   string  `json:"note"`
		}
		decode(t, r, &row)
		if flushUser(row.User) {
			continue
		}
		got++
		left := want[row.User]
		if len(left) == 0 {
			t.Fatalf("%s/%d offset %d: %s has one row too many: %s", r.Topic, r.Partition, r.Offset, row.User, r.Value)
		}
		if e := left[0]; cents(row.Amount) != e.cents || row.TS != e.ts || row.Item != item || row.Note != note {
			t.Fatalf("%s/%d offset %d: got %s, want %s", r.Topic, r.Partition, r.Offset, r.Value, e.value())
		}
		want[row.User] = left[1:]
	}
	if got != n {
		t.Fatalf("got %d rows, want %d", got, n)
	}
}

// checkRunningTotal verifies W1: per user the counts 1, 2, 3 ... with the right sums, each once.
func checkRunningTotal(t testing.TB, truth []event, out []*kgo.Record) {
	t.Helper()
	type rowOf struct {
		total
		ts int64
	}
	want := map[string][]rowOf{}
	for _, e := range truth {
		rows := want[e.user]
		last := rowOf{}
		if len(rows) > 0 {
			last = rows[len(rows)-1]
		}
		want[e.user] = append(rows, rowOf{total{last.n + 1, last.cents + e.cents}, e.ts})
	}
	seen := map[string]int{}
	got := 0
	for _, r := range out {
		var row struct {
			User  string  `json:"user"`
			Count int64   `json:"count"`
			Sum   float64 `json:"sum"`
			TS    int64   `json:"ts"`
		}
		decode(t, r, &row)
		if flushUser(row.User) {
			continue
		}
		got++
		i := seen[row.User]
		rows := want[row.User]
		if i >= len(rows) {
			t.Fatalf("%s/%d offset %d: %s has a row too many: %s (rows so far %d)", r.Topic, r.Partition, r.Offset, row.User, r.Value, i)
		}
		if w := rows[i]; row.Count != w.n || cents(row.Sum) != w.cents || row.TS != w.ts {
			t.Fatalf("%s/%d offset %d: got %s, want count %d sum %d.%02d ts %d", r.Topic, r.Partition, r.Offset, r.Value, w.n, w.cents/100, w.cents%100, w.ts)
		}
		seen[row.User]++
	}
	if got != len(truth) {
		t.Fatalf("got %d rows, want %d", got, len(truth))
	}
}

// checkWindows verifies W2: one row per user and window.
func checkWindows(t testing.TB, truth []event, out []*kgo.Record) {
	t.Helper()
	want := map[windowKey]total{}
	for _, e := range truth {
		k := windowKey{e.user, e.ts - e.ts%windowMs}
		w := want[k]
		want[k] = total{w.n + 1, w.cents + e.cents}
	}
	seen := map[windowKey]bool{}
	for _, r := range out {
		var row struct {
			User       string `json:"user"`
			Start, End int64
			Count      int64   `json:"count"`
			Sum        float64 `json:"sum"`
		}
		decode(t, r, &row)
		if flushUser(row.User) {
			continue
		}
		k := windowKey{row.User, row.Start}
		if seen[k] {
			t.Fatalf("%s/%d offset %d: window written twice: %s", r.Topic, r.Partition, r.Offset, r.Value)
		}
		seen[k] = true
		if w := want[k]; row.Count != w.n || cents(row.Sum) != w.cents || row.End != row.Start+windowMs {
			t.Fatalf("%s/%d offset %d: got %s, want count %d sum %d.%02d", r.Topic, r.Partition, r.Offset, r.Value, w.n, w.cents/100, w.cents%100)
		}
	}
	if len(seen) != len(want) {
		t.Fatalf("got %d windows, want %d", len(seen), len(want))
	}
}

func decode(t testing.TB, r *kgo.Record, into any) {
	t.Helper()
	if err := json.Unmarshal(r.Value, into); err != nil {
		t.Fatalf("%s/%d offset %d: %v: %s", r.Topic, r.Partition, r.Offset, err, r.Value)
	}
}
