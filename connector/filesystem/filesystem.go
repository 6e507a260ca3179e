// Package filesystem is the connector of tables that are files in a folder: read once or watched for more, and written
// exactly once.
package filesystem

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// New is the connector 'filesystem', with the formats that there are.
func New(formats format.RowFormats) connector.Connector { return &files{formats} }

type files struct{ formats format.RowFormats }

// lineFormats are the formats whose messages are lines of text.
var lineFormats = []string{"json", "csv", "raw", "debezium-json", "canal-json", "maxwell-json"}

// taken is an option of Flink's tables that has no effect.
func taken(name string, kind format.OptionKind, why string) format.Option {
	return format.Option{Name: name, Kind: kind, Doc: "No effect: " + why + ".", NoEffect: why}
}

var options = slices.Concat([]format.Option{
	{Name: "path", Kind: format.Text, Required: true, Doc: "The folder of the table; to read it may be a file. A path of this machine, absolute or as seen from where the program runs, also as file:///path. Where an app has several members all of them must see the same folder."},
	{Name: "format", Kind: format.Text, Required: true, Doc: "How rows are written, one on a line: json, csv, raw, debezium-json, canal-json or maxwell-json."},
	{Name: "source.path.regex-pattern", Kind: format.Text, Doc: "Only files whose absolute path matches this regular expression, from its beginning to its end, are read."},
	{Name: "source.monitor-interval", Kind: format.Duration, Doc: "How often the folder is looked at for new files. Without it the files that are there are read, and the table ends."},
	{Name: "partition.default-name", Kind: format.Text, Default: "__HIVE_DEFAULT_PARTITION__", Doc: "The folder name of NULL and of empty text in a column of PARTITIONED BY."},
	{Name: "sink.rolling-policy.file-size", Kind: format.Text, Default: "128MB", Doc: "A file that has this size is closed, and shows with the next commit."},
	{Name: "sink.rolling-policy.rollover-interval", Kind: format.Duration, Default: "30 min", Doc: "A file is closed when it is open for so long."},
	{Name: "sink.rolling-policy.inactivity-interval", Kind: format.Duration, Default: "30 min", Doc: "A file is closed when nothing was written to it for so long."},
	{Name: "sink.rolling-policy.check-interval", Kind: format.Duration, Default: "1 min", Doc: "How often it is looked whether one of the two intervals is over."},
	{Name: "scan.parallelism", Kind: format.Integer, Default: "1", Doc: "In how many subtasks the table is read; each file is read by one of them. A later version of a script must have the same number. Not in Flink."},
	taken("source.report-statistics", format.Text, "plans do not depend on statistics"),
	taken("sink.parallelism", format.Integer, "rows are written by the subtasks that made them"),
	taken("auto-compaction", format.Boolean, "files are not merged; sink.rolling-policy says how large they get"),
	taken("compaction.file-size", format.Text, "files are not merged"),
	taken("compaction.parallelism", format.Integer, "files are not merged"),
	taken("sink.shuffle-by-partition.enable", format.Boolean, "rows are written by the subtasks that made them"),
}, commitOptions)

// metadata of the files that are read.
var metadata = []connector.Metadata{
	{Key: "file.path", Type: row.String().NotNull(), Doc: "Absolute path of the file."},
	{Key: "file.name", Type: row.String().NotNull(), Doc: "Name of the file, without folders."},
	{Key: "file.size", Type: row.BigInt().NotNull(), Doc: "Bytes of the file."},
	{Key: "file.modification-time", Type: row.TimestampLTZ(3).NotNull(), Doc: "When the file was last modified."},
}

// Spec is of connector.Connector.
func (c *files) Spec() connector.Spec {
	return connector.Spec{Options: options, Metadata: metadata,
		Doc: "Files in a folder of this machine, a row on each line. Files and folders whose names begin with . or _ are none of the table. A file that ends in .gz is decompressed. " +
			"What is written shows in whole files, each with the rows of committed epochs only: exactly once. The columns of PARTITIONED BY are folders (dt=2024-01-31) and not in the files."}
}

// table is a table of this connector.
type table struct {
	connector.Table
	path       string
	format     format.RowFormat
	spec       format.RowFormatSpec
	formatName string
	o          *format.Options
	parts      []int // ordinals of PARTITIONED BY
	// Of a source:
	readers int
	pattern *regexp.Regexp
	monitor time.Duration
	// Of a sink:
	size                           int64
	rollover, inactive, checkEvery time.Duration
	commit                         *commitPolicy // nil = nobody is told that a folder is complete
}

// read checks the options of a table.
func (c *files) read(t connector.Table) (*table, error) {
	name := t.Options["format"]
	o, err := connector.Options(t.Options, options, name+".")
	if err != nil {
		return nil, err
	}
	f := &table{Table: t, o: o, formatName: name}
	if !slices.Contains(lineFormats, name) && c.formats[name].New != nil {
		return nil, fmt.Errorf("option 'format' = '%s': its messages are no lines of text; connector 'filesystem' takes %s", name, strings.Join(lineFormats, ", "))
	}
	if f.format, f.spec, err = connector.Format(c.formats, t.Options, "", name); err != nil {
		return nil, err
	}
	if f.path, err = localPath(o.Text("path")); err != nil {
		return nil, fmt.Errorf("option 'path' = '%s': %w", o.Text("path"), err)
	}
	if o.Has("source.path.regex-pattern") {
		if f.pattern, err = regexp.Compile("^(?:" + o.Text("source.path.regex-pattern") + ")$"); err != nil {
			return nil, fmt.Errorf("option 'source.path.regex-pattern': %w", err)
		}
	}
	if f.readers = int(o.Int("scan.parallelism")); f.readers < 1 || f.readers > 1024 {
		return nil, fmt.Errorf("option 'scan.parallelism' = '%d': must be 1 to 1024", f.readers)
	}
	f.monitor = o.Duration("source.monitor-interval")
	if o.Has("source.monitor-interval") && f.monitor <= 0 {
		return nil, errors.New("option 'source.monitor-interval' must be more than 0")
	}
	if f.size, err = parseBytes(o.Text("sink.rolling-policy.file-size")); err != nil {
		return nil, fmt.Errorf("option 'sink.rolling-policy.file-size': %w", err)
	}
	f.rollover, f.inactive, f.checkEvery = o.Duration("sink.rolling-policy.rollover-interval"), o.Duration("sink.rolling-policy.inactivity-interval"), o.Duration("sink.rolling-policy.check-interval")
	if t.Decl != nil {
		for _, id := range t.Decl.PartitionedBy {
			i := t.Column(id.Name)
			if i < 0 || t.Table.Columns[i].Kind != catalog.Physical {
				return nil, fmt.Errorf("PARTITIONED BY (%s): it is no physical column of the table", id.Name)
			}
			if k := t.Table.Columns[i].Type.Kind(); k.Nested() || k.Bytes() {
				return nil, fmt.Errorf("PARTITIONED BY (%s): a %s cannot be the name of a folder", id.Name, t.Table.Columns[i].Type)
			}
			f.parts = append(f.parts, i)
		}
	}
	var names []string
	for _, i := range f.parts {
		names = append(names, t.Table.Columns[i].Name)
	}
	if f.commit, err = readCommit(o, names); err != nil {
		return nil, err
	}
	return f, nil
}

// localPath is a path, or a URL of scheme file, made absolute.
func localPath(s string) (string, error) {
	if scheme, _, ok := strings.Cut(s, "://"); ok && scheme != "file" {
		return "", fmt.Errorf("only paths of this machine can be read and written, not %s://", scheme)
	}
	if strings.HasPrefix(s, "file:") {
		u, err := url.Parse(s)
		if err != nil {
			return "", err
		}
		if u.Host != "" {
			return "", fmt.Errorf("a URL of a file has no host, as in file:///%s%s", u.Host, u.Path)
		}
		s = u.Path
	}
	if s == "" {
		return "", errors.New("it is empty")
	}
	return filepath.Abs(s)
}

// parseBytes reads a size as Flink's options have them: 128MB, 64 kb, 1000.
func parseBytes(s string) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	i := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if i < 0 {
		i = len(text)
	}
	n, err := strconv.ParseInt(text[:i], 10, 64)
	shift, ok := map[string]uint{"": 0, "b": 0, "bytes": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}[strings.TrimSpace(text[i:])]
	if err != nil || !ok || n <= 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("read size %q: want a number and a unit: b, kb, mb, gb or tb", s)
	}
	return n << shift, nil
}

// Traits is of connector.Connector.
func (c *files) Traits(t connector.Table) (connector.Traits, error) {
	f, err := c.read(t)
	if err != nil {
		return connector.Traits{}, err
	}
	tr := connector.Traits{CanRead: true, CanWrite: true, Unused: connector.NoEffect(t.Options, options)}
	if f.spec.Changes {
		tr.Reads, tr.Writes = catalog.Retract, catalog.Retract
	}
	return tr, nil
}

// schema is what the format sees of the columns: all but those of PARTITIONED BY and of metadata.
func (f *table) schema() format.RowSchema {
	s := format.RowSchema{Layout: f.Layout, Zone: f.Zone}
	in := func(ordinal int) bool {
		return f.Table.Table.Columns[ordinal].Kind == catalog.Physical && !slices.Contains(f.parts, ordinal)
	}
	for i, ordinal := range f.Columns {
		if c := &f.Table.Table.Columns[ordinal]; in(ordinal) {
			s.Columns = append(s.Columns, format.RowColumn{Name: c.Name, Type: c.Type, Index: i, Fields: f.FieldsOf(i)})
		}
	}
	for ordinal := range f.Table.Table.Columns {
		if c := &f.Table.Table.Columns[ordinal]; in(ordinal) {
			s.Message = append(s.Message, row.Field{Name: c.Name, Type: c.Type})
		}
	}
	return s
}

// Lookup is of connector.Connector.
func (c *files) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("connector 'filesystem' cannot be asked by key; load the files into a topic and join that")
}

// Sink is of connector.Connector.
func (c *files) Sink(t connector.Table) (*connector.Sink, error) {
	f, err := c.read(t)
	if err != nil {
		return nil, err
	}
	for _, ordinal := range t.Columns {
		if col := &t.Table.Columns[ordinal]; col.Kind == catalog.Metadata {
			return nil, fmt.Errorf("column %s: metadata of files cannot be written; declare it VIRTUAL", col.Name)
		}
	}
	if _, err := f.format.RowEncoder(f.schema()); err != nil {
		return nil, err
	}
	return &connector.Sink{
		Open: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func(r *row.Row) error, error) {
			enc, err := f.format.RowEncoder(f.schema())
			if err != nil {
				return nil, err
			}
			return func(r *row.Row) error {
				folder := w.Keep(f.appendFolder(w.Buf(), r))
				line, err := enc.Append(w.Buf(), r)
				if err != nil {
					return err
				}
				return w.Write(processor.SinkRecord{Key: folder, Value: w.Keep(append(line, '\n'))})
			}, nil
		},
		External: func(ctx *processor.SubtaskContext) (processor.External, error) {
			at := ctx.Subtask()
			w := newWriter(f, at.Index)
			w.subtasks, w.watermark = at.Parallelism, ctx.Watermark
			return w, nil
		},
	}, nil
}

// appendFolder appends the folder of a row, as dt=2024-01-31/hour=7; nothing without PARTITIONED BY.
func (f *table) appendFolder(dst []byte, r *row.Row) []byte {
	for n, ordinal := range f.parts {
		if n > 0 {
			dst = append(dst, '/')
		}
		c := &f.Table.Table.Columns[ordinal]
		dst = append(escape(dst, c.Name), '=')
		at := slices.Index(f.Columns, ordinal)
		var text []byte
		if at >= 0 && !r.Null(at) {
			x, y, b := c.Type.Encode(f.Layout.Get(r, at))
			text = row.AppendText(nil, c.Type, x, y, b, f.Zone)
		}
		if len(text) == 0 {
			dst = append(dst, f.o.Text("partition.default-name")...)
		} else {
			dst = escape(dst, string(text))
		}
	}
	return dst
}

// escaped are the characters that are written as %XX in names of folders, besides control characters: those of Hive.
const escaped = "\"#%'*/:=?\\\x7f{[]^"

func escape(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || strings.IndexByte(escaped, c) >= 0 {
			dst = append(dst, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// unescape is the other way; what is no escape stays.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
