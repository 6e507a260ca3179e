package task

import (
	"fmt"
	"strings"
)

// Kind tells the engine what an Error means for the subtask.
type Kind uint8

// The kinds of Error.
const (
	// Data: a record or a user function failed and the operator's policy is to fail.
	Data Kind = 1 + iota
	// Fault: the state store beneath failed. The subtask can be made anew from committed state.
	Fault
	// Internal: a record of an internal topic cannot be decoded. It is never skipped.
	Internal
	// Bug: the runtime itself went wrong.
	Bug
	// Outside: an External failed. The subtask can be made anew from committed state.
	Outside
)

func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Fault:
		return "fault"
	case Internal:
		return "internal"
	case Bug:
		return "bug"
	case Outside:
		return "outside"
	}
	return "unknown"
}

// Error is why a subtask cannot go on. Topic is empty and Offset -1 where no single record is to blame, as when a
// timer fires.
type Error struct {
	Operator  string
	Topic     string
	Partition int32
	Offset    int64
	Kind      Kind
	Cause     error
	Stack     []byte // of a panic, else nil
	// Final says that the record is to blame and no service or function that may do better next time: it cannot be decoded,
	// timed or written, lies on the wrong partition, or an expression has no value for it (see Expected).
	Final bool
	// BadData says that the record is bad data, which the policy for that could have let go.
	BadData bool
}

func (e *Error) Error() string {
	var b strings.Builder
	switch e.Kind {
	case Data:
		b.WriteString("process record")
	case Fault:
		b.WriteString("use state store")
	case Internal:
		b.WriteString("read internal record")
	case Outside:
		b.WriteString("write to another system")
	default:
		b.WriteString("run subtask (a bug of the runtime)")
	}
	if e.Operator != "" {
		fmt.Fprintf(&b, ": operator %q", e.Operator)
	}
	if e.Topic != "" {
		fmt.Fprintf(&b, ": topic %s partition %d offset %d", e.Topic, e.Partition, e.Offset)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }
