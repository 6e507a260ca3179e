package processor

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// builder makes the chain of one subtask.
type builder struct {
	sub  *sub
	task *task.Task
	x    *task.Exec
	memo map[any]any // steps of operators with several inputs, by node, and stores of tables, by table
	// shared has what Shared made.
	shared map[any]any
	errs   []error
	open   []func() error
}

func (s *sub) newTask(env task.Env) (*task.Task, error) {
	t, err := task.New(env, &s.layout)
	if err != nil {
		return nil, err
	}
	b := &builder{sub: s, task: t, x: t.Exec(), memo: map[any]any{}}
	for i, n := range s.inputs {
		t.SetSource(i, n.source.open(b))
	}
	if err := errors.Join(b.errs...); err != nil {
		return nil, fmt.Errorf("make subtask %s: %w", env.Subtask, err)
	}
	if err := t.Start(); err != nil {
		return nil, err
	}
	for _, f := range b.open {
		if err := f(); err != nil {
			return nil, errors.Join(fmt.Errorf("make subtask %s: %w", env.Subtask, err), t.Close())
		}
	}
	return t, nil
}

func (b *builder) op(n *node) int32         { return b.sub.op[n] }
func (b *builder) node(n *node) *task.Node  { return b.task.Node(b.sub.wm[n]) }
func (b *builder) state() *statestore.State { return b.x.State() }
func (b *builder) output(n *node) int32     { return int32(b.sub.outputOf[n]) }
func (b *builder) fail(n *node, err error) {
	b.errs = append(b.errs, fmt.Errorf("operator %q: %w", n.display(), err))
}

// shared builds what has several users in a subtask once.
func shared[S any](b *builder, key any, build func() S) S {
	if s, ok := b.memo[key]; ok {
		return s.(S)
	}
	s := build()
	b.memo[key] = s
	return s
}

// keyGroup is task.SubTopology.KeyGroup.
func (s *sub) keyGroup(store statestore.ID, key []byte) (statestore.Group, error) {
	for _, n := range s.nodes {
		for _, spec := range n.specs {
			if spec.ID == store && spec.Replicated {
				return 0, nil // every subtask has it all
			}
			if spec.ID == store {
				return n.groupOf(key)
			}
		}
	}
	return 0, fmt.Errorf("there is no store with id %08x", uint32(store))
}

// specOf finds a declared store again.
func (n *node) specOf(name string) statestore.Spec {
	for _, s := range n.specs {
		if s.Name == n.id+"/"+name {
			return s
		}
	}
	return statestore.Spec{}
}

func typeName[T any]() string { return reflect.TypeFor[T]().String() }

// maxTime bounds event times, so that adding a window size or a lateness never overflows: some 36 million years.
const maxTime = int64(1) << 60

// millis turns an event time into ms since the epoch; false if it is out of bounds. time.Time's own conversion wraps
// around silently.
func millis(t time.Time) (int64, bool) {
	const seconds = maxTime / 1000
	if s := t.Unix(); s <= -seconds || s >= seconds {
		return 0, false
	}
	return t.UnixMilli(), true
}

// instant is the other way. Times are in UTC, so that they compare with ==.
func instant(ms int64) time.Time {
	if ms == math.MinInt64 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
