// Package processor is the public API of Millrace for Go programs: typed streams, keyed state, event time.
package processor

import "github.com/millrace-stream/millrace/internal/task"

// Defaults are the settings of a topology that its operators inherit.
type Defaults struct{}

// Topology is the graph of operators of one app.
type Topology struct{}

// New starts an empty topology.
func New(d ...Defaults) *Topology { return &Topology{} }

// Plan validates the topology and compiles it for the engine.
func (t *Topology) Plan() (*task.Plan, error) { return &task.Plan{}, nil }
