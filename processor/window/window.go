// Package window says how a keyed stream is cut into windows (Assigner) and when windows fire (Trigger). Flink calls an
// Assigner a WindowAssigner.
//
// A window is the times t with Start <= t < End, in ms. Assigners of aligned windows (all but sessions, Global and
// counts) cut time into slices, the pieces that their windows have in common: state is kept for each slice, and a
// window is put together from its slices when it fires.
package window

import (
	"fmt"
	"reflect"
	"time"
)

// Assigner puts an event into windows by its event time. The zero Assigner is invalid; functions such as Tumbling make
// one.
type Assigner struct {
	kind              Kind
	size, slide, unit int64 // ms; unit is the length of a slice
	offset            int64 // ms
	cal               *calendar
	gap               any // of SessionFunc: func(T) time.Duration
	gapType           reflect.Type
	processing        bool
	err               error
	text              string
}

// Kind tells the assigners apart.
type Kind uint8

// The kinds of assigners.
const (
	KindTumbling Kind = 1 + iota
	KindSliding
	KindCumulate
	KindCalendar // Day, Week, Month
	KindSession
	KindGlobal
	KindCount // KeyedStream.CountWindow
)

// Kind is the kind of the assigner, 0 of the zero Assigner.
func (a Assigner) Kind() Kind { return a.kind }

// Aligned says that the windows lie in the same place for all keys: Slice and Ends tell where.
func (a Assigner) Aligned() bool { return a.kind >= KindTumbling && a.kind <= KindCalendar }

// IsProcessingTime says that ProcessingTime made it.
func (a Assigner) IsProcessingTime() bool { return a.processing }

// Tumbling cuts time into windows of equal size that do not overlap: [n*size, (n+1)*size), counted from the epoch
// (1970-01-01 UTC), backwards for times before it. size is a whole number of milliseconds, at least one. Flink:
// TumblingEventTimeWindows.of(size).
func Tumbling(size time.Duration) Assigner {
	a := Assigner{kind: KindTumbling, text: fmt.Sprintf("tumbling(%s)", size)}
	a.size = length(&a.err, "window size", size)
	a.slide, a.unit = a.size, a.size
	return a
}

// Sliding makes windows of equal size that begin every slide, counted from the epoch: with slide < size they overlap,
// and an event is in size/slide of them; with slide > size there are gaps, and an event in a gap is in no window: it is
// dropped, and not counted as late. Both are whole numbers of milliseconds. State is kept once for each slice of
// gcd(size, slide), not once for each window, so Merge of the Aggregator must be set. Flink: SlidingEventTimeWindows.of;
// SQL calls them HOP.
func Sliding(size, slide time.Duration) Assigner {
	a := Assigner{kind: KindSliding, text: fmt.Sprintf("sliding(%s, %s)", size, slide)}
	a.size, a.slide = length(&a.err, "window size", size), length(&a.err, "window slide", slide)
	if a.err == nil {
		a.unit = gcd(a.size, a.slide)
		if a.size/a.unit > maxSlices || a.slide/a.unit > maxSlices {
			a.err = fmt.Errorf("windows of %s every %s have pieces of %s, more than %d in one window; make the size a multiple of the slide", size, slide, ms(a.unit), maxSlices)
		}
	}
	return a
}

// Cumulate makes windows that grow: all windows of one period of length max (counted from the epoch) begin with it,
// and one ends after each step, up to the whole period. A key with values early in the period is in each later result
// of it. max is a multiple of step. Merge of the Aggregator must be set. Flink: CUMULATE in SQL.
func Cumulate(max, step time.Duration) Assigner {
	a := Assigner{kind: KindCumulate, text: fmt.Sprintf("cumulate(%s, %s)", max, step)}
	a.size, a.slide = length(&a.err, "window max", max), length(&a.err, "window step", step)
	if a.err == nil && (a.size%a.slide != 0 || a.size/a.slide > maxSlices) {
		a.err = fmt.Errorf("window max is %s, want a multiple of the step %s, at most %d times", max, step, maxSlices)
	}
	a.unit = a.slide
	return a
}

// maxSlices bounds the pieces of one window: each is looked at when it fires.
const maxSlices = 100_000

// Session makes windows of activity, for each key its own: events that are at most gap apart are in one session, which
// begins with its first event and ends gap after its last. An event between two sessions, at most gap from both, makes
// them one, so Merge of the Aggregator must be set. Flink: EventTimeSessionWindows.withGap.
func Session(gap time.Duration) Assigner {
	a := Assigner{kind: KindSession, text: fmt.Sprintf("session(%s)", gap)}
	a.size = length(&a.err, "session gap", gap)
	return a
}

// SessionFunc is Session with a gap that each event brings: it keeps its session open for that long, at least 1 ms (a
// shorter one, or one of millions of years, is an error of the record). T is the type of the stream. The function is
// shared by all subtasks, and must give the same gap for the same event. Flink:
// EventTimeSessionWindows.withDynamicGap.
func SessionFunc[T any](gap func(T) time.Duration) Assigner {
	a := Assigner{kind: KindSession, gap: gap, gapType: reflect.TypeFor[T](), text: "session(func)"}
	if gap == nil {
		a.err = fmt.Errorf("session gap function is nil")
	}
	return a
}

// Global makes one window for each key that holds all times and never ends: it fires only by a Trigger, which must be
// set (AtWatermark never fires it). Start and End of the window are the zero time, and its results have the highest
// event time of its elements. What the trigger does not purge stays. Flink: GlobalWindows.
func Global() Assigner { return Assigner{kind: KindGlobal, text: "global"} }

// Count is what KeyedStream.CountWindow uses.
func Count(size, slide int) Assigner {
	a := Assigner{kind: KindCount, size: int64(size), slide: int64(slide), text: fmt.Sprintf("count(%d, %d)", size, slide)}
	if size < 1 || slide < 1 {
		a.err = fmt.Errorf("count window of %d every %d elements, want at least 1", size, slide)
		return a
	}
	if a.unit = gcd(a.size, a.slide); a.size/a.unit > maxSlices {
		a.err = fmt.Errorf("count window of %d every %d elements has more than %d pieces", size, slide, maxSlices)
	}
	return a
}

// Day makes windows of calendar days in a time zone, from midnight to midnight of the wall clock: 23 or 25 hours where
// daylight saving time begins or ends. Where midnight does not exist the day begins with its first instant; where the
// clock shows it twice, with the first. A date that the zone left out has no window. Pass time.UTC or a zone of
// time.LoadLocation; Local is refused, since it is another on another machine. Flink: TUMBLE over a day of a
// TIMESTAMP_LTZ.
func Day(zone *time.Location) Assigner { return newCalendar("day", zone) }

// Week is Day for weeks, which begin on Monday (ISO 8601).
func Week(zone *time.Location) Assigner { return newCalendar("week", zone) }

// Month is Day for months.
func Month(zone *time.Location) Assigner { return newCalendar("month", zone) }

// Offset shifts the windows of a by d: days from 22:00 UTC are Offset(Tumbling(24*time.Hour), 22*time.Hour). d may be
// negative; a whole number of sizes (of slides for Sliding) changes nothing. Of Day, Week and Month it shifts the
// wall clock's time, by less than a day: Offset(Day(zone), 6*time.Hour) begins days at 06:00. Sessions, Global and
// counts have no offset. Flink: the offset argument of the assigner.
func Offset(a Assigner, d time.Duration) Assigner {
	switch {
	case a.err != nil:
	case d%time.Millisecond != 0:
		a.err = fmt.Errorf("window offset is %s, want a whole number of milliseconds", d)
	case a.kind == KindCalendar:
		if a.offset += d.Milliseconds(); a.offset <= -dayMillis || a.offset >= dayMillis {
			a.err = fmt.Errorf("window offset is %s, want less than a day for windows of the calendar", ms(a.offset))
		}
	case !a.Aligned():
		a.err = fmt.Errorf("%s has no offset", a.text)
	default:
		period := a.slide
		if a.kind == KindCumulate {
			period = a.size
		}
		a.offset = mod(a.offset+mod(d.Milliseconds(), period), period)
	}
	a.text = fmt.Sprintf("offset(%s, %s)", a.text, d)
	return a
}

// ProcessingTime makes windows of processing time of the windows of a: an event belongs to the windows of the moment
// when it is processed, its event time does not matter, and they fire when the clock shows their end. No event is
// late. Results depend on when records are processed: after a crash they may fall into other windows. The event time
// of a result is the end of its window less 1 ms, of the clock. Flink: TumblingProcessingTimeWindows and its kind.
func ProcessingTime(a Assigner) Assigner {
	if a.err == nil && !a.Aligned() && a.kind != KindSession {
		a.err = fmt.Errorf("%s knows no time, so it has no processing time", a.text)
	}
	a.processing = true
	a.text = fmt.Sprintf("processing-time(%s)", a.text)
	return a
}

// length is d in ms; if it is no length, the first error is noted.
func length(err *error, what string, d time.Duration) int64 {
	if *err == nil && (d < time.Millisecond || d%time.Millisecond != 0) {
		*err = fmt.Errorf("%s is %s, want a whole number of milliseconds, at least 1ms", what, d)
	}
	return d.Milliseconds()
}

// Slice is the slice [start, end) that holds the time ts (ms since the epoch, may be negative). Of aligned windows only.
func (a Assigner) Slice(ts int64) (start, end int64) {
	if a.kind == KindCalendar {
		return a.cal.slice(ts, a.offset)
	}
	start = ts - mod(ts-a.offset, a.unit)
	return start, start + a.unit
}

// Ends are the ends of the first and of the last window that hold the slice that ends at end; those between them
// follow with NextEnd. There is none if first > last: the slice lies in a gap.
func (a Assigner) Ends(end int64) (first, last int64) {
	switch a.kind {
	case KindSliding:
		first = end + mod(a.offset+a.size-end, a.slide)
		last = end - a.unit + a.size
		return first, last - mod(last-a.offset-a.size, a.slide)
	case KindCumulate:
		return end, end + mod(a.offset-end, a.size)
	}
	return end, end
}

// NextEnd is the lowest end of a window behind end. Of aligned windows only.
func (a Assigner) NextEnd(end int64) int64 {
	switch a.kind {
	case KindSliding:
		return end + a.slide - mod(end-a.offset-a.size, a.slide)
	case KindCalendar:
		_, next := a.cal.slice(end, a.offset)
		return next
	}
	return end + a.unit - mod(end-a.offset, a.unit)
}

// Start is the start of the slice that holds the time ts, which is the window where windows share nothing.
func (a Assigner) Start(ts int64) int64 {
	start, _ := a.Slice(ts)
	return start
}

// StartOf is the start of the window that ends at end. Of aligned windows only.
func (a Assigner) StartOf(end int64) int64 {
	switch a.kind {
	case KindCumulate:
		return end - 1 - mod(end-1-a.offset, a.size)
	case KindCalendar:
		start, _ := a.cal.slice(end-1, a.offset)
		return start
	}
	return end - a.size
}

// Shared says that windows have slices in common or consist of several.
func (a Assigner) Shared() bool {
	return (a.kind == KindSliding || a.kind == KindCumulate) && (a.unit != a.size || a.slide < a.size)
}

// Merges says that accumulators of a window are put together from others: Merge of the Aggregator must be set.
func (a Assigner) Merges() bool {
	return a.Shared() || a.kind == KindSession || a.kind == KindCount && a.size != a.unit
}

// Unit is the length of a slice in ms, of a count window in elements; 0 of windows of the calendar, which differ.
func (a Assigner) Unit() int64 { return a.unit }

// Size is the length of a window in ms (the greatest of Cumulate and of the calendar), the gap of a session, the
// elements of a count window.
func (a Assigner) Size() int64 { return a.size }

// Slide is how far apart windows begin, in ms or elements.
func (a Assigner) Slide() int64 { return a.slide }

// Origin is the offset in ms that slices are counted from.
func (a Assigner) Origin() int64 { return a.offset }

// Gap is the function of a SessionFunc, a func(T) time.Duration, and T; nil of all others.
func (a Assigner) Gap() (f any, of reflect.Type) { return a.gap, a.gapType }

// Err says what is wrong with the Assigner; package processor reports it with the topology's other errors.
func (a Assigner) Err() error {
	if a.err == nil && a.kind == 0 {
		return fmt.Errorf("window assigner is empty; use window.Tumbling or another function of package window")
	}
	return a.err
}

func (a Assigner) String() string { return a.text }

// Layout says where the windows lie, in one form for all ways to say it: state of windows that lie otherwise means
// something else.
func (a Assigner) Layout() string {
	var s string
	switch a.kind {
	case KindTumbling:
		s = fmt.Sprintf("tumbling %s", ms(a.size))
	case KindSliding:
		s = fmt.Sprintf("sliding %s every %s", ms(a.size), ms(a.slide))
	case KindCumulate:
		s = fmt.Sprintf("cumulate %s by %s", ms(a.size), ms(a.slide))
	case KindCalendar:
		s = a.cal.String()
	case KindSession:
		// What is kept says where it ends: another gap holds for what comes.
		s = "session"
	case KindGlobal:
		s = "global"
	case KindCount:
		s = fmt.Sprintf("count %d every %d", a.size, a.slide)
	}
	if a.offset != 0 {
		s += fmt.Sprintf(" offset %s", ms(a.offset))
	}
	if a.processing {
		s += " of processing time"
	}
	return s
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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
