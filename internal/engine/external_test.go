package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// shelf is another system, with batches that are hidden until they are shown, and an open one in each subtask that may
// last for several epochs.
type shelf struct {
	mu     sync.Mutex
	hidden map[string][]string // batches by name
	shown  []string
	// keep is for how many epochs a batch stays open.
	keep int
}

// visible are the values that show.
func (s *shelf) visible() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shown)
}

func (s *shelf) show(name string, n int) {
	s.shown = append(s.shown, s.hidden[name][:n]...)
	delete(s.hidden, name)
}

// shelfWriter is the External of a subtask. A handle is "name length shows".
type shelfWriter struct {
	s       *shelf
	subtask string
	from    processor.Begun
	open    string // name of the open batch
	epochs  int
	ready   string
}

func (w *shelfWriter) Begin(_ context.Context, from processor.Begun) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.from = from
	for _, h := range from.Handles {
		f := strings.Fields(string(h))
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return err
		}
		if _, ok := w.s.hidden[f[0]]; ok {
			w.s.show(f[0], n)
		}
		if err := failpoint.Hit(failpoint.MidBegin); err != nil {
			return err
		}
	}
	maps.DeleteFunc(w.s.hidden, func(name string, _ []string) bool { return strings.HasPrefix(name, w.subtask+"/") })
	return nil
}

func (w *shelfWriter) Write(key, value []byte) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.open == "" {
		w.open = fmt.Sprintf("%s/%d/%d", w.subtask, w.from.Incarnation, w.from.Epoch)
		w.epochs = 0
	}
	w.s.hidden[w.open] = append(w.s.hidden[w.open], string(key)+"="+string(value))
	return nil
}

func (w *shelfWriter) Prepare(_ context.Context, epoch uint64, last bool) ([]byte, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.open == "" {
		return nil, nil
	}
	h := fmt.Appendf(nil, "%s %d", w.open, len(w.s.hidden[w.open]))
	if w.epochs++; w.epochs > w.s.keep || last {
		w.ready, w.open = w.open, ""
		w.from.Epoch = epoch + 1 // of the next batch
	}
	return h, nil
}

func (w *shelfWriter) Finish(context.Context) error {
	if w.ready == "" {
		return nil
	}
	if err := failpoint.Hit(failpoint.MidFinish); err != nil {
		return err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.show(w.ready, len(w.s.hidden[w.ready]))
	w.ready = ""
	return nil
}

func (w *shelfWriter) Due() int64   { return processor.Never }
func (w *shelfWriter) Close() error { return nil }

// toShelf writes each word; of a word that says so, and of its record, nothing is left.
func (s *shelf) topology(top *processor.Topology) {
	words := processor.From(top, processor.Topic[word]{Name: "in"})
	processor.ToExternal(words, processor.ExternalSink[word]{ID: "shelf",
		Open: func(ctx *processor.SubtaskContext) (processor.External, error) {
			return &shelfWriter{s: s, subtask: fmt.Sprint(ctx.Subtask().Index)}, nil
		},
		Encode: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func(word) error, error) {
			return func(v word) error {
				if err := w.Write(processor.SinkRecord{Key: w.Keep(append(w.Buf(), v.Text...)), Value: w.Keep(strconv.AppendInt(w.Buf(), v.N, 10))}); err != nil {
					return err
				}
				if v.N%100 == 7 {
					return fmt.Errorf("word %d is not liked", v.N)
				}
				return nil
			}, nil
		}})
}

// want are the values of the first n words.
func (s *shelf) want(n int) (rows []string) {
	for i := range n {
		if i%100 != 7 {
			rows = append(rows, fmt.Sprintf("word-%d=%d", i%5, i))
		}
	}
	slices.Sort(rows)
	return rows
}

// TestExternal: what goes to another system shows once, wherever an epoch fails, whether a batch is shown with its epoch
// or is open over several.
func TestExternal(t *testing.T) {
	for _, keep := range []int{0, 3} {
		for _, point := range []string{failpoint.AfterPrepare, failpoint.BeforeFlush, failpoint.BeforeEndTxn, failpoint.AfterEndTxn, failpoint.MidFinish, failpoint.MidBegin, failpoint.AfterBegin} {
			t.Run(fmt.Sprintf("%s open for %d epochs", point, keep), func(t *testing.T) {
				c := newCluster(t)
				s := &shelf{hidden: map[string][]string{}, keep: keep}
				arm := func(point string) *failpoint.Point {
					p, err := failpoint.Arm(point, everyThird())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(p.Disarm)
					return p
				}
				points := []*failpoint.Point{arm(point)}
				if point == failpoint.MidBegin { // which needs something to begin with
					points = append(points, arm(failpoint.AfterEndTxn))
				}
				const n, rounds = 50, 20
				change := func(o *engine.Options) {
					o.MaxAttempts, o.CommitMaxLatency, o.CommitQuiet = 100, 5*time.Millisecond, time.Millisecond
				}
				m := c.start("shelf", s.topology, memstore.NewDir("shelf"), change)
				for i := range rounds {
					if i == rounds-1 { // which all subtasks commit
						for _, p := range points {
							p.Disarm()
						}
					}
					c.send(n, 5)
					c.drained("shelf", "in")
				}
				m.stop(t)
				if hits := points[0].Hits(); hits < 3 {
					t.Errorf("the point was passed %d times", hits)
				}
				var want []string
				for range rounds {
					want = append(want, s.want(n)...)
				}
				slices.Sort(want)
				got := s.visible()
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%d values show, want %d", len(got), len(want))
				}
			})
		}
	}
}

// everyThird is an action that fails each third time.
func everyThird() func() error {
	var mu sync.Mutex
	n := 0
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%3 == 0 {
			return failpoint.ErrInjected
		}
		return nil
	}
}

// TestExternalSavepoint: with a savepoint all shows that is committed, so that who begins from it owes nothing.
func TestExternalSavepoint(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	k := c.command("shelf", blobs)
	s := &shelf{hidden: map[string][]string{}, keep: 1 << 30}
	m := c.start("shelf", s.topology, memstore.NewDir("shelf"), with(blobs))
	c.send(200, 5)
	c.drained("shelf", "in")
	if got := s.visible(); len(got) != 0 {
		t.Fatalf("%d values show before the savepoint", len(got))
	}
	sp, err := k.take(t, engine.SavepointOptions{Name: "now"})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing holds the subtasks, and the savepoint is completed when their states are uploaded.
	testutil.Eventually(t, patience, func() error {
		got := s.visible()
		if slices.Sort(got); !slices.Equal(got, s.want(200)) {
			return fmt.Errorf("%d values show", len(got))
		}
		return nil
	})
	m.stop(t)
	b := c.start("shelf", s.topology, memstore.NewDir("shelf"), func(o *engine.Options) {
		with(blobs)(o)
		o.Start = engine.Start{Mode: "savepoint:" + sp.Name}
	})
	c.send(10, 5)
	c.drained("shelf", "in")
	b.stop(t)
	got := s.visible()
	want := append(s.want(200), s.want(10)...)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d values show, want %d", len(got), len(want))
	}
}
