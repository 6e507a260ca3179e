package processor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type stamped struct {
	Name string    `json:"name"`
	At   time.Time `json:"at,unixmilli"`
}

func headers(hs []processor.Header) string {
	var s []string
	for _, h := range hs {
		s = append(s, h.Key+"="+string(h.Value))
	}
	return strings.Join(s, "\n")
}

func rec(key, value string, at int64) record.Record {
	r := record.Record{Timestamp: at}
	if key != "null" {
		r.Key = []byte(key)
	}
	if value != "null" {
		r.Value = []byte(value)
	}
	return r
}

// Every kind of bad input under its default policy and under each other.
func TestBadInput(t *testing.T) {
	good := rec("k", `{"name":"good","at":1000}`, 1)
	type app = func(*processor.Topology, processor.Option, processor.Policy)
	keyed := func(t *processor.Topology, o processor.Option, badTime processor.Policy) {
		s := processor.FromKeyed(t, format.String(), processor.Topic[stamped]{Name: "in", BadTime: badTime,
			EventTime: func(s stamped) time.Time { return s.At }}, o)
		processor.To(s, processor.SinkTopic[stamped]{Name: "out"}, o)
	}
	kafkaTime := func(t *processor.Topology, o processor.Option, badTime processor.Policy) {
		s := processor.From(t, processor.Topic[stamped]{Name: "in", BadTime: badTime}, o)
		processor.To(s, processor.SinkTopic[stamped]{Name: "out"}, o)
	}
	for _, c := range []struct {
		name       string
		app        app
		partitions int
		maxBytes   int
		bad        record.Record
		byDefault  processor.Policy
		operator   string
		message    string
		isTime     bool
	}{
		{"undecodable", keyed, 1, 0, rec("k", `{"name":`, 1), processor.DeadLetter, "in", "decode value", false},
		{"null value", keyed, 1, 0, rec("k", "null", 1), processor.DeadLetter, "in", "tombstone", false},
		{"null key", keyed, 1, 0, rec("null", `{"name":"x","at":1}`, 1), processor.DeadLetter, "in", "use From and KeyBy", false},
		{"wrong partition", keyed, 3, 0, rec("k", `{"name":"x","at":1}`, 1), processor.Fail, "in", "use From and KeyBy", false},
		{"no event time", keyed, 1, 0, rec("k", `{"name":"x"}`, 1), processor.DeadLetter, "in", "EventTime gave none", true},
		{"no timestamp", kafkaTime, 1, 0, rec("k", `{"name":"x","at":1}`, -1), processor.DeadLetter, "in", "timestamp is -1", true},
		{"negative timestamp", kafkaTime, 1, 0, rec("k", `{"name":"x","at":1}`, -7), processor.DeadLetter, "in", "timestamp is -7", true},
		{"too large", keyed, 1, 120, rec("k", `{"name":"`+strings.Repeat("x", 100)+`","at":1}`, 1), processor.DeadLetter, "out", `record with key "k" has `, false},
	} {
		for _, policy := range []processor.Policy{0, processor.Fail, processor.Skip, processor.DeadLetter} {
			want := policy
			if policy == 0 {
				want = c.byDefault
			}
			o, badTime := processor.Option{}, processor.Policy(0)
			if policy != 0 && c.isTime {
				badTime = policy
			} else if policy != 0 {
				o = processor.OnError(policy)
			}
			d := newDriver(t, func(t *processor.Topology) { c.app(t, o, badTime) }, driverOptions{mayFail: true, partitions: map[string]int{"in": c.partitions, "dead-letter": 4}})
			partition := int(format.Partition([]byte("k"), int32(c.partitions)))
			at := partition
			if c.name == "wrong partition" {
				at = (partition + 1) % c.partitions
			}
			send := func(p int, r record.Record) {
				r.Offset = int64(len(d.Log("in", c.partitions)[p]))
				d.Logs["in"][p] = append(d.Logs["in"][p], r)
			}
			bad := c.bad
			bad.Headers = []record.Header{{Key: "h", Value: []byte("v")}}
			send(partition, good)
			send(at, bad)
			send(partition, good)
			if c.maxBytes > 0 { // of the sink alone
				for _, st := range d.Tasks {
					d.O.MaxBytes = c.maxBytes
					st.Open()
				}
			}
			d.run()
			name := fmt.Sprintf("%s, policy %s", c.name, policy)
			var e *task.Error
			switch {
			case want == processor.Fail:
				if !errors.As(d.Failed, &e) || e.Kind != task.Data || e.Topic != "in" || e.Partition != int32(at) || e.Operator != c.operator || !strings.Contains(e.Error(), c.message) {
					t.Fatalf("%s: error %v", name, d.Failed)
				}
				continue
			case c.maxBytes > 0 && want == processor.DeadLetter:
				// Here the dead letter is too large as well, and nothing is lost silently.
				if !errors.As(d.Failed, &e) || !strings.Contains(e.Error(), "dead letter") || !strings.Contains(e.Error(), c.message) {
					t.Fatalf("%s: error %v", name, d.Failed)
				}
				continue
			case d.Failed != nil:
				t.Fatalf("%s: %v", name, d.Failed)
			}
			if n := len(d.records("out")); n != 2 {
				t.Fatalf("%s: %d good records came through, want 2", name, n)
			}
			letters := d.records("dead-letter")
			skipped := int64(0)
			for _, st := range d.Tasks {
				skipped += st.Task.Stats().Skipped
			}
			if want == processor.Skip {
				if len(letters) != 0 || skipped != 1 {
					t.Fatalf("%s: %d dead letters, %d skipped", name, len(letters), skipped)
				}
				continue
			}
			if len(letters) != 1 || skipped != 0 {
				t.Fatalf("%s: %d dead letters, %d skipped", name, len(letters), skipped)
			}
			l := letters[0]
			if string(l.Key) != string(bad.Key) || (l.Key == nil) != (bad.Key == nil) || string(l.Value) != string(bad.Value) || (l.Value == nil) != (bad.Value == nil) {
				t.Fatalf("%s: dead letter %q=%q", name, l.Key, l.Value)
			}
			got := headers(l.Headers)
			head := fmt.Sprintf("h=v\nmillrace-topic=in\nmillrace-partition=%d\nmillrace-offset=%d\nmillrace-timestamp=%d\nmillrace-operator=%s\nmillrace-error=", at, map[bool]int{true: 1, false: 0}[at == partition], bad.Timestamp, c.operator)
			if !strings.HasPrefix(got, head) || !strings.Contains(got, c.message) {
				t.Fatalf("%s: headers\n%s\nwant\n%s", name, got, head)
			}
			if l.Timestamp < 0 {
				t.Fatalf("%s: timestamp %d", name, l.Timestamp)
			}
		}
	}
}

// MaxRecordBytes on the sink, and the dead letter goes to a topic that takes it.
func TestTooLargeRecord(t *testing.T) {
	d := newDriver(t, func(t *processor.Topology) {
		s := processor.FromKeyed(t, format.String(), processor.Topic[stamped]{Name: "in"})
		processor.To(s, processor.SinkTopic[stamped]{Name: "out"}, processor.MaxRecordBytes(100))
	}, driverOptions{maxBytes: 10_000})
	for i, n := range []int{10, 1000, 10} {
		d.produce("in", 0, []byte("k"), fmt.Appendf(nil, `{"name":"%s","at":%d}`, strings.Repeat("x", n), i), 1)
	}
	d.run()
	if len(d.records("out")) != 2 || len(d.records("dead-letter")) != 1 {
		t.Fatalf("%d out, %d dead letters", len(d.records("out")), len(d.records("dead-letter")))
	}
	if h := headers(d.records("dead-letter")[0].Headers); !strings.Contains(h, `key "k"`) || !strings.Contains(h, "the limit is 100") {
		t.Fatal(h)
	}
}

func TestSinkSettings(t *testing.T) {
	d := newDriver(t, func(t *processor.Topology) {
		s := processor.From(t, processor.Topic[event]{Name: "in", EventTime: eventTime})
		processor.To(s, processor.SinkTopic[event]{Name: "all", ID: "all-of-it", Key: func(e event) []byte { return []byte(e.Key) },
			Headers:   func(e event) []processor.Header { return []processor.Header{{Key: "id", Value: []byte{byte(e.ID)}}} },
			Time:      func(e event) time.Time { return time.UnixMilli(e.At + 5) },
			Tombstone: func(e event) bool { return e.N == 0 },
			Partition: func(e event, n int32) int32 { return int32(e.ID) % n }})
		processor.ToTopic(s, "keyless")
		processor.To(s, processor.SinkTopic[event]{Name: "keyed", Key: func(e event) []byte { return []byte(e.Key) }})
		processor.To(s, processor.SinkTopic[event]{Name: "keyed", ID: "keyed-again", Key: func(event) []byte { return nil }})
		processor.ToTopic(processor.KeyBy(s, "by-id", func(e event) int64 { return int64(e.ID) }), "by-number")
	}, driverOptions{partitions: map[string]int{"in": 2, "all": 3, "keyless": 2, "keyed": 5, "by-number": 4}})
	d.produce("in", 1, nil, []byte(`{"id":7,"key":"a","n":0,"at":100}`), 1)
	d.run()
	at := func(topic string, partition int) record.Record {
		t.Helper()
		for _, r := range d.Logs[topic][partition] {
			if !r.Control {
				return r
			}
		}
		t.Fatalf("nothing in %s/%d", topic, partition)
		return record.Record{}
	}
	r := at("all", 1)
	if string(r.Key) != "a" || r.Value != nil || r.Timestamp != 105 || len(r.Headers) != 1 || r.Headers[0].Value[0] != 7 {
		t.Fatalf("%+v", r)
	}
	if r = at("keyless", 1); r.Key != nil || r.Timestamp != 100 {
		t.Fatalf("%+v", r)
	}
	at("keyed", int(format.Partition([]byte("a"), 5)))
	if n := len(d.records("keyed")); n != 2 {
		t.Fatalf("%d records of two sinks of one topic", n)
	}
	key := []byte{0, 0, 0, 0, 0, 0, 0, 7} // as Kafka's LongSerializer
	if r = at("by-number", int(format.Partition(key, 4))); string(r.Key) != string(key) {
		t.Fatalf("%+v", r)
	}
}

func TestFromRecords(t *testing.T) {
	d := newDriver(t, func(t *processor.Topology) {
		s := processor.FromRecords(t, processor.Topic[event]{Name: "in"})
		processor.ToTopic(processor.Map(s, func(r processor.Record[event]) string {
			return fmt.Sprintf("%s %v %q %s %d %s/%d/%d", r.Value.Key, r.Null, r.Key, r.Timestamp.Format(time.RFC3339Nano), len(r.Headers), r.Topic, r.Partition, r.Offset)
		}), "out")
		k := processor.KeyByRecordKey(s, format.String(), processor.OnError(processor.Skip))
		n := processor.RunningAggregate(k, "n", processor.Count[processor.Record[event]](), func(k string, n int64, _ processor.Record[event]) int64 { return n })
		processor.ToTopic(n, "counts")
	}, driverOptions{partitions: map[string]int{"in": 2}})
	right := int(format.Partition([]byte("a"), 2))
	d.produce("in", right, []byte("a"), []byte(`{"key":"x"}`), 5)
	d.produce("in", right, []byte("a"), nil, 6)
	d.produce("in", 1-right, []byte("a"), []byte(`{"key":"y"}`), 7) // not where its key belongs
	d.run()
	wantRows(t, d.rows("out"),
		fmt.Sprintf(`=x false "a" 1970-01-01T00:00:00.005Z 0 in/%d/0 @5`, right),
		fmt.Sprintf(`= true "a" 1970-01-01T00:00:00.006Z 0 in/%d/1 @6`, right))
	wantRows(t, d.rows("counts"), "a=1 @5", "a=2 @6")
}

// What a subtask cannot read from its own topic is never skipped.
func TestUndecodableInternalRecord(t *testing.T) {
	for name, value := range map[string][]byte{"empty": {}, "null": nil, "short": {0, 1}, "unknown": {9, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"payload": {0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}, "watermark": {1, 0}, "upstream": {1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		d := newDriver(t, func(t *processor.Topology) {
			s := processor.From(t, processor.Topic[event]{Name: "in"}, processor.OnError(processor.Skip))
			k := processor.KeyBy(s, "by", func(e event) string { return e.Key }, processor.OnError(processor.Skip))
			processor.ToTopic(processor.Reduce(k, "last", func(_, e event) event { return e }, processor.OnError(processor.Skip)), "out")
		}, driverOptions{mayFail: true})
		d.produce("in", 0, nil, []byte(`{"key":"a"}`), 1)
		d.run()
		if len(d.records("out")) != 1 {
			t.Fatal("the sound record did not come through")
		}
		log := d.Logs["repartition by"][0]
		d.Logs["repartition by"][0] = append(log, record.Record{Key: []byte("a\x00\x00"), Value: value, Offset: int64(len(log))})
		d.run()
		var e *task.Error
		if !errors.As(d.Failed, &e) || e.Kind != task.Internal || e.Topic != "repartition by" || e.Offset != int64(len(log)) {
			t.Fatalf("%s: %v", name, d.Failed)
		}
	}
}

// The aggregators, over one key in one window.
func TestAggregators(t *testing.T) {
	f := func(e event) float64 { return float64(e.N) }
	run := func(s func(*processor.Topology, processor.KeyedStream[string, event])) string {
		d := newDriver(t, func(t *processor.Topology) {
			s(t, processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime}))
		}, driverOptions{})
		for i, n := range []int64{5, -3, 8, 4} {
			d.sendKeyed("in", "a", event{Key: "a", N: n, At: int64(i)}, 1)
		}
		d.sendKeyed("in", "z", event{Key: "z", At: 100}, 1)
		d.run()
		return string(d.records("out")[0].Value)
	}
	w := window.Tumbling(ms(10))
	aggregate := func(name, want string, s func(*processor.Topology, processor.KeyedStream[string, event])) {
		if got := run(s); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	aggregate("avg", "3.5", func(_ *processor.Topology, s processor.KeyedStream[string, event]) {
		processor.ToTopic(processor.Aggregate(s.Window(w), "w", processor.Avg(f), func(_ processor.Window[string], m processor.Mean) float64 { return m.Value() }), "out")
	})
	aggregate("min and max", `"-3 8"`, func(_ *processor.Topology, s processor.KeyedStream[string, event]) {
		processor.To(processor.Aggregate(s.Window(w), "w", processor.Both(processor.Min(f), processor.Max(f)), func(_ processor.Window[string], p processor.Pair[processor.Extreme[float64], processor.Extreme[float64]]) string {
			return fmt.Sprint(p.First.Value, " ", p.Second.Value)
		}), processor.SinkTopic[string]{Name: "out", Value: jsonOf[string](t)})
	})
	aggregate("from", "114", func(_ *processor.Topology, s processor.KeyedStream[string, event]) {
		agg := processor.Fold(func(a *int64, e event) { *a += e.N }).From(func() int64 { return 100 })
		processor.ToTopic(processor.Aggregate(s.Window(w), "w", agg, func(_ processor.Window[string], n int64) int64 { return n }), "out")
	})
	aggregate("reduce window", `{"id":0,"key":"a","n":8,"at":2}`, func(_ *processor.Topology, s processor.KeyedStream[string, event]) {
		processor.ToTopic(processor.ReduceWindow(s.Window(w), "w", func(a, b event) event {
			if b.N > a.N {
				return b
			}
			return a
		}), "out")
	})
	aggregate("reduce", `{"id":0,"key":"a","n":5,"at":0}`, func(_ *processor.Topology, s processor.KeyedStream[string, event]) {
		processor.ToTopic(processor.Reduce(s, "r", func(a, b event) event { return b }), "out")
	})
}

func jsonOf[T any](t *testing.T) format.Serde[T] {
	t.Helper()
	s, err := format.JSON[T]()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
