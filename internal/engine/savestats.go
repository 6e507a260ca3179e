package engine

import (
	"time"

	"github.com/millrace-stream/millrace/txn"
)

// SavepointTotals are the savepoints of the app of which this process has heard the end, whoever took them.
type SavepointTotals struct {
	Completed int64     `json:"completed"`
	Failed    int64     `json:"failed"`
	At        time.Time `json:"at,omitzero"` // when the last one was completed
	TookMs    int64     `json:"took_ms"`     // how long that took
	Bytes     int64     `json:"bytes"`       // what this process has written of it
	Written   int64     `json:"written"`     // bytes that this process has written to all savepoints
}

// savepointTotals are those of a worker, over incarnations. What is written of the last one may still be counted when it is
// completed. saves.mu guards it.
type savepointTotals struct {
	completed, failed int64
	at                time.Time
	took              time.Duration
	last              *savepointCounts
	gone              string // id of the one that ran when the app went to another incarnation
}

// count takes in that what was known as was is now known as now, which may be another savepoint or none (nil). The lock is held.
// A savepoint that had ended before this worker began is not counted, nor is one that was begun and ended between two looks of a worker
// that has just begun.
func (t *savepointTotals) count(was, now *savepointRun, began bool) {
	same := was != nil && now != nil && was.ID == now.ID
	if was != nil && !same && runs(&was.SavepointRequest) {
		t.failed++ // another took its place
	}
	if now == nil || runs(&now.SavepointRequest) || same && !runs(&was.SavepointRequest) || !same && began {
		return
	}
	if now.Phase == txn.SavepointFailed {
		t.failed++
		return
	}
	t.done(now)
}

// done takes in that a savepoint is completed.
func (t *savepointTotals) done(run *savepointRun) {
	t.completed++
	t.at = time.Now()
	t.took = t.at.Sub(time.UnixMilli(run.Began))
	t.last = run.counts
}

// left takes in that the app has gone to another incarnation: a rescale completes its savepoint by that.
func (t *savepointTotals) left(was *savepointRun, base *txn.Base) {
	switch {
	case was == nil || !runs(&was.SavepointRequest) || was.ID == t.gone:
		return
	case base != nil && base.ID == was.ID:
		t.done(was)
	default:
		t.failed++
	}
	t.gone = was.ID
}

func (v *saves) status() SavepointTotals {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.totals
	s := SavepointTotals{Completed: t.completed, Failed: t.failed, At: t.at, TookMs: t.took.Milliseconds(), Written: v.writtenBytes.Load()}
	if t.last != nil {
		s.Bytes = t.last.bytes.Load()
	}
	return s
}

// stands notes that processing of the subtask stands still for a savepoint, from now on; goes, that it does not any more.
func (l *life) stands() {
	if l.share.since.IsZero() {
		l.share.since = time.Now()
	}
}

func (l *life) goes() {
	if l.share.since.IsZero() {
		return
	}
	held := time.Since(l.share.since)
	l.share.since = time.Time{}
	l.s.totals.held.Add(int64(held))
	l.s.totals.lastHeld.Store(int64(held))
}
