// Package shell is the interactive shell of streaming SQL: statements are carried out one by one, and queries show their
// results as they change.
package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/bind"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/plan"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Options of a shell.
type Options struct {
	// SQL are those of the session; Collect is the shell's own.
	SQL sql.Options
	// Out gets results, Err what is said about them.
	Out, Err io.Writer
	// Terminal is where live tables are drawn; nil = Out is no terminal, and a query that goes on without end prints its
	// changes.
	Terminal Terminal
	// Query runs a query until it ends or ctx is done.
	Query func(ctx context.Context, q Query) error
	// Insert runs INSERTs as an app until it ends or ctx is done.
	Insert func(ctx context.Context, app *sql.App, config map[string]string) error
	// Interruptible gives a context that ends when the user interrupts a statement, and what frees it.
	Interruptible func(ctx context.Context) (context.Context, context.CancelFunc)
	// Form is how results are printed: table, csv or json; "" = table.
	Form string
}

// Query is a SELECT that runs.
type Query struct {
	App *sql.App
	// Bounded: topics end where they end now.
	Bounded bool
	// Rows gets the values of the records of the collect topic, packed with their kinds.
	Rows func(values [][]byte) error
	// Progress is told how far it is: a short text.
	Progress func(text string)
}

// Topic is the topic that rows of queries go to; it exists in no cluster.
const Topic = "query-result"

// Shell is a shell: one session.
type Shell struct {
	o       Options
	session *sql.Session
	timing  bool
	layout  *row.Layout // of the query that is planned
	quit    bool
	told    map[string]bool // warnings of options, which are told once
}

// New is a shell with an empty session.
func New(o Options) *Shell {
	s := &Shell{o: o, told: map[string]bool{}}
	o.SQL.Collect = s.collect
	s.session = sql.NewSession(o.SQL)
	return s
}

func (s *Shell) collect(schema *rel.Schema) *connector.Sink {
	layout := row.NewLayout(schema.Types...)
	s.layout = layout
	return &connector.Sink{Topic: Topic, Open: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func(*row.Row) error, error) {
		return func(v *row.Row) error {
			return w.Write(processor.SinkRecord{Value: w.Keep(layout.PackKind(w.Buf(), v)), Timestamp: w.Now()})
		}, nil
	}}
}

// Quit says that the user wants to leave.
func (s *Shell) Quit() bool { return s.quit }

// ErrStatement says that a statement failed, which was told already.
var ErrStatement = errors.New("a statement failed")

// Script carries out all statements of a text; name is that of its source, for messages. It goes on to the end but for an
// error, which it tells and returns ErrStatement for.
func (s *Shell) Script(ctx context.Context, name, text string) error {
	src := diag.NewSource(name, text)
	script, errs := parse.Script(src, s.o.SQL.Env)
	if errs.Err() != nil {
		err := s.failed(errs)
		if strings.HasPrefix(text, "\\") || strings.Contains(text, "\n\\") {
			s.say(`lines that begin with \ are commands of the interactive shell; elsewhere there are SHOW TABLES, DESCRIBE and SET`)
		}
		return err
	}
	for _, stmt := range script.Stmts {
		began := time.Now()
		r, list := s.session.Statement(stmt, src)
		if list.Err() != nil {
			return s.failed(list)
		}
		s.warn(list)
		if err := s.result(ctx, r); err != nil {
			return err
		}
		if s.timing {
			s.say("took %s", time.Since(began).Round(time.Millisecond))
		}
	}
	return nil
}

func (s *Shell) say(format string, args ...any) { _, _ = fmt.Fprintf(s.o.Err, format+"\n", args...) }

func (s *Shell) failed(list diag.List) error {
	_, _ = io.WriteString(s.o.Err, list.Text())
	return ErrStatement
}

func (s *Shell) warn(list diag.List) {
	if len(list) > 0 {
		_, _ = io.WriteString(s.o.Err, list.Text())
	}
}

// warnUnused tells of options of tables that have no effect, of each once.
func (s *Shell) warnUnused(app *sql.App) {
	var fresh diag.List
	for _, d := range app.Unused(s.o.SQL.Connectors) {
		if !s.told[d.Message] {
			s.told[d.Message] = true
			fresh.Add(d)
		}
	}
	s.warn(fresh)
}

// result shows or runs what a statement means.
func (s *Shell) result(ctx context.Context, r bind.Result) error {
	switch {
	case r.Explain != nil:
		return s.explain(r)
	case r.Rows != nil && len(r.Rows.Columns) == 1 && r.Rows.Columns[0] == "result" && s.o.Form == "table": // a text
		for _, line := range r.Rows.Rows {
			if _, err := fmt.Fprintln(s.o.Out, line[0]); err != nil {
				return err
			}
		}
	case r.Rows != nil:
		return s.print(columnsOf(r.Rows.Columns, nil), r.Rows.Rows)
	case r.Node != nil:
		return s.query(ctx, r.Node)
	case len(r.Sinks) > 0:
		return s.insert(ctx, r.Sinks)
	case r.Done != "":
		s.say("%s", r.Done)
	}
	return nil
}

func (s *Shell) explain(r bind.Result) error {
	sinks := r.Sinks
	if r.Node != nil {
		sinks = []*rel.Sink{sql.Collected(r.Node)}
	}
	p, list := s.session.Plan(sinks)
	if list.Err() != nil {
		return s.failed(list)
	}
	s.warn(list)
	_, err := io.WriteString(s.o.Out, plan.Explain(p))
	return err
}

func (s *Shell) print(cols []column, rows [][]string) error {
	switch s.o.Form {
	case "csv":
		return writeCSV(s.o.Out, cols, rows)
	case "json":
		return writeJSON(s.o.Out, cols, rows)
	}
	if err := writeTable(s.o.Out, cols, rows); err != nil {
		return err
	}
	s.say("%s", count(int64(len(rows)), "row"))
	return nil
}

func (s *Shell) insert(ctx context.Context, sinks []*rel.Sink) error {
	app, list := s.session.App(sinks)
	if list.Err() != nil {
		return s.failed(list)
	}
	s.warn(append(list, app.Warnings()...))
	s.warnUnused(app)
	ctx, cancel := s.o.Interruptible(ctx)
	defer cancel()
	err := s.o.Insert(ctx, app, s.session.Config)
	return s.ended(ctx, err, "stopped; what was committed stays")
}

// ended tells how a run ended; done is what to say when the user ended it.
func (s *Shell) ended(ctx context.Context, err error, done string) error {
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		s.say("%s", done)
		return nil
	case err != nil:
		s.say("error: %s", err)
		return ErrStatement
	}
	return nil
}

// mode is how the result of a query is shown.
type mode int

const (
	final  mode = iota // the table at the end
	live               // the table as it changes
	stream             // the changes
)

// Settings of the shell, in Flink's names.
const (
	resultMode = "sql-client.execution.result-mode"
	maxRows    = "sql-client.execution.max-table-result.rows"
	runMode    = "execution.runtime-mode"
)

func (s *Shell) mode() (m mode, bounded bool, err error) {
	bounded = strings.EqualFold(s.session.Config[runMode], "batch")
	switch how := strings.ToLower(cmp.Or(s.session.Config[resultMode], "table")); {
	case how != "table" && how != "changelog" && how != "tableau":
		return 0, false, fmt.Errorf("SET '%s' = '%s': there are table, changelog and tableau", resultMode, how)
	case how == "changelog", how == "tableau" && !bounded:
		return stream, bounded, nil
	case bounded || s.o.Form == "csv" || s.o.Form == "json":
		return final, bounded, nil
	case s.o.Terminal == nil:
		return stream, bounded, nil
	}
	return live, bounded, nil
}

// query runs a query and shows its result.
func (s *Shell) query(ctx context.Context, n rel.Node) error {
	how, bounded, err := s.mode()
	limit := 10_000
	if v := s.session.Config[maxRows]; err == nil && v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 {
			err = fmt.Errorf("SET '%s' = '%s': a number of rows from 1 is wanted", maxRows, v)
		}
	}
	if err != nil {
		s.say("error: %s", err)
		return ErrStatement
	}
	app, list := s.session.Query(n)
	if list.Err() != nil {
		return s.failed(list)
	}
	s.warn(list)
	s.warnUnused(app)
	zone, err := s.session.Zone()
	if err != nil {
		s.say("error: %s", err)
		return ErrStatement
	}
	ctx, cancel := s.o.Interruptible(ctx)
	defer cancel()
	schema := n.Schema()
	v := &view{layout: s.layout, zone: zone, cols: columnsOf(schema.Names, schema.Types)}
	q := Query{App: app, Bounded: bounded, Progress: func(string) {}}
	switch how {
	case stream:
		return s.stream(ctx, q, v)
	case live:
		return s.live(ctx, q, v, limit)
	}
	res := newResult(limit)
	q.Rows = func(values [][]byte) error {
		return v.each(values, func(kind row.RowKind, key string, cells []string) error {
			res.apply(kind, key, cells)
			return nil
		})
	}
	if err := s.ended(ctx, s.o.Query(ctx, q), "stopped; the result so far:"); err != nil {
		return err
	}
	s.left(res)
	return s.print(v.cols, res.table())
}

// left tells that a result is not whole.
func (s *Shell) left(res *result) {
	if res.dropped > 0 {
		s.say("the oldest %s left out: SET '%s' = '...' keeps more than %d", count(res.dropped, "row"), maxRows, res.max)
	}
}

// stream prints changes as they come.
func (s *Shell) stream(ctx context.Context, q Query, v *view) error {
	log := newChangelog(s.o.Out, v.cols)
	changes := int64(0)
	q.Rows = func(values [][]byte) error {
		return v.each(values, func(kind row.RowKind, _ string, cells []string) error {
			changes++
			if s.o.Form == "csv" || s.o.Form == "json" {
				cols := append([]column{{name: "op"}}, v.cols...)
				return writeChange(s.o.Out, s.o.Form, cols, append([]string{kind.String()}, cells...), changes == 1)
			}
			return log.write(kind, cells)
		})
	}
	err := s.o.Query(ctx, q)
	if e := log.end(); err == nil {
		err = e
	}
	if err := s.ended(ctx, err, "stopped"); err != nil {
		return err
	}
	s.say("%s", count(changes, "change"))
	return nil
}

// live draws the table as it changes, and leaves what it was at the end.
func (s *Shell) live(ctx context.Context, q Query, v *view, limit int) error {
	sc := &screen{cols: v.cols, result: newResult(limit), status: "starting"}
	q.Rows = func(values [][]byte) error {
		return v.each(values, func(kind row.RowKind, key string, cells []string) error {
			sc.mu.Lock()
			defer sc.mu.Unlock()
			sc.result.apply(kind, key, cells)
			return nil
		})
	}
	q.Progress = func(text string) {
		sc.mu.Lock()
		defer sc.mu.Unlock()
		sc.status = text
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		err := s.o.Query(run, q)
		if err != nil {
			stop() // the screen goes away, and the error is told
		}
		q.Progress("ended")
		done <- err
	}()
	shown := sc.show(run, s.o.Terminal, stop)
	stop()
	err := <-done
	if shown != nil {
		return shown
	}
	rows := sc.result.table()
	if err := writeTable(s.o.Out, v.cols, rows[max(0, len(rows)-shownAtEnd):]); err != nil {
		return err
	}
	if len(rows) > shownAtEnd {
		s.say("the last %d of %d rows", shownAtEnd, len(rows))
	}
	s.left(sc.result)
	if err != nil && !errors.Is(err, context.Canceled) {
		s.say("error: %s", err)
		return ErrStatement
	}
	s.say("%s, %s", count(int64(len(rows)), "row"), count(sc.result.changes, "change"))
	return nil
}

// shownAtEnd is how many rows a live table leaves on the terminal.
const shownAtEnd = 20

// view makes texts of rows.
type view struct {
	layout *row.Layout
	zone   *row.Zone
	cols   []column
	row    *row.Row
}

// each calls f for packed rows.
func (v *view) each(values [][]byte, f func(kind row.RowKind, key string, cells []string) error) error {
	if v.row == nil {
		v.row = v.layout.New()
	}
	for _, b := range values {
		if err := v.layout.UnpackKind(b, v.row); err != nil {
			return err
		}
		kind := v.row.Kind
		v.row.Kind = row.Insert
		key := string(v.layout.Pack(nil, v.row))
		cells := make([]string, v.layout.Len())
		for i := range cells {
			cells[i] = v.cell(i)
		}
		if err := f(kind, key, cells); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) cell(i int) string {
	if v.row.Null(i) {
		return null
	}
	t, p := v.layout.Type(i), v.layout.Place(i)
	var x, y uint64
	var b []byte
	switch p.Words {
	case 0:
		b = v.row.S[p.Index]
	case 2:
		x, y = v.row.W[p.Index], v.row.W[p.Index+1]
	default:
		x = v.row.W[p.Index]
	}
	if t.Kind() == row.KindBinary || t.Kind() == row.KindVarBinary {
		return fmt.Sprintf("x'%X'", b)
	}
	return string(row.AppendText(nil, t, x, y, b, v.zone))
}

// File carries out a file.
func (s *Shell) File(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		s.say("error: %s", err)
		return ErrStatement
	}
	return s.Script(ctx, path, string(text))
}
