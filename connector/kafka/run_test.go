package kafka_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

const patience = 60 * time.Second // how long a failing test waits

// world is an embedded broker.
type world struct {
	t    *testing.T
	fake *kfake.Cluster
	cl   *kgo.Client
	adm  *kadm.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	must(t, err)
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond))
	must(t, err)
	t.Cleanup(cl.Close)
	return &world{t, fake, cl, kadm.NewClient(cl)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) topic(name string, partitions int) {
	w.t.Helper()
	res, err := w.adm.CreateTopics(w.t.Context(), int32(partitions), -1, nil, name)
	must(w.t, err)
	must(w.t, res.Error())
}

// put writes records to a partition of a topic.
func (w *world) put(topic string, partition int32, recs ...*kgo.Record) {
	w.t.Helper()
	for _, r := range recs {
		r.Topic, r.Partition = topic, partition
	}
	must(w.t, w.cl.ProduceSync(w.t.Context(), recs...).FirstErr())
}

// values are records without a key.
func values(vs ...string) []*kgo.Record {
	var recs []*kgo.Record
	for _, v := range vs {
		recs = append(recs, &kgo.Record{Value: []byte(v)})
	}
	return recs
}

// get reads what is committed to a topic, by partition and offset.
func (w *world) get(topic string) []*kgo.Record {
	w.t.Helper()
	ends, err := w.adm.ListCommittedOffsets(w.t.Context(), topic)
	must(w.t, err)
	must(w.t, ends.Error())
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for _, e := range ends[topic] {
		if e.Offset > 0 {
			from[e.Partition], left[e.Partition] = kgo.NewOffset().At(0), e.Offset
		}
	}
	if len(from) == 0 {
		return nil
	}
	rd, err := kgo.NewClient(append(w.cl.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	must(w.t, err)
	defer rd.Close()
	var recs []*kgo.Record
	for len(left) > 0 {
		fs := rd.PollFetches(w.t.Context())
		must(w.t, fs.Err())
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() && r.Offset < ends[topic][r.Partition].Offset {
				recs = append(recs, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	slices.SortFunc(recs, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return recs
}

// texts are the values of a topic, sorted; null is a tombstone.
func (w *world) texts(topic string) []string {
	w.t.Helper()
	var all []string
	for _, r := range w.get(topic) {
		all = append(all, text(r.Value))
	}
	slices.Sort(all)
	return all
}

func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return string(b)
}

// Topics is of connector.Cluster.
func (w *world) Topics(settings map[string]string) (map[string]int, error) {
	if settings["brokers"] != w.brokers() {
		return nil, fmt.Errorf("asked at %q", settings["brokers"])
	}
	ds, err := w.adm.ListTopics(w.t.Context())
	all := map[string]int{}
	for _, d := range ds {
		all[d.Topic] = len(d.Partitions)
	}
	return all, err
}

func (w *world) brokers() string { return strings.Join(w.fake.ListenAddrs(), ",") }

func (w *world) script(text string) (*sql.App, error) {
	o := kafka.Options{Formats: format.RowFormats{"json": format.JSONRows(), "debezium-json": format.DebeziumRows()}, Cluster: w}
	app, list := sql.Script("test.sql", text, sql.Options{Connectors: connector.Registry{"kafka": kafka.New(o), "upsert-kafka": kafka.NewUpsert(o)}})
	return app, list.Err()
}

// member is a running app.
type member struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

// start runs a script. Its options are those of WITH for all tables, but the connector.
func (w *world) start(app, text string) *member {
	w.t.Helper()
	a, err := w.script(text)
	must(w.t, err)
	plan, err := a.Topology.Plan()
	must(w.t, err)
	e := engine.New(engine.Options{Plan: plan, Dir: memstore.NewDir(app), LeaveOnStop: true, CommitMaxLatency: 20 * time.Millisecond, CommitQuiet: 5 * time.Millisecond,
		Kafka: txn.Options{AppID: app, Brokers: w.fake.ListenAddrs(), InstanceID: app + "-0", HeartbeatInterval: 300 * time.Millisecond}})
	ctx, cancel := context.WithCancel(w.t.Context())
	m := &member{w.t, cancel, make(chan error, 1)}
	go func() { m.done <- e.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); m.wait() })
	return m
}

// wait waits until it has ended.
func (m *member) wait() error {
	select {
	case err := <-m.done:
		m.done <- err
		return err
	case <-time.After(patience):
		m.stop()
		return fmt.Errorf("the app has not ended after %s", patience)
	}
}

// finish runs a script until it ends by itself.
func (w *world) finish(app, text string) {
	w.t.Helper()
	must(w.t, w.start(app, text).wait())
}

// await waits until a topic holds what it should.
func (w *world) await(topic string, want ...string) {
	w.t.Helper()
	until := time.Now().Add(patience)
	for {
		got := w.texts(topic)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(until) {
			w.t.Fatalf("topic %s holds\n%s\nwant\n%s", topic, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *world) holds(topic string, want ...string) {
	w.t.Helper()
	if got := w.texts(topic); !slices.Equal(got, want) {
		w.t.Fatalf("topic %s holds\n%s\nwant\n%s", topic, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// VALUES are written once, whatever is started again, and a script without other inputs ends by itself.
func TestValuesEnd(t *testing.T) {
	w := newWorld(t)
	w.topic("out", 2)
	script := `CREATE TABLE t (id INT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO t VALUES (1, 'a'), (2, NULL);`
	w.finish("values", script)
	want := []string{`{"id":1,"name":"a"}`, `{"id":2,"name":null}`}
	w.holds("out", want...)
	w.finish("values", script)
	w.holds("out", want...)
}

// A source that ends fires the windows that are open, through a repartition topic.
func TestBoundedWindow(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 3)
	w.topic("out", 2)
	for i := range 30 {
		w.put("in", int32(i%2), values(fmt.Sprintf(`{"k":"k%d","ts":"2024-01-01 00:00:%02d"}`, i%4, i))...) // partition 2 stays empty
	}
	w.finish("windows", `
		CREATE TABLE s (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
			WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO t SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;`)
	w.holds("out", `{"k":"k0","n":8}`, `{"k":"k1","n":8}`, `{"k":"k2","n":7}`, `{"k":"k3","n":7}`)
}
