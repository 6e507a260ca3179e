package engine

import "time"

// commitPolicy decides when an epoch is committed (pure: times come in).
//
// Due when the oldest uncommitted input is maxLatency old, or the epoch's bytes pass maxBytes, or - so that a stream that
// is not behind is fast - when the inputs are drained and the oldest uncommitted input is quiet old. A position that only moved
// past transaction markers is committed lazily. The next commit never starts sooner than commitFloor times what the
// last one took, so that commits cannot eat the time of processing.
type commitPolicy struct {
	maxLatency time.Duration
	quiet      time.Duration
	maxBytes   int64
}

const (
	commitFloor = 4
	// markerDelay is how long a position that only moved past markers may stay uncommitted.
	markerDelay = time.Second
)

// commitView is what the policy looks at. Zero times mean "none".
type commitView struct {
	now         time.Time
	oldestInput time.Time // first uncommitted record of the epoch
	lastCommit  time.Time // end of the last commit
	lastTook    time.Duration
	bytes       int64
	drained     bool // nothing buffered
	moved       bool // a position is ahead of the committed one
}

// next returns when the next commit is due, false if nothing waits for one. A time not after v.now means now.
func (p commitPolicy) next(v commitView) (time.Time, bool) {
	floor := v.lastCommit.Add(commitFloor * v.lastTook)
	if floor.After(v.lastCommit.Add(p.maxLatency)) {
		floor = v.lastCommit.Add(p.maxLatency) // a slow broker must not add up to more than one latency
	}
	if v.oldestInput.IsZero() {
		if !v.moved {
			return time.Time{}, false
		}
		return later(v.lastCommit.Add(markerDelay), floor), true
	}
	if v.bytes >= p.maxBytes {
		return v.now, true // memory is bounded before anything else
	}
	due := v.oldestInput.Add(p.maxLatency)
	if v.drained && p.quiet > 0 {
		if q := v.oldestInput.Add(p.quiet); q.Before(due) {
			due = q
		}
	}
	return later(due, floor), true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
