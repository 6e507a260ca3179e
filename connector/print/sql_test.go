package print_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/blackhole"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/print"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/onbroker"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/sql"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// screen is what is printed.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write is of io.Writer.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// chain says what is wrong with the lines of a count that ends at n: each change takes back the one before.
func chain(lines []string, n int) string {
	last := 0
	for i := 0; i < len(lines); i++ {
		want := "c> +I["
		if last > 0 {
			if want = fmt.Sprintf("c> -U[%d]", last); lines[i] != want {
				return fmt.Sprintf("line %d is %q, want %q", i, lines[i], want)
			}
			if i++; i == len(lines) {
				return "the last line takes back and gives nothing"
			}
			want = "c> +U["
		}
		text, ok := strings.CutPrefix(lines[i], want)
		next, err := strconv.Atoi(strings.TrimSuffix(text, "]"))
		if !ok || err != nil || next <= last {
			return fmt.Sprintf("line %d is %q behind %d", i, lines[i], last)
		}
		last = next
	}
	if last != n {
		return fmt.Sprintf("the count is %d, want %d", last, n)
	}
	return ""
}

// TestPrint: rows of a changelog, in order, each once though epochs fail; beside a table that takes all and keeps none.
func TestPrint(t *testing.T) {
	var mu sync.Mutex
	n := 0
	p, err := failpoint.Arm(failpoint.BeforeEndTxn, func() error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%3 == 0 && n < 12 {
			return failpoint.ErrInjected
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Disarm()
	out := &screen{}
	plan := func() *task.Plan {
		app, errs := sql.Script("print.sql", `
CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '500', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '300');
CREATE TABLE counts (n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'c');
CREATE TABLE hole (id BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT COUNT(*) FROM numbers;
INSERT INTO hole SELECT id FROM numbers;`,
			sql.Options{Connectors: connector.Registry{"datagen": datagen.New(), "blackhole": blackhole.New(), "print": print.To(out, &screen{})}})
		if errs.Err() != nil {
			t.Fatal(errs.Err())
		}
		pl, err := app.Topology.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return pl
	}
	r := onbroker.Run{Plan: plan, Members: 1, Parallelism: 1, Compare: func(map[string][]record.Record) string {
		return chain(strings.Split(strings.TrimSpace(out.String()), "\n"), 300)
	}}
	if err := r.Do(); err != nil {
		t.Fatal(err)
	}
	if p.Hits() < 3 {
		t.Errorf("the point was passed %d times", p.Hits())
	}
}
