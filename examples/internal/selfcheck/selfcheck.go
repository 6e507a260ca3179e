// Package selfcheck lets an example run without anything installed: with --embedded it starts a broker in the process, makes
// its own input for --duration, and judges its own committed output. With --check-on it does the same on brokers that there are.
package selfcheck

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

// Check is how an example checks itself.
type Check struct {
	Inputs, Outputs []string // topics
	// Before makes input that is there before the app starts; nil = none.
	Before func(p *Producer)
	// Feed makes input until ctx ends, and then what closes all windows.
	Feed func(ctx context.Context, p *Producer) error
	// Verify says what is wrong with the committed output, or is not there yet. It gets all records of all outputs.
	Verify func(out map[string][]Record) error
	// Summary is one line about a correct output.
	Summary func(out map[string][]Record) string
}

// Record is one committed record.
type Record struct {
	Key   string
	Value []byte
}

const (
	partitions = 4
	// maxDelay is how long after the last input the output may take, on a busy machine.
	maxDelay = 60 * time.Second
	pollPace = 200 * time.Millisecond
)

// Main runs an example as millrace.Main does, or with --embedded or --check-on as a check of itself that exits with 0 or 1.
func Main(app string, topology func(*processor.Topology), check func() Check) {
	embedded := flag.Bool("embedded", false, "run on a broker in this process, make the input, check the committed output")
	on := flag.String("check-on", "", "run on these `brokers`, host:port,..., make topics and the input, check the committed output; the topics must not be there yet")
	duration := flag.Duration("duration", 10*time.Second, "how long --embedded and --check-on make input")
	seed := flag.Uint64("seed", 0, "seed of that input; 0 = a random one, which is printed")
	if !slices.ContainsFunc(os.Args[1:], isCheck) {
		millrace.Main(app, topology)
		return
	}
	flag.Parse()
	if !*embedded && *on == "" {
		millrace.Main(app, topology)
		return
	}
	if flag.NArg() > 0 || *duration <= 0 || *embedded && *on != "" {
		fmt.Fprintln(os.Stderr, "with one of --embedded and --check-on only --duration, which is above 0, --seed and the example's own flags may be given")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := func() error { return Run(ctx, app, topology, check(), *duration, *seed, os.Stdout) }
	if *on != "" {
		run = func() error {
			return RunOn(ctx, strings.Split(*on, ","), app, topology, check(), *duration, *seed, os.Stdout)
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "wrong:", err)
		os.Exit(1)
	}
}

// isCheck says that an argument asks for a check. The flags of the app are not those of package flag.
func isCheck(arg string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name == "embedded" || name == "check-on"
}

// Run runs an example on an embedded broker and checks its output.
func Run(ctx context.Context, app string, topology func(*processor.Topology), c Check, duration time.Duration, seed uint64, out io.Writer) error {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(partitions), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	defer fake.Close()
	return RunOn(ctx, fake.ListenAddrs(), app, topology, c, duration, seed, out)
}

// RunOn runs an example on brokers and checks its output. The topics of the example must not be there yet.
func RunOn(ctx context.Context, brokers []string, app string, topology func(*processor.Topology), c Check, duration time.Duration, seed uint64, out io.Writer) (err error) {
	if seed == 0 {
		seed = rand.Uint64()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(), kgo.MetadataMinAge(250*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	res, err := kadm.NewClient(cl).CreateTopics(ctx, partitions, -1, nil, append(slices.Clone(c.Inputs), c.Outputs...)...)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for _, topic := range res.Sorted() {
		if topic.Err != nil {
			return fmt.Errorf("create topic %s: %w; a check needs new topics: delete those of an earlier one", topic.Topic, topic.Err)
		}
	}
	fmt.Fprintf(out, "%s on %s, input for %s, seed %d\n", app, strings.Join(brokers, ","), duration, seed)

	p := &Producer{cl: cl, Rand: rand.New(rand.NewPCG(seed, 1))}
	if c.Before != nil {
		c.Before(p)
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	cfg := configs.Default()
	cfg.Brokers, cfg.Listen, cfg.State.Store, cfg.Log.Level = brokers, configs.ListenOff, "memory", "warn"
	cfg.Group.LeaveOnStop = true
	cfg.Errors.Decode = "fail" // nothing that we send is bad
	rctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- millrace.Run(rctx, app, topology, cfg) }()
	running := true
	finish := func() error {
		if !running {
			return nil
		}
		running = false
		stop()
		return <-done
	}
	defer func() { err = errors.Join(err, finish()) }()

	fctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	if err := c.Feed(fctx, p); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d records of input; waiting for the last results\n", p.sent)
	vctx, vcancel := context.WithTimeout(ctx, maxDelay)
	defer vcancel()
	var wrong error
	for {
		records, err := readAll(vctx, brokers, c.Outputs)
		if err == nil {
			if wrong = c.Verify(records); wrong == nil {
				break
			}
		}
		select {
		case err := <-done:
			running = false
			return fmt.Errorf("the app has stopped: %w", err)
		case <-vctx.Done():
			return fmt.Errorf("%s after the last input: %w", maxDelay, errors.Join(wrong, err))
		case <-time.After(pollPace):
		}
	}
	// What the app commits as it stops must be nothing new.
	if err := finish(); err != nil {
		return err
	}
	records, err := readAll(ctx, brokers, c.Outputs)
	if err == nil {
		err = c.Verify(records)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "right: %s\n", c.Summary(records))
	return nil
}

// Producer writes an example's input.
type Producer struct {
	Rand *rand.Rand
	cl   *kgo.Client
	sent int
	err  error
}

// Send writes v as its default format, to the partition where Kafka's default partitioner puts the key.
func Send[T any](p *Producer, topic, key string, v T) {
	var b []byte
	serde, err := format.Default[T]()
	if err == nil {
		b, err = serde.Append(nil, &v)
	}
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	p.sent++
	p.cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: format.Partition([]byte(key), partitions), Key: []byte(key), Value: b}, nil)
}

// Keys are keys that begin with prefix, one for each partition: to move event time on everywhere.
func Keys(prefix string) []string {
	keys := make([]string, partitions)
	for i, left := 0, partitions; left > 0; i++ {
		key := prefix + strconv.Itoa(i)
		if p := format.Partition([]byte(key), partitions); keys[p] == "" {
			keys[p] = key
			left--
		}
	}
	return keys
}

func (p *Producer) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxDelay)
	defer cancel()
	if err := errors.Join(p.err, p.cl.Flush(ctx)); err != nil {
		return fmt.Errorf("write the input: %w", err)
	}
	return nil
}

// Every calls f about every pace until ctx ends, with the time.
func Every(ctx context.Context, pace time.Duration, f func(now time.Time)) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f(now.UTC().Truncate(time.Millisecond))
		}
	}
}

// readAll reads what is committed to topics, partition by partition.
func readAll(ctx context.Context, brokers []string, topics []string) (map[string][]Record, error) {
	adm, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	ends, err := kadm.NewClient(adm).ListCommittedOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read the output: %w", err)
	}
	left := map[string]map[int32]int64{}
	from := map[string]map[int32]kgo.Offset{}
	n := 0
	ends.Each(func(e kadm.ListedOffset) {
		if e.Offset > 0 {
			if from[e.Topic] == nil {
				from[e.Topic], left[e.Topic] = map[int32]kgo.Offset{}, map[int32]int64{}
			}
			from[e.Topic][e.Partition], left[e.Topic][e.Partition] = kgo.NewOffset().At(0), e.Offset
			n++
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	out := map[string][]Record{}
	for n > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, fmt.Errorf("read the output: %w", err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out[r.Topic] = append(out[r.Topic], Record{string(r.Key), r.Value})
			}
			if end, ok := left[r.Topic][r.Partition]; ok && r.Offset+1 >= end {
				delete(left[r.Topic], r.Partition)
				n--
			}
		})
	}
	return out, nil
}

// Compare says where sorted rows differ.
func Compare[T comparable](what string, got, want []T) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("%s %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d rows of %s, want %d", len(got), what, len(want))
	}
	return nil
}

// Values decodes the values of records.
func Values[T any](records []Record) ([]T, error) {
	serde, err := format.Default[T]()
	if err != nil {
		return nil, err
	}
	vs := make([]T, len(records))
	for i, r := range records {
		if err := serde.Decode(r.Value, &vs[i]); err != nil {
			return nil, err
		}
	}
	return vs, nil
}
