// Package protobuf has the formats of Protocol Buffers: messages of a .proto file, and messages with the id of their schema
// in a registry.
//
// Messages are read from the wire straight into the columns that are wanted, by google.golang.org/protobuf/encoding/protowire
// and the descriptors of a schema: no message object is made.
package protobuf

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/internal/cells"
	"github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/row"
)

// Formats are protobuf and protobuf-confluent.
func Formats() format.RowFormats {
	shared := []format.Option{
		{Name: "message-name", Doc: "The message, with or without its package: shop.Order. Default: the one message of the schema."},
		{Name: "ignore-parse-errors", Kind: format.Boolean, Default: "false", Doc: "Skip messages that cannot be read, instead of what is done with bad input."},
		{Name: "read-default-values", Kind: format.Boolean, Default: "false", Doc: "Read the default where a field that can be absent is; false: NULL. Fields of proto3 without optional that are no message are never absent."},
		{Name: "write-null-string-literal", Doc: "What is written for NULL in a list or map of text, where Protobuf has no NULL. Default: empty text."},
	}
	return format.RowFormats{
		"protobuf": {
			Doc: "Messages of Protocol Buffers, of a schema in a file.",
			Options: append([]format.Option{
				{Name: "schema-file", Doc: "The .proto file that has the message. Without it descriptor-set is needed."},
				{Name: "import-path", Kind: format.List, Doc: "Folders in which the imports of schema-file are. Default: its own folder. Those of google/protobuf are known."},
				{Name: "descriptor-set", Doc: "Instead of schema-file: a file that protoc --include_imports --descriptor_set_out wrote."},
				{Name: "message-class-name", Doc: "Flink's option: the Java class of the message. It is found in the schema by java_package, java_outer_classname and java_multiple_files."},
			}, shared...),
			New: newPlain,
		},
		"protobuf-confluent": {
			Doc: "Messages of Protocol Buffers with the id of the writer's schema in a schema registry before each. A table is written in the schema of schema-file, " +
				"or the latest of the subject, or the one that follows from the table.",
			Options: slices.Concat(registry.Options(), []format.Option{
				{Name: "schema-file", Doc: "The .proto file of the schema that a table writes and registers; it imports nothing but files of google/protobuf. Default: the latest schema of the subject, or else one that follows from the table."},
			}, shared),
			New: newConfluent,
		},
	}
}

// settings are the options that both formats have.
type settings struct {
	name     string
	lax      bool
	defaults bool
	null     []byte
}

func newSettings(o *format.Options) settings {
	return settings{o.Text("message-name"), o.Bool("ignore-parse-errors"), o.Bool("read-default-values"), []byte(o.Text("write-null-string-literal"))}
}

// plain is the format protobuf.
type plain struct {
	settings
	d protoreflect.MessageDescriptor
}

func newPlain(o *format.Options) (format.RowFormat, error) {
	p := &plain{settings: newSettings(o)}
	file, set := o.Text("schema-file"), o.Text("descriptor-set")
	var files []protoreflect.FileDescriptor
	var err error
	switch {
	case file != "" && set != "":
		return nil, fmt.Errorf("options 'schema-file' and 'descriptor-set' exclude each other")
	case file != "":
		var d protoreflect.FileDescriptor
		if d, err = compileFile(file, o.List("import-path")); err != nil {
			return nil, fmt.Errorf("option 'schema-file': %s: %w", file, err)
		}
		files = []protoreflect.FileDescriptor{d}
	case set != "":
		if files, err = readSet(set); err != nil {
			return nil, fmt.Errorf("option 'descriptor-set': %s: %w", set, err)
		}
	default:
		return nil, fmt.Errorf("option 'schema-file' is missing: the .proto file that has the message (or 'descriptor-set'); a class of Java cannot be loaded")
	}
	p.d, err = find(files, p.name, o.Text("message-class-name"))
	return p, err
}

// RowDecoder is of format.RowFormat.
func (p *plain) RowDecoder(s format.RowSchema) (format.RowDecoder, error) {
	m, err := reading{defaults: p.defaults}.message(p.d, wants(s.Columns), "")
	if err != nil {
		return nil, fmt.Errorf("format protobuf: %w", err)
	}
	return &decoder{s: s, m: m, lax: p.lax}, nil
}

// RowEncoder is of format.RowFormat.
func (p *plain) RowEncoder(s format.RowSchema) (format.RowEncoder, error) {
	e := newEncoder(s)
	var err error
	if e.writers, err = (writing{p.null}).message(p.d, wants(s.Columns), ""); err != nil {
		return nil, fmt.Errorf("format protobuf: %w", err)
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
	m   *message
	in  input
	lax bool
}

// Decode is of format.RowDecoder. A null message is no row.
func (d *decoder) Decode(data []byte, next func() *row.Row) error {
	if data == nil {
		return nil
	}
	if err := d.in.run(d.m, data); err != nil {
		if d.lax {
			return nil
		}
		return fmt.Errorf("read Protobuf: %w", err)
	}
	store(d.s, d.m, next())
	return nil
}

func (in *input) run(m *message, b []byte) error {
	in.err, in.arena = nil, in.arena[:0]
	in.fields(m, b)
	return in.err
}

// store puts the cells of a message into a row.
func store(s format.RowSchema, m *message, r *row.Row) {
	for i := range s.Columns {
		cells.Store(s.Layout, r, s.Columns[i].Index, &m.fields[i].cell)
	}
}

// encoder writes messages of one schema.
type encoder struct {
	writers []writer
	source  source
	out     output
	prefix  []byte // before each message
	// open makes writers and prefix with the first message: planning asks no registry. nil = they are there.
	open func(e *encoder) error
	// ask is Ask of protobuf-confluent; nil = nobody need be asked.
	ask func() (string, error)
}

// Ask is of format.Asker.
func (e *encoder) Ask() (string, error) {
	if e.ask == nil {
		return "", nil
	}
	return e.ask()
}

// differs is what of the columns another schema of the subject has otherwise.
func (c *confluent) differs(s format.RowSchema) func(string) string {
	return func(latest string) string {
		if _, err := c.compile(newEncoder(s), latest, s); err != nil {
			return err.Error()
		}
		return "no column of the table"
	}
}

// refused is an error of the schema that rows are written in.
func refused(err error) error {
	if err == nil || outside(err) {
		return err
	}
	return &format.OutsideError{Err: err, Final: true}
}

func newEncoder(s format.RowSchema) *encoder {
	e := &encoder{source: source{layout: s.Layout}}
	for _, c := range s.Columns {
		e.source.index = append(e.source.index, c.Index)
	}
	return e
}

// Append is of format.RowEncoder.
func (e *encoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	if e.open != nil {
		if err := e.open(e); err != nil {
			return nil, fmt.Errorf("write Protobuf: %w", err)
		}
		e.open = nil
	}
	e.out.err, e.source.r = nil, r
	dst = e.out.fields(append(dst, e.prefix...), e.writers, &e.source)
	if e.out.err != nil {
		return nil, fmt.Errorf("write Protobuf: %w", e.out.err)
	}
	if dst == nil {
		dst = []byte{} // a message without fields; nil would be a tombstone
	}
	return dst, nil
}

// confluent is protobuf-confluent.
type confluent struct {
	settings
	reg  *registry.Client
	text string // of schema-file
}

func newConfluent(o *format.Options) (format.RowFormat, error) {
	c := &confluent{settings: newSettings(o)}
	var err error
	if c.reg, err = registry.New(o); err != nil {
		return nil, err
	}
	if file := o.Text("schema-file"); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("option 'schema-file': %w", err)
		}
		c.text = string(b)
	}
	return c, nil
}

// RowDecoder is of format.RowFormat.
func (c *confluent) RowDecoder(s format.RowSchema) (format.RowDecoder, error) {
	return &confluentDecoder{c: c, s: s, known: map[string]*entry{}}, nil
}

// confluentDecoder reads messages each by the schema whose id stands before it.
type confluentDecoder struct {
	c     *confluent
	s     format.RowSchema
	known map[string]*entry // by what stands before the message
	last  *entry
	in    input
}

// entry is what there is to know of a message of a schema.
type entry struct {
	head []byte // id and indexes
	m    *message
	err  error
}

// mostKnown bounds what is kept of wrong indexes.
const mostKnown = 1000

func (d *confluentDecoder) entry(data []byte) (e *entry, rest []byte, err error) {
	id, rest, err := registry.ID(data)
	if err != nil {
		return nil, nil, err
	}
	// The common case: the same schema and message as before.
	if d.last != nil && len(data) >= len(d.last.head) && bytes.Equal(d.last.head, data[:len(d.last.head)]) {
		return d.last, data[len(d.last.head):], d.last.err
	}
	index, rest, err := registry.Index(rest)
	if err != nil {
		return nil, nil, err
	}
	head := data[:len(data)-len(rest)]
	e = d.known[string(head)]
	if e == nil {
		got, err := d.c.reg.Get(id)
		if err != nil {
			return nil, nil, err
		}
		e = &entry{head: slices.Clone(head)}
		if e.m, e.err = d.open(got, index); e.err != nil {
			e.err = fmt.Errorf("%s: %w", d.c.reg.Name(id), e.err)
		}
		if len(d.known) >= mostKnown {
			clear(d.known)
		}
		d.known[string(head)] = e
	}
	d.last = e
	return e, rest, e.err
}

func (d *confluentDecoder) open(got *registry.Schema, index []int) (*message, error) {
	file, err := compileSchema(got)
	if err != nil {
		return nil, err
	}
	m, err := indexed(file, index)
	if err != nil {
		return nil, err
	}
	if name := d.c.name; name != "" && name != string(m.FullName()) && name != string(m.Name()) {
		return nil, fmt.Errorf("it is a message %s and not %s, which message-name says", m.FullName(), name)
	}
	return reading{defaults: d.c.defaults, versions: true}.message(m, wants(d.s.Columns), "")
}

func compileSchema(got *registry.Schema) (protoreflect.FileDescriptor, error) {
	if got.Type != registry.Protobuf {
		return nil, fmt.Errorf("it is a schema of %s, not of Protobuf", got.Type)
	}
	imports := map[string]string{}
	for _, r := range got.References {
		imports[r.Name] = r.Text
	}
	return compileText(got.Text, imports)
}

// Decode is of format.RowDecoder. A null message is no row.
func (d *confluentDecoder) Decode(data []byte, next func() *row.Row) error {
	if data == nil {
		return nil
	}
	e, rest, err := d.entry(data)
	if err == nil {
		err = d.in.run(e.m, rest)
	}
	switch {
	case err == nil:
		store(d.s, e.m, next())
		return nil
	case d.c.lax && !outside(err):
		return nil
	}
	return fmt.Errorf("read protobuf-confluent: %w", err)
}

// RowEncoder is of format.RowFormat. The schema is that of schema-file, or the latest of the subject, or the table's.
func (c *confluent) RowEncoder(s format.RowSchema) (format.RowEncoder, error) {
	e, err := c.encoder(s)
	if err != nil {
		return nil, fmt.Errorf("format protobuf-confluent: %w", err)
	}
	return e, nil
}

func (c *confluent) encoder(s format.RowSchema) (*encoder, error) {
	if c.reg.Subject() == "" {
		return nil, registry.ErrNoSubject
	}
	e := newEncoder(s)
	if c.text == "" {
		e.open = func(e *encoder) error {
			if err := c.openLatest(e, s); err != nil {
				return refused(err)
			}
			return nil
		}
		e.ask = func() (string, error) {
			latest, ok, err := c.reg.Latest(c.reg.Subject())
			switch {
			case err != nil:
				return "", err
			case !ok:
				return "subject " + c.reg.Subject() + " will be new", nil
			}
			return "subject " + c.reg.Subject() + " has the columns", refused(c.inLatest(newEncoder(s), latest, s))
		}
		return e, nil
	}
	m, err := c.compile(e, c.text, s)
	if err != nil {
		return nil, err
	}
	e.open = func(e *encoder) error { return c.register(e, m, c.text) }
	e.ask = func() (string, error) { return c.reg.Takes(c.reg.Subject(), registry.Protobuf, c.text, c.differs(s)) }
	return e, nil
}

// openLatest takes the latest schema of the subject, or registers the table's if there is none.
func (c *confluent) openLatest(e *encoder, s format.RowSchema) error {
	latest, ok, err := c.reg.Latest(c.reg.Subject())
	if err != nil {
		return err
	}
	if !ok {
		text, err := derive(s.All())
		if err != nil {
			return err
		}
		m, err := c.compile(e, text, s)
		if err != nil {
			return err
		}
		return c.register(e, m, text)
	}
	return c.inLatest(e, latest, s)
}

// inLatest makes an encoder that writes in the latest schema of the subject.
func (c *confluent) inLatest(e *encoder, latest *registry.Schema, s format.RowSchema) error {
	wrong := func(err error) error {
		return fmt.Errorf("the latest schema of subject %s, id %d: %w", c.reg.Subject(), latest.ID, err)
	}
	file, err := compileSchema(latest)
	if err != nil {
		return wrong(err)
	}
	m, err := c.writers(e, file, s)
	if err != nil {
		return wrong(err)
	}
	e.prefix = registry.AppendIndex(registry.AppendID(nil, latest.ID), indexOf(m))
	return nil
}

func (c *confluent) compile(e *encoder, text string, s format.RowSchema) (protoreflect.MessageDescriptor, error) {
	file, err := compileText(text, nil)
	if err != nil {
		return nil, err
	}
	return c.writers(e, file, s)
}

// writers makes the writers of the table's message.
func (c *confluent) writers(e *encoder, file protoreflect.FileDescriptor, s format.RowSchema) (protoreflect.MessageDescriptor, error) {
	m, err := find([]protoreflect.FileDescriptor{file}, c.name, "")
	if err != nil {
		return nil, err
	}
	e.writers, err = writing{c.null}.message(m, wants(s.Columns), "")
	return m, err
}

func (c *confluent) register(e *encoder, m protoreflect.MessageDescriptor, text string) error {
	id, err := c.reg.Register(c.reg.Subject(), registry.Protobuf, text)
	if err != nil {
		return err
	}
	e.prefix = registry.AppendIndex(registry.AppendID(nil, id), indexOf(m))
	return nil
}
