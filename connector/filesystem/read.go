package filesystem

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// Source is of connector.Connector.
func (c *files) Source(t connector.Table) (*connector.Source, error) {
	f, err := c.read(t)
	if err != nil {
		return nil, err
	}
	if _, err := newReader(f, processor.Subtask{Parallelism: 1}, nil); err != nil {
		return nil, err
	}
	return &connector.Source{Generate: &connector.Generate{Parallelism: f.readers,
		Open: func(ctx *processor.SubtaskContext, position []byte) (connector.Generator, error) {
			return newReader(f, ctx.Subtask(), position)
		},
	}}, nil
}

// maxLine bounds a line, so that a file that is no text does not fill the memory.
const maxLine = 64 << 20

// position is how far a table was read.
type position struct {
	// File is the one that is being read, relative to the folder, with slashes; "" = none. Offset is where the next line
	// begins, of what is decompressed, and Size how much of the file is read: what is appended later is none of the table.
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Last is the file up to which all were read, in the order of names, of a table that is read once.
	Last string `json:"last,omitempty"`
	// Done are 8 bytes for each file that was read, of a table that is watched, while the file is there.
	Done []byte `json:"done,omitempty"`
}

// reader is the Generator of a table.
type reader struct {
	*table
	turn  processor.Subtask // which of the table's readers it is
	dec   format.RowDecoder
	rows  []*row.Row // of the line
	next  func() *row.Row
	asked func() *row.Row

	at      position
	done    map[uint64]bool
	waiting []string // files to read, in order
	listed  bool
	look    int64 // when the folder is to be looked at again

	file *os.File
	gz   *gzip.Reader
	in   *bufio.Reader
	long []byte      // a line that lies on several of the file
	set  []set       // what the path says
	info fs.FileInfo // of file

	quote    byte // of csv, 0 = none
	metadata []column
}

// set is a column that the path of a file gives.
type set struct {
	column int
	value  row.Value
}

// column is a metadata column.
type column struct {
	index int
	key   string
}

func newReader(f *table, turn processor.Subtask, at []byte) (*reader, error) {
	g := &reader{table: f, turn: turn, done: map[uint64]bool{}}
	g.next = func() *row.Row {
		r := g.asked()
		g.rows = append(g.rows, r)
		return r
	}
	var err error
	if g.dec, err = f.format.RowDecoder(f.schema()); err != nil {
		return nil, err
	}
	if f.formatName == "csv" && !strings.EqualFold(f.Options["csv.disable-quote-character"], "true") {
		g.quote = '"'
		if q := f.Options["csv.quote-character"]; q != "" {
			g.quote = q[0]
		}
	}
	for i, ordinal := range f.Columns {
		c := &f.Table.Table.Columns[ordinal]
		if c.Kind != catalog.Metadata {
			continue
		}
		if !slices.ContainsFunc(metadata, func(m connector.Metadata) bool { return m.Key == c.Key }) {
			return nil, fmt.Errorf("column %s: metadata '%s' is unknown; there are file.path, file.name, file.size and file.modification-time", c.Name, c.Key)
		}
		g.metadata = append(g.metadata, column{i, c.Key})
	}
	if at == nil {
		return g, nil
	}
	if err := json.Unmarshal(at, &g.at); err != nil || len(g.at.Done)%8 != 0 {
		return nil, fmt.Errorf("the position of the table is damaged: %q", at)
	}
	for b := g.at.Done; len(b) > 0; b = b[8:] {
		g.done[binary.BigEndian.Uint64(b)] = true
	}
	return g, nil
}

// Next is of connector.Generator.
func (g *reader) Next(now int64, next func() *row.Row) (again int64, err error) {
	for {
		if g.file == nil {
			found, err := g.advance(now)
			if err != nil {
				return now, &format.OutsideError{Err: err}
			}
			if !found && g.monitor == 0 {
				return now, io.EOF
			}
			if !found {
				return g.look, nil
			}
		}
		line, err := g.line()
		if err != nil {
			return now, &format.OutsideError{Err: fmt.Errorf("read file %s: %w", g.file.Name(), err)}
		}
		if line == nil {
			if err := g.end(); err != nil {
				return now, &format.OutsideError{Err: err}
			}
			continue
		}
		g.rows, g.asked = g.rows[:0], next
		if err := g.dec.Decode(line, g.next); err != nil {
			var outside *format.OutsideError
			if errors.As(err, &outside) {
				return now, err
			}
			return now, fmt.Errorf("file %s, line that ends at byte %d: %w", g.file.Name(), g.at.Offset, err)
		}
		for _, r := range g.rows {
			for _, s := range g.set {
				g.Layout.Set(r, s.column, s.value)
			}
		}
		return now, nil
	}
}

// line is the next line, without its end; nil at the end of the file. It is valid until the next call.
func (g *reader) line() ([]byte, error) {
	g.long = g.long[:0]
	whole := false // g.long has the line
	for {
		b, err := g.in.ReadSlice('\n')
		g.at.Offset += int64(len(b))
		if errors.Is(err, bufio.ErrBufferFull) || whole || err == nil && g.openQuote(b) {
			whole = true
			if g.long = append(g.long, b...); len(g.long) > maxLine {
				return nil, fmt.Errorf("a line has more than %d MiB: is it a file of this format?", maxLine>>20)
			}
			b = g.long
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil && g.openQuote(b):
			continue
		case err == io.EOF && len(b) == 0:
			return nil, nil
		case err != nil && err != io.EOF:
			return nil, err
		}
		b = bytes.TrimSuffix(b, []byte("\n"))
		if b = bytes.TrimSuffix(b, []byte("\r")); b == nil {
			b = []byte{}
		}
		return b, nil
	}
}

// openQuote says that the end of the line is inside of quotes.
func (g *reader) openQuote(b []byte) bool {
	return g.quote != 0 && bytes.Count(b, []byte{g.quote})%2 == 1
}

// advance opens the next file, if there is one.
func (g *reader) advance(now int64) (bool, error) {
	if g.at.File != "" { // where the last commit was
		return true, g.open(g.at.File)
	}
	if len(g.waiting) == 0 {
		if g.monitor == 0 && g.listed || now < g.look {
			return false, nil
		}
		if err := g.list(now); err != nil {
			return false, err
		}
	}
	for len(g.waiting) > 0 {
		name := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.at.File, g.at.Offset, g.at.Size = name, 0, -1
		err := g.open(name)
		if g.monitor > 0 && errors.Is(err, fs.ErrNotExist) { // somebody took it away since
			g.at.File = ""
			continue
		}
		return err == nil, err
	}
	return false, nil
}

// list looks for files that are to be read.
func (g *reader) list(now int64) error {
	g.listed, g.look = true, now+g.monitor.Milliseconds()
	type found struct {
		name string
		at   int64
	}
	var all []found
	there := map[uint64]bool{}
	err := filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if g.monitor > 0 && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if path != g.path && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() || g.pattern != nil && !g.pattern.MatchString(path) {
			return nil
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(g.path, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if hash(name)%uint64(g.turn.Parallelism) != uint64(g.turn.Index) { // another subtask reads it
			return nil
		}
		there[hash(name)] = true
		if g.monitor > 0 && g.done[hash(name)] || g.monitor == 0 && name <= g.at.Last {
			return nil
		}
		all = append(all, found{name, info.ModTime().UnixNano()})
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for the files of the table: %w", err)
	}
	for h := range g.done {
		if !there[h] {
			delete(g.done, h)
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		if g.monitor > 0 && a.at != b.at {
			if a.at < b.at {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	for _, f := range all {
		g.waiting = append(g.waiting, f.name)
	}
	return nil
}

func hash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// open opens a file and goes to g.at.Offset.
func (g *reader) open(name string) (err error) {
	path := filepath.Join(g.path, filepath.FromSlash(name)) // name is "." if the table is a file
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open file of the table: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if g.info, err = f.Stat(); err != nil {
		return fmt.Errorf("open file of the table: %w", err)
	}
	if g.at.Size < 0 {
		g.at.Size = g.info.Size()
	}
	if g.info.Size() < g.at.Size {
		return fmt.Errorf("file %s has %d bytes and had %d when its reading began: a file that the table has must not be changed", path, g.info.Size(), g.at.Size)
	}
	in := io.LimitReader(f, g.at.Size)
	if strings.HasSuffix(name, ".gz") || name == "." && strings.HasSuffix(g.path, ".gz") {
		if g.gz, err = gzip.NewReader(in); err != nil {
			return fmt.Errorf("decompress file %s: %w", path, err)
		}
		if _, err = io.CopyN(io.Discard, g.gz, g.at.Offset); err != nil {
			return fmt.Errorf("decompress file %s: %w", path, err)
		}
		in = g.gz
	} else {
		if _, err = f.Seek(g.at.Offset, io.SeekStart); err != nil {
			return fmt.Errorf("go on in file %s: %w", path, err)
		}
		in = io.LimitReader(f, g.at.Size-g.at.Offset)
	}
	if err = g.readPath(name, path); err != nil {
		return err
	}
	if g.in == nil {
		g.in = bufio.NewReaderSize(nil, 256<<10)
	}
	g.in.Reset(in)
	g.file = f
	return nil
}

// readPath finds the columns that the path of a file gives: those of PARTITIONED BY and of metadata.
func (g *reader) readPath(name, path string) error {
	g.set = g.set[:0]
	folders := strings.Split(name, "/")
	folders = folders[:len(folders)-1]
	for _, ordinal := range g.parts {
		at := slices.Index(g.Columns, ordinal)
		if at < 0 {
			continue
		}
		c := &g.Table.Table.Columns[ordinal]
		i := slices.IndexFunc(folders, func(f string) bool {
			k, _, ok := strings.Cut(f, "=")
			return ok && unescape(k) == c.Name
		})
		if i < 0 {
			return fmt.Errorf("file %s lies in no folder %s=..., which PARTITIONED BY says", path, c.Name)
		}
		_, text, _ := strings.Cut(folders[i], "=")
		if text == g.o.Text("partition.default-name") {
			continue
		}
		v, err := parse(c.Type, unescape(text), g.Zone)
		if err != nil {
			return fmt.Errorf("folder %s of file %s: read column %s: %w", folders[i], path, c.Name, err)
		}
		g.set = append(g.set, set{at, v})
	}
	for _, m := range g.metadata {
		var v row.Value
		switch m.key {
		case "file.path":
			v = path
		case "file.name":
			v = filepath.Base(path)
		case "file.size":
			v = g.info.Size()
		default:
			ms, _ := row.TruncTimestamp(g.info.ModTime().UnixMilli(), 0, g.Layout.Type(m.index).Precision())
			v = row.Stamp{Ms: ms}
		}
		g.set = append(g.set, set{m.index, v})
	}
	return nil
}

// parse reads the name of a folder as a value.
func parse(t *row.Type, s string, zone *row.Zone) (row.Value, error) {
	b := []byte(s)
	switch k := t.Kind(); {
	case k.Text():
		return s, nil
	case k == row.KindBoolean:
		return row.ParseBool(b)
	case k.Integer():
		return row.ParseInt(b, map[row.Kind]int{row.KindTinyInt: 8, row.KindSmallInt: 16, row.KindInt: 32, row.KindBigInt: 64}[k])
	case k == row.KindFloat:
		return row.ParseDouble(b, 32)
	case k == row.KindDouble:
		return row.ParseDouble(b, 64)
	case k == row.KindDecimal:
		return row.ParseDec(b, t.Precision(), t.Scale())
	case k == row.KindDate:
		return row.ParseDate(b)
	case k == row.KindTime:
		return row.ParseTime(b)
	case k == row.KindTimestamp, k == row.KindTimestampLTZ:
		ms, nanos, err := row.ParseTimestamp(b)
		if err != nil {
			return nil, err
		}
		if k == row.KindTimestampLTZ && zone != nil {
			ms = zone.Instant(ms)
		}
		ms, nanos = row.TruncTimestamp(ms, nanos, t.Precision())
		return row.Stamp{Ms: ms, Nanos: nanos}, nil
	}
	return nil, fmt.Errorf("a %s cannot be the name of a folder", t)
}

// end closes the file that was read to its end.
func (g *reader) end() error {
	name := g.at.File
	if g.monitor > 0 {
		g.done[hash(name)] = true
	} else {
		g.at.Last = name
	}
	g.at.File, g.at.Offset, g.at.Size = "", 0, 0
	return g.Close()
}

// Position is of connector.Generator.
func (g *reader) Position(dst []byte) []byte {
	at := g.at
	at.Done = nil
	for _, h := range sortedHashes(g.done) {
		at.Done = binary.BigEndian.AppendUint64(at.Done, h)
	}
	b, err := json.Marshal(at)
	if err != nil {
		panic(err) // it has texts, numbers and bytes
	}
	return append(dst, b...)
}

func sortedHashes(m map[uint64]bool) []uint64 {
	all := make([]uint64, 0, len(m))
	for h := range m {
		all = append(all, h)
	}
	slices.Sort(all)
	return all
}

// Close is of connector.Generator.
func (g *reader) Close() error {
	if g.file == nil {
		return nil
	}
	err := g.file.Close()
	g.file, g.gz = nil, nil
	return err
}
