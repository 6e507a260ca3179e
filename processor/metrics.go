package processor

import (
	"fmt"

	"github.com/millrace-stream/millrace/internal/task"
)

// Metrics are an operator's own metrics, by subtask. They reach the outside with those of Millrace, as
// millrace_operator_counter_total and millrace_operator_gauge, with the labels subtask, operator and name. They count
// work done: what a record did to them is not undone when the record fails, or is processed again after a crash. Flink:
// MetricGroup.
type Metrics struct{ c *contextBase }

// Metrics makes metrics: in a setup function.
func (c *contextBase) Metrics() Metrics { return Metrics{c} }

// Counter is a number that only grows.
type Counter struct{ m *task.Metric }

// Counter makes a counter. The name is 1 to 40 of a-z, 0-9 and -.
func (m Metrics) Counter(name string) *Counter { return &Counter{m.metric(name, false)} }

// Add adds n; what is not above 0 is ignored.
func (c *Counter) Add(n int64) {
	if n > 0 {
		c.m.Value += float64(n)
	}
}

// Inc adds 1.
func (c *Counter) Inc() { c.m.Value++ }

// Gauge is a number that goes up and down.
type Gauge struct{ m *task.Metric }

// Gauge makes a gauge. The name is 1 to 40 of a-z, 0-9 and -.
func (m Metrics) Gauge(name string) *Gauge { return &Gauge{m.metric(name, true)} }

// Set sets the gauge.
func (g *Gauge) Set(v float64) { g.m.Value = v }

func (m Metrics) metric(name string, gauge bool) *task.Metric {
	c := m.c
	if !idPattern.MatchString(name) {
		c.errs = append(c.errs, fmt.Errorf("metric %q: the name must be 1 to 40 of a-z, 0-9 and -", name))
	}
	if c.b == nil {
		return &task.Metric{}
	}
	return c.x.Metric(c.op, name, gauge)
}
