// probe produces at a fixed rate with ts = wall clock, and reads the output
// read_committed: end-to-end latency, progress gaps for each partition.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type result struct {
	Sent      int64             `json:"sent"`
	Got       int64             `json:"got"`
	P50       int64             `json:"p50_ms"`
	P90       int64             `json:"p90_ms"`
	P99       int64             `json:"p99_ms"`
	Max       int64             `json:"max_ms"`
	Gap       map[string]string `json:"gaps"` // partition -> longest gap "ms@s"
	WorstGap  int64             `json:"worst_gap_ms"`
	WorstAt   float64           `json:"worst_gap_at_s"`
	AllGap    int64             `json:"all_partitions_gap_ms"`
	AllGapAt  float64           `json:"all_partitions_gap_at_s"`
	DrainedIn float64           `json:"drained_after_s"`
}

func main() {
	in := flag.String("in", "lat-in", "input topic")
	out := flag.String("out", "lat-out", "output topic")
	rate := flag.Int("rate", 5000, "records a second")
	warm := flag.Duration("warm", 10*time.Second, "time before latencies count")
	dur := flag.Duration("dur", 30*time.Second, "measured time")
	users := flag.Int("users", 10_000, "users")
	seed := flag.Uint64("seed", 7, "seed")
	expectAll := flag.Bool("expect-all", true, "one output per input: wait for all of them")
	drain := flag.Duration("drain", 30*time.Second, "longest wait for output after the last input")
	wend := flag.Bool("window", false, "latency of window results: now - (end + 2 s)")
	flag.Parse()
	ctx := context.Background()

	cons := common.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	defer cons.Close()
	adm := kadm.NewClient(cons)
	ends, err := common.Ends(adm, *out, false)
	common.Must(err)
	offs := map[int32]kgo.Offset{}
	for p, o := range ends {
		offs[p] = kgo.NewOffset().At(o)
	}
	cons.AddConsumePartitions(map[string]map[int32]kgo.Offset{*out: offs})

	prod := common.Client(kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	defer prod.Close()

	var sent, got atomic.Int64
	start := time.Now()
	var lat []int64
	last := map[int32]time.Time{}
	gap := map[int32]time.Duration{}
	gapAt := map[int32]time.Time{}
	lastAny := start
	var allGap time.Duration
	var allAt time.Time
	for p := range ends {
		last[p] = start
	}
	tsName := "ts"
	if *wend {
		tsName = "end"
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	producedAll := make(chan struct{})
	go func() {
		defer close(done)
		cctx, cancel := context.WithCancel(ctx)
		go func() { <-stop; cancel() }()
		for {
			fs := cons.PollFetches(cctx)
			if cctx.Err() != nil {
				return
			}
			now := time.Now()
			ms := now.UnixMilli()
			any := false
			fs.EachPartition(func(tp kgo.FetchTopicPartition) {
				if len(tp.Records) == 0 {
					return
				}
				any = true
				if d := now.Sub(last[tp.Partition]); d > gap[tp.Partition] && now.Sub(start) > *warm/2 {
					gap[tp.Partition] = d
					gapAt[tp.Partition] = last[tp.Partition]
				}
				last[tp.Partition] = now
				for _, r := range tp.Records {
					ts, err := strconv.ParseInt(string(common.Field(r.Value, tsName)), 10, 64)
					if err != nil {
						continue
					}
					if *wend {
						ts += 2000
					}
					if ts >= start.Add(*warm).UnixMilli() {
						lat = append(lat, ms-ts)
					}
					got.Add(1)
				}
			})
			if any {
				if d := now.Sub(lastAny); d > allGap && now.Sub(start) > *warm/2 {
					allGap, allAt = d, lastAny
				}
				lastAny = now
			}
		}
	}()
	g := common.NewGen(*seed, *users, false)
	total := int64(float64(*rate) * (*warm + *dur).Seconds())
	go func() {
		defer close(producedAll)
		for i := int64(0); i < total; {
			due := int64(time.Since(start).Seconds() * float64(*rate))
			if due > total {
				due = total
			}
			now := time.Now().UnixMilli()
			for ; i < due; i++ {
				r := g.Next()
				prod.Produce(ctx, &kgo.Record{Topic: *in, Key: common.UserKey(r.User), Value: r.JSON(now, 0)}, func(_ *kgo.Record, err error) { common.Must(err) })
				sent.Add(1)
			}
			time.Sleep(2 * time.Millisecond)
		}
		common.Must(prod.Flush(ctx))
	}()
	<-producedAll
	end := time.Now()
	for time.Since(end) < *drain {
		if *expectAll && got.Load() >= sent.Load() {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	// A partition that was silent at the end counts as a gap too.
	drained := time.Since(end)
	time.Sleep(100 * time.Millisecond)
	close(stop)
	<-done
	res := result{Sent: sent.Load(), Got: got.Load(), Gap: map[string]string{}, DrainedIn: drained.Seconds()}
	if *expectAll && got.Load() < sent.Load() {
		for p := range last {
			if d := time.Since(last[p]); d > gap[p] && d > 3*time.Second {
				gap[p], gapAt[p] = d, last[p]
			}
		}
	}
	for p, d := range gap {
		res.Gap[strconv.Itoa(int(p))] = fmt.Sprintf("%dms@%.1fs", d.Milliseconds(), gapAt[p].Sub(start).Seconds())
		if d.Milliseconds() > res.WorstGap {
			res.WorstGap, res.WorstAt = d.Milliseconds(), gapAt[p].Sub(start).Seconds()
		}
	}
	res.AllGap, res.AllGapAt = allGap.Milliseconds(), allAt.Sub(start).Seconds()
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	q := func(f float64) int64 {
		if len(lat) == 0 {
			return -1
		}
		return lat[int(f*float64(len(lat)-1))]
	}
	res.P50, res.P90, res.P99, res.Max = q(.5), q(.9), q(.99), q(1)
	common.Must(json.NewEncoder(os.Stdout).Encode(res))
}
