package format

import (
	"fmt"
	"regexp"

	"github.com/millrace-stream/millrace/row"
)

// Formats of change data capture: each message is an object that says what happened to a row of a database, with the row
// before and after. They are alike but for the names of fields.

// cdcFormat is a format of change data capture with the options of a table.
type cdcFormat struct {
	*jsonRows
	*cdcDialect
	schema          bool // there is an object around the message
	database, table *regexp.Regexp
}

// cdcDialect is what a format calls things.
type cdcDialect struct {
	name string
	// after and before are the fields of the row as it is and as it was; op that of what happened.
	after, before, op string
	// insert, update and remove are the values of op. ignore are others that are no change of rows.
	insert, ignore []string
	update, remove string
	// whole says that before is the whole row, and what is removed; else it has the fields that were changed, and what is
	// removed is in after.
	whole bool
	// many says that after and before are arrays.
	many     bool
	metadata []cdcMetadata
	hint     string // for a message without row
}

// cdcMetadata is something that a message tells beside the columns.
type cdcMetadata struct {
	RowMetadata
	field string
	typ   *row.Type // that the field is read as
	key   string    // of the field, if that is a MAP
	unit  int64     // ms of a number that is a time
}

func (c *cdcDialect) spec(options []Option, newFormat func(o *Options) (RowFormat, error), doc string) RowFormatSpec {
	spec := RowFormatSpec{Doc: doc, Changes: true, New: newFormat, Options: append(options, jsonIgnoreErrors, jsonTimestamps, jsonNullKeys, jsonNullKeyLiteral, jsonPlainDecimals, jsonIgnoreNulls)}
	for _, m := range c.metadata {
		spec.Metadata = append(spec.Metadata, m.RowMetadata)
	}
	return spec
}

var properties = row.Map(row.String(), row.String())

var debezium = cdcDialect{
	name: "Debezium", after: "after", before: "before", op: "op", insert: []string{"c", "r"}, update: "u", remove: "d", whole: true,
	hint: "where the source is PostgreSQL, set ALTER TABLE ... REPLICA IDENTITY FULL, so that updates and deletions have the row as it was",
	metadata: []cdcMetadata{
		{RowMetadata{"schema", row.String(), "JSON of the schema that comes with the message, with schema-include."}, "schema", row.String(), "", 0},
		{RowMetadata{"ingestion-timestamp", row.TimestampLTZ(3), "When the connector processed the change (ts_ms)."}, "ts_ms", row.BigInt(), "", 1},
		{RowMetadata{"source.timestamp", row.TimestampLTZ(3), "When the source made the change (source.ts_ms)."}, "source", properties, "ts_ms", 1},
		{RowMetadata{"source.database", row.String(), "The database (source.db)."}, "source", properties, "db", 0},
		{RowMetadata{"source.schema", row.String(), "The schema of the database (source.schema)."}, "source", properties, "schema", 0},
		{RowMetadata{"source.table", row.String(), "The table (source.table)."}, "source", properties, "table", 0},
		{RowMetadata{"source.properties", properties, "All that source has."}, "source", properties, "", 0},
	},
}

// DebeziumRows is the format 'debezium-json' of tables: the messages of Debezium's connectors, as JSON. They are decoded as
// those of JSONRows; an update gives -U and +U, a tombstone nothing. It writes +I and +U as op c, -U and -D as op d.
func DebeziumRows() RowFormatSpec {
	options := []Option{{Name: "schema-include", Kind: Boolean, Default: "false", Doc: "Messages have the fields schema and payload, as with value.converter.schemas.enable of Kafka Connect. Only for reading."}}
	return debezium.spec(options, func(o *Options) (RowFormat, error) {
		return &cdcFormat{jsonRows: newJSONRows(o), cdcDialect: &debezium, schema: o.Bool("schema-include")}, nil
	}, "Changes of a database as Debezium writes them, in JSON: rows are inserted, updated and deleted. Tombstones are skipped.")
}

var canal = cdcDialect{
	name: "Canal", after: "data", before: "old", op: "type", insert: []string{"INSERT"}, ignore: []string{"CREATE"}, update: "UPDATE", remove: "DELETE", many: true,
	hint: "",
	metadata: []cdcMetadata{
		{RowMetadata{"database", row.String(), "The database."}, "database", row.String(), "", 0},
		{RowMetadata{"table", row.String(), "The table."}, "table", row.String(), "", 0},
		{RowMetadata{"sql-type", row.Map(row.String(), row.Int()), "The JDBC type number of each column."}, "sqlType", row.Map(row.String(), row.Int()), "", 0},
		{RowMetadata{"pk-names", row.Array(row.String()), "The columns of the primary key."}, "pkNames", row.Array(row.String()), "", 0},
		{RowMetadata{"ingestion-timestamp", row.TimestampLTZ(3), "When the connector processed the change (ts)."}, "ts", row.BigInt(), "", 1},
		{RowMetadata{"event-timestamp", row.TimestampLTZ(3), "When the source made the change (es)."}, "es", row.BigInt(), "", 1},
	},
}

// CanalRows is the format 'canal-json' of tables, see DebeziumRows.
func CanalRows() RowFormatSpec {
	options := []Option{
		{Name: "database.include", Kind: Text, Doc: "A regular expression: only changes of databases whose whole name matches it are read."},
		{Name: "table.include", Kind: Text, Doc: "A regular expression: only changes of tables whose whole name matches it are read."},
	}
	return canal.spec(options, func(o *Options) (RowFormat, error) {
		f := &cdcFormat{jsonRows: newJSONRows(o), cdcDialect: &canal}
		for name, re := range map[string]**regexp.Regexp{"database.include": &f.database, "table.include": &f.table} {
			if !o.Has(name) {
				continue
			}
			var err error
			if *re, err = regexp.Compile("^(?:" + o.Text(name) + ")$"); err != nil {
				return nil, fmt.Errorf("option '%s%s': %w", o.prefix, name, err)
			}
		}
		return f, nil
	}, "Changes of MySQL as Canal writes them, in JSON: rows are inserted, updated and deleted.")
}

var maxwell = cdcDialect{
	name: "Maxwell", after: "data", before: "old", op: "type", insert: []string{"insert", "bootstrap-insert"}, ignore: []string{"bootstrap-start", "bootstrap-complete"}, update: "update", remove: "delete",
	metadata: []cdcMetadata{
		{RowMetadata{"database", row.String(), "The database."}, "database", row.String(), "", 0},
		{RowMetadata{"table", row.String(), "The table."}, "table", row.String(), "", 0},
		{RowMetadata{"primary-key-columns", row.Array(row.String()), "The columns of the primary key."}, "primary_key_columns", row.Array(row.String()), "", 0},
		{RowMetadata{"ingestion-timestamp", row.TimestampLTZ(3), "When the change was made, in whole seconds (ts)."}, "ts", row.BigInt(), "", 1000},
	},
}

// MaxwellRows is the format 'maxwell-json' of tables, see DebeziumRows.
func MaxwellRows() RowFormatSpec {
	return maxwell.spec(nil, func(o *Options) (RowFormat, error) {
		return &cdcFormat{jsonRows: newJSONRows(o), cdcDialect: &maxwell}, nil
	}, "Changes of MySQL as Maxwell writes them, in JSON: rows are inserted, updated and deleted.")
}

// RowDecoder is of RowFormat.
func (f *cdcFormat) RowDecoder(s RowSchema) (RowDecoder, error) {
	d := &cdcDecoder{rowReader: rowReader{jsonRows: f.jsonRows}, f: f, schema: s}
	for _, c := range s.Columns {
		if !c.Metadata {
			d.columns = append(d.columns, c)
		}
	}
	var err error
	if d.row, err = d.newObject(s.Layout, d.columns); err != nil {
		return nil, err
	}
	return d, d.plan()
}

// cdcDecoder decodes messages in two steps: the message is read to an envelope, in which the rows are only found and
// checked; then they are read to where they are to go.
type cdcDecoder struct {
	rowReader
	f       *cdcFormat
	schema  RowSchema
	columns []RowColumn // without metadata
	row     *rowObject

	outer    *rowObject // the object around the envelope, if there is one
	envelope *rowObject
	layout   *row.Layout // of both
	env      *row.Row
	after    *rowNode
	before   *rowNode
	op       *rowNode
	payload  *rowNode
	database *rowNode
	table    *rowNode
	metadata []cdcColumn
}

// cdcColumn is a column that metadata go to.
type cdcColumn struct {
	cdcMetadata
	column int
	from   int // column of the envelope
}

// plan plans the envelope.
func (d *cdcDecoder) plan() error {
	var types []*row.Type
	var inner, outer []RowColumn
	field := func(list *[]RowColumn, name string, t *row.Type) int {
		for _, c := range *list {
			if c.Name == name {
				return c.Index
			}
		}
		*list = append(*list, RowColumn{Name: name, Type: t, Index: len(types)})
		types = append(types, t)
		return len(types) - 1
	}
	field(&inner, d.f.after, row.BigInt())
	field(&inner, d.f.before, row.BigInt())
	field(&inner, d.f.op, row.String())
	if d.f.database != nil {
		field(&inner, "database", row.String())
	}
	if d.f.table != nil {
		field(&inner, "table", row.String())
	}
	if d.f.schema {
		field(&outer, "payload", row.BigInt())
	}
	for _, c := range d.schema.Columns {
		if !c.Metadata {
			continue
		}
		m, err := d.f.find(c)
		if err != nil {
			return err
		}
		list := &inner
		if d.f.schema && m.field == "schema" {
			list = &outer
		}
		d.metadata = append(d.metadata, cdcColumn{m, c.Index, field(list, m.field, m.typ)})
	}
	d.layout = row.NewLayout(types...)
	d.env = d.layout.New()
	var err error
	if d.envelope, err = d.newObject(d.layout, inner); err != nil {
		return err
	}
	if d.outer, err = d.newObject(d.layout, outer); err != nil {
		return err
	}
	node := func(o *rowObject, name string) *rowNode {
		for i := range o.fields {
			if o.fields[i].name == name {
				return &o.fields[i]
			}
		}
		return nil
	}
	d.after, d.before, d.op, d.payload = node(d.envelope, d.f.after), node(d.envelope, d.f.before), node(d.envelope, d.f.op), node(d.outer, "payload")
	d.database, d.table = node(d.envelope, "database"), node(d.envelope, "table")
	d.after.span, d.before.span = true, true
	if d.payload != nil {
		d.payload.span = true
	}
	return nil
}

// find is the metadata that a column names.
func (c *cdcDialect) find(column RowColumn) (cdcMetadata, error) {
	for _, m := range c.metadata {
		if m.Name == column.Name {
			if column.Type.Plain() != m.Type {
				return m, fmt.Errorf("metadata %s: it is a %s, not a %s", m.Name, m.Type, column.Type)
			}
			return m, nil
		}
	}
	return cdcMetadata{}, fmt.Errorf("metadata %s: messages of %s have none of that name", column.Name, c.name)
}

// Decode is of RowDecoder.
func (d *cdcDecoder) Decode(data []byte, next func() *row.Row) error {
	if len(data) == 0 || !d.start(data) {
		return nil
	}
	if err := d.decode(data, next); err != nil && !d.lax {
		return fmt.Errorf("decode message of %s: %w", d.f.name, err)
	}
	return nil
}

func (d *cdcDecoder) decode(data []byte, next func() *row.Row) error {
	for i := range d.layout.Len() {
		d.env.SetNull(i)
	}
	i, o := skipSpace(data, 0), d.envelope
	if d.payload != nil {
		o = d.outer
	}
	if i >= len(data) || data[i] != '{' {
		return wanted(data, i, "want an object")
	}
	i, jerr := d.object(o, data, i, maxRowDepth, d.env)
	if jerr == nil {
		jerr = wantEnd(data, i)
	}
	if jerr == nil && d.payload != nil {
		start, _ := spanOf(d.env, d.payload.at)
		if d.env.Null(d.payload.column) || data[start] != '{' {
			return fmt.Errorf("it has no object payload; set 'schema-include' of the format to false if messages have no schema")
		}
		_, jerr = d.object(d.envelope, data, start, maxRowDepth, d.env)
	}
	if jerr != nil {
		return jerr
	}
	if d.other(d.f.database, d.database) || d.other(d.f.table, d.table) {
		return nil
	}
	if d.env.Null(d.op.column) {
		err := fmt.Errorf("it has no field %q", d.f.op)
		if d.f.whole && !d.f.schema {
			err = fmt.Errorf("%w; set 'schema-include' of the format to true if messages have the fields schema and payload", err)
		}
		return err
	}
	op := view(d.env.S[d.op.at])
	for _, s := range d.f.insert {
		if op == s {
			return d.rows(data, next, d.after, row.Insert)
		}
	}
	for _, s := range d.f.ignore {
		if op == s {
			return nil
		}
	}
	switch {
	case op == d.f.update && d.f.whole:
		if err := d.want(data, d.after, op); err != nil {
			return err
		}
		if err := d.rows(data, next, d.before, row.UpdateBefore); err != nil {
			return err
		}
		return d.rows(data, next, d.after, row.UpdateAfter)
	case op == d.f.update:
		return d.updates(data, next, op)
	case op == d.f.remove && d.f.whole:
		return d.rows(data, next, d.before, row.Delete)
	case op == d.f.remove:
		return d.rows(data, next, d.after, row.Delete)
	}
	return fmt.Errorf("its %s is %q, which is unknown", d.f.op, op)
}

// other says that the text of a field is none that re asks for.
func (d *cdcDecoder) other(re *regexp.Regexp, n *rowNode) bool {
	return re != nil && (d.env.Null(n.column) || !re.Match(d.env.S[n.at]))
}

// want is an error if a field has no row, or no array of them.
func (d *cdcDecoder) want(data []byte, n *rowNode, op string) error {
	open := byte('{')
	if d.f.many {
		open = '['
	}
	start, _ := spanOf(d.env, n.at)
	if !d.env.Null(n.column) && data[start] == open {
		return nil
	}
	err := fmt.Errorf("its %s is %q, but it has no row in %q", d.f.op, op, n.name)
	if d.f.hint != "" && n == d.before {
		err = fmt.Errorf("%w: %s", err, d.f.hint)
	}
	return err
}

// rows decodes the row that a field has, or all in its array.
func (d *cdcDecoder) rows(data []byte, next func() *row.Row, n *rowNode, kind row.RowKind) error {
	if err := d.want(data, n, view(d.env.S[d.op.at])); err != nil {
		return err
	}
	start, _ := spanOf(d.env, n.at)
	if !d.f.many {
		_, err := d.emit(data, start, next, n, kind)
		return err
	}
	for i, more := firstElement(data, start); more; {
		end, err := d.emit(data, i, next, n, kind)
		if err != nil {
			return err
		}
		i, more, _ = afterElement(data, end, ']') // was checked
	}
	return nil
}

// firstElement is the first element of the array at data[i]; ok is false if it is empty.
func firstElement(data []byte, i int) (int, bool) {
	i = skipSpace(data, i+1)
	return i, data[i] != ']'
}

// emit decodes the object at data[i] to a row.
func (d *cdcDecoder) emit(data []byte, i int, next func() *row.Row, n *rowNode, kind row.RowKind) (int, error) {
	if data[i] != '{' {
		return i, wanted(data, i, "want an object").in(n.name)
	}
	r := next()
	r.Kind = kind
	end, err := d.object(d.row, data, i, maxRowDepth, r)
	if err != nil {
		return end, err.in(n.name)
	}
	d.setMetadata(r)
	return end, nil
}

// updates decodes updates whose old row has only what was changed.
func (d *cdcDecoder) updates(data []byte, next func() *row.Row, op string) error {
	if err := d.want(data, d.after, op); err != nil {
		return err
	}
	if err := d.want(data, d.before, op); err != nil {
		return err
	}
	i, _ := spanOf(d.env, d.after.at)
	j, _ := spanOf(d.env, d.before.at)
	more := true
	if d.f.many {
		i, more = firstElement(data, i)
		var old bool
		if j, old = firstElement(data, j); more != old {
			return fmt.Errorf("%q and %q have not the same number of rows", d.f.after, d.f.before)
		}
	}
	for more {
		if data[i] != '{' || data[j] != '{' {
			return fmt.Errorf("%q and %q have values that are no rows", d.f.after, d.f.before)
		}
		was, is := next(), next()
		was.Kind, is.Kind = row.UpdateBefore, row.UpdateAfter
		end, err := d.object(d.row, data, i, maxRowDepth, is)
		if err != nil {
			return err.in(d.f.after)
		}
		for _, c := range d.columns {
			d.schema.Layout.CopyColumn(was, c.Index, d.schema.Layout, is, c.Index)
		}
		oldEnd, err := d.object(d.row, data, j, maxRowDepth, was)
		if err != nil {
			return err.in(d.f.before)
		}
		d.setMetadata(was)
		d.setMetadata(is)
		if !d.f.many {
			return nil
		}
		var old bool
		i, more, _ = afterElement(data, end, ']')
		if j, old, _ = afterElement(data, oldEnd, ']'); more != old {
			return fmt.Errorf("%q and %q have not the same number of rows", d.f.after, d.f.before)
		}
	}
	return nil
}

// setMetadata sets the columns of r that are metadata.
func (d *cdcDecoder) setMetadata(r *row.Row) {
	l := d.schema.Layout
	for i := range d.metadata {
		m := &d.metadata[i]
		if d.env.Null(m.from) {
			continue
		}
		at, from := l.Place(m.column).Index, d.layout.Place(m.from).Index
		switch {
		case m.key != "":
			v := row.ViewMap(m.typ, d.env.S[from])
			k := v.FindBytes([]byte(m.key))
			if k < 0 || v.Values().Null(k) {
				continue
			}
			text := v.Values().Bytes(k)
			if m.unit == 0 {
				r.SetBytes(at, text)
			} else if ms, err := row.ParseInt(text, 64); err == nil {
				r.SetInt64(at, ms*m.unit)
			} else {
				continue
			}
			r.ClearNull(m.column)
		case m.unit != 0:
			r.SetInt64(at, d.env.Int64(from)*m.unit)
			r.ClearNull(m.column)
		default:
			l.CopyColumn(r, m.column, d.layout, d.env, m.from)
		}
	}
}

// RowEncoder is of RowFormat.
func (f *cdcFormat) RowEncoder(s RowSchema) (RowEncoder, error) {
	if f.schema {
		return nil, fmt.Errorf("'schema-include' is for reading only: what is written has no schema")
	}
	w, err := f.newWriter(s)
	if err != nil {
		return nil, err
	}
	return &cdcEncoder{w, f}, nil
}

type cdcEncoder struct {
	*rowWriter
	f *cdcFormat
}

// Append is of RowEncoder.
func (e *cdcEncoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	start := len(dst)
	op, adds := e.f.remove, r.Kind.Adds()
	if adds {
		op = e.f.insert[0]
	}
	dst = append(dst, '{')
	switch {
	case !e.f.whole || adds:
		if e.f.whole && !e.skipNulls {
			dst = append(dst, `"before":null,`...)
		}
		dst = append(append(append(dst, '"'), e.f.after...), '"', ':')
	default:
		dst = append(dst, `"before":`...)
	}
	if e.f.many {
		dst = append(dst, '[')
	}
	dst, err := e.object(dst, r)
	if err != nil {
		return dst[:start], err
	}
	if e.f.many {
		dst = append(dst, ']')
	}
	if e.f.whole && !adds && !e.skipNulls {
		dst = append(dst, `,"after":null`...)
	}
	dst = append(append(append(dst, ',', '"'), e.f.op...), '"', ':', '"')
	return append(append(dst, op...), '"', '}'), nil
}
