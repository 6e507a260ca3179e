package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// pollLoop owns the consumer. Adding and removing partitions happens between polls on its goroutine: what a poll
// returned is handed over before the routes change, so that a batch of an old position never reaches a subtask that
// was given a new one.
type pollLoop struct {
	consumer *txn.Consumer
	log      *slog.Logger

	mu    sync.Mutex
	queue []func()
	wake  context.CancelFunc // ends the running poll

	routes map[record.TopicPartition]*inbox // only the poll loop's goroutine
	ended  chan struct{}
}

func newPollLoop(c *txn.Consumer, log *slog.Logger) *pollLoop {
	return &pollLoop{consumer: c, log: log, routes: map[record.TopicPartition]*inbox{}, ended: make(chan struct{})}
}

// do runs f between two polls.
func (p *pollLoop) do(f func()) {
	p.mu.Lock()
	p.queue = append(p.queue, f)
	wake := p.wake
	p.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// doWait runs f between two polls and waits for it.
func (p *pollLoop) doWait(f func()) {
	done := make(chan struct{})
	p.do(func() { f(); close(done) })
	select {
	case <-done:
	case <-p.ended:
	}
}

// add starts fetching partitions at offsets, for an inbox.
func (p *pollLoop) add(at map[record.TopicPartition]int64, in *inbox) {
	p.doWait(func() {
		for tp := range at {
			p.routes[tp] = in
		}
		p.consumer.Add(at)
	})
}

// remove stops fetching; nothing more reaches the inbox when it returns. An inbox that does not own a route any more
// is left alone.
func (p *pollLoop) remove(tps []record.TopicPartition, in *inbox) {
	p.doWait(func() {
		var mine []record.TopicPartition
		for _, tp := range tps {
			if p.routes[tp] == in {
				delete(p.routes, tp)
				mine = append(mine, tp)
			}
		}
		if len(mine) > 0 {
			p.consumer.Remove(mine)
		}
	})
}

func (p *pollLoop) resume(tps []record.TopicPartition, in *inbox) {
	p.do(func() {
		if mine := p.routed(tps, in); len(mine) > 0 {
			p.consumer.Resume(mine)
		}
	})
}

// pauseSome makes partitions wait whatever room the inbox has, resumeSome ends that: at once, or when all are resumed.
func (p *pollLoop) pauseSome(tps []record.TopicPartition, in *inbox) {
	p.do(func() {
		if mine := p.routed(tps, in); len(mine) > 0 {
			p.consumer.Pause(mine)
		}
	})
}

func (p *pollLoop) resumeSome(tps []record.TopicPartition, in *inbox) {
	p.do(func() {
		if mine := p.routed(tps, in); len(mine) > 0 && !in.isPaused() {
			p.consumer.Resume(mine)
		}
	})
}

func (p *pollLoop) routed(tps []record.TopicPartition, in *inbox) (mine []record.TopicPartition) {
	for _, tp := range tps {
		if p.routes[tp] == in {
			mine = append(mine, tp)
		}
	}
	return mine
}

func (p *pollLoop) run(ctx context.Context) {
	defer close(p.ended)
	for ctx.Err() == nil {
		pctx, cancel := context.WithCancel(ctx)
		p.mu.Lock()
		todo := p.queue
		p.queue = nil
		p.wake = cancel
		p.mu.Unlock()
		for _, f := range todo {
			f()
		}
		p.mu.Lock()
		if len(p.queue) > 0 {
			p.wake = nil
			p.mu.Unlock()
			cancel()
			continue
		}
		p.mu.Unlock()
		fetched, err := p.consumer.Poll(pctx)
		cancel()
		p.mu.Lock()
		p.wake = nil
		p.mu.Unlock()
		for _, f := range fetched {
			in := p.routes[f.TopicPartition]
			if in == nil {
				continue
			}
			if in.put(f) {
				p.pause(in)
			}
		}
		if err != nil && ctx.Err() == nil && pctx.Err() == nil {
			p.log.Warn("poll", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	// Whoever still waits must not wait for ever.
	p.mu.Lock()
	todo := p.queue
	p.queue = nil
	p.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

func (p *pollLoop) pause(in *inbox) {
	var tps []record.TopicPartition
	for tp, r := range p.routes {
		if r == in {
			tps = append(tps, tp)
		}
	}
	p.consumer.Pause(tps)
}
