package txn

import (
	"errors"
	"fmt"
)

// ErrStateAhead is wrapped by *AheadError.
var ErrStateAhead = errors.New("state is ahead of its changelog")

// StaleError says that local state (or a checkpoint) cannot be brought up to date by its changelog any more: what it
// missed is gone from the log. It has to be replaced by another way of restore.
type StaleError struct {
	Topic     string
	Partition int32
	Reason    string
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("state of changelog %s/%d is too old: %s; restore from a checkpoint or from the start of the changelog",
		e.Topic, e.Partition, e.Reason)
}

// AheadError says that state was folded from records which the changelog does not hold (invariant I3): committed
// records were lost, or it is another log. The state must not be used, and must not be thrown away either.
type AheadError struct {
	Topic     string
	Partition int32
	Position  int64 // next offset that the state wants
	End       int64 // high watermark
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("state of changelog %s/%d wants offset %d next, but the log ends at %d: committed records were lost "+
		"(unclean leader election) or the topic was made anew; keep the state directory for analysis and restore from a "+
		"checkpoint or savepoint", e.Topic, e.Partition, e.Position, e.End)
}

func (e *AheadError) Unwrap() error { return ErrStateAhead }
