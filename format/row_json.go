package format

import (
	"fmt"

	"github.com/millrace-stream/millrace/row"
)

// JSONRows is the format 'json' of tables.
//
// Decoding. A message is an object, or an array of objects, each a row; an empty or null message is no row. It reads the
// wanted columns in one pass and checks all the rest: syntax, UTF-8, nothing after the end. Names are case-sensitive; a
// field that is missing or null is NULL; of a field that comes twice the last is taken. As in Flink a number or boolean is
// good for a column of text, and text for a number; an object or array in a column of text is its text without blanks. INT
// and BIGINT cut off a fraction, a DECIMAL is rounded, and one with too many digits is NULL. A TIMESTAMP is text without
// zone, a TIMESTAMP_LTZ text with Z or an offset, DATE 2024-01-31, TIME 23:59:59, BYTES base64. A number is no time: its
// unit would be a guess.
//
// Encoding. An object with the columns in the order of the table.
func JSONRows() RowFormatSpec {
	return RowFormatSpec{
		Doc: "A JSON object a message, or an array of objects, each of which is a row; tombstones are skipped. Column names are case-sensitive.",
		Options: []Option{
			{Name: "fail-on-missing-field", Kind: Boolean, Default: "false", Doc: "Fail if a field of a column is missing, instead of taking NULL."},
			jsonIgnoreErrors,
			jsonTimestamps,
			jsonNullKeys,
			jsonNullKeyLiteral,
			jsonPlainDecimals,
			jsonIgnoreNulls,
			{Name: "decode.json-parser.enabled", Kind: Boolean, Default: "true", Doc: "Accepted for the sake of Flink's tables; it changes nothing."},
		},
		New: func(o *Options) (RowFormat, error) {
			j := newJSONRows(o)
			j.failMissing = o.Bool("fail-on-missing-field")
			if j.failMissing && j.lax {
				return nil, fmt.Errorf("'%sfail-on-missing-field' and '%[1]signore-parse-errors' cannot both be true", o.prefix)
			}
			return j, nil
		},
	}
}

// The options that formats of JSON share.
var (
	jsonIgnoreErrors   = Option{Name: "ignore-parse-errors", Kind: Boolean, Default: "false", Doc: "Take NULL for a field that does not read as its type and skip a message that is no JSON, instead of failing."}
	jsonTimestamps     = Option{Name: "timestamp-format.standard", Kind: Enum, Default: "SQL", Values: []string{"SQL", "ISO-8601"}, Doc: "How TIMESTAMP and TIMESTAMP_LTZ are written: SQL is 2024-01-31 23:59:59.999, ISO-8601 is 2024-01-31T23:59:59.999; a TIMESTAMP_LTZ has a Z behind it."}
	jsonNullKeys       = Option{Name: "map-null-key.mode", Kind: Enum, Default: "FAIL", Values: []string{"FAIL", "DROP", "LITERAL"}, Doc: "What is written for an entry of a MAP whose key is NULL: FAIL is an error, DROP leaves it out, LITERAL writes the key map-null-key.literal."}
	jsonNullKeyLiteral = Option{Name: "map-null-key.literal", Kind: Text, Default: "null", Doc: "The key that is written for NULL with map-null-key.mode LITERAL."}
	jsonPlainDecimals  = Option{Name: "encode.decimal-as-plain-number", Kind: Boolean, Default: "false", Doc: "Write a DECIMAL with all digits of its scale, 100.00 or 0.00000010, and not in the shortest form, 1E+2 or 1E-7."}
	jsonIgnoreNulls    = Option{Name: "encode.ignore-null-fields", Kind: Boolean, Default: "false", Doc: "Leave out fields that are NULL."}
)

// jsonRows is the format of a table, with its options.
type jsonRows struct {
	failMissing bool
	lax         bool // ignore-parse-errors
	iso         bool
	nullKeys    string
	nullKey     string
	plain       bool // decimals
	skipNulls   bool
}

// newJSONRows reads the options that formats of JSON share.
func newJSONRows(o *Options) *jsonRows {
	return &jsonRows{
		lax:       o.Bool("ignore-parse-errors"),
		iso:       o.Text("timestamp-format.standard") == "ISO-8601",
		nullKeys:  o.Text("map-null-key.mode"),
		nullKey:   o.Text("map-null-key.literal"),
		plain:     o.Bool("encode.decimal-as-plain-number"),
		skipNulls: o.Bool("encode.ignore-null-fields"),
	}
}

// RowDecoder is of RowFormat. The error names a column whose type has no JSON form.
func (j *jsonRows) RowDecoder(s RowSchema) (RowDecoder, error) {
	d := &jsonRowDecoder{rowReader: rowReader{jsonRows: j}}
	var err error
	d.root, err = d.newObject(s.Layout, s.Columns)
	return d, err
}

// RowEncoder is of RowFormat. The error names a column whose type has no JSON form.
func (j *jsonRows) RowEncoder(s RowSchema) (RowEncoder, error) {
	return j.newWriter(s)
}

// maxRowDepth is how deep messages may be nested.
const maxRowDepth = 1000

type jsonRowDecoder struct {
	rowReader
	root *rowObject
}

// Decode is of RowDecoder.
func (d *jsonRowDecoder) Decode(data []byte, next func() *row.Row) error {
	if len(data) == 0 {
		return nil
	}
	if !d.start(data) {
		return nil
	}
	i := skipSpace(data, 0)
	var err *JSONError
	if i < len(data) && data[i] == '[' {
		i, err = d.array(data, i, next)
	} else {
		i, err = d.element(data, i, next)
	}
	if err == nil {
		err = wantEnd(data, i)
	}
	if err != nil {
		return err
	}
	return nil
}

// array decodes an array of objects.
func (d *jsonRowDecoder) array(data []byte, i int, next func() *row.Row) (int, *JSONError) {
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == ']' {
		return i + 1, nil
	}
	for k := 0; ; k++ {
		var err *JSONError
		if i, err = d.element(data, i, next); err != nil {
			return i, err.at(k)
		}
		var more bool
		if i, more, err = afterElement(data, i, ']'); !more {
			return i, err
		}
	}
}

// element decodes an object to a row.
func (d *jsonRowDecoder) element(data []byte, i int, next func() *row.Row) (int, *JSONError) {
	if i < len(data) && data[i] == '{' {
		return d.object(d.root, data, i, maxRowDepth, next())
	}
	if d.lax {
		return skipValue(data, i, maxRowDepth)
	}
	return i, wanted(data, i, "want an object, the columns of a row")
}
