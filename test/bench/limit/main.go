// limit is the ceiling for a Go processor: raw franz-go, no framework.
// W0 copies; W1 keeps a map in memory for each partition, emits a row for
// each record, and writes each changed key once per commit to a changelog.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func env(k, d string) string {
	if v := os.Getenv(k); v != "" {
		return v
	}
	return d
}

func envMS(k string, d int) time.Duration {
	n, err := strconv.Atoi(env(k, strconv.Itoa(d)))
	common.Must(err)
	return time.Duration(n) * time.Millisecond
}

type event struct {
	User   string  `json:"user"`
	Item   string  `json:"item"`
	Amount float64 `json:"amount"`
	TS     int64   `json:"ts"`
	Note   string  `json:"note"`
}

// span is a parsed event whose strings point into the record.
type span struct {
	user, item, note []byte
	amount           float64
	ts               int64
}

// parseFast reads a flat JSON object without escapes, in any field order. It
// reports false on anything else, and the caller takes encoding/json.
func parseFast(b []byte, s *span) bool {
	n := len(b)
	if n < 2 || b[0] != '{' {
		return false
	}
	i := 1
	for i < n {
		for i < n && (b[i] == ' ' || b[i] == ',') {
			i++
		}
		if i < n && b[i] == '}' {
			return true
		}
		if i >= n || b[i] != '"' {
			return false
		}
		i++
		k := i
		for i < n && b[i] != '"' {
			if b[i] == '\\' {
				return false
			}
			i++
		}
		if i >= n {
			return false
		}
		key := b[k:i]
		i++
		for i < n && (b[i] == ' ' || b[i] == ':') {
			i++
		}
		if i >= n {
			return false
		}
		var val []byte
		if b[i] == '"' {
			i++
			k = i
			for i < n && b[i] != '"' {
				if b[i] == '\\' {
					return false
				}
				i++
			}
			if i >= n {
				return false
			}
			val = b[k:i]
			i++
		} else {
			k = i
			for i < n && b[i] != ',' && b[i] != '}' {
				i++
			}
			val = b[k:i]
		}
		switch string(key) {
		case "user":
			s.user = val
		case "item":
			s.item = val
		case "note":
			s.note = val
		case "amount":
			f, err := strconv.ParseFloat(string(val), 64)
			if err != nil {
				return false
			}
			s.amount = f
		case "ts":
			t, err := strconv.ParseInt(string(val), 10, 64)
			if err != nil {
				return false
			}
			s.ts = t
		}
	}
	return false
}

type agg struct {
	n     int64
	sum   float64
	dirty bool
}

type part struct {
	m     map[string]*agg
	dirty []string
}

func main() {
	var (
		in, out  = env("IN", "events"), env("OUT", "out")
		group    = env("GROUP", "limit")
		w        = env("WORKLOAD", "w0")
		commit   = envMS("COMMIT_MS", 1000)
		stdJSON  = env("PARSER", "fast") == "std"
		clog     = group + "-changelog"
		sessOpts []kgo.Opt
	)
	comp := kgo.NoCompression()
	if env("COMPRESSION", "none") == "lz4" {
		comp = kgo.Lz4Compression()
	}
	if s := os.Getenv("SESSION_MS"); s != "" {
		sessOpts = append(sessOpts, kgo.SessionTimeout(envMS("SESSION_MS", 45000)), kgo.HeartbeatInterval(envMS("SESSION_MS", 45000)/4))
	}
	// STATIC: a static group member with a fixed transactional id, so that a
	// restarted process takes over at once and fences its former self.
	txnID := fmt.Sprintf("%s-%s-%d", group, env("INSTANCE", "0"), os.Getpid())
	if os.Getenv("STATIC") != "" {
		txnID = group + "-" + env("INSTANCE", "0")
		sessOpts = append(sessOpts, kgo.InstanceID(txnID))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()

	parts := map[int32]*part{}
	// Partitions taken away since the last poll (callbacks run elsewhere).
	var mu sync.Mutex
	var dropped []int32
	drop := func(ps []int32) {
		mu.Lock()
		dropped = append(dropped, ps...)
		mu.Unlock()
	}
	var sess *kgo.GroupTransactSession
	var err error
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(common.Brokers()...),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(in),
		kgo.TransactionalID(txnID),
		kgo.TransactionTimeout(envMS("TXN_MS", 40000)),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ProducerBatchCompression(comp),
		kgo.ProducerBatchMaxBytes(900_000), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.MaxBufferedRecords(500_000), kgo.FetchMaxPartitionBytes(4 << 20), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			drop(m[in])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			drop(m[in])
		}),
	}, sessOpts...)
	if w == "w1" {
		cl := common.Client()
		adm := kadm.NewClient(cl)
		_, _ = adm.CreateTopic(ctx, 4, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}, clog)
		cl.Close()
	}
	sess, err = kgo.NewGroupTransactSession(opts...)
	common.Must(err)
	defer sess.Close()
	cl := sess.Client()

	onErr := func(_ *kgo.Record, err error) {
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "produce:", err)
		}
	}
	var arena []byte
	alloc := func(n int) []byte {
		if len(arena) < n {
			arena = make([]byte, 1<<20)
		}
		b := arena[:0:n]
		arena = arena[n:]
		return b
	}
	var s span
	parse := func(v []byte) bool {
		s = span{}
		if !stdJSON && parseFast(v, &s) {
			return true
		}
		var e event
		if json.Unmarshal(v, &e) != nil {
			return false
		}
		s = span{[]byte(e.User), []byte(e.Item), []byte(e.Note), e.Amount, e.TS}
		return true
	}
	recs := make([]kgo.Record, 0)
	rec := func() *kgo.Record {
		if len(recs) == 0 {
			recs = make([]kgo.Record, 4096)
		}
		r := &recs[0]
		recs = recs[1:]
		return r
	}

	open := false
	var began time.Time
	for ctx.Err() == nil {
		pctx, pc := context.WithTimeout(ctx, 20*time.Millisecond)
		if open {
			pc()
			left := commit - time.Since(began)
			if left < time.Millisecond {
				left = time.Millisecond
			}
			pctx, pc = context.WithTimeout(ctx, left)
		}
		fs := sess.PollFetches(pctx)
		pc()
		mu.Lock()
		for _, p := range dropped {
			delete(parts, p)
		}
		dropped = dropped[:0]
		mu.Unlock()
		if fs.NumRecords() > 0 && !open {
			common.Must(sess.Begin())
			open, began = true, time.Now()
		}
		fs.EachPartition(func(tp kgo.FetchTopicPartition) {
			if len(tp.Records) == 0 {
				return
			}
			var pt *part
			if w == "w1" {
				pt = parts[tp.Partition]
				if pt == nil {
					pt = restore(ctx, clog, tp.Partition)
					parts[tp.Partition] = pt
				}
			}
			for _, r := range tp.Records {
				if !parse(r.Value) {
					continue
				}
				o := rec()
				o.Topic = out
				o.Key = r.Key
				if w == "w0" {
					if s.amount < 1 {
						continue
					}
					b := alloc(len(r.Value) + 40)
					b = append(b, `{"user":"`...)
					b = append(b, s.user...)
					b = append(b, `","item":"`...)
					b = append(b, s.item...)
					b = append(b, `","amount":`...)
					b = strconv.AppendFloat(b, s.amount, 'f', -1, 64)
					b = append(b, `,"ts":`...)
					b = strconv.AppendInt(b, s.ts, 10)
					b = append(b, `,"note":"`...)
					b = append(b, s.note...)
					b = append(b, `"}`...)
					o.Value = b
					cl.Produce(ctx, o, onErr)
					continue
				}
				a := pt.m[string(s.user)]
				if a == nil {
					a = &agg{}
					pt.m[string(s.user)] = a
				}
				a.n++
				a.sum += s.amount
				if !a.dirty {
					a.dirty = true
					pt.dirty = append(pt.dirty, string(s.user))
				}
				b := alloc(128)
				b = append(b, `{"user":"`...)
				b = append(b, s.user...)
				b = append(b, `","count":`...)
				b = strconv.AppendInt(b, a.n, 10)
				b = append(b, `,"sum":`...)
				b = strconv.AppendFloat(b, math.Round(a.sum*100)/100, 'f', -1, 64)
				b = append(b, `,"ts":`...)
				b = strconv.AppendInt(b, s.ts, 10)
				b = append(b, '}')
				o.Value = b
				cl.Produce(ctx, o, onErr)
			}
		})
		if open && time.Since(began) >= commit {
			for _, pt := range parts {
				for _, k := range pt.dirty {
					a := pt.m[k]
					a.dirty = false
					b := alloc(64)
					b = strconv.AppendInt(b, a.n, 10)
					b = append(b, ' ')
					b = strconv.AppendFloat(b, a.sum, 'g', -1, 64)
					// The key hashes to the same partition here: events, out
					// and the changelog have the same number of partitions.
					cl.Produce(ctx, &kgo.Record{Topic: clog, Key: []byte(k), Value: b}, onErr)
				}
				pt.dirty = pt.dirty[:0]
			}
			ok, err := sess.End(ctx, kgo.TryCommit)
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "end:", err)
				os.Exit(1)
			}
			if !ok {
				fmt.Fprintln(os.Stderr, time.Now().Format("15:04:05.000"), "transaction aborted")
				clear(parts)
			}
			open = false
		}
	}
}

func restore(ctx context.Context, topic string, p int32) *part {
	pt := &part{m: map[string]*agg{}}
	cl := common.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(8<<20), kgo.FetchMaxWait(50*time.Millisecond))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	// Wait until no transaction of a former owner is open.
	var end int64
	for ctx.Err() == nil {
		hw, err := common.Ends(adm, topic, false)
		common.Must(err)
		lso, err := common.Ends(adm, topic, true)
		common.Must(err)
		end = lso[p]
		if hw[p] == lso[p] {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if end == 0 {
		return pt
	}
	t0 := time.Now()
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(0)}})
	n := 0
	for at := int64(0); at < end && ctx.Err() == nil; {
		fs := cl.PollFetches(ctx)
		fs.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if r.Attrs.IsControl() {
				return
			}
			n++
			i := bytes.IndexByte(r.Value, ' ')
			c, err := strconv.ParseInt(string(r.Value[:i]), 10, 64)
			common.Must(err)
			f, err := strconv.ParseFloat(string(r.Value[i+1:]), 64)
			common.Must(err)
			pt.m[string(r.Key)] = &agg{n: c, sum: f}
		})
	}
	fmt.Fprintf(os.Stderr, "restored partition %d: %d rows, %d keys, %s\n", p, n, len(pt.m), time.Since(t0).Round(time.Millisecond))
	return pt
}
