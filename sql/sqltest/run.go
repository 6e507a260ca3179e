package sqltest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Mode is how a case is run.
type Mode uint8

// The modes.
const (
	ByLine   Mode = iota // a line, and all that it causes, and a commit
	Restart              // likewise, and after each line all memory is lost
	Batch                // all lines at once
	Parallel             // likewise over 3 partitions and subtasks, with exchanges
)

// Modes are the words for the modes, by number.
var Modes = []string{"line", "restart", "batch", "parallel"}

func (m Mode) String() string { return Modes[m] }

// Phase is when a run failed.
type Phase string

// The phases, in the words of the case files.
const (
	InParse    Phase = "parse"
	InValidate Phase = "validate"
	InPlan     Phase = "plan"
	AtRunTime  Phase = "runtime"
)

// Outcome is what came out of a run.
type Outcome struct {
	Schema  []Column
	Changes []Change
	// Err is why it failed, in Phase.
	Err   error
	Phase Phase
	// Late is how many late records were met, Behind how many rows were behind the watermark of their partition. OrderSensitive says that the plan's result depends on the order of arrival.
	Late, Behind   int64
	OrderSensitive bool
	// UpsertKeys are the sets of columns each of which names one row, as the plan says.
	UpsertKeys [][]int
	// Refused are the lines that were skipped for RunOptions.Refuse.
	Refused []int

	layout *row.Layout
}

// RunOptions say how a case is run.
type RunOptions struct {
	Mode Mode
	Seed uint64
	// Without switches rules of the planner off.
	Without map[string]bool
	// Functions are those of sql.Options.
	Functions map[string]*fn.Func
	// Config has settings over those of the case.
	Config map[string]string
	// Refuse names lines whose rows the sink refuses: what such a line does is undone, and it is skipped, if it puts anything
	// out. Only with Mode ByLine.
	Refuse func(line int) bool
}

// collectTopic is where the rows of a query go, packed with their kind.
const collectTopic = "collect"

// startTime is the processing time at the start, ms: 2024-06-01 00:00:00.
const startTime = 1717200000000

// runner is one run.
type runner struct {
	c   *Case
	o   RunOptions
	s   *sql.Session
	out Outcome
	// line is the number of the line that is being handed in.
	line int
}

// errRefused is what the sink says to lines of RunOptions.Refuse.
var errRefused = errors.New("the line is refused")

// Run runs the query of a case.
func Run(c *Case, o RunOptions) *Outcome {
	r := &runner{c: c, o: o}
	if !r.declare() {
		return &r.out
	}
	sinks, errs := r.s.Read("query", c.Query)
	if errs.Err() != nil {
		return r.fail(phaseOf(errs), errs)
	}
	if len(sinks) != 1 {
		return r.fail(InPlan, fmt.Errorf("%d queries, want one", len(sinks)))
	}
	return r.run(sinks[0])
}

// RunExpr evaluates an expression over the rows of the first table, or once.
func RunExpr(c *Case, text string, o RunOptions) *Outcome {
	r := &runner{c: c, o: o}
	if !r.declare() {
		return &r.out
	}
	src := diag.NewSource("expression", text)
	e, errs := parse.Expr(src, nil)
	if errs.Err() != nil {
		return r.fail(InParse, errs)
	}
	node, errs := r.s.Expr(e, firstTable(c.DDL), src)
	if errs.Err() != nil {
		return r.fail(InValidate, errs)
	}
	return r.run(sql.Collected(node))
}

// firstTable is the name of the first table or view that is declared.
func firstTable(ddl string) string {
	src := diag.NewSource("ddl", ddl)
	script, _ := parse.Script(src, nil)
	for _, stmt := range script.Stmts {
		if name, ok := declaredName(stmt); ok {
			return name
		}
	}
	return ""
}

func (r *runner) fail(phase Phase, err error) *Outcome {
	r.out.Phase, r.out.Err = phase, err
	return &r.out
}

// phaseOf tells by the codes of errors which phase found them.
func phaseOf(errs diag.List) Phase {
	for _, e := range errs {
		switch {
		case e.Warning():
		case strings.HasPrefix(e.Code, "E1"):
			return InParse
		case strings.HasPrefix(e.Code, "E2"):
			return InValidate
		default:
			return InPlan
		}
	}
	return InPlan
}

// declare makes the session with the tables of the case.
func (r *runner) declare() bool {
	byTable := map[string][]Line{}
	for _, l := range r.c.Lines {
		byTable[l.Table] = append(byTable[l.Table], l)
	}
	r.s = sql.NewSession(sql.Options{
		Default:    &lines{all: byTable, collect: r.collect},
		Collect:    func(s *rel.Schema) *connector.Sink { return r.collect(row.NewLayout(s.Types...)) },
		Config:     r.config(),
		Functions:  r.o.Functions,
		OneSubtask: r.o.Mode != Parallel,
		Without:    r.o.Without,
		Watch: func(_ *catalog.Table, time, before, _ int64) {
			if time <= before {
				r.out.Behind++
			}
		},
	})
	_, errs := r.s.Read("ddl", r.c.DDL)
	if errs.Err() != nil {
		r.fail(phaseOf(errs), errs)
		return false
	}
	return true
}

// config is the settings of the case and of the run.
func (r *runner) config() map[string]string {
	all := map[string]string{}
	maps.Copy(all, r.c.Set)
	maps.Copy(all, r.o.Config)
	return all
}

// collect keeps what is written.
func (r *runner) collect(layout *row.Layout) *connector.Sink {
	r.out.layout = layout
	policy := processor.Policy(0)
	if r.o.Refuse != nil {
		policy = processor.Skip
	}
	return &connector.Sink{Topic: collectTopic, OnError: policy, Open: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func(*row.Row) error, error) {
		return func(v *row.Row) error {
			if r.o.Refuse != nil && r.o.Refuse(r.line) {
				r.out.Refused = append(r.out.Refused, r.line)
				return errRefused
			}
			value := w.Keep(layout.PackKind(w.Buf(), v))
			return w.Write(processor.SinkRecord{Value: value, Timestamp: w.Now(), Partition: 0})
		}, nil
	}}
}

// run plans and runs a query.
func (r *runner) run(sink *rel.Sink) (out *Outcome) {
	for i, t := range sink.Schema().Types {
		r.out.Schema = append(r.out.Schema, Column{sink.Schema().Names[i], t.String()})
	}
	defer func() {
		if e := recover(); e != nil {
			stop, ok := e.(stopped)
			if !ok {
				stop = stopped(fmt.Sprintf("panic: %v\n%s", e, stack()))
			}
			out = r.fail(InPlan, errors.New(string(stop)))
		}
	}()
	app, errs := r.s.App([]*rel.Sink{sink})
	if errs.Err() != nil {
		return r.fail(phaseOf(errs), errs)
	}
	for _, s := range app.Plan.Sinks {
		r.out.OrderSensitive = r.out.OrderSensitive || s.OrderSensitive || s.In[0].Common().OrderSensitive
		r.out.UpsertKeys = s.In[0].Common().UpsertKeys
	}
	plan, err := app.Topology.Plan()
	if err != nil {
		return r.fail(InPlan, err)
	}
	partitions := map[string]int{collectTopic: 1}
	read := map[string]bool{}
	for _, sub := range plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal {
				read[in.Topic] = true
				partitions[in.Topic] = r.partitions(in.Topic)
			}
		}
	}
	o := drive.Options{Partitions: partitions, Still: true, MayFail: true, Now: startTime, Seed: r.o.Seed}
	if r.o.Mode == Parallel {
		o.Batch = 3
	}
	d := drive.NewPlan(&tb{}, plan, o)
	defer d.Close()
	r.play(d, read)
	r.out.Late = d.Late()
	if d.Failed != nil {
		err := d.Failed
		if e := (*task.Error)(nil); errors.As(err, &e) && len(e.Stack) > 0 {
			err = fmt.Errorf("%w\n%s", err, top(string(e.Stack)))
		}
		return r.fail(AtRunTime, err)
	}
	return &r.out
}

// partitions is how many partitions the topic of a table has.
func (r *runner) partitions(topic string) int {
	n := 1
	for _, p := range r.s.Store.Tables(pathOf("")) {
		if topicOf(p) != topic {
			continue
		}
		if t := r.s.Store.Table(pathOf(p)); t != nil {
			if k, err := strconv.Atoi(t.Options["partitions"]); err == nil {
				n = max(n, k)
			}
		}
	}
	for _, l := range r.c.Lines {
		if topicOf(l.Table) == topic {
			n = max(n, l.Partition+1)
		}
	}
	if r.o.Mode == Parallel {
		n = (n + 2) / 3 * 3
	}
	return n
}

// play hands in the lines and takes what comes out.
func (r *runner) play(d *drive.Driver, read map[string]bool) {
	taken := 0
	settle := func(number int) {
		d.Run()
		log := d.Logs[collectTopic][0]
		for ; taken < len(log); taken++ {
			if log[taken].Control {
				continue
			}
			v := r.out.layout.New()
			if err := r.out.layout.UnpackKind(log[taken].Value, v); err != nil {
				panic(err)
			}
			r.out.Changes = append(r.out.Changes, Change{number, v.Kind, string(r.out.layout.AppendResult(nil, v)), r.out.layout.Values(v)})
		}
		if r.o.Mode == Restart {
			for _, st := range d.Tasks {
				if d.Failed == nil {
					st.Restart()
				}
			}
		}
	}
	atOnce := r.o.Mode == Batch || r.o.Mode == Parallel
	d.Pass(0)
	settle(0)
	turn := map[string]int{}
	for _, l := range r.c.Lines {
		if d.Failed != nil {
			return
		}
		topic := topicOf(l.Table)
		d.Now++
		r.line = l.Number
		if read[topic] {
			r.hand(d, topic, l, turn)
		}
		if !atOnce || l.Control != "" {
			settle(l.Number)
		}
	}
	if atOnce {
		settle(len(r.c.Lines))
	}
	if r.c.Own["end-of-input"] == "false" {
		return
	}
	for _, topic := range slices.Sorted(maps.Keys(read)) {
		for p := range d.PartitionsOf(topic) {
			d.Produce(topic, p, drive.WatermarkRecord(math.MaxInt64))
		}
	}
	if d.Failed == nil {
		r.line = End
		settle(End)
	}
}

// hand hands in a line.
func (r *runner) hand(d *drive.Driver, topic string, l Line, turn map[string]int) {
	p := l.Partition
	if p < 0 {
		p = 0
		if r.o.Mode == Parallel && l.Control == "" {
			p = r.deal(l, turn, d.PartitionsOf(topic))
		}
	}
	switch l.Control {
	case "idle":
		d.Run()
		d.SetIdle(topic, p)
	case "active":
		d.Produce(topic, p, drive.WatermarkRecord(math.MinInt64+1))
	case "watermark":
		ms, _, err := row.ParseTimestamp([]byte(l.Text))
		if err != nil {
			panic(fmt.Errorf("line %d: %w", l.Number, err))
		}
		if l.Partition >= 0 || r.o.Mode != Parallel {
			d.Produce(topic, p, drive.WatermarkRecord(ms))
			return
		}
		for p := range d.PartitionsOf(topic) {
			d.Produce(topic, p, drive.WatermarkRecord(ms))
		}
	default:
		rec := record.Record{Value: []byte(l.Text), Timestamp: d.Now}
		if l.Kind != row.Insert {
			rec.Headers = []record.Header{{Key: kindHeader, Value: []byte(l.Kind.String())}}
		}
		if t := r.s.Store.Table(pathOf(l.Table)); t != nil && keyFields(t.Options) != nil {
			rec.Key = keyOf(l, keyFields(t.Options))
			if t.Options["misplaced"] == "" {
				p = int(format.Partition(rec.Key, int32(d.PartitionsOf(topic))))
			}
		}
		d.Produce(topic, p, rec)
	}
}

// keyOf is the key of the record of a line: the values of fields.
func keyOf(l Line, fields []string) []byte {
	obj, err := parseObject([]byte(l.Text))
	if err != nil {
		return nil
	}
	var key []byte
	for _, f := range fields {
		key = fmt.Appendf(key, "%v|", obj[f])
	}
	return key
}

// deal finds a partition for a line that names none: rows of one key, or equal rows, of a table with changes lie together.
func (r *runner) deal(l Line, turn map[string]int, partitions int) int {
	t := r.s.Store.Table(pathOf(l.Table))
	changes := t != nil && (t.Options["changelog-mode"] != "" || t.Options["format"] != "")
	if !changes {
		turn[l.Table]++
		return turn[l.Table] % partitions
	}
	obj, err := parseObject([]byte(l.Text))
	if err != nil {
		return 0
	}
	for _, inner := range []string{"after", "before"} {
		if o, ok := obj[inner].(map[string]any); ok && t.Options["format"] == "debezium-json" {
			obj = o
			break
		}
	}
	var key strings.Builder
	for _, c := range t.Key {
		fmt.Fprintf(&key, "%v|", obj[t.Columns[c].Name])
	}
	if t.Key == nil {
		if t.Options["format"] == "debezium-json" {
			return 0 // a message has two rows
		}
		fmt.Fprint(&key, l.Text)
	}
	return int(format.Partition([]byte(key.String()), int32(partitions)))
}

// tb is the testing.TB of a run outside of a test: what ends a test ends the run.
type tb struct{ testing.TB }

// stopped is what ends a run.
type stopped string

func (*tb) Helper()                   {}
func (*tb) Cleanup(func())            {}
func (*tb) Errorf(f string, a ...any) { panic(stopped(fmt.Sprintf(f, a...))) }
func (*tb) Fatalf(f string, a ...any) { panic(stopped(fmt.Sprintf(f, a...))) }
func (*tb) Fatal(a ...any)            { panic(stopped(fmt.Sprint(a...))) }
