package format

import "github.com/millrace-stream/millrace/row"

// RowFormat is how rows of a table are written in messages: what the option 'format' names. A connector makes it from the
// options of a table; key and value may have different ones.
type RowFormat interface {
	// RowDecoder makes the decoder of one partition. It decodes the columns of s and no others.
	RowDecoder(s RowSchema) (RowDecoder, error)
	// RowEncoder makes the encoder of a subtask.
	RowEncoder(s RowSchema) (RowEncoder, error)
}

// RowFormatSpec is what there is to know of a format before a table uses it.
type RowFormatSpec struct {
	// Doc is what it is, in a sentence or two.
	Doc string
	// Options are those with the format's name and a dot before them, "json.ignore-parse-errors".
	Options []Option
	// New makes the format of a table. The error names the option that is wrong.
	New func(o *Options) (RowFormat, error)
	// Changes says that messages tell the kind of a row: the format reads and writes +I, -U, +U and -D. Others have rows to
	// add alone.
	Changes bool
	// Metadata is what a message tells beside the columns; it can be read only.
	Metadata []RowMetadata
}

// RowMetadata is something that a message tells beside the columns: a METADATA column of a table has it, in Flink by the
// name with value. in front.
type RowMetadata struct {
	Name string
	Type *row.Type
	Doc  string
}

// RowFormats are the formats by what the option 'format' names.
type RowFormats map[string]RowFormatSpec

// Formats are the formats of this package.
func Formats() RowFormats {
	return RowFormats{
		"json": JSONRows(), "csv": CSVRows(), "raw": RawRows(),
		"debezium-json": DebeziumRows(), "canal-json": CanalRows(), "maxwell-json": MaxwellRows(),
	}
}

// RowSchema is the columns of a message that are wanted, in the order of the table, and where they lie in rows.
type RowSchema struct {
	Layout  *row.Layout
	Columns []RowColumn
	// Message are all columns that messages have, wanted or not, in the order of the table: what formats need whose fields
	// have no names. nil = Columns.
	Message []row.Field
	// Zone is that in which TIMESTAMP_LTZ has its text.
	Zone *row.Zone
}

// RowColumn is a column of a message.
type RowColumn struct {
	Name string
	Type *row.Type
	// Index is the column of the Layout.
	Index int
	// Fields are those of a ROW that are wanted, in order; the others may be NULL. nil = all.
	Fields []int
	// Metadata says that Name is that of a RowMetadata of the format.
	Metadata bool
}

// All are the columns that messages have: Message, or Columns if it is nil.
func (s RowSchema) All() []row.Field {
	if s.Message != nil {
		return s.Message
	}
	var all []row.Field
	for _, c := range s.Columns {
		if !c.Metadata {
			all = append(all, row.Field{Name: c.Name, Type: c.Type})
		}
	}
	return all
}

// OutsideError is an error of a RowDecoder or RowEncoder that is not the fault of the message or row: a service that it
// needs, such as a schema registry, does not answer or refuses. Nothing is given up for it, whatever the policy for bad input is: the program stops.
type OutsideError struct {
	Err error
	// Final says that it was asked and refuses: asking again is of no use.
	Final bool
}

func (e *OutsideError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *OutsideError) Unwrap() error { return e.Err }

// RowDecoder decodes messages, one after the other.
type RowDecoder interface {
	// Decode decodes a message into rows: one, none, or, of a format with changes, several. It calls next for each, which
	// gives a row with all columns NULL and the kind +I, to set the schema's columns and the kind of. What rows point to is
	// data, or memory of the decoder that is kept until the next call. An error is the message's fault, unless it is an
	// OutsideError.
	Decode(data []byte, next func() *row.Row) error
}

// Asker is a RowEncoder that asks a service, such as a schema registry, before it writes its first message.
type Asker interface {
	// Ask asks now whether the messages will be taken, and changes nothing there. It says what it found, for people. Errors are
	// those that Append would have.
	Ask() (found string, err error)
}

// RowEncoder encodes rows.
type RowEncoder interface {
	// Append appends the message of a row, with its kind if the format has changes. nil is the null message, which only raw
	// has; dst is not nil.
	Append(dst []byte, r *row.Row) ([]byte, error)
}
