// Package window says how a keyed stream is cut into windows. Flink calls an Assigner a WindowAssigner.
package window

import (
	"fmt"
	"time"
)

// Assigner puts an event into a window by its event time. The zero Assigner is invalid; Tumbling makes one.
type Assigner struct {
	size, offset int64 // ms
	err          error
	text         string
}

// Tumbling cuts time into windows of equal size that do not overlap: [n*size, (n+1)*size), counted from the epoch
// (1970-01-01 UTC), backwards for times before it. size is a whole number of milliseconds, at least one. Flink:
// TumblingEventTimeWindows.of(size).
func Tumbling(size time.Duration) Assigner {
	a := Assigner{size: size.Milliseconds(), text: fmt.Sprintf("tumbling(%s)", size)}
	if size < time.Millisecond || size%time.Millisecond != 0 {
		a.err = fmt.Errorf("window size is %s, want a whole number of milliseconds, at least 1ms", size)
	}
	return a
}

// Offset shifts the windows of a by d: days from 22:00 UTC are Offset(Tumbling(24*time.Hour), 22*time.Hour). d may be
// negative; a whole number of sizes changes nothing. Flink: the offset argument of the assigner.
func Offset(a Assigner, d time.Duration) Assigner {
	if a.err == nil && d%time.Millisecond != 0 {
		a.err = fmt.Errorf("window offset is %s, want a whole number of milliseconds", d)
	}
	a.text = fmt.Sprintf("offset(%s, %s)", a.text, d)
	if a.size > 0 {
		a.offset = mod(a.offset+mod(d.Milliseconds(), a.size), a.size)
	}
	return a
}

// Start is the start of the window that holds an event at time ts (ms since the epoch, may be negative); the window
// ends, exclusively, Size later.
func (a Assigner) Start(ts int64) int64 { return ts - mod(ts-a.offset, a.size) }

// Size is the length of a window in ms.
func (a Assigner) Size() int64 { return a.size }

// Err says what is wrong with the Assigner; package processor reports it with the topology's other errors.
func (a Assigner) Err() error {
	if a.err == nil && a.size == 0 {
		return fmt.Errorf("window assigner is empty; use window.Tumbling")
	}
	return a.err
}

func (a Assigner) String() string { return a.text }

// Layout says where the windows lie, in one form for all ways to say it: state of windows that lie otherwise means
// something else.
func (a Assigner) Layout() string {
	s := fmt.Sprintf("tumbling %s", time.Duration(a.size)*time.Millisecond)
	if a.offset != 0 {
		s += fmt.Sprintf(" offset %s", time.Duration(a.offset)*time.Millisecond)
	}
	return s
}

// mod is the remainder that has the sign of the divisor: Go's % rounds towards zero, which would give the two windows
// around the epoch the same start.
func mod(a, b int64) int64 {
	r := a % b
	if r < 0 {
		r += b
	}
	return r
}
