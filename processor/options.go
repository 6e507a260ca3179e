package processor

import (
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Policy says what becomes of a record that an operator cannot process. The record leaves no other trace: state,
// timers and outputs that it wrote are undone.
//
// Where an operator names no policy: a user function that fails or panics, and a key on the wrong partition, stop the
// app (Fail); what cannot be decoded, has no event time, cannot be encoded or is too large for its topic goes to the
// dead-letter topic (DeadLetter; see Defaults.BadInput). Flink knows only the first.
type Policy uint8

// The policies. The zero Policy is the default.
const (
	// Fail stops the app with an error that names operator, topic, partition and offset.
	Fail Policy = 1 + iota
	// Skip drops the record and counts it.
	Skip
	// DeadLetter writes the original record (key, value and headers as they were read) to the topic
	// <app.id>-dead-letter, in the same transaction, with these headers added: millrace-topic, millrace-partition,
	// millrace-offset, millrace-timestamp (ms), millrace-operator, millrace-error, and of a panic millrace-stack (at
	// most 4 KiB, left out where the record would be too large with it). What fails in a timer or in the result of a
	// window has no original: the dead letter then has the key, a null value, and no position. What fails behind a
	// KeyBy has the record of the repartition topic as its original.
	DeadLetter
)

func (p Policy) String() string {
	switch p {
	case 0:
		return "default"
	case Fail:
		return "fail"
	case Skip:
		return "skip"
	case DeadLetter:
		return "dead-letter"
	}
	return "unknown"
}

func (p Policy) task() task.Policy {
	switch p {
	case Fail:
		return task.PolicyFail
	case Skip:
		return task.PolicySkip
	case DeadLetter:
		return task.PolicyDeadLetter
	}
	return task.PolicyDefault
}

// Header is one header of a Kafka record.
type Header = record.Header

// Option is a setting of one operator.
type Option struct{ apply func(n *node) }

// OnError sets what becomes of records that this operator cannot process: see Policy for the defaults.
func OnError(p Policy) Option {
	return Option{func(n *node) {
		if p < Fail || p > DeadLetter {
			n.fail("OnError: policy %d is unknown; use Fail, Skip or DeadLetter", p)
			return
		}
		n.policy = p
	}}
}

// Name sets how errors and metrics show this operator. The default is its id, and for one without id the source, the
// kind and the call site, as in orders/map@main.go:31. It names no state: ids do.
func Name(name string) Option {
	return Option{func(n *node) {
		if name == "" {
			n.fail("Name: the name is empty")
			return
		}
		n.name = name
	}}
}

// Parallelism sets the number of subtasks of the part of the graph that this operator is in, which reaches from one
// repartitioning (KeyBy) to the next; KeyBy itself speaks for the part behind it, and its topic gets n partitions. n
// divides the partition count of every topic that the part reads. Default: the largest such divisor <= 16.
func Parallelism(n int) Option {
	return Option{func(nd *node) {
		if n < 1 {
			nd.fail("Parallelism: %d subtasks, want at least 1", n)
			return
		}
		nd.parallelism = n
	}}
}

// ReadAlong is for TableFrom: nothing waits until the table is loaded. Its rows are taken beside the records of the streams
// from the first start on, of what is at hand the lowest event time first, so that a record of long ago meets a row of
// long ago, if that is there in time.
func ReadAlong() Option {
	return Option{func(n *node) {
		if n.kind != kindTable {
			n.fail("ReadAlong is for tables of topics; give it to TableFrom")
			return
		}
		n.along = true
	}}
}

// MigrateState gives an operator migrations (statestore.Migrate): they read what an earlier program kept as another type,
// which are accumulators of aggregations and windows, and values of the stream or table that windows, joins, patterns and Async keep. Each
// migration holds for all values that the operator keeps of the type that it leads to. States of Process get theirs where
// they are declared (Migrations).
func MigrateState(migrations ...statestore.Migration) Option {
	return Option{func(n *node) { n.migrations = append(n.migrations, migrations...) }}
}

// MaxRecordBytes bounds the size of the records that a sink or KeyBy writes, below what the topic takes
// (max.message.bytes, which always holds). A larger record is bad input of the sink: see Policy.
func MaxRecordBytes(n int) Option {
	return Option{func(nd *node) {
		switch {
		case n < 1:
			nd.fail("MaxRecordBytes: %d bytes, want at least 1", n)
		case nd.output == nil:
			nd.fail("MaxRecordBytes is for operators that write a topic; set it on the sink or KeyBy")
		default:
			nd.output.maxBytes = n
		}
	}}
}
