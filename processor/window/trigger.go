package window

import (
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// Action is what a Trigger wants to become of its window. Flink: TriggerResult.
type Action uint8

// The actions. Purging empties the window and leaves the trigger's state and timers; what is fired is what was in the
// window before.
const (
	Continue Action = iota
	Fire
	Purge
	FireAndPurge
)

// Context is what a Trigger knows of the window of one key that it is asked about. It is valid during the call.
type Context interface {
	// Window gives start and end of the window, of Global zero times.
	Window() (start, end time.Time)
	// Time is the event time of the element, or the time that the timer was set for.
	Time() time.Time
	// Watermark is the operator's watermark, the zero time before the first; of windows of processing time the clock.
	Watermark() time.Time
	// ProcessingTime is the clock, as of the last look at it.
	ProcessingTime() time.Time
	// Element is a pointer to the element in OnElement, nil otherwise: see the function Element.
	Element() any
	// RegisterEventTimer asks for OnEventTime when the watermark reaches at, at once if it has. Timers of one window for
	// the same ms are one.
	RegisterEventTimer(at time.Time)
	// RegisterProcessingTimer asks for OnProcessingTime when the clock reaches at.
	RegisterProcessingTimer(at time.Time)
	// DeleteEventTimer and DeleteProcessingTimer remove a timer, if it is set.
	DeleteEventTimer(at time.Time)
	DeleteProcessingTimer(at time.Time)
}

// Element is the element of a call of OnElement; T is the type of the stream. Another type is a panic, which goes by
// the operator's policy.
func Element[T any](c Context) T { return *c.Element().(*T) }

// Trigger says when the window of a key fires. AtWatermark, EveryCount and others make one, Custom one of the program's
// own with typed state. It is shared by all subtasks: what it remembers is its state, one for each window of each key,
// which goes with the window. The state is encoded; nil is that of a new window. Timers that are left when a window
// goes are dropped.
//
// A window goes, whatever its trigger says, when the watermark has passed its end and the allowed lateness; Global
// windows stay. A window that was purged and has got nothing new does not fire. Flink: Trigger.
type Trigger interface {
	// OnElement is called after an element was added to the window.
	OnElement(c Context, state []byte) (Action, []byte)
	// OnEventTime and OnProcessingTime are called for timers.
	OnEventTime(c Context, state []byte) (Action, []byte)
	OnProcessingTime(c Context, state []byte) (Action, []byte)
	// OnMerge makes one state of two when sessions become one. The timers of both are kept.
	OnMerge(c Context, state, other []byte) []byte
	// Describe names the trigger, its parameters and how it keeps its state: a program with another text has another
	// topology. The error says what is wrong with it.
	Describe() (string, error)
}

// Custom is a Trigger of the program's own with state of type S, which must be storable. Functions that are nil
// continue; OnMerge nil takes the state of one of the two.
type Custom[S any] struct {
	Name             string // 1 to 40 of a-z, 0-9 and -
	OnElement        func(c Context, s *S) Action
	OnEventTime      func(c Context, s *S) Action
	OnProcessingTime func(c Context, s *S) Action
	OnMerge          func(c Context, into, from *S)
}

// Trigger makes the Trigger.
func (f Custom[S]) Trigger() Trigger {
	t := &custom[S]{f: f}
	t.codec, t.err = statestore.CodecOf[S]()
	if t.err != nil {
		t.err = fmt.Errorf("trigger %q: state type: %w", f.Name, t.err)
	}
	if f.Name == "" || len(f.Name) > 40 {
		t.err = fmt.Errorf("trigger name %q must be 1 to 40 characters", f.Name)
	}
	return t
}

type custom[S any] struct {
	f     Custom[S]
	codec statestore.Codec[S]
	err   error
}

func (t *custom[S]) load(state []byte) *S {
	s := new(S)
	if state != nil {
		if err := t.codec.Decode(state, s); err != nil {
			panic(fmt.Errorf("read state of trigger %q: %w", t.f.Name, err))
		}
	}
	return s
}

func (t *custom[S]) call(f func(Context, *S) Action, c Context, state []byte) (Action, []byte) {
	if f == nil {
		return Continue, state
	}
	s := t.load(state)
	a := f(c, s)
	return a, t.codec.Append(nil, s)
}

func (t *custom[S]) OnElement(c Context, state []byte) (Action, []byte) {
	return t.call(t.f.OnElement, c, state)
}

func (t *custom[S]) OnEventTime(c Context, state []byte) (Action, []byte) {
	return t.call(t.f.OnEventTime, c, state)
}

func (t *custom[S]) OnProcessingTime(c Context, state []byte) (Action, []byte) {
	return t.call(t.f.OnProcessingTime, c, state)
}

func (t *custom[S]) OnMerge(c Context, state, other []byte) []byte {
	if t.f.OnMerge == nil {
		if state == nil {
			return other
		}
		return state
	}
	into, from := t.load(state), t.load(other)
	t.f.OnMerge(c, into, from)
	return t.codec.Append(nil, into)
}

func (t *custom[S]) Describe() (string, error) {
	if t.err != nil {
		return t.f.Name, t.err
	}
	return t.f.Name + " " + t.codec.Schema(), nil
}

// AtWatermark fires a window when the watermark reaches its last ms, and for each element that comes after that
// within the allowed lateness. Windows fire like this if no Trigger is set; it is there to be wrapped. A window of
// processing time fires when the clock shows its end. Flink: EventTimeTrigger, ProcessingTimeTrigger.
func AtWatermark() Trigger { return &atWatermark{} }

type atWatermark struct{}

func (*atWatermark) element(c Context) Action {
	_, end := c.Window()
	if end.IsZero() {
		return Continue
	}
	last := end.Add(-time.Millisecond)
	if !c.Watermark().Before(last) {
		return Fire
	}
	c.RegisterEventTimer(last)
	return Continue
}

func (t *atWatermark) OnElement(c Context, s []byte) (Action, []byte) { return t.element(c), s }

func (t *atWatermark) OnEventTime(c Context, s []byte) (Action, []byte) {
	if _, end := c.Window(); c.Time().Equal(end.Add(-time.Millisecond)) {
		return Fire, s
	}
	return Continue, s
}
func (*atWatermark) OnProcessingTime(_ Context, s []byte) (Action, []byte) { return Continue, s }
func (*atWatermark) OnMerge(_ Context, s, _ []byte) []byte                 { return s }
func (*atWatermark) Describe() (string, error)                             { return "at-watermark", nil }

// EveryCount fires a window with each n-th element since it last did, and at no other time: what is left when the window
// ends is not fired. Flink: CountTrigger.
func EveryCount(n int) Trigger {
	t := Custom[int64]{
		Name: fmt.Sprintf("every-count-%d", n),
		OnElement: func(_ Context, seen *int64) Action {
			if *seen++; *seen < int64(n) {
				return Continue
			}
			*seen = 0
			return Fire
		},
		OnMerge: func(_ Context, into, from *int64) { *into += *from },
	}.Trigger()
	if n < 1 {
		t.(*custom[int64]).err = fmt.Errorf("trigger: EveryCount(%d), want at least 1", n)
	}
	return t
}

// EveryEventTime fires a window whenever the watermark passes a multiple of d, beginning with the first behind its first
// element, and when the window ends. It also fires if nothing was added since. Flink: ContinuousEventTimeTrigger.
func EveryEventTime(d time.Duration) Trigger { return &everyEventTime{ms: d.Milliseconds(), d: d} }

type everyEventTime struct {
	atWatermark
	ms int64
	d  time.Duration
}

// behind is the first multiple of the interval after at.
func behind(at time.Time, interval int64) time.Time {
	n := at.UnixMilli()
	return time.UnixMilli(n - mod(n, interval) + interval)
}

// The state is a mark that the timer is set.
func (t *everyEventTime) OnElement(c Context, s []byte) (Action, []byte) {
	if a := t.element(c); a == Fire {
		return Fire, s
	}
	if s == nil {
		t.register(c)
		s = []byte{1}
	}
	return Continue, s
}

// register sets the next timer before the window's last ms.
func (t *everyEventTime) register(c Context) {
	next := behind(c.Time(), t.ms)
	if _, end := c.Window(); end.IsZero() || next.Before(end.Add(-time.Millisecond)) {
		c.RegisterEventTimer(next)
	}
}

func (t *everyEventTime) OnEventTime(c Context, s []byte) (Action, []byte) {
	t.register(c)
	return Fire, s
}

func (t *everyEventTime) OnMerge(_ Context, s, other []byte) []byte {
	if s == nil {
		return other
	}
	return s
}

func (t *everyEventTime) Describe() (string, error) {
	var err error
	if t.d < time.Millisecond || t.d%time.Millisecond != 0 {
		err = fmt.Errorf("trigger: EveryEventTime(%s), want a whole number of milliseconds, at least 1ms", t.d)
	}
	return fmt.Sprintf("every-event-time-%s", t.d), err
}

// EveryProcessingTime fires a window whenever the clock passes a multiple of d, beginning with the first behind its
// first element. It also fires if nothing was added since, and it does not fire when the window ends: EmitEarly does.
// Flink: ContinuousProcessingTimeTrigger.
func EveryProcessingTime(d time.Duration) Trigger {
	return &everyProcessingTime{ms: d.Milliseconds(), d: d}
}

type everyProcessingTime struct {
	ms int64
	d  time.Duration
}

func (t *everyProcessingTime) OnElement(c Context, s []byte) (Action, []byte) {
	if s == nil {
		c.RegisterProcessingTimer(behind(c.ProcessingTime(), t.ms))
		s = []byte{1}
	}
	return Continue, s
}

func (t *everyProcessingTime) OnEventTime(_ Context, s []byte) (Action, []byte) { return Continue, s }

func (t *everyProcessingTime) OnProcessingTime(c Context, s []byte) (Action, []byte) {
	c.RegisterProcessingTimer(behind(c.ProcessingTime(), t.ms))
	return Fire, s
}

func (t *everyProcessingTime) OnMerge(_ Context, s, other []byte) []byte {
	if s == nil {
		return other
	}
	return s
}

func (t *everyProcessingTime) Describe() (string, error) {
	var err error
	if t.d < time.Millisecond || t.d%time.Millisecond != 0 {
		err = fmt.Errorf("trigger: EveryProcessingTime(%s), want a whole number of milliseconds, at least 1ms", t.d)
	}
	return fmt.Sprintf("every-processing-time-%s", t.d), err
}

// Purging makes a trigger that purges the window whenever t fires it. Flink: PurgingTrigger.
func Purging(t Trigger) Trigger { return &purging{t} }

type purging struct{ Trigger }

func purge(a Action, s []byte) (Action, []byte) {
	if a == Fire {
		a = FireAndPurge
	}
	return a, s
}

func (p *purging) OnElement(c Context, s []byte) (Action, []byte) {
	return purge(p.Trigger.OnElement(c, s))
}

func (p *purging) OnEventTime(c Context, s []byte) (Action, []byte) {
	return purge(p.Trigger.OnEventTime(c, s))
}

func (p *purging) OnProcessingTime(c Context, s []byte) (Action, []byte) {
	return purge(p.Trigger.OnProcessingTime(c, s))
}

func (p *purging) Describe() (string, error) {
	if p.Trigger == nil {
		return "", fmt.Errorf("trigger: Purging(nil)")
	}
	s, err := p.Trigger.Describe()
	return "purging " + s, err
}
