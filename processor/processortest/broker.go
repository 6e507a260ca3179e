package processortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// brokerTimeout bounds a run on a broker; only a failing test waits for it.
const brokerTimeout = 60 * time.Second

// OnBroker runs the topology over all that the test has sent so far on an embedded Kafka broker, where topics have that many
// partitions and members share the work, and fails the test unless what is committed there is what it is here: the values of
// each record key in order, and those without key as a set. At the end event time is moved on every partition to where it is
// here. Call it as the last thing of a test. As with Schedules, nothing may be late, and the test must not have moved
// processing time or made partitions idle.
func (d *Driver) OnBroker(members, partitions int) {
	d.tb.Helper()
	if d.bound != "" {
		d.tb.Fatalf("run the test on a broker: %s, which a broker cannot", d.bound)
	}
	d.finish()
	if n := d.Late(); n > 0 {
		d.tb.Fatalf("run the test on a broker: %d records are late, so results depend on partitions", n)
	}
	if err := d.onBroker(max(members, 1), max(partitions, 1)); err != nil {
		d.tb.Fatalf("run the test on a broker, %d members, %d partitions: %v", members, partitions, err)
	}
}

func (d *Driver) onBroker(members, partitions int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), brokerTimeout)
	defer cancel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(partitions), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return err
	}
	defer fake.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(250*time.Millisecond), kgo.MaxBufferedRecords(1<<20))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := d.fill(ctx, cl, partitions); err != nil {
		return err
	}
	stop, err := d.members(ctx, fake.ListenAddrs(), members)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	want := d.results()
	var diff string
	for {
		got, err := d.readAll(ctx, cl)
		if err != nil {
			if diff != "" {
				return fmt.Errorf("the results are not those of the test after %s:\n%s", brokerTimeout, diff)
			}
			return err
		}
		if diff = diffResults(got, want); diff == "" {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the results are not those of the test after %s:\n%s", brokerTimeout, diff)
		case <-time.After(100 * time.Millisecond):
		}
	}
	// What the members commit as they stop must be nothing new.
	if err := stop(); err != nil {
		return err
	}
	got, err := d.readAll(ctx, cl)
	if err != nil {
		return err
	}
	if diff := diffResults(got, want); diff != "" {
		return fmt.Errorf("more came as the members stopped:\n%s", diff)
	}
	return nil
}

// fill makes the topics and writes what the test sent.
func (d *Driver) fill(ctx context.Context, cl *kgo.Client, partitions int) error {
	count := func(topic string) int {
		if n := d.set.o.Partitions[topic]; n > 0 {
			return n
		}
		return partitions
	}
	topics := d.outputs()
	var inputs []string
	for _, sub := range d.plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal && !slices.Contains(inputs, in.Topic) {
				inputs = append(inputs, in.Topic)
			}
		}
	}
	adm := kadm.NewClient(cl)
	for _, topic := range append(topics, inputs...) {
		res, err := adm.CreateTopics(ctx, int32(count(topic)), -1, nil, topic)
		if err == nil {
			err = res.Error()
		}
		if err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	all := slices.Clone(d.inputs)
	for topic, w := range d.watermarks() {
		all = append(all, sent{topic: topic, all: true, rec: drive.WatermarkRecord(w)})
	}
	var firstErr error
	produce := func(topic string, partition int, r record.Record) {
		out := &kgo.Record{Topic: topic, Partition: int32(partition), Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(max(r.Timestamp, 0))}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		cl.Produce(ctx, out, func(_ *kgo.Record, err error) {
			if err != nil && firstErr == nil { // promises of a client run one after the other
				firstErr = err
			}
		})
	}
	for _, s := range all {
		n := count(s.topic)
		switch {
		case s.all:
			for p := range n {
				produce(s.topic, p, s.rec)
			}
		case s.forced || s.rec.Key == nil:
			produce(s.topic, s.partition%n, s.rec)
		default:
			produce(s.topic, place(s.rec.Key, n), s.rec)
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("write the input: %w", err)
	}
	if firstErr != nil {
		return fmt.Errorf("write the input: %w", firstErr)
	}
	return nil
}

// members starts workers; stop ends them and may be called again.
func (d *Driver) members(ctx context.Context, brokers []string, n int) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	app := "processortest"
	var dones []chan error
	var stopped bool
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		var errs []error
		for i, done := range dones {
			if err := <-done; err != nil {
				errs = append(errs, fmt.Errorf("member %d: %w", i, err))
			}
		}
		return errors.Join(errs...)
	}
	for i := range n {
		plan := d.planOf(d.build())
		drive.Wrap(plan)
		w := engine.New(engine.Options{Plan: plan, Dir: memstore.NewDir(app), Parallelism: d.set.o.Parallelism, LeaveOnStop: true, ShutdownTimeout: 10 * time.Second,
			CommitMaxLatency: 20 * time.Millisecond, CommitQuiet: 5 * time.Millisecond,
			Kafka: txn.Options{AppID: app, Brokers: brokers, InstanceID: fmt.Sprintf("%s-%d", app, i), SessionTimeout: 6 * time.Second, HeartbeatInterval: 300 * time.Millisecond}})
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		dones = append(dones, done)
	}
	return stop, nil
}

// readAll reads what is committed to the topics that the topology writes.
func (d *Driver) readAll(ctx context.Context, cl *kgo.Client) (results, error) {
	res := results{}
	adm := kadm.NewClient(cl)
	for _, topic := range d.outputs() {
		res.add(topic, nil)
		ends, err := adm.ListCommittedOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", topic, err)
		}
		recs, err := readTopic(ctx, cl, ends, topic)
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", topic, err)
		}
		res.add(topic, recs)
	}
	return d.sorted(res), nil
}

// readTopic reads a topic up to its last stable offsets, partition by partition.
func readTopic(ctx context.Context, cl *kgo.Client, ends kadm.ListedOffsets, topic string) (recs []record.Record, err error) {
	from := map[int32]kgo.Offset{}
	left := map[int32]int64{}
	for _, e := range ends[topic] {
		if e.Offset > 0 {
			from[e.Partition], left[e.Partition] = kgo.NewOffset().At(0), e.Offset
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	opts := append(cl.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	rd, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	parts := map[int32][]record.Record{}
	for len(left) > 0 {
		fs := rd.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				parts[r.Partition] = append(parts[r.Partition], record.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli(), Offset: r.Offset})
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	for _, e := range ends.Offsets()[topic] {
		recs = append(recs, parts[e.Partition]...)
	}
	return recs, nil
}
