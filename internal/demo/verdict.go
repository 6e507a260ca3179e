package demo

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
)

// verdict compares the committed output with what the input says it must be. It reads all three topics
// read_committed from the start, as any consumer would.
type verdict struct {
	Orders, OnTime, Late int64 // in the input
	Rows                 int64 // windows counted in the output
	Wrong                []string
}

func (v verdict) ok() bool { return len(v.Wrong) == 0 }

type cell struct {
	user string
	end  int64
}

// truth recomputes windows and late orders from the input. Each subtask owns one partition, so the watermark that an
// order met is that of its own partition: the highest time before it, less the bound.
type truth struct {
	partitions map[int32]int64 // highest event time
	windows    map[cell]total
	late       map[int64]bool
	orders     int64
}

func newTruth() *truth {
	return &truth{partitions: map[int32]int64{}, windows: map[cell]total{}, late: map[int64]bool{}}
}

// add takes the next order of a partition.
func (t *truth) add(partition int32, o Order) {
	at, size := o.At.UnixMilli(), windowSize.Milliseconds()
	seen, ok := t.partitions[partition]
	if !ok {
		seen = math.MinInt64
	}
	watermark := int64(math.MinInt64)
	if ok {
		watermark = seen - maxOutOfOrder.Milliseconds() - 1
	}
	end := at - floorMod(at, size) + size
	if !isClosing(o.User) {
		t.orders++
		if end-1 <= watermark {
			t.late[o.ID] = true
		} else {
			c := t.windows[cell{o.User, end}]
			c.n, c.cents, c.ids = c.n+1, c.cents+o.Cents, c.ids+o.ID
			t.windows[cell{o.User, end}] = c
		}
	}
	t.partitions[partition] = max(seen, at)
}

func floorMod(a, n int64) int64 { return (a%n + n) % n }

// judge reads everything and compares.
func judge(ctx context.Context, cl *kgo.Client, in, out, lateOut string) (verdict, error) {
	var v verdict
	orders, err := format.JSON[Order]()
	if err != nil {
		return v, err
	}
	counts, err := format.JSON[Count]()
	if err != nil {
		return v, err
	}
	t := newTruth()
	err = readAll(ctx, cl, in, func(r *kgo.Record) error {
		var o Order
		if err := orders.Decode(r.Value, &o); err != nil {
			return err
		}
		t.add(r.Partition, o)
		return nil
	})
	if err != nil {
		return v, err
	}
	wrongf := func(f string, a ...any) {
		if len(v.Wrong) < 10 {
			v.Wrong = append(v.Wrong, fmt.Sprintf(f, a...))
		}
	}
	seen := map[cell]bool{}
	err = readAll(ctx, cl, out, func(r *kgo.Record) error {
		var c Count
		if err := counts.Decode(r.Value, &c); err != nil {
			return err
		}
		if isClosing(c.User) {
			return nil
		}
		k := cell{c.User, c.End.UnixMilli()}
		v.Rows++
		want, ok := t.windows[k]
		got := total{c.Count, c.Cents, c.IDs}
		switch {
		case seen[k]:
			wrongf("window of %s ending %s was written twice", c.User, c.End.Format(time.TimeOnly))
		case !ok:
			wrongf("window of %s ending %s has no order", c.User, c.End.Format(time.TimeOnly))
		case got != want:
			wrongf("window of %s ending %s: %d orders, %d cents; want %d, %d", c.User, c.End.Format(time.TimeOnly), got.n, got.cents, want.n, want.cents)
		}
		seen[k] = true
		return nil
	})
	if err != nil {
		return v, err
	}
	lateSeen := map[int64]bool{}
	err = readAll(ctx, cl, lateOut, func(r *kgo.Record) error {
		var o Order
		if err := orders.Decode(r.Value, &o); err != nil {
			return err
		}
		switch {
		case lateSeen[o.ID]:
			wrongf("late order %d was written twice", o.ID)
		case !t.late[o.ID]:
			wrongf("order %d went to the late output but was not late", o.ID)
		}
		lateSeen[o.ID] = true
		return nil
	})
	if err != nil {
		return v, err
	}
	for k, want := range t.windows {
		if !seen[k] {
			wrongf("window of %s ending %s is missing (%d orders)", k.user, time.UnixMilli(k.end).Format(time.TimeOnly), want.n)
		}
	}
	for id := range t.late {
		if !lateSeen[id] {
			wrongf("late order %d is missing", id)
		}
	}
	v.Orders, v.Late = t.orders, int64(len(t.late))
	v.OnTime = v.Orders - v.Late
	return v, nil
}

// readAll reads a topic, read_committed, from its start to the ends it has now, each partition in order.
func readAll(ctx context.Context, cl *kgo.Client, topic string, fn func(*kgo.Record) error) error {
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	left := map[int32]int64{}
	at := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
			at[o.Partition] = kgo.NewOffset().At(0)
		}
	})
	rd, err := kgo.NewClient(append(cl.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		return err
	}
	defer rd.Close()
	for len(left) > 0 {
		fs := rd.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		var failure error
		fs.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if !ok || r.Offset >= end {
				return
			}
			if !r.Attrs.IsControl() && failure == nil {
				failure = fn(r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
		if failure != nil {
			return fmt.Errorf("read %s: %w", topic, failure)
		}
	}
	return nil
}

// report is the verdict in words.
func (v verdict) report() string {
	var b strings.Builder
	if v.ok() {
		fmt.Fprintf(&b, "exactly once: %d orders in, %d of them on time and counted once each in %d windows, %d late ones in the late topic once each.", v.Orders, v.OnTime, v.Rows, v.Late)
		return b.String()
	}
	fmt.Fprintf(&b, "WRONG: %d orders in, %d on time, %d late; the committed output differs:", v.Orders, v.OnTime, v.Late)
	for _, w := range v.Wrong {
		b.WriteString("\n  - " + w)
	}
	return b.String()
}
