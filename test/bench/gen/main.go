// gen fills a topic with deterministic records.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	topic := flag.String("topic", "events", "topic, deleted and created anew unless -append")
	w := flag.String("w", "w1", "workload, for the pace of event time")
	n := flag.Int64("n", 2_000_000, "records")
	users := flag.Int("users", 10_000, "distinct users")
	distinct := flag.Bool("distinct", false, "first give each user one record")
	even := flag.Bool("even", false, "draw users evenly, not by Zipf's law")
	seed := flag.Uint64("seed", 1, "seed")
	parts := flag.Int("partitions", 4, "partitions")
	size := flag.Int("size", 0, "bytes of a value, 0: 141 on average")
	flush := flag.Bool("flush", true, "end with one record per partition that closes all windows")
	flag.Parse()
	ctx := context.Background()
	partitioner := kgo.StickyKeyPartitioner(nil)
	if *w == "nexmark" {
		partitioner = kgo.ManualPartitioner()
	}
	cl := common.Client(
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(900_000), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(200_000), kgo.MaxBufferedBytes(128<<20), kgo.RecordPartitioner(partitioner))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	_, _ = adm.DeleteTopics(ctx, *topic)
	for i := 0; ; i++ {
		_, err := adm.CreateTopic(ctx, int32(*parts), 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, *topic)
		if err == nil {
			break
		}
		if i > 50 {
			common.Must(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	next, last := records(*w, *topic, *seed, *n, *users, *distinct, *even, *size, *parts)
	start := time.Now()
	var bytes int64
	for range *n {
		r := next()
		bytes += int64(len(r.Value))
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) { common.Must(err) })
	}
	common.Must(cl.Flush(ctx))
	if *flush {
		common.Must(cl.ProduceSync(ctx, last...).FirstErr())
	}
	d := time.Since(start)
	fmt.Printf("gen %s: %d records, mean value %.0f bytes, %.1fs, %.0f rec/s\n", *topic, *n, float64(bytes)/float64(*n), d.Seconds(), float64(*n)/d.Seconds())
}

// records returns what makes the records of a workload one after the other, and those that close all windows, one for each
// partition.
func records(w, topic string, seed uint64, n int64, users int, distinct, even bool, size, parts int) (next func() *kgo.Record, last []*kgo.Record) {
	if w == "nexmark" { // without keys, and events that follow each other on partitions that do
		g, i := common.NewNexmark(seed, n), -1
		for p := range int32(parts) {
			last = append(last, &kgo.Record{Topic: topic, Partition: p, Value: g.Flush(g.End())})
		}
		return func() *kgo.Record {
			i++
			return &kgo.Record{Topic: topic, Partition: int32(i % parts), Value: g.Next()}
		}, last
	}
	g, pace := common.NewGen(seed, users, distinct), common.PaceOf(w)
	g.Step, g.Even = pace.Step, even
	return func() *kgo.Record {
		r := g.Next()
		return &kgo.Record{Topic: topic, Key: common.UserKey(r.User), Value: r.JSON(0, size)}
	}, common.FlushRecords(topic, parts, pace.End(n)+pace.Flush)
}
