// Package avro has the formats of Avro: plain messages of the schema that follows from the table, messages with the id of
// their schema in a registry, and Debezium's changes in these.
//
// Messages are read by the schema that they were written with, straight into the columns that are wanted. The library
// twmb/avro parses and checks schemas; values are read and written by programs made of them, since it has no way to give
// values without an object for each.
package avro

import (
	"bytes"
	"fmt"

	"github.com/twmb/avro"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/internal/cells"
	"github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/row"
)

var legacyOption = format.Option{Name: "timestamp_mapping.legacy", Kind: format.Boolean, Default: "true",
	Doc: "true: TIMESTAMP is written as timestamp-millis or timestamp-micros, as TIMESTAMP_LTZ is. false: TIMESTAMP is written as local-timestamp-millis or local-timestamp-micros."}

// Formats are avro, avro-confluent and debezium-avro-confluent.
func Formats() format.RowFormats {
	confluent := func() []format.Option {
		return append(registry.Options(), legacyOption, format.Option{Name: "schema",
			Doc: "The schema that the table reads and writes. Its aliases, defaults and enum symbols count. Default: the one that follows from the table."})
	}
	return format.RowFormats{
		"avro": {
			Doc: "Avro without a schema in front: all messages are of the schema that follows from the table.",
			Options: []format.Option{
				{Name: "encoding", Kind: format.Enum, Values: []string{"binary", "json"}, Default: "binary", Doc: "How messages are written: in Avro's binary form, or in its JSON form."},
				legacyOption,
			},
			New: func(o *format.Options) (format.RowFormat, error) {
				return &plain{json: o.Text("encoding") == "json", legacy: o.Bool(legacyOption.Name)}, nil
			},
		},
		"avro-confluent": {
			Doc:     "Avro with the id of the writer's schema in a schema registry before each message.",
			Options: confluent(),
			New:     func(o *format.Options) (format.RowFormat, error) { return newConfluent(o, false) },
		},
		"debezium-avro-confluent": {
			Doc:     "Debezium's changes in Avro with a schema registry: a record with before, after and op.",
			Options: confluent(),
			New:     func(o *format.Options) (format.RowFormat, error) { return newConfluent(o, true) },
			Changes: true,
		},
	}
}

// plain is the format avro.
type plain struct{ json, legacy bool }

func (p *plain) schemas(s format.RowSchema) (typed, bare *schema, err error) {
	text, err := derive(s.All(), deriver{legacy: p.legacy})
	if err != nil {
		return nil, nil, err
	}
	if typed, err = parse(text); err != nil || !p.json {
		return typed, nil, err
	}
	if text, err = derive(s.All(), deriver{bare: true}); err != nil {
		return nil, nil, err
	}
	bare, err = parse(text)
	return typed, bare, err
}

// RowDecoder is of format.RowFormat.
func (p *plain) RowDecoder(s format.RowSchema) (format.RowDecoder, error) {
	typed, bare, err := p.schemas(s)
	if err != nil {
		return nil, fmt.Errorf("format avro: %w", err)
	}
	c := compiler{writer: typed, skips: map[string]*skip{}}
	rec, err := c.root(typed.root, nil, wants(s.Columns))
	if err != nil {
		return nil, fmt.Errorf("format avro: %w", err)
	}
	d := &decoder{s: s, rec: rec}
	if p.json {
		return &jsonDecoder{decoder: d, schema: bare.Schema}, nil
	}
	return d, nil
}

// RowEncoder is of format.RowFormat.
func (p *plain) RowEncoder(s format.RowSchema) (format.RowEncoder, error) {
	typed, bare, err := p.schemas(s)
	if err != nil {
		return nil, fmt.Errorf("format avro: %w", err)
	}
	fields, err := writing{typed}.fields(typed.root, wants(s.Columns), "")
	if err != nil {
		return nil, fmt.Errorf("format avro: %w", err)
	}
	e := &encoder{s: s, fields: fields}
	if p.json {
		return &jsonEncoder{encoder: e, schema: bare.Schema}, nil
	}
	return e, nil
}

func wants(columns []format.RowColumn) []want {
	w := make([]want, len(columns))
	for i, c := range columns {
		w[i] = want{c.Name, c.Type}
	}
	return w
}

// decoder reads messages of one schema.
type decoder struct {
	s   format.RowSchema
	rec *record
	in  input
}

// Decode is of format.RowDecoder. A null message is no row.
func (d *decoder) Decode(data []byte, next func() *row.Row) error {
	if data == nil {
		return nil
	}
	d.in.reset(data)
	if err := d.in.run(d.rec); err != nil {
		return fmt.Errorf("read Avro: %w", err)
	}
	store(d.s, d.rec, next())
	return nil
}

// run reads a message and is its error, with the field.
func (in *input) run(r *record) error {
	in.fields(r, false)
	switch {
	case in.err != nil && in.where != "":
		return fmt.Errorf("field %s: %w", in.where, in.err)
	case in.err != nil:
		return in.err
	}
	return nil
}

// store puts the cells of a record into a row.
func store(s format.RowSchema, rec *record, r *row.Row) {
	for i := range s.Columns {
		cells.Store(s.Layout, r, s.Columns[i].Index, &rec.cells[i])
	}
}

// encoder writes messages of one schema.
type encoder struct {
	s      format.RowSchema
	fields []writerField
	out    output
	prefix []byte // before each message
	// text is the schema that is registered in reg with the first message: planning asks no registry. nil = messages have no id.
	reg  *registry.Client
	text string
}

// Ask is of format.Asker.
func (e *encoder) Ask() (string, error) {
	if e.reg == nil {
		return "", nil
	}
	return e.reg.Takes(e.reg.Subject(), registry.Avro, e.text, e.differs)
}

// differs is why messages of another schema cannot be read by ours.
func (e *encoder) differs(latest string) string {
	w, err := avro.Parse(latest)
	if err != nil {
		return err.Error()
	}
	r, err := avro.Parse(e.text)
	if err == nil {
		err = avro.CheckCompatibility(w, r)
	}
	if err == nil {
		return "nothing that matters to the latest version alone"
	}
	return err.Error()
}

// begin begins a message.
func (e *encoder) begin(dst []byte) ([]byte, error) {
	if e.reg != nil && e.prefix == nil {
		id, err := e.reg.Register(e.reg.Subject(), registry.Avro, e.text)
		if err != nil {
			return nil, fmt.Errorf("write Avro: %w", err)
		}
		e.prefix = registry.AppendID(nil, id)
	}
	e.out.err = nil
	return append(dst, e.prefix...), nil
}

// Append is of format.RowEncoder.
func (e *encoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	dst, err := e.begin(dst)
	if err != nil {
		return nil, err
	}
	dst = e.out.columns(dst, e.s, e.fields, r)
	if e.out.err != nil {
		return nil, fmt.Errorf("write Avro: %w", e.out.err)
	}
	return dst, nil
}

// columns writes a record of columns.
func (o *output) columns(dst []byte, s format.RowSchema, fields []writerField, r *row.Row) []byte {
	for i := range fields {
		f := &fields[i]
		if f.writer == nil {
			dst = append(dst, f.bytes...)
			continue
		}
		dst = o.write(dst, f.writer, cells.Load(s.Layout, r, s.Columns[f.cell].Index))
	}
	return dst
}

// jsonDecoder reads Avro's JSON form: the library makes the binary form of it, without logical types.
type jsonDecoder struct {
	*decoder
	schema *avro.Schema
	buf    []byte
}

// Decode is of format.RowDecoder.
func (d *jsonDecoder) Decode(data []byte, next func() *row.Row) error {
	if data == nil {
		return nil
	}
	var v any
	err := d.schema.DecodeJSON(data, &v, avro.TaggedUnions())
	if err == nil {
		d.buf, err = d.schema.AppendEncode(d.buf[:0], v)
	}
	if err != nil {
		return fmt.Errorf("read Avro's JSON: %w", err)
	}
	return d.decoder.Decode(d.buf, next)
}

// jsonEncoder writes Avro's JSON form by way of the binary one.
type jsonEncoder struct {
	*encoder
	schema *avro.Schema
	buf    []byte
}

// Append is of format.RowEncoder.
func (e *jsonEncoder) Append(dst []byte, r *row.Row) (_ []byte, err error) {
	if e.buf, err = e.encoder.Append(e.buf[:0], r); err != nil {
		return nil, err
	}
	var v any
	if _, err = e.schema.Decode(e.buf, &v, avro.TaggedUnions()); err == nil {
		dst, err = e.schema.AppendEncodeJSON(dst, v, avro.TaggedUnions())
	}
	if err != nil {
		return nil, fmt.Errorf("write Avro's JSON: %w", err)
	}
	return dst, nil
}

// confluent is avro-confluent and, with changes, debezium-avro-confluent.
type confluent struct {
	name     string
	reg      *registry.Client
	legacy   bool
	changes  bool
	declared *schema // option schema; nil = none
	text     string
}

func newConfluent(o *format.Options, changes bool) (*confluent, error) {
	c := &confluent{name: "avro-confluent", legacy: o.Bool(legacyOption.Name), changes: changes, text: o.Text("schema")}
	if changes {
		c.name = "debezium-avro-confluent"
	}
	var err error
	if c.reg, err = registry.New(o); err != nil {
		return nil, err
	}
	if c.text != "" {
		if c.declared, err = parse(c.text); err != nil {
			return nil, fmt.Errorf("option 'schema': %w", err)
		}
		if c.declared.root.Type != "record" {
			return nil, fmt.Errorf("option 'schema': it is %s and must be a record", describe(c.declared.root))
		}
	}
	return c, nil
}

// RowDecoder is of format.RowFormat.
func (c *confluent) RowDecoder(s format.RowSchema) (format.RowDecoder, error) {
	if c.declared != nil {
		// What is wrong for all messages is told before the first.
		own := compiler{writer: c.declared, reader: c.declared, skips: map[string]*skip{}}
		if _, err := c.compile(&own, c.declared, s); err != nil {
			return nil, fmt.Errorf("format %s: option 'schema': %w", c.name, err)
		}
	}
	return &confluentDecoder{c: c, s: s, known: map[int]*entry{}}, nil
}

// compile makes the program for messages of a schema.
func (c *confluent) compile(comp *compiler, w *schema, s format.RowSchema) (*record, error) {
	var r *avro.SchemaNode
	if comp.reader != nil {
		r = comp.reader.root
	}
	if c.changes {
		comp.columns = wants(s.Columns)
		return comp.root(w.root, r, []want{{name: "before"}, {name: "after"}, {name: "op", t: row.String()}})
	}
	return comp.root(w.root, r, wants(s.Columns))
}

// confluentDecoder reads messages each by the schema whose id stands before it.
type confluentDecoder struct {
	c     *confluent
	s     format.RowSchema
	known map[int]*entry
	last  *entry
	in    input
}

// entry is what there is to know of a schema.
type entry struct {
	id   int
	rec  *record
	sets []*record // of before and after
	err  error
}

func (d *confluentDecoder) entry(id int) (*entry, error) {
	if d.last != nil && d.last.id == id {
		return d.last, d.last.err
	}
	e := d.known[id]
	if e == nil {
		got, err := d.c.reg.Get(id)
		if err != nil {
			return nil, err
		}
		e = &entry{id: id}
		if err := d.open(e, got); err != nil {
			e.err = fmt.Errorf("%s: %w", d.c.reg.Name(id), err)
		}
		d.known[id] = e
	}
	d.last = e
	return e, e.err
}

func (d *confluentDecoder) open(e *entry, got *registry.Schema) error {
	if got.Type != registry.Avro {
		return fmt.Errorf("it is a schema of %s, not of Avro", got.Type)
	}
	var refs []string
	for _, r := range got.References {
		refs = append(refs, r.Text)
	}
	w, err := parse(got.Text, refs...)
	if err != nil {
		return err
	}
	comp := compiler{writer: w, reader: d.c.declared, skips: map[string]*skip{}}
	e.rec, err = d.c.compile(&comp, w, d.s)
	e.sets = comp.sets
	return err
}

// Decode is of format.RowDecoder. A null message is no row.
func (d *confluentDecoder) Decode(data []byte, next func() *row.Row) error {
	if data == nil {
		return nil
	}
	id, rest, err := registry.ID(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", d.c.name, err)
	}
	e, err := d.entry(id)
	if err != nil {
		return fmt.Errorf("read %s: %w", d.c.name, err)
	}
	d.in.reset(rest)
	if err := d.in.run(e.rec); err != nil {
		return fmt.Errorf("read %s: %s: %w", d.c.name, d.c.reg.Name(id), err)
	}
	if !d.c.changes {
		store(d.s, e.rec, next())
		return nil
	}
	if err := d.change(e, next); err != nil {
		return fmt.Errorf("read %s: %w", d.c.name, err)
	}
	return nil
}

// change makes rows of before, after and op, as Flink does.
func (d *confluentDecoder) change(e *entry, next func() *row.Row) error {
	before, after, op := &e.rec.cells[0], &e.rec.cells[1], e.rec.cells[2].B
	add := func(c *cells.Cell, kind row.RowKind) {
		r := next()
		r.Kind = kind
		store(d.s, e.sets[c.X], r)
	}
	missing := func(what string) error {
		if what == "before" {
			return fmt.Errorf("op %s has no 'before'; of PostgreSQL, set REPLICA IDENTITY FULL for the table", op)
		}
		return fmt.Errorf("op %s has no '%s'", op, what)
	}
	switch string(op) {
	case "c", "r":
		if after.Null {
			return missing("after")
		}
		add(after, row.Insert)
	case "u":
		switch {
		case before.Null:
			return missing("before")
		case after.Null:
			return missing("after")
		}
		add(before, row.UpdateBefore)
		add(after, row.UpdateAfter)
	case "d":
		if before.Null {
			return missing("before")
		}
		add(before, row.Delete)
	default:
		return fmt.Errorf("op '%s' is unknown; there are c, r, u and d", bytes.ToValidUTF8(op, []byte("?")))
	}
	return nil
}

// RowEncoder is of format.RowFormat.
func (c *confluent) RowEncoder(s format.RowSchema) (format.RowEncoder, error) {
	fields := s.All()
	if c.changes {
		image := row.RowOf(fields...)
		fields = []row.Field{{Name: "before", Type: image}, {Name: "after", Type: image}, {Name: "op", Type: row.String()}}
	}
	text, w := c.text, c.declared
	if w == nil {
		var err error
		if text, err = derive(fields, deriver{legacy: c.legacy}); err == nil {
			w, err = parse(text)
		}
		if err != nil {
			return nil, fmt.Errorf("format %s: %w", c.name, err)
		}
	}
	have := wants(s.Columns)
	if c.changes {
		columns := make([]row.Field, len(s.Columns))
		for i, c := range s.Columns {
			columns[i] = row.Field{Name: c.Name, Type: c.Type}
		}
		image := row.RowOf(columns...)
		have = []want{{"before", image}, {"after", image}, {"op", row.String()}}
	}
	out, err := writing{w}.fields(w.root, have, "")
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", c.name, err)
	}
	if c.reg.Subject() == "" {
		return nil, fmt.Errorf("format %s: %w", c.name, registry.ErrNoSubject)
	}
	e := encoder{s: s, fields: out, reg: c.reg, text: text}
	if c.changes {
		return &changeEncoder{e}, nil
	}
	return &e, nil
}

// changeEncoder writes Debezium's envelope as Flink does: a row that is added as op c with after, one that is taken away as
// op d with before.
type changeEncoder struct{ encoder }

var opCreate, opDelete = cells.Cell{B: []byte("c")}, cells.Cell{B: []byte("d")}

// Append is of format.RowEncoder.
func (e *changeEncoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	dst, err := e.begin(dst)
	if err != nil {
		return nil, err
	}
	image, op := 1, opCreate
	if !r.Kind.Adds() {
		image, op = 0, opDelete
	}
	for i := range e.fields {
		switch f := &e.fields[i]; {
		case f.writer == nil:
			dst = append(dst, f.bytes...)
		case f.cell == 2:
			dst = e.out.write(dst, f.writer, op)
		case f.cell != image:
			dst = e.out.write(dst, f.writer, cells.Cell{Null: true})
		default:
			dst = e.out.columns(e.out.head(dst, f.writer), e.s, f.writer.fields, r)
		}
	}
	if e.out.err != nil {
		return nil, fmt.Errorf("write Avro: %w", e.out.err)
	}
	return dst, nil
}
