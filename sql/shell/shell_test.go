package shell

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/print"
	"github.com/millrace-stream/millrace/internal/adhoc"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
)

// harness is a shell whose output is kept. Queries run as in the command until stop says so of the rows so far.
type harness struct {
	*Shell
	out, err bytes.Buffer
	stop     func(rows int) bool
	inserts  int
}

func newHarness(t *testing.T, form string, terminal Terminal) *harness {
	t.Helper()
	h := &harness{stop: func(int) bool { return false }}
	h.Shell = New(Options{
		SQL: sql.Options{Connectors: connector.Registry{"datagen": datagen.New(), "print": print.New()}},
		Out: &h.out, Err: &h.err, Form: form, Terminal: terminal,
		Interruptible: context.WithCancel,
		Insert:        func(context.Context, *sql.App, map[string]string) error { h.inserts++; return nil },
		Query: func(ctx context.Context, q Query) error {
			plan, err := q.App.Topology.Plan()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			rows := 0
			err = adhoc.Run(ctx, adhoc.Options{Plan: plan, Every: time.Millisecond, Bounded: q.Bounded, Output: func(records []record.Output) error {
				var values [][]byte
				for _, r := range records {
					values = append(values, r.Value)
				}
				rows += len(values)
				if err := q.Rows(values); err != nil {
					return err
				}
				if h.stop(rows) {
					cancel()
				}
				return nil
			}, Progress: func(p adhoc.Progress) { q.Progress("reading") }})
			if errors.Is(err, context.Canceled) && h.stop(rows) {
				return nil
			}
			return err
		},
	})
	return h
}

// run carries out statements and returns what was printed.
func (h *harness) run(t *testing.T, text string) string {
	t.Helper()
	h.out.Reset()
	h.err.Reset()
	if err := h.Script(t.Context(), "test", text); err != nil {
		t.Fatalf("%s: %v\n%s", text, err, h.err.String())
	}
	return h.out.String()
}

const numbers = `CREATE TABLE numbers (id BIGINT, name STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000', 'number-of-rows' = '3',
 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3', 'fields.name.length' = '2');`

func TestStatementsAnswerInTables(t *testing.T) {
	h := newHarness(t, "table", nil)
	h.run(t, numbers)
	if got := h.err.String(); got != "table numbers created\n" {
		t.Errorf("CREATE TABLE says %q", got)
	}
	want := "+------------+\n| table name |\n+------------+\n| numbers    |\n+------------+\n"
	if got := h.run(t, "SHOW TABLES;"); got != want {
		t.Errorf("SHOW TABLES prints\n%s", got)
	}
	if got := h.run(t, "EXPLAIN SELECT id + 1 FROM numbers;"); !strings.Contains(got, "Scan numbers") {
		t.Errorf("EXPLAIN prints\n%s", got)
	}
	h.run(t, "CREATE TABLE out_numbers (id BIGINT) WITH ('connector' = 'datagen');")
}

func TestQueriesStreamChanges(t *testing.T) {
	h := newHarness(t, "table", nil)
	h.run(t, numbers)
	h.stop = func(rows int) bool { return rows == 5 }
	got := h.run(t, "SELECT COUNT(*) AS n FROM numbers;")
	var ops []string
	for _, l := range strings.Split(got, "\n") {
		if f := strings.Fields(l); len(f) == 5 {
			ops = append(ops, f[1]+f[3])
		}
	}
	if want := []string{"opn", "+I1", "-U1", "+U2", "-U2", "+U3"}; !slices.Equal(ops, want) {
		t.Errorf("the changes are %q, want %q in\n%s", ops, want, got)
	}
}

func TestFormsOfResults(t *testing.T) {
	for form, want := range map[string]string{
		"json": `{"id":1,"name":null,"b":"x'0AFF'"}` + "\n" + `{"id":2,"name":"a<\"b\"","b":null}` + "\n",
		"csv":  "id,name,b\n1,,x'0AFF'\n2,\"a<\"\"b\"\"\",\n",
	} {
		h := newHarness(t, form, nil)
		h.stop = func(rows int) bool { return rows == 2 }
		got := h.run(t, `SELECT * FROM (VALUES (1, CAST(NULL AS STRING), x'0AFF'), (2, 'a<"b"', CAST(NULL AS BYTES))) AS v (id, name, b);`)
		if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", form, got, want)
		}
	}
}

// TestWarnings: an INSERT tells what the planner warns of, and options without effect are told once.
func TestWarnings(t *testing.T) {
	h := newHarness(t, "table", nil)
	h.run(t, numbers+"CREATE TABLE p (name STRING, n BIGINT) WITH ('connector' = 'print', 'sink.parallelism' = '4');")
	const insert = "INSERT INTO p SELECT name, COUNT(*) FROM numbers GROUP BY name;"
	h.run(t, insert)
	for _, want := range []string{"warning W12", "warning W23: table p: 'sink.parallelism' = '4' has no effect"} {
		if got := h.err.String(); !strings.Contains(got, want) {
			t.Errorf("the first INSERT says\n%s\nwant %s", got, want)
		}
	}
	h.run(t, insert)
	if got := h.err.String(); !strings.Contains(got, "W12") || strings.Contains(got, "W23") {
		t.Errorf("the second INSERT says\n%s", got)
	}
}

func TestErrorsAreTold(t *testing.T) {
	h := newHarness(t, "table", nil)
	h.run(t, numbers)
	for text, want := range map[string]string{
		"SELEC 1;":                 "E1001",
		"SELECT idd FROM numbers;": `did you mean "id"`,
		"SET 'sql-client.execution.result-mode' = 'x'; SELECT id FROM numbers;":           "there are table, changelog and tableau",
		"SET 'sql-client.execution.max-table-result.rows' = '0'; SELECT id FROM numbers;": "from 1",
	} {
		h.err.Reset()
		err := h.Script(t.Context(), "test", text)
		if !errors.Is(err, ErrStatement) || !strings.Contains(h.err.String(), want) {
			t.Errorf("%s: %v, %q, want %q in it", text, err, h.err.String(), want)
		}
		h.run(t, "RESET;")
	}
}

func TestCommandsOfTheShell(t *testing.T) {
	h := newHarness(t, "table", nil)
	h.run(t, numbers)
	for line, want := range map[string]string{`\d`: "numbers", `\d numbers`: "BIGINT", `\?`: `\timing`, `\sql numbers`: "datagen", `\mode changelog`: "", `\batch on`: "", `\timing`: "timing is on"} {
		h.out.Reset()
		h.err.Reset()
		if err := h.Command(t.Context(), line); err != nil || !strings.Contains(h.out.String()+h.err.String(), want) {
			t.Errorf("%s: %v %s %s", line, err, h.out.String(), h.err.String())
		}
	}
	if how, bounded, err := h.mode(); how != stream || !bounded || err != nil {
		t.Errorf("mode = %v %v %v", how, bounded, err)
	}
	for _, line := range []string{`\nope`, `\mode`, `\batch x`, `\i /no/such/file`} {
		if err := h.Command(t.Context(), line); !errors.Is(err, ErrStatement) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if err := h.Command(t.Context(), `\q`); err != nil || !h.Quit() {
		t.Errorf(`\q: %v`, err)
	}
}

func TestCompletion(t *testing.T) {
	h := newHarness(t, "table", nil)
	h.run(t, numbers)
	for text, want := range map[string]string{
		"SELECT * FROM nu":                      "numbers",
		"SELECT n.na FROM numbers n":            "",
		"SELECT * FROM numbers AS n WHERE n.na": "name",
		"SELECT na":                             "name",
		"sel":                                   "SELECT",
		"SELECT json_v":                         "JSON_VALUE",
		`\ti`:                                   `\timing`,
		`\d nu`:                                 "numbers",
		"SELECT 'na":                            "",
	} {
		list, _ := h.Complete(text)
		if want == "" && len(list) > 0 && !strings.HasPrefix(text, "SELECT n.") || want != "" && (len(list) == 0 || list[0].Text != want) {
			t.Errorf("Complete(%q) = %v, want %q first", text, list, want)
		}
	}
}

func TestResultFollowsItsChanges(t *testing.T) {
	r := newResult(3)
	apply := func(kind row.RowKind, v string) { r.apply(kind, v, []string{v}) }
	want := func(vs ...string) {
		t.Helper()
		var got []string
		for _, c := range r.table() {
			got = append(got, c[0])
		}
		if !slices.Equal(got, vs) {
			t.Errorf("the table is %q, want %q", got, vs)
		}
	}
	apply(row.Insert, "a")
	apply(row.Insert, "b")
	apply(row.Insert, "a")
	want("a", "b", "a")
	apply(row.UpdateBefore, "b")
	apply(row.UpdateAfter, "c") // takes the place
	want("a", "c", "a")
	apply(row.Delete, "a") // the oldest of equal ones
	want("c", "a")
	apply(row.Insert, "d")
	apply(row.Insert, "e") // one too many
	want("a", "d", "e")
	if r.dropped != 1 {
		t.Errorf("dropped = %d", r.dropped)
	}
	apply(row.Delete, "c") // is not there any more
	want("a", "d", "e")
	for range 200 {
		apply(row.Delete, "e")
		apply(row.Insert, "e")
	}
	want("a", "d", "e")
	if len(r.rows) > 70 {
		t.Errorf("%d places for 3 rows", len(r.rows))
	}
}

func TestPictureFitsTheTerminal(t *testing.T) {
	r := newResult(1000)
	for i := range 30 {
		v := strings.Repeat("x", i)
		r.apply(row.Insert, v, []string{v, "\u65e5\u672c\x1b[31m"})
	}
	s := &screen{cols: columnsOf([]string{"text", "other"}, nil), result: r}
	picture := s.draw(20, 10)
	lines := strings.Split(picture, "\r\n")
	if len(lines) != 9 || !strings.Contains(picture, "30 rows") {
		t.Errorf("%d lines: %q", len(lines), picture)
	}
	for _, l := range lines[:8] {
		l = strings.NewReplacer(home, "", bold, "", plain, "", clearLine, "").Replace(l)
		if width(l) > 20 || strings.Contains(l, "\x1b") {
			t.Errorf("line %q is %d wide", l, width(l))
		}
	}
	if s.key("G", 7) || !strings.Contains(s.draw(60, 10), "rows 24-30") {
		t.Error("G does not go to the end")
	}
	if s.key("\x1b[A", 7) || !strings.Contains(s.draw(60, 10), "rows 23-29") {
		t.Error("the arrow does not go up")
	}
	if !s.key("q", 7) || !s.key("\x03", 7) {
		t.Error("q and Ctrl-C do not stop")
	}
}

// fakeTerminal is a terminal on which somebody presses q as soon as text is seen.
type fakeTerminal struct {
	bytes.Buffer
	want string
	raw  int
}

func (f *fakeTerminal) Size() (width, height int) { return 60, 10 }

func (f *fakeTerminal) Keys() (func(), error) { f.raw++; return func() { f.raw-- }, nil }

func (f *fakeTerminal) Read(p []byte) (int, error) {
	if strings.Contains(f.String(), f.want) {
		return copy(p, "q"), nil
	}
	<-time.After(time.Millisecond) // as the terminal waits for a key
	return 0, nil
}

func TestLiveTableIsLeftByQ(t *testing.T) {
	f := &fakeTerminal{want: "3 rows"}
	h := newHarness(t, "table", f)
	h.run(t, numbers)
	got := h.run(t, "SELECT id FROM numbers;")
	if want := "+----+\n| id |\n+----+\n|  1 |\n|  2 |\n|  3 |\n+----+\n"; got != want {
		t.Errorf("what stays is\n%s", got)
	}
	if picture := f.String(); f.raw != 0 || !strings.HasPrefix(picture, enterScreen) || !strings.HasSuffix(picture, leaveScreen) {
		t.Errorf("the screen is not given back: %d, %q", f.raw, picture)
	}
}

func TestHighlightKeepsTheText(t *testing.T) {
	for _, text := range []string{"SELECT 'a', 1 FROM t -- no\n", "SELECT 'open", "", "${X} `y"} {
		h := highlight(text)
		for _, style := range []string{"\x1b[1m", "\x1b[32m", "\x1b[36m", plain} {
			h = strings.ReplaceAll(h, style, "")
		}
		if h != text {
			t.Errorf("highlight(%q) shows %q", text, h)
		}
	}
}
