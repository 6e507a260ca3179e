package integration

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestBadInput mixes records that no job can use into good ones: each goes to the dead-letter topic with its original
// bytes, its position and the cause, in the same transaction, and the good ones are counted as if it was not there.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, windowJob)
	key := "u000001"
	at := format.Partition([]byte(key), partitions)
	bad := []struct {
		name  string
		key   []byte
		value []byte
		why   string
	}{
		{"invalid JSON", []byte(key), []byte(`{"amount":1,`), "decode"},
		{"wrong type", []byte(key), []byte(`{"amount":"a lot","ts":1700000000000}`), "amount"},
		{"null value", []byte(key), nil, "null"},
		{"null key", nil, []byte(`{"amount":1,"ts":1700000000000}`), "key"},
		{"no timestamp", []byte(key), []byte(`{"amount":1}`), "time"},
	}
	p := j.worker(t.TempDir())
	var rs []*kgo.Record
	for _, c := range bad {
		rs = append(rs, records(j.in, j.src.next(50))...)
		rs = append(rs, &kgo.Record{Topic: j.in, Partition: at, Key: c.key, Value: c.value, Headers: []kgo.RecordHeader{{Key: "case", Value: []byte(c.name)}}})
	}
	b.Produce(t, rs...)
	j.closeWindows()
	j.committed(p)
	stop(t, p)
	j.check()

	got := map[string]*kgo.Record{}
	for _, r := range b.Read(t, j.app+"-dead-letter") {
		got[header(r, "case")] = r
	}
	for _, c := range bad {
		r := got[c.name]
		if r == nil {
			t.Errorf("%s: no dead letter", c.name)
			continue
		}
		if string(r.Value) != string(c.value) || (r.Value == nil) != (c.value == nil) || string(r.Key) != string(c.key) {
			t.Errorf("%s: key %q value %q, want the original bytes", c.name, r.Key, r.Value)
		}
		if header(r, "millrace-topic") != j.in || header(r, "millrace-offset") == "" || header(r, "millrace-partition") == "" {
			t.Errorf("%s: position is missing in %v", c.name, r.Headers)
		}
		if why := header(r, "millrace-error"); !strings.Contains(why, c.why) {
			t.Errorf("%s: the cause is %q, want %q in it", c.name, why, c.why)
		}
	}
	if len(got) != len(bad) {
		t.Errorf("%d dead letters, want %d", len(got), len(bad))
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// TestOversizeOutput writes to a topic that takes only small records: what is too large goes to the dead-letter topic
// before the broker can refuse it, and nothing restarts.
func TestOversizeOutput(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, copyJob)
	j.out = b.CreateTopic(t, partitions, map[string]string{"max.message.bytes": "1000"})
	p := j.worker(t.TempDir())
	j.produce(200)
	big := event{user: "zz00000", cents: 500, ts: baseTS}
	value := strings.Replace(string(big.value()), "parcel", strings.Repeat("parcel ", 300), 1)
	b.Produce(t, &kgo.Record{Topic: j.in, Key: []byte(big.user), Value: []byte(value)})
	j.produce(200)
	j.committed(p)
	stop(t, p)
	j.check()
	letters := b.Read(t, j.app+"-dead-letter")
	if len(letters) != 1 || string(letters[0].Value) != value {
		t.Fatalf("%d dead letters, want the one large record", len(letters))
	}
	if why := header(letters[0], "millrace-error"); !strings.Contains(why, "bytes") {
		t.Errorf("the cause does not name the size: %q", why)
	}
	if strings.Contains(p.Output(), restarted) {
		t.Error("a subtask restarted because of a large record")
	}
}

// TestMisroutedKey reads records that do not lie where Kafka's partitioner puts their key: state by key would fall
// apart, so the worker stops and says what to do.
func TestMisroutedKey(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	j.env = []string{"MILLRACE_RESTART_MAX_ATTEMPTS=2", "MILLRACE_RESTART_BACKOFF_MIN=10ms", "MILLRACE_RESTART_BACKOFF_MAX=20ms"}
	e := event{user: "u000001", cents: 100, ts: baseTS}
	wrong := (format.Partition([]byte(e.user), partitions) + 1) % partitions
	cl := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: j.in, Partition: wrong, Key: []byte(e.user), Value: e.value()}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p := j.worker(t.TempDir())
	if code := p.Wait(t, patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"KeyBy", j.in, "offset 0"} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("the output does not say %q:\n%s", want, p.Output())
		}
	}
}

// Field report: a topic was deleted and created again under a running job: silence, or offsets of the old topic were
// used for the new one. (Topics that the job writes are in TestWrittenTopicMadeAnew.)
//
// TestTopicMadeAnew deletes and creates the input while the job runs: it stops, and names the topic.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	p := j.worker(t.TempDir())
	j.produce(500)
	j.committed(p)
	adm := b.Admin(t)
	if _, err := adm.DeleteTopics(t.Context(), j.in); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		res, err := adm.CreateTopic(t.Context(), partitions, 1, nil, j.in)
		if err != nil {
			return err
		}
		return res.Err
	})
	if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Output(), j.in) {
		t.Errorf("exit code %d, want 1 and the topic's name:\n%s", code, p.Output())
	}
	again := j.worker(t.TempDir())
	if code := again.Wait(t, patience); code != 1 || !strings.Contains(again.Output(), "created again") {
		t.Errorf("a new start: exit code %d, want 1:\n%s", code, again.Output())
	}
}
