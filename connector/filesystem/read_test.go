package filesystem

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// lineFormat is a format for tests: a line is the text of the one column, and "bad" is none.
type lineFormat struct{}

func (lineFormat) RowDecoder(s format.RowSchema) (format.RowDecoder, error) { return lineCodec{s}, nil }
func (lineFormat) RowEncoder(s format.RowSchema) (format.RowEncoder, error) { return lineCodec{s}, nil }

type lineCodec struct{ s format.RowSchema }

func (c lineCodec) Decode(data []byte, next func() *row.Row) error {
	if string(data) == "bad" {
		return errors.New("bad line")
	}
	r := next()
	for _, col := range c.s.Columns {
		c.s.Layout.Set(r, col.Index, string(data))
	}
	return nil
}

func (c lineCodec) Append(dst []byte, r *row.Row) ([]byte, error) {
	return append(dst, c.s.Layout.Get(r, c.s.Columns[0].Index).(string)...), nil
}

var formats = format.RowFormats{
	"raw":  {New: func(*format.Options) (format.RowFormat, error) { return lineFormat{}, nil }},
	"csv":  {New: func(*format.Options) (format.RowFormat, error) { return lineFormat{}, nil }},
	"avro": {New: func(*format.Options) (format.RowFormat, error) { return lineFormat{}, nil }},
}

func tableOf(options map[string]string, parts []string, columns ...catalog.Column) connector.Table {
	t := connector.Table{Table: &catalog.Table{Columns: columns, Options: options, Decl: &ast.CreateTable{}}, Options: options, Zone: row.UTC()}
	var types []*row.Type
	for i, c := range columns {
		t.Columns = append(t.Columns, i)
		types = append(types, c.Type)
	}
	for _, p := range parts {
		t.Decl.PartitionedBy = append(t.Decl.PartitionedBy, ast.Ident{Name: p})
	}
	t.Layout = row.NewLayout(types...)
	return t
}

func text(name string) catalog.Column { return catalog.Column{Name: name, Type: row.String()} }

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// reading reads a table, restarting after each stop rows; 0 = never.
type reading struct {
	t   *testing.T
	tab connector.Table
	g   connector.Generator
	now int64
	// turn is which reader it is of how many; the zero value is the only one.
	turn processor.Subtask
}

func (r *reading) open(position []byte) {
	r.t.Helper()
	c := &files{formats}
	f, err := c.read(r.tab)
	if err != nil {
		r.t.Fatal(err)
	}
	r.turn.Parallelism = max(r.turn.Parallelism, 1)
	if r.g, err = newReader(f, r.turn, position); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.g.Close() })
}

// take reads until the end, or until nothing is there; each stop rows it restarts.
func (r *reading) take(stop int) (rows []string, ended bool) {
	r.t.Helper()
	for n := 1; ; n++ {
		var got *row.Row
		again, err := r.g.Next(r.now, func() *row.Row {
			got = r.tab.Layout.New()
			for i := range r.tab.Layout.Len() {
				got.SetNull(i)
			}
			return got
		})
		if got != nil {
			rows = append(rows, string(r.tab.Layout.AppendResult(nil, got)))
		}
		switch {
		case errors.Is(err, io.EOF):
			return rows, true
		case err != nil:
			rows = append(rows, "error: "+err.Error())
			var outside *format.OutsideError
			if errors.As(err, &outside) {
				return rows, true
			}
		case again > r.now:
			return rows, false
		}
		if stop > 0 && n%stop == 0 {
			at := r.g.Position(nil)
			if err := r.g.Close(); err != nil {
				r.t.Fatal(err)
			}
			r.open(at)
		}
	}
}

// TestFields: of a ROW the format is asked for the fields that are used.
func TestFields(t *testing.T) {
	tab := tableOf(map[string]string{"path": t.TempDir(), "format": "raw"}, []string{"dt"}, text("dt"), catalog.Column{Name: "r", Type: row.RowOf(row.Field{Name: "a", Type: row.Int()}, row.Field{Name: "b", Type: row.Int()})})
	tab.Fields = [][]int{nil, {1}}
	f, err := (&files{formats}).read(tab)
	if err != nil {
		t.Fatal(err)
	}
	if s := f.schema(); len(s.Columns) != 1 || !slices.Equal(s.Columns[0].Fields, []int{1}) {
		t.Errorf("columns %v, want r with its field b", s.Columns)
	}
}

// TestReadersShareFiles: each file is read by one of several subtasks, whatever becomes of them.
func TestReadersShareFiles(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 20 {
		put(t, filepath.Join(dir, fmt.Sprintf("f%d.txt", i)), fmt.Sprintf("%d-1\n%d-2\n", i, i))
		want = append(want, fmt.Sprintf(`["%d-1"]`, i), fmt.Sprintf(`["%d-2"]`, i))
	}
	var got []string
	for i := range 3 {
		r := reading{t: t, tab: tableOf(map[string]string{"path": dir, "format": "raw", "scan.parallelism": "3"}, nil, text("v")), turn: processor.Subtask{Index: i, Parallelism: 3}}
		r.open(nil)
		rows, ended := r.take(3)
		if !ended || len(rows) == 0 || len(rows) == len(want) {
			t.Errorf("reader %d: %d rows, ended: %t", i, len(rows), ended)
		}
		got = append(got, rows...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

func TestReadOnce(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "b.txt"), "3\r\nbad\n4")
	put(t, filepath.Join(dir, "a", "x.txt"), "1\n\n2\n")
	put(t, filepath.Join(dir, "empty.txt"), "")
	put(t, filepath.Join(dir, "skip.log"), "no\n")
	put(t, filepath.Join(dir, ".hidden"), "no\n")
	put(t, filepath.Join(dir, "_tmp", "y.txt"), "no\n")
	put(t, filepath.Join(dir, "z.txt"), strings.Repeat("long", 100_000)+"\nlast\n")
	var gz strings.Builder
	w := gzip.NewWriter(&gz)
	fmt.Fprint(w, "g1\ng2\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "c.txt.gz"), gz.String())
	for _, stop := range []int{0, 1, 2} {
		r := &reading{t: t, tab: tableOf(map[string]string{"path": "file://" + dir, "format": "raw", "source.path.regex-pattern": `.*\.txt(\.gz)?`}, nil, text("v"))}
		r.open(nil)
		got, ended := r.take(stop)
		for i := range got {
			if len(got[i]) > 100_000 {
				got[i] = "long"
			}
			got[i] = strings.ReplaceAll(got[i], dir, "DIR")
		}
		want := []string{`["1"]`, `[""]`, `["2"]`, `["3"]`, "error: file DIR/b.txt, line that ends at byte 7: bad line", `["4"]`, `["g1"]`, `["g2"]`, "long", `["last"]`}
		if !ended || !slices.Equal(got, want) {
			t.Errorf("restarted after %d: ended %v, rows %q, want %q", stop, ended, got, want)
		}
	}
}

// TestReadOneFile reads a file and not a folder, with what the metadata tells.
func TestReadOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.txt")
	put(t, path, "a\n")
	at := time.UnixMilli(1_700_000_000_123)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	meta := func(name, key string, ty *row.Type) catalog.Column {
		return catalog.Column{Name: name, Type: ty, Kind: catalog.Metadata, Key: key, Virtual: true}
	}
	r := &reading{t: t, tab: tableOf(map[string]string{"path": path, "format": "raw"}, nil, text("v"), meta("p", "file.path", row.String()),
		meta("n", "file.name", row.String()), meta("s", "file.size", row.BigInt()), meta("m", "file.modification-time", row.TimestampLTZ(3)))}
	r.open(nil)
	got, _ := r.take(0)
	want := fmt.Sprintf(`["a", %q, "f.txt", 2, "2023-11-14 22:13:20.123Z"]`, path)
	if len(got) != 1 || strings.ReplaceAll(got[0], ",", ", ") != strings.ReplaceAll(want, ",", ", ") && got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWatch reads what comes, also files whose names and times lie before those that were read.
func TestWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later") // which is not there yet
	r := &reading{t: t, now: 1000, tab: tableOf(map[string]string{"path": dir, "format": "raw", "source.monitor-interval": "1 s"}, nil, text("v"))}
	r.open(nil)
	step := func(want ...string) {
		t.Helper()
		got, ended := r.take(1)
		if ended || !slices.Equal(got, want) {
			t.Errorf("ended %v, rows %q, want %q", ended, got, want)
		}
		r.now += 1000
	}
	step()
	put(t, filepath.Join(dir, "m"), "1\n2\n")
	step(`["1"]`, `["2"]`)
	put(t, filepath.Join(dir, "a"), "3\n")
	old := time.UnixMilli(1000)
	if err := os.Chtimes(filepath.Join(dir, "a"), old, old); err != nil {
		t.Fatal(err)
	}
	step(`["3"]`)
	step()
	if err := os.Remove(filepath.Join(dir, "m")); err != nil {
		t.Fatal(err)
	}
	step()
	put(t, filepath.Join(dir, "m"), "4\n") // another one of that name
	step(`["4"]`)
	r.now -= 500
	put(t, filepath.Join(dir, "n"), "5\n")
	r.now -= 500
	if got, _ := r.take(0); len(got) != 0 {
		t.Errorf("before the interval is over: %q", got)
	}
}

// TestQuotes: a line of csv does not end inside of quotes.
func TestQuotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.csv")
	put(t, path, "a,\"b\nc\n\nd\",e\nf\n\"open\n")
	for _, c := range []struct {
		options map[string]string
		want    []string
	}{
		{map[string]string{"format": "csv"}, []string{`["a,\"b\nc\n\nd\",e"]`, `["f"]`, `["\"open"]`}},
		{map[string]string{"format": "csv", "csv.disable-quote-character": "true"}, []string{`["a,\"b"]`, `["c"]`, `[""]`, `["d\",e"]`, `["f"]`, `["\"open"]`}},
	} {
		c.options["path"] = path
		tab := tableOf(c.options, nil, text("v"))
		o, err := connector.Options(tab.Options, options, "csv.")
		if err != nil {
			t.Fatal(err)
		}
		g, err := newReader(&table{Table: tab, path: path, format: lineFormat{}, formatName: "csv", o: o}, processor.Subtask{Parallelism: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &reading{t: t, tab: tab, g: g}
		if got, _ := r.take(0); !slices.Equal(got, c.want) {
			t.Errorf("rows %q, want %q", got, c.want)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartitions: what PARTITIONED BY writes as folders is read again.
func TestPartitions(t *testing.T) {
	dir := t.TempDir()
	tab := tableOf(map[string]string{"path": dir, "format": "raw"}, []string{"day", "who"}, text("v"), catalog.Column{Name: "day", Type: row.Date()}, text("who"))
	f, err := (&files{formats}).read(tab)
	if err != nil {
		t.Fatal(err)
	}
	values := [][]row.Value{{"1", int64(19000), "a/b=c%"}, {"2", nil, "\u00fc"}, {"3", int64(0), nil}, {"4", int64(0), "d e"}}
	var folders, want []string
	for i, vs := range values {
		r := tab.Layout.RowOf(vs...)
		folder := string(f.appendFolder(nil, r))
		folders = append(folders, folder)
		put(t, filepath.Join(dir, folder, fmt.Sprint("part-", i)), vs[0].(string)+"\n")
		want = append(want, string(tab.Layout.AppendResult(nil, r)))
	}
	if got := strings.Join(folders, " "); got != "day=2022-01-08/who=a%2Fb%3Dc%25 day=__HIVE_DEFAULT_PARTITION__/who=\u00fc day=1970-01-01/who=__HIVE_DEFAULT_PARTITION__ day=1970-01-01/who=d e" {
		t.Errorf("folders %s", got)
	}
	r := &reading{t: t, tab: tab}
	r.open(nil)
	got, _ := r.take(1)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	put(t, filepath.Join(dir, "nowhere"), "5\n")
	r.open(nil)
	if got, _ := r.take(0); !strings.Contains(got[len(got)-1], "lies in no folder day=") {
		t.Errorf("a file outside: %q", got)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"path", "s3://b/x", "only paths of this machine"},
		{"path", "", "it is empty"},
		{"pat", "x", "did you mean 'path'?"},
		{"format", "avro", "no lines of text"},
		{"format", "ra", "did you mean 'raw'?"},
		{"source.monitor-interval", "0 s", "more than 0"},
		{"source.path.regex-pattern", "(", "missing closing"},
		{"sink.rolling-policy.file-size", "10 potatoes", "b, kb, mb, gb or tb"},
	} {
		o := map[string]string{"path": "/tmp/x", "format": "raw", c.name: c.value}
		_, err := New(formats).Traits(tableOf(o, nil, text("v")))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: error %v, want one with %q", c.name, c.value, err, c.want)
		}
	}
	if _, err := New(formats).Traits(tableOf(map[string]string{"path": "/tmp/x", "format": "raw"}, []string{"w"}, text("v"))); err == nil || !strings.Contains(err.Error(), "no physical column") {
		t.Errorf("PARTITIONED BY what is not there: error %v", err)
	}
	for s, want := range map[string]int64{"128MB": 128 << 20, "64 kb": 64 << 10, "1000": 1000, "2g": 2 << 30} {
		if got, err := parseBytes(s); err != nil || got != want {
			t.Errorf("size %q is %d, %v", s, got, err)
		}
	}
}
