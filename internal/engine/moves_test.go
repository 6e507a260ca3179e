package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// sendWords writes one record for each number from from to to-1.
func (c *cluster) sendWords(from, to int, text func(n int) string) {
	c.t.Helper()
	var rs []*kgo.Record
	for n := from; n < to; n++ {
		v, err := json.Marshal(word{text(n), int64(n)})
		if err != nil {
			c.t.Fatal(err)
		}
		rs = append(rs, &kgo.Record{Topic: "in", Key: fmt.Append(nil, n), Value: v})
	}
	if err := c.cl.ProduceSync(c.t.Context(), rs...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

// values reads what a topic holds as JSON.
func values[T any](c *cluster, topic string) []T {
	c.t.Helper()
	var all []T
	for _, r := range c.read(topic) {
		var v T
		if err := json.Unmarshal(r.Value, &v); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// given is a number that a key got.
type given struct {
	Group string `json:"group"`
	Key   string `json:"key"`
	ID    int64  `json:"id"`
}

// giveNumbers gives each key of a group a number of its own, the next one.
func giveNumbers(t *processor.Topology) {
	words := processor.From(t, processor.Topic[word]{Name: "in"})
	byGroup := processor.KeyBy(words, "by-text", func(w word) string { group, _, _ := strings.Cut(w.Text, "/"); return group })
	processor.ToTopic(processor.Process(byGroup, "give", func(ctx *processor.KeyedContext[string, word, given]) {
		last := processor.Value[int64](ctx, "last")
		ids := processor.MapOf[string, int64](ctx, "ids")
		ctx.OnRecord(func(w word) error {
			id, ok := ids.Get(w.Text)
			if !ok {
				id = last.Get() + 1
				last.Set(id)
				ids.Put(w.Text, id)
			}
			ctx.Emit(given{ctx.Key(), w.Text, id})
			return nil
		})
	}), "out")
}

// TestNoNumberIsGivenTwice: a job gives each of 3000 keys the next free number, while members that own subtasks are cut off
// the network again and again, those with standbys take over, and new ones join. No key gets two numbers, and no number two
// keys. The kind of fault (P15, seen where caches and standbys meet exactly-once): a subtask that moves goes on from state
// that is older than what was committed, so that it does again what it has forgotten.
func TestNoNumberIsGivenTwice(t *testing.T) {
	c := newCluster(t)
	const keys, moves = 3000, 2
	text := func(n int) string { return fmt.Sprintf("group-%d/%d", n%keys%16, n%keys) }
	app := "words"
	start := func(net *wire) *member {
		return c.start(app, giveNumbers, memstore.NewDir(app), func(o *engine.Options) {
			keeps(&restores{}, net)(o)
			o.Kafka.SessionTimeout = time.Second
		})
	}
	nets := []*wire{{}, {}}
	members := []*member{start(nets[0]), start(nets[1])}
	sent := 0
	for move := range moves {
		c.sendWords(sent, sent+keys/moves, text)
		sent += keys / moves
		c.drained(app, "in", "words-by-text-repartition")
		followed(t, nparts, members...)
		// In the midst of work: half of these keys are new, half are known.
		c.sendWords(sent-keys/moves/2, sent, text)
		c.sendWords(sent, sent+keys/moves/2, text)
		dead := move % 2
		nets[dead].cut()
		nets[dead] = &wire{}
		old := members[dead]
		members[dead] = start(nets[dead])
		old.cancel()
		c.drained(app, "in", "words-by-text-repartition")
	}
	c.sendWords(0, keys, text)
	c.drained(app, "in", "words-by-text-repartition")
	ids, owners := map[string]int64{}, map[string]string{}
	for _, g := range values[given](c, "out") {
		number := fmt.Sprintf("%s number %d", g.Group, g.ID)
		if id, ok := ids[g.Key]; ok && id != g.ID {
			t.Errorf("key %s has got the numbers %d and %d", g.Key, id, g.ID)
		}
		if key, ok := owners[number]; ok && key != g.Key {
			t.Errorf("%s was given to %s and to %s", number, key, g.Key)
		}
		ids[g.Key], owners[number] = g.ID, g.Key
	}
	if len(ids) != keys {
		t.Errorf("%d keys have numbers, want %d", len(ids), keys)
	}
}

// batch is what a batcher has put together.
type batch struct {
	Key     string  `json:"key"`
	Numbers []int64 `json:"numbers"`
}

// batches puts records together: ten at most, and none waits longer than a moment.
func batches(t *processor.Topology) {
	words := processor.From(t, processor.Topic[word]{Name: "in"})
	byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
	processor.ToTopic(processor.Process(byText, "batch", func(ctx *processor.KeyedContext[string, word, batch]) {
		open := processor.Value[batch](ctx, "open")
		flush := func() {
			if b, ok := open.Load(); ok {
				b.Key = ctx.Key()
				ctx.Emit(b)
				open.Clear()
			}
		}
		ctx.OnRecord(func(w word) error {
			b := open.Get()
			if len(b.Numbers) == 0 {
				ctx.RegisterProcessingTimer(ctx.ProcessingTime().Add(100 * time.Millisecond))
			}
			b.Numbers = append(slices.Clone(b.Numbers), w.N)
			open.Set(b)
			if len(b.Numbers) == 10 {
				flush()
			}
			return nil
		})
		ctx.OnTimer(func(processor.Timer) error { flush(); return nil })
	}), "out")
}

// TestNoBatchIsLostWhenMembersComeAndGo: records are put together to batches while two members become three, one is cut off,
// and one leaves. Each record is in one batch. The kind of fault (P15b): what a subtask has put together and not yet written
// is thrown away, or written by both, when a rebalance takes the subtask elsewhere.
func TestNoBatchIsLostWhenMembersComeAndGo(t *testing.T) {
	c := newCluster(t)
	app := "words"
	plain := func(o *engine.Options) { o.ShutdownTimeout = 2 * time.Second }
	text := func(n int) string { return fmt.Sprintf("word-%d", n%61) }
	a := c.start(app, batches, memstore.NewDir(app), plain)
	var net wire
	b := c.start(app, batches, memstore.NewDir(app), func(o *engine.Options) { plain(o); o.Kafka.Dialer = net.dial })
	running := func(ms ...*member) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			n := 0
			for _, m := range ms {
				subs := m.w.Status().Subtasks
				if len(subs) == 0 {
					return errors.New("a member has nothing to do")
				}
				for _, s := range subs {
					if s.State == engine.SubtaskRunning {
						n++
					}
				}
			}
			if n != 2*nparts {
				return fmt.Errorf("%d subtasks run, want %d", n, 2*nparts)
			}
			return nil
		})
	}
	running(a, b)
	sent := 0
	work := func() { c.sendWords(sent, sent+700, text); sent += 700 } // no multiple of ten for any word: batches stay open
	work()
	joined := c.start(app, batches, memstore.NewDir(app), plain)
	work()
	running(a, b, joined)
	work()
	net.cut()
	b.cancel()
	work()
	running(a, joined)
	work()
	a.cancel()
	if err := a.wait(t); err != nil {
		t.Log(err) // a rebalance at that moment may keep it from its last commit: the next owner does it again
	}
	work()
	c.drained(app, "in", "words-by-text-repartition")
	seen := map[int64]int{}
	testutil.Eventually(t, patience, func() error { // the last batches go out by the clock
		clear(seen)
		for _, b := range values[batch](c, "out") {
			for _, n := range b.Numbers {
				seen[n]++
			}
		}
		if len(seen) != sent {
			return fmt.Errorf("%d records are in batches, want %d", len(seen), sent)
		}
		return nil
	})
	for n, times := range seen {
		if times != 1 {
			t.Errorf("record %d is in %d batches", n, times)
		}
	}
}
