// Package onbroker runs a plan on an embedded Kafka broker, on several members in this process, over records that are there
// before they start. It serves the driver of tests.
package onbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// Run is what to run.
type Run struct {
	Plan        func() *task.Plan // one for each member
	Members     int
	Parallelism int            // wanted of sub-topologies that name none; 0 = chosen
	Topics      map[string]int // partitions of all topics that are read and written
	Inputs      []Input
	Outputs     []string
	// Compare says how the committed outputs differ from what they should be; "" = not at all.
	Compare func(outputs map[string][]record.Record) string
}

// Input is one record of a topic.
type Input struct {
	Topic     string
	Partition int
	Record    record.Record
}

// Timeout bounds a run; only a failing one lasts that long.
const Timeout = 60 * time.Second

// Do runs it until the outputs are what they should be, and looks again when the members have stopped.
func (r *Run) Do() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
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
	if err := r.fill(ctx, cl); err != nil {
		return err
	}
	stop := r.start(ctx, fake.ListenAddrs())
	defer func() { err = errors.Join(err, stop()) }()
	diff := "nothing could be read"
	for {
		got, err := r.readAll(ctx, cl)
		if err == nil {
			if diff = r.Compare(got); diff == "" {
				break
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the results are not those of the test after %s (%w):\n%s", Timeout, errors.Join(err, ctx.Err()), diff)
		case <-time.After(50 * time.Millisecond):
		}
	}
	// What the members commit as they stop must be nothing new.
	if err := stop(); err != nil {
		return err
	}
	got, err := r.readAll(ctx, cl)
	if err != nil {
		return err
	}
	if diff := r.Compare(got); diff != "" {
		return fmt.Errorf("more came as the members stopped:\n%s", diff)
	}
	return nil
}

// fill makes the topics and writes the input.
func (r *Run) fill(ctx context.Context, cl *kgo.Client) error {
	adm := kadm.NewClient(cl)
	for topic, partitions := range r.Topics {
		res, err := adm.CreateTopics(ctx, int32(partitions), -1, nil, topic)
		if err == nil {
			err = res.Error()
		}
		if err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	var firstErr error
	for _, in := range r.Inputs {
		out := &kgo.Record{Topic: in.Topic, Partition: int32(in.Partition), Key: in.Record.Key, Value: in.Record.Value, Timestamp: time.UnixMilli(max(in.Record.Timestamp, 0))}
		for _, h := range in.Record.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		cl.Produce(ctx, out, func(_ *kgo.Record, err error) {
			if err != nil && firstErr == nil { // promises of a client run one after the other
				firstErr = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("write the input: %w", err)
	}
	if firstErr != nil {
		return fmt.Errorf("write the input: %w", firstErr)
	}
	return nil
}

// start starts the members; stop ends them and may be called again.
func (r *Run) start(ctx context.Context, brokers []string) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	const app = "processortest"
	var dones []chan error
	for i := range r.Members {
		w := engine.New(engine.Options{Plan: r.Plan(), Dir: memstore.NewDir(app), Parallelism: r.Parallelism, LeaveOnStop: true,
			CommitMaxLatency: 20 * time.Millisecond, CommitQuiet: 5 * time.Millisecond,
			Kafka: txn.Options{AppID: app, Brokers: brokers, InstanceID: fmt.Sprintf("%s-%d", app, i), HeartbeatInterval: 300 * time.Millisecond}})
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		dones = append(dones, done)
	}
	return func() error {
		cancel()
		var errs []error
		for i, done := range dones {
			if err := <-done; err != nil {
				errs = append(errs, fmt.Errorf("member %d: %w", i, err))
			}
		}
		dones = nil
		return errors.Join(errs...)
	}
}

// readAll reads what is committed to the outputs, partition by partition.
func (r *Run) readAll(ctx context.Context, cl *kgo.Client) (map[string][]record.Record, error) {
	all := map[string][]record.Record{}
	adm := kadm.NewClient(cl)
	for _, topic := range r.Outputs {
		ends, err := adm.ListCommittedOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil {
			all[topic], err = readTopic(ctx, cl, ends, topic)
		}
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", topic, err)
		}
	}
	return all, nil
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
