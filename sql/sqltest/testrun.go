package sqltest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
)

// TestOptions say how a user's tests are run.
type TestOptions struct {
	// Connectors are those of the pipeline: tests ask them what a table can do, and open none.
	Connectors connector.Registry
	// Functions and Env are those of sql.Options; a file's own env goes before Env.
	Functions map[string]*fn.Func
	Env       parse.Env
	// Filter chooses tests by their name; nil = all.
	Filter func(name string) bool
	// Update writes the rows that came into the file where they are not those that it expects.
	Update bool
}

// TestResult is what came of a test.
type TestResult struct {
	Name string
	Line int
	// Diff says what is not as expected, "" = all is; Mode in which of the runs.
	Diff string
	Mode Mode
	// Modes are those that it was run in.
	Modes []Mode
	// Updated says that the file was changed.
	Updated bool
}

// Run runs the tests of a file one after the other: row by row, again with exchanges and a restart after each row, and over three
// partitions where the result does not depend on the order in which rows come. The error is that of a file that cannot
// be read or written.
func (f *TestFile) Run(o TestOptions) ([]TestResult, error) {
	text, err := os.ReadFile(f.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("%s: read the pipeline: %w; name it at the top: pipeline FILE", f.Path, err)
	}
	var results []TestResult
	changed := map[int]string{} // by line of the file, from 0: what takes the place of a step
	for i := range f.Tests {
		t := &f.Tests[i]
		if o.Filter != nil && !o.Filter(t.Name) {
			continue
		}
		res := TestResult{Name: t.Name, Line: t.Line}
		plain := &testRun{f: f, t: t, o: o, text: string(text)}
		res.Modes = []Mode{ByLine}
		if res.Diff = plain.run(); res.Diff == "" && len(plain.changed) > 0 {
			maps.Copy(changed, plain.changed)
			res.Updated = true
		}
		if res.Diff == "" && !res.Updated {
			for _, mode := range []Mode{Restart, Parallel} {
				if mode == Parallel && plain.ordered {
					continue
				}
				again := &testRun{f: f, t: t, o: o, text: string(text), mode: mode, plain: plain}
				res.Modes = append(res.Modes, mode)
				if res.Diff = again.run(); res.Diff != "" {
					res.Mode = mode
					break
				}
			}
		}
		results = append(results, res)
	}
	if len(changed) == 0 {
		return results, nil
	}
	return results, f.rewrite(changed)
}

// rewrite writes the file with other lines in place of steps.
func (f *TestFile) rewrite(changed map[int]string) error {
	ends := map[int]int{}
	for _, t := range f.Tests {
		for _, s := range t.Steps {
			ends[s.Line-1] = s.To
		}
	}
	var out []string
	for i := 0; i < len(f.lines); i++ {
		lines, ok := changed[i]
		if !ok {
			out = append(out, f.lines[i])
			continue
		}
		out = append(out, lines)
		i = ends[i] - 1
	}
	return os.WriteFile(f.Path, []byte(strings.Join(out, "\n")), 0o644) //nolint:gosec // a file of the user's source
}

// testRun is one run of one test.
type testRun struct {
	f     *TestFile
	t     *Test
	o     TestOptions
	text  string
	mode  Mode
	plain *testRun // the run row by row, of the others

	s      *sql.Session
	d      *drive.Driver
	read   map[string]*catalog.Table // by topic
	sinks  map[string]*testSink      // by topic
	found  map[string][]*row.Row     // rows of tables that are looked up
	behind int64

	moved   map[string]int64   // watermarks by topic
	marks   []map[string]int64 // moved after each step
	folded  []bag              // content of the table, of each step that expects rows
	changed map[int]string
	ordered bool // the result depends on the order in which rows come
}

// testSink is a table that the pipeline writes.
type testSink struct {
	table  *catalog.Table
	layout *row.Layout
	names  []string
	key    []int // that rows replace each other by; nil = they do not
	looked int   // so many rows were looked at
}

// run says how the test fails; "" = it does not.
func (r *testRun) run() (diff string) {
	defer func() {
		if e := recover(); e != nil {
			stop, ok := e.(stopped)
			if !ok {
				stop = stopped(fmt.Sprintf("panic: %v\n%s", e, stack()))
			}
			diff = fmt.Sprintf("%s:%d: %s", r.f.Path, r.t.Line, stop)
		}
	}()
	steps := r.t.Steps
	if err := r.open(); err != nil {
		if len(steps) == 1 && steps[0].Kind == StepError {
			return r.compareError(&steps[0], err)
		}
		return strings.TrimRight(text(err), "\n")
	}
	defer r.d.Close()
	r.d.Pass(0)
	r.settle()
	for i := range steps {
		s := &steps[i]
		if s.Kind != StepError && r.d.Failed != nil {
			return fmt.Sprintf("%s:%d: the pipeline failed before this: %s", r.f.Path, s.Line, text(r.failure()))
		}
		d, err := r.step(s)
		if err != nil {
			return fmt.Sprintf("%s:%d: %s", r.f.Path, s.Line, err)
		}
		if d != "" {
			return fmt.Sprintf("%s:%d: %s\n%s", r.f.Path, s.Line, strings.TrimSpace(r.f.lines[s.Line-1]), d)
		}
		r.marks = append(r.marks, maps.Clone(r.moved))
	}
	if r.d.Failed != nil && steps[len(steps)-1].Kind != StepError {
		return fmt.Sprintf("%s:%d: the pipeline failed: %s", r.f.Path, steps[len(steps)-1].Line, text(r.failure()))
	}
	r.ordered = r.ordered || r.behind > 0 || r.d.Late() > 0 || r.d.Failed != nil
	return ""
}

// open plans the pipeline and starts it.
func (r *testRun) open() error {
	r.read, r.sinks, r.found = map[string]*catalog.Table{}, map[string]*testSink{}, map[string][]*row.Row{}
	r.moved = map[string]int64{}
	tables := connector.Registry{}
	for name, real := range r.o.Connectors {
		tables[name] = &testTables{real, r.found}
	}
	r.s = sql.NewSession(sql.Options{Env: r.env, Connectors: tables, Config: r.f.Set, Functions: r.o.Functions, OneSubtask: r.mode == ByLine,
		Watch: func(t *catalog.Table, time, before, after int64) {
			if time <= before {
				r.behind++
			}
			if after > before {
				topic := tableTopic(t)
				if was, ok := r.moved[topic]; !ok || was < after {
					r.moved[topic] = after
				}
			}
		}})
	sinks, errs := r.s.Read(r.f.Pipeline, r.text)
	if err := errs.Err(); err != nil {
		return err
	}
	if len(sinks) == 0 {
		return fmt.Errorf("%s writes nothing: it has no INSERT", r.f.Pipeline)
	}
	app, errs := r.s.App(sinks)
	if err := errs.Err(); err != nil {
		return err
	}
	for _, s := range app.Plan.Sinks {
		r.ordered = r.ordered || s.OrderSensitive || s.In[0].Common().OrderSensitive
		if s.Table != nil {
			r.addSink(s)
		}
		rel.Walk(s, func(n rel.Node) bool {
			if scan, ok := n.(*rel.PScan); ok {
				r.read[tableTopic(scan.Table)] = scan.Table
			}
			return true
		})
	}
	plan, err := app.Topology.Plan()
	if err != nil {
		return err
	}
	o := drive.Options{Partitions: map[string]int{}, Still: true, MayFail: true, Now: startTime, Restore: drive.Mixed, Seed: 1}
	if r.mode == Parallel {
		o.Batch = 3
		for topic := range r.read {
			o.Partitions[topic] = 3
		}
	}
	r.d = drive.NewPlan(&tb{}, plan, o)
	return nil
}

func (r *testRun) env(name string) (string, bool) {
	if v, ok := r.f.Env[name]; ok {
		return v, true
	}
	if r.o.Env == nil {
		return "", false
	}
	return r.o.Env(name)
}

func (r *testRun) addSink(s *rel.PSink) {
	topic := tableTopic(s.Table)
	if r.sinks[topic] != nil {
		return
	}
	columns, layout := stored(s.Table)
	sink := &testSink{table: s.Table, layout: layout}
	for _, c := range columns {
		sink.names = append(sink.names, s.Table.Columns[c].Name)
	}
	if s.Changes == catalog.Upsert {
		for _, c := range s.Table.Key {
			sink.key = append(sink.key, slices.Index(columns, c))
		}
	}
	r.sinks[topic] = sink
}

func (r *testRun) settle() { r.d.Run() }

// failure is why the pipeline failed.
func (r *testRun) failure() error {
	if e := (*task.Error)(nil); errors.As(r.d.Failed, &e) && len(e.Stack) > 0 {
		return fmt.Errorf("%w\n%s", r.d.Failed, top(string(e.Stack)))
	}
	return r.d.Failed
}

// table finds a table of the pipeline.
func (r *testRun) table(name string) (*catalog.Table, error) {
	p := catalog.Path{Catalog: r.s.Catalog, Database: r.s.Database}
	parts := strings.Split(name, ".")
	switch len(parts) {
	case 1:
		p.Name = name
	case 2:
		p.Database, p.Name = parts[0], parts[1]
	default:
		p = catalog.Path{Catalog: parts[0], Database: parts[1], Name: strings.Join(parts[2:], ".")}
	}
	if t := r.s.Store.Table(p); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("the pipeline has no table %q%s", name, nearest(name, r.s.Store.Tables(p)))
}

func nearest(name string, names []string) string {
	if n, ok := near.Word(name, names); ok {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	if len(names) == 0 {
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}

func unknownColumn(t *catalog.Table, name string) error {
	var names []string
	for i := range t.Columns {
		if t.Columns[i].Kind != catalog.Computed {
			names = append(names, t.Columns[i].Name)
		}
	}
	if i := t.Column(name); i >= 0 {
		return fmt.Errorf("column %q of table %s is computed: it has no value of its own", name, t.Path)
	}
	return fmt.Errorf("table %s has no column %q%s", t.Path, name, nearest(name, names))
}

// step does one step. diff says how what came is not what is expected.
func (r *testRun) step(s *Step) (diff string, err error) {
	switch s.Kind {
	case StepInsert:
		return "", r.insert(s)
	case StepWatermark:
		t, err := r.table(s.Table)
		if err != nil {
			return "", err
		}
		at, err := testTime(s.Text)
		if err != nil {
			return "", err
		}
		if r.read[tableTopic(t)] == nil {
			return "", fmt.Errorf("the pipeline does not read table %s", t.Path)
		}
		r.watermark(tableTopic(t), at)
		r.settle()
		r.restart()
	case StepTime:
		return "", r.pass(s.Text)
	case StepRestart:
		r.restartAll()
	case StepEnd:
		for _, topic := range slices.Sorted(maps.Keys(r.read)) {
			r.watermark(topic, math.MaxInt64)
		}
		r.settle()
	case StepError:
		if r.d.Failed == nil {
			return "", errors.New("no error came")
		}
		return r.compareError(s, r.failure()), nil
	case StepLate:
		if got := strconv.FormatInt(r.d.Late(), 10); got != s.Text {
			if r.o.Update && r.mode == ByLine {
				r.change(s, []string{"expect late " + got})
				return "", nil
			}
			return fmt.Sprintf("    %s late rows, want %s", got, s.Text), nil
		}
	case StepExpect, StepFinal:
		return r.expect(s)
	}
	return "", nil
}

func (r *testRun) compareError(s *Step, err error) string {
	if strings.Contains(err.Error(), s.Text) || strings.Contains(text(err), s.Text) {
		return ""
	}
	return fmt.Sprintf("%s:%d: the error does not say %q:\n%s", r.f.Path, s.Line, s.Text, text(err))
}

// testTime reads a time of a step, as ms: of UTC, or as a TIMESTAMP has it.
func testTime(text string) (int64, error) {
	ms, _, err := row.ParseTimestamp([]byte(plainTime(text)))
	if err != nil {
		return 0, fmt.Errorf("%q is no time: write 2024-05-01 12:00:00", text)
	}
	return ms, nil
}

// plainTime takes the T and the Z out of a time in ISO's form.
func plainTime(text string) string {
	if len(text) > 10 && text[10] == 'T' {
		text = text[:10] + " " + text[11:]
	}
	return strings.TrimSuffix(text, "Z")
}

func (r *testRun) pass(text string) error {
	var ms int64
	if rest, ok := strings.CutPrefix(text, "+"); ok {
		d, err := row.ParseDuration(rest)
		if err != nil {
			return err
		}
		ms = d.Milliseconds()
	} else {
		at, err := testTime(text)
		if err != nil {
			return err
		}
		if ms = at - r.d.Now; ms < 0 {
			return fmt.Errorf("processing time is past %s: a test begins at 2024-06-01 00:00:00, and time only goes on", text)
		}
	}
	r.d.Pass(ms)
	r.settle()
	r.restart()
	return nil
}

func (r *testRun) watermark(topic string, ms int64) {
	for p := range r.d.PartitionsOf(topic) {
		r.d.Produce(topic, p, drive.WatermarkRecord(ms))
	}
}

// restart loses all memory, of runs that do so after each row.
func (r *testRun) restart() {
	if r.mode == Restart {
		r.restartAll()
	}
}

func (r *testRun) restartAll() {
	for _, st := range r.d.Tasks {
		if r.d.Failed == nil {
			st.Restart()
		}
	}
	r.settle()
}

func (r *testRun) insert(s *Step) error {
	t, err := r.table(s.Table)
	if err != nil {
		return err
	}
	topic := tableTopic(t)
	_, looked := r.found[topic]
	if r.read[topic] == nil && !looked {
		return fmt.Errorf("the pipeline does not read table %s", t.Path)
	}
	keys := r.spread(t)
	for i, tr := range s.Rows {
		full, err := tableRow(t, tr)
		if err != nil {
			return fmt.Errorf("the row of line %d: %w", tr.Line, err)
		}
		if looked {
			r.found[topic] = append(r.found[topic], full)
		}
		if r.read[topic] == nil {
			continue
		}
		p := 0
		if n := r.d.PartitionsOf(topic); n > 1 && keys != nil {
			p = int(format.Partition(keys(full), int32(n)))
		} else if n > 1 {
			p = i % n
		}
		rec := rowRecord(t, full, r.d.Now)
		if keys != nil {
			rec.Key = keys(full)
		}
		r.d.Produce(topic, p, rec)
		if r.mode != Parallel {
			r.settle()
			r.restart()
		}
		if r.d.Failed != nil {
			return nil
		}
	}
	if r.mode != Parallel {
		return nil
	}
	// Rows that lie on one partition move its watermark alone; they have to move those of the others, as they would go on in
	// a pipeline where more rows come.
	r.settle()
	for topic, ms := range r.plain.marks[len(r.marks)] {
		r.watermark(topic, ms)
	}
	r.settle()
	return nil
}

// spread makes the key that rows of a table are spread over partitions by; nil = they may lie anywhere.
func (r *testRun) spread(t *catalog.Table) func(full *row.Row) []byte {
	c := r.o.Connectors[t.Options["connector"]]
	if c == nil {
		return nil
	}
	tr, err := c.Traits(connector.Table{Table: t, Options: t.Options})
	if err != nil {
		return nil
	}
	by := tr.Keyed
	columns, all := stored(t)
	if by == nil && tr.Reads != catalog.Append {
		if by = t.Key; by == nil {
			by = columns // equal rows lie together
		}
	}
	if by == nil {
		return nil
	}
	var at []int
	for _, c := range by {
		at = append(at, slices.Index(columns, c))
	}
	keys := row.NewKeyEncoder(all, at...)
	return func(full *row.Row) []byte { return keys.Append(nil, full) }
}

// came are the rows that a sink has got, all of them.
func (r *testRun) came(topic string, sink *testSink) ([]Change, error) {
	var out []Change
	for _, log := range r.d.Logs[topic] {
		for i := range log {
			if _, mark := drive.Watermark(&log[i]); mark || log[i].Control {
				continue
			}
			v := sink.layout.New()
			if err := sink.layout.UnpackKind(log[i].Value, v); err != nil {
				return nil, err
			}
			out = append(out, Change{0, v.Kind, string(sink.layout.AppendResult(nil, v)), sink.layout.Values(v)})
		}
	}
	return out, nil
}

// fold is the content of a table after changes.
func (s *testSink) fold(changes []Change) bag {
	if s.key == nil {
		return net(changes)
	}
	latest := map[string]Change{}
	for _, c := range changes {
		var k strings.Builder
		for _, i := range s.key {
			k.Write(append(row.AppendResultValue(nil, s.layout.Type(i), c.values[i]), 0))
		}
		if c.Kind == row.Delete {
			delete(latest, k.String())
		} else {
			c.Kind = row.Insert
			latest[k.String()] = c
		}
	}
	return net(slices.Collect(maps.Values(latest)))
}

// expect compares the rows of a table.
func (r *testRun) expect(s *Step) (diff string, err error) {
	t, err := r.table(s.Table)
	if err != nil {
		return "", err
	}
	topic := tableTopic(t)
	sink := r.sinks[topic]
	if sink == nil {
		return "", fmt.Errorf("the pipeline does not write table %s", t.Path)
	}
	all, err := r.came(topic, sink)
	if err != nil {
		return "", err
	}
	content := sink.fold(all)
	r.folded = append(r.folded, content)
	if r.mode == Parallel {
		if d := compareBag(r.plain.folded[len(r.folded)-1], content); d != "" {
			return "    on three partitions the table has other rows than on one:\n" + indent(d), nil
		}
		return "", nil
	}
	got := all[sink.looked:]
	sink.looked = len(all)
	if s.Kind == StepFinal {
		got = content.rows()
	}
	want := make([]wantRow, len(s.Rows))
	for i, tr := range s.Rows {
		if want[i], err = sink.want(tr); err != nil {
			return "", fmt.Errorf("the row of line %d: %w", tr.Line, err)
		}
	}
	diff = sink.compare(want, got)
	if diff != "" && r.o.Update && r.mode == ByLine {
		lines := []string{r.f.lines[s.Line-1]}
		for _, c := range got {
			lines = append(lines, "  "+sink.line(c))
		}
		r.change(s, lines)
		return "", nil
	}
	return diff, nil
}

func (r *testRun) change(s *Step, lines []string) {
	if r.changed == nil {
		r.changed = map[int]string{}
	}
	r.changed[s.Line-1] = strings.Join(lines, "\n")
}

// rows are those that are there, as +I, in the order of their text.
func (b bag) rows() []Change {
	var out []Change
	for _, text := range slices.Sorted(maps.Keys(b)) {
		for range b[text].n {
			out = append(out, Change{0, row.Insert, text, b[text].values})
		}
	}
	return out
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }
