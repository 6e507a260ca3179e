package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// action is what to do about an error: errors are told apart by the way of recovery, not by cause.
type action uint8

const (
	actRetry    action = iota + 1 // back off, take over again from committed state
	actTakeover                   // fenced or outcome unknown: ask the group, take over again if the subtask is still ours
	actWipe                       // the local store cannot be used: remove it, take over again from the changelog
	actStop                       // nothing that this process does can help: stop the worker and say why
)

func (a action) String() string {
	switch a {
	case actRetry:
		return "retry"
	case actTakeover:
		return "fenced"
	case actWipe:
		return "corrupt"
	case actStop:
		return "stop"
	}
	return "unknown"
}

// fatalError marks an error that stops the worker.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func fatalf(format string, a ...any) error { return &fatalError{fmt.Errorf(format, a...)} }

// deletedError says that records of an input are gone, and that the next takeover goes on without them.
type deletedError struct{ err *txn.OffsetError }

func (e *deletedError) Error() string { return e.err.Error() }
func (e *deletedError) Unwrap() error { return e.err }

// outcomeError is an epoch that did not commit.
type outcomeError struct {
	outcome txn.Outcome
	epoch   uint64
	err     error
}

func (e *outcomeError) Error() string {
	return fmt.Sprintf("commit epoch %d: %s: %v", e.epoch, outcomeName(e.outcome), e.err)
}
func (e *outcomeError) Unwrap() error { return e.err }

func outcomeName(o txn.Outcome) string {
	switch o {
	case txn.Committed:
		return "committed"
	case txn.Aborted:
		return "aborted"
	case txn.Fenced:
		return "fenced"
	case txn.Unknown:
		return "unknown"
	}
	return "none"
}

// classify chooses the way of recovery.
func classify(err error) action {
	var fatal *fatalError
	var outcome *outcomeError
	var taskErr *task.Error
	var mismatch *mismatchError
	var deleted *deletedError
	switch {
	case errors.As(err, &fatal):
		return actStop
	case errors.As(err, &deleted):
		return actRetry
	case errors.Is(err, statestore.ErrForeign), errors.Is(err, statestore.ErrFormat), errors.Is(err, statestore.ErrLocked),
		errors.Is(err, statestore.ErrNoSpace):
		return actStop
	case errors.Is(err, statestore.ErrCorrupt):
		return actWipe
	case txn.IsFatal(err):
		return actStop
	case errors.As(err, &outcome), errors.As(err, &mismatch), txn.IsFenced(err):
		return actTakeover
	case errors.As(err, &taskErr):
		if taskErr.Kind == task.Internal || taskErr.Final {
			return actStop
		}
		return actRetry
	case errors.Is(err, context.DeadlineExceeded):
		return actRetry
	}
	return actRetry
}

// advice is what to do about a record that fails in the same way at every attempt; empty for other errors.
func advice(err error) string {
	var taskErr *task.Error
	if !errors.As(err, &taskErr) || !taskErr.Final {
		return ""
	}
	text := "; it would fail again at every attempt, so the app stops: mend what the message says and start it again, which goes on where it stopped"
	if taskErr.BadData {
		text += ", or let records that cannot be decoded, timed or written go: errors.decode (of a SQL table 'on-error') = skip or dead-letter"
	}
	return text
}

// stackOf is the stack of a panic in user code, for the log: at most 8 KiB of it; an empty attribute, which is not
// logged, if err is none.
func stackOf(err error) string {
	var taskErr *task.Error
	if !errors.As(err, &taskErr) || taskErr.Stack == nil {
		return ""
	}
	return string(taskErr.Stack[:min(len(taskErr.Stack), 8<<10)])
}

// backoff is the wait before the next attempt (pure): doubling from min to max.
func backoff(attempt int, minWait, maxWait time.Duration) time.Duration {
	d := minWait
	for i := 1; i < attempt && d < maxWait; i++ {
		d *= 2
	}
	return min(d, maxWait)
}

type noObserver struct{}

func (noObserver) CommitDone(record.SubtaskID, string, time.Duration)                {}
func (noObserver) RestoreDone(record.SubtaskID, string, int64, int64, time.Duration) {}
func (noObserver) OffsetsSkipped(record.TopicPartition, int64)                       {}
func (noObserver) SubtaskRestarted(record.SubtaskID, string)                         {}
func (noObserver) CheckpointDone(record.SubtaskID, bool, int64, time.Duration)       {}
