package task

import (
	"cmp"
	"slices"

	"github.com/millrace-stream/millrace/statestore"
)

// upkeep is work of an operator on its own state for which nobody waits.
type upkeep struct {
	due int64
	run func(now int64) (next int64, wrote bool, err error)
}

// AddUpkeep adds work on state that is done in small parts from processing time at on, by Tick. run does one part and says
// when it is to be called again, and whether it wrote something that wants a commit. Unlike a timer of an operator it
// makes no epoch by itself.
func (t *Task) AddUpkeep(at int64, run func(now int64) (next int64, wrote bool, err error)) {
	t.upkeeps = append(t.upkeeps, &upkeep{at, run})
}

func (t *Task) doUpkeep(now int64) error {
	for _, u := range t.upkeeps {
		if now < u.due {
			continue
		}
		next, wrote, err := u.run(now)
		if err != nil {
			return err
		}
		u.due = max(next, now+1)
		if wrote {
			t.touch()
		}
	}
	return nil
}

// beforeSeal is what an operator does at the end of an epoch.
type beforeSeal struct {
	order int
	op    int32
	run   func() error
}

// BeforeSeal adds a function that runs at the end of each epoch that is not empty, before watermarks are written to
// repartition topics and state is encoded: it may emit and write state, and what it does belongs to the epoch. It is one
// atomic step of operator op, without a record; event time is the time that it sets itself (Exec.Time). Functions run by
// order: an operator upstream has a lower one, so that what it emits is taken by those behind it in the same epoch. A
// failure that its policy lets pass undoes the step, so what the operator holds in memory it must drop or keep itself.
func (t *Task) BeforeSeal(order int, op int32, run func() error) {
	t.befores = append(t.befores, beforeSeal{order, op, run})
	slices.SortStableFunc(t.befores, func(a, b beforeSeal) int { return cmp.Compare(a.order, b.order) })
}

func (t *Task) runBeforeSeal() error {
	if len(t.befores) == 0 || !t.dirty && len(t.outs) == 0 {
		return nil
	}
	noKey := func(dst []byte) []byte { return dst }
	for _, b := range t.befores {
		if _, err := t.x.Atomic(b.op, statestore.Group(t.env.Subtask.Index), unset, b.run, noKey); err != nil {
			return err
		}
	}
	return nil
}

// CountExpired counts entries of state that were removed because they had expired.
func (x *Exec) CountExpired(n int) { x.t.expired += int64(n) }

// A Metric is a counter or gauge of an operator's own.
type Metric struct {
	Operator string
	Name     string
	Gauge    bool
	Value    float64
}

// Metric gives the metric of an operator, which begins at 0. One of the same name is the same, and gauge must be too.
// What a failed step did to it is not undone.
func (x *Exec) Metric(op int32, name string, gauge bool) *Metric {
	operator := x.t.lay.Ops[op].Name
	for _, m := range x.t.metrics {
		if m.Operator == operator && m.Name == name && m.Gauge == gauge {
			return m
		}
	}
	m := &Metric{Operator: operator, Name: name, Gauge: gauge}
	x.t.metrics = append(x.t.metrics, m)
	return m
}

// Metrics are the operators' own metrics as they are now.
func (t *Task) Metrics() []Metric {
	if len(t.metrics) == 0 {
		return nil
	}
	all := make([]Metric, len(t.metrics))
	for i, m := range t.metrics {
		all[i] = *m
	}
	return all
}
