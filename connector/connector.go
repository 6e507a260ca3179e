// Package connector has the contract between streaming SQL and what tables stand for: topics of Kafka, files, services.
// A connector looks at the options of a table while the query is planned, and makes the decoders and encoders that run in
// subtasks. It knows rows and records, and no query.
package connector

import (
	"context"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// Connector is what the option 'connector' of a table names. Its errors say which option is wrong and what would be
// right; who calls it adds the table and the place in the text. Planning opens no connection: what a connector must know of
// a cluster it asks a Cluster, which who runs the script gives it when it is made.
type Connector interface {
	// Spec is what there is to know of it before a table uses it: the reference is made of it.
	Spec() Spec
	// Traits is what the table can do, by its connector and its format. It checks the options.
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

// Spec describes a connector.
type Spec struct {
	// Doc is what it is, in a sentence or two.
	Doc string
	// Options are all that a table may set, but for 'connector', which every table has, and those of formats, which are in
	// format.RowFormats and begin with the name of the format.
	Options []format.Option
	// Metadata are the columns that METADATA may name.
	Metadata []Metadata
}

// Metadata is a column that tells of a record and is no part of its value.
type Metadata struct {
	Key  string
	Type *row.Type
	// Writes says that a sink takes it; of others a column must be VIRTUAL where the table is written.
	Writes bool
	Doc    string
}

// Cluster tells a connector of a Kafka cluster while a script is planned. settings are those of the table: see
// Source.Settings. It is given by who runs the script: the command asks a broker, a test has a map.
type Cluster interface {
	// Topics are the topics of the cluster that are not internal to it, and how many partitions they have.
	Topics(settings map[string]string) (map[string]int, error)
}

// Traits is what a table can do.
type Traits struct {
	// Reads and Writes say which kinds of rows come out of it and which it takes.
	Reads, Writes catalog.Changes
	// CanRead, CanWrite and CanLookup say which of Source, Sink and Lookup it has.
	CanRead, CanWrite, CanLookup bool
	// Unused are the options of the table that have no effect.
	Unused []Unused
	// Keyed are ordinals of the table's columns: its records lie on partitions by them, written as Kafka's default
	// partitioner sees them. nil = no promise.
	Keyed []int
	// KeyForm says how their key is written: where it is the same, equal values have equal keys.
	KeyForm string
}

// Unused is an option that has no effect, or several, and why, in a clause.
type Unused struct{ Option, Why string }

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
	// Fields are, for each of Columns that is a ROW and is read, those of its fields that are used; the others may be NULL.
	// nil, for a column or for all = every field.
	Fields [][]int
	// Key has the columns of the PRIMARY KEY as indexes into Columns, of a sink.
	Key []int
	// Zone is table.local-time-zone.
	Zone *row.Zone
}

// FieldsOf is Fields of a column, by its index in Columns.
func (t *Table) FieldsOf(i int) []int {
	if t.Fields == nil {
		return nil
	}
	return t.Fields[i]
}

// Source is a table that is read: from topics, or made by Generate.
type Source struct {
	Topics []string
	// Pattern is the regular expression that Topics were found by, and "" where they were named. Who runs the script looks
	// for more of them every Discover, if that is above 0: they begin at their first records.
	Pattern  string
	Discover time.Duration
	// Start is where a partition is read from at the first start of the app, and End where its reading ends; the zero End is
	// never. Both are found once: a restart goes on where it was, and ends where it would have ended.
	Start processor.Start
	End   processor.End
	Idle  time.Duration
	// Open makes the decoder of one partition.
	Open func(ctx *processor.SubtaskContext) (Decoder, error)
	// Generate is set instead of Topics, Start, End, Idle and Open.
	Generate *Generate
	// OnError is what becomes of a record that cannot be decoded; 0 = what the script says.
	OnError processor.Policy
	// Settings are what the table's options say of the cluster, as keys of Millrace's configuration such as "brokers" and
	// "security.sasl.username": an app has one of each, so two tables that differ are refused. They give way to the
	// configuration that the program was started with.
	Settings map[string]string
}

// Decoder decodes the records of one partition, one after the other.
type Decoder interface {
	// Decode decodes a record into rows: none, one or several. It calls next for each: that gives a row, +I and all columns
	// NULL, to set the columns and the kind of. What the rows point to is the record, or memory of the decoder that is
	// kept until the next call.
	Decode(r *processor.SourceRecord, next func() *row.Row) error
}

// Generate is a source behind which no topic stands: rows that are made up, or files.
type Generate struct {
	// Parallelism is how many subtasks generate; 0 = 1. Ctx.Subtask says which one of how many Open is called for. A later
	// program must have the same number, since each has a position of its own.
	Parallelism int
	// Open makes the generator of a subtask. position is what Position gave at the last commit; nil at the first start.
	// It is also called with the planner's context for no other reason than its errors.
	Open func(ctx *processor.SubtaskContext, position []byte) (Generator, error)
}

// Generator makes the rows of one subtask. It is called by one goroutine, which does nothing else of the subtask
// meanwhile: a call should return within some milliseconds.
type Generator interface {
	// Next makes the next rows, which are one atomic step, such as a line of a file; it calls next as a Decoder does, and what
	// the rows point to is kept until the next call. now is the processing time in ms. again is the processing time at which
	// it wants to be called next: anything up to now is at once, between the commits that are due. io.EOF is the end: what came
	// with it counts, no call follows, and time is over for the table, so that windows fire (Flink: bounded source). Any other
	// error is bad input, which goes by Source.OnError as a record that cannot be decoded; Next must then have moved behind
	// it. A *format.OutsideError stops the app whatever the policy.
	Next(now int64, next func() *row.Row) (again int64, err error)
	// Position appends where Next goes on: it is asked at the end of each epoch and committed with the rows.
	Position(dst []byte) []byte
	// Close frees what the generator holds.
	Close() error
}

// Sink is a table that is written: to a topic, or to another system.
type Sink struct {
	Topic string
	// Open makes the encoder of a subtask, which writes a row as records through w: -U comes only where the table takes
	// Retract.
	Open func(ctx *processor.SubtaskContext, w *processor.SinkWriter) (func(r *row.Row) error, error)
	// External is set instead of Topic: it makes, in a subtask, what the keys and values go to that the encoder writes.
	External func(ctx *processor.SubtaskContext) (processor.External, error)
	// Ask asks services that the table needs beside Kafka, such as a schema registry, whether they will take its rows, and changes
	// nothing there. It says what it found, a text for each. nil = there are none.
	Ask func() ([]string, error)
	// Discard says that rows go nowhere; then there is no Topic, Open and External.
	Discard bool
	// OnError and Settings are as in Source.
	OnError  processor.Policy
	Settings map[string]string
}

// Lookup is a table that is asked by key.
type Lookup struct {
	// Open makes what asks; one goroutine at a time uses it, and there are as many as ask at the same time. key is a row of
	// the columns that were given to Connector.Lookup, in that order; it calls next as a Decoder does for each row of that
	// key. It is to give up when ctx ends.
	Open func() (func(ctx context.Context, key *row.Row, next func() *row.Row) error, error)
	// Waits says that an answer takes its time: then keys are asked for beside the subtask, many at a time.
	Waits bool
}
