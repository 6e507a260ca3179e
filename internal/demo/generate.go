package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
)

// generator produces orders at a rate: most of them in order, a part out of order within the bound, and one in
// lateEvery later than the job waits for.
type generator struct {
	cl         *kgo.Client
	topic      string
	partitions int32
	rate       int
	rnd        *rand.Rand
	sent       atomic.Int64
	failed     atomic.Pointer[error]
}

const (
	users     = 200
	lateEvery = 200
	firstID   = 1_000_000
)

// run sends until ctx ends, then one closing record to each partition, whose event time closes all windows.
func (g *generator) run(ctx context.Context) error {
	serde, err := format.JSON[Order]()
	if err != nil {
		return err
	}
	// Sending must survive the end of ctx: what was counted as sent has to arrive.
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
	defer cancel()
	send := func(o Order, partition int32) error {
		value, err := serde.Append(nil, &o)
		if err != nil {
			return err
		}
		g.cl.Produce(sctx, &kgo.Record{Topic: g.topic, Partition: partition, Key: []byte(o.User), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				g.failed.CompareAndSwap(nil, &err)
			}
		})
		return nil
	}
	const pace = 20 * time.Millisecond
	tick := time.NewTicker(pace)
	defer tick.Stop()
	start := time.Now()
	id := int64(firstID)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-tick.C:
			due := int64(now.Sub(start).Seconds() * float64(g.rate))
			for n := id - firstID; n < due; n++ {
				user := "user-" + strconv.Itoa(int(float64(users)*g.rnd.Float64()*g.rnd.Float64()))
				o := Order{ID: id, User: user, Cents: 100 + g.rnd.Int64N(9900), At: now.Add(-g.delay())}
				if err := send(o, format.Partition([]byte(user), g.partitions)); err != nil {
					return err
				}
				id++
			}
			g.sent.Store(id - firstID)
		}
	}
	end := time.Now().Add(time.Minute)
	for p := range g.partitions {
		if err := send(Order{User: closingUser(p, g.partitions), At: end}, p); err != nil {
			return err
		}
	}
	fctx, fcancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer fcancel()
	if err := g.cl.Flush(fctx); err != nil {
		return fmt.Errorf("flush generated orders: %w", err)
	}
	if p := g.failed.Load(); p != nil {
		return fmt.Errorf("produce orders to %s: %w", g.topic, *p)
	}
	return nil
}

// delay is how long ago an order happened when it is sent.
func (g *generator) delay() time.Duration {
	switch n := g.rnd.IntN(lateEvery); {
	case n == 0:
		return maxOutOfOrder + windowSize + time.Duration(g.rnd.Int64N(int64(4*time.Second)))
	case n < lateEvery/4:
		return time.Duration(g.rnd.Int64N(int64(maxOutOfOrder * 9 / 10)))
	}
	return 0
}

// closingUser is a key that the partitioner puts on partition p.
func closingUser(p, partitions int32) string {
	for i := 0; ; i++ {
		user := "closing-" + strconv.Itoa(i)
		if format.Partition([]byte(user), partitions) == p {
			return user
		}
	}
}

func isClosing(user string) bool { return len(user) > 8 && user[:8] == "closing-" }
