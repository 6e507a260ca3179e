// Package connector has the contract between streaming SQL and what tables stand for: topics of Kafka, files, services.
// A connector looks at the options of a table while the query is planned, and makes the decoders and encoders that run in
// subtasks. It knows rows and records, and no query.
package connector

import (
	"time"

	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// Connector is what the option 'connector' of a table names. Its errors say which option is wrong and what would be
// right; who calls it adds the table and the place in the text.
type Connector interface {
	// Traits is what the table can do, by its connector and its format.
	Traits(t Table) (Traits, error)
	// Source makes the table one that is read.
	Source(t Table) (*Source, error)
	// Sink makes the table one that is written.
	Sink(t Table) (*Sink, error)
	// Lookup makes the table one that is asked by the columns keys, which are indexes into t.Columns.
	Lookup(t Table, keys []int) (*Lookup, error)
}

// Registry has the connectors by the value of the option 'connector'.
type Registry map[string]Connector

// Traits is what a table can do.
type Traits struct {
	// Reads and Writes say which kinds of rows come out of it and which it takes.
	Reads, Writes catalog.Changes
	// CanRead, CanWrite and CanLookup say which of Source, Sink and Lookup it has.
	CanRead, CanWrite, CanLookup bool
	// Keyed are ordinals of the table's columns: its records lie on partitions by them, written as Kafka's default
	// partitioner sees them. nil = no promise.
	Keyed []int
}

// Table is a table as a query uses it.
type Table struct {
	*catalog.Table
	// Options are those of the table with those of a hint over them; they hide Table.Options.
	Options map[string]string
	// Columns are the ordinals of the columns that are read or written: column i of a row is Columns[i]. Computed columns
	// are none of them. Layout is that of the rows; of rows that are read it may have columns behind those of Columns,
	// which the decoder leaves alone. Both are nil for Traits.
	Columns []int
	Layout  *row.Layout
	// Key has the columns of the PRIMARY KEY as indexes into Columns, of a sink.
	Key []int
	// Zone is table.local-time-zone.
	Zone *row.Zone
}

// Source is a table that is read from topics.
type Source struct {
	Topics []string
	Start  processor.Start
	Idle   time.Duration
	// Open makes the decoder of one partition.
	Open func(ctx *processor.SubtaskContext) (Decoder, error)
}

// Decoder decodes the records of one partition, one after the other.
type Decoder interface {
	// Decode decodes a record into rows: none, one or several. It calls next for each: that gives a row, +I and all columns
	// NULL, to set the columns and the kind of. What the rows point to is the record, or memory of the decoder that is
	// kept until the next call.
	Decode(r *processor.SourceRecord, next func() *row.Row) error
}

// Sink is a table that is written to a topic.
type Sink struct {
	Topic string
	// Open makes the encoder of a subtask, which writes a row as records through w: -U comes only where the table takes
	// Retract.
	Open func(ctx *processor.SubtaskContext, w *processor.SinkWriter) (func(r *row.Row) error, error)
	// Discard says that rows go nowhere; then there is no Topic.
	Discard bool
}

// Lookup is a table that is asked by key.
type Lookup struct {
	// Open makes what asks, in a subtask. key is a row of the columns that were given to Connector.Lookup, in that order; it
	// calls next as a Decoder does for each row of that key.
	Open func(ctx *processor.SubtaskContext) (func(key *row.Row, next func() *row.Row) error, error)
}
