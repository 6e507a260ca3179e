package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// tabled looks up the label of each event in a table that is partitioned as the events are.
func tabled(t *processor.Topology) {
	labels := processor.TableFrom(t, "labels", format.String(), processor.Topic[string]{Name: "labels", Value: format.String()})
	events := processor.FromKeyed(t, format.String(), timed())
	out := processor.LeftJoinTable(events, labels, "join", func(e event, label *string) row {
		if label == nil {
			return row{Kind: "none", Text: e.Text, N: e.N}
		}
		return row{Kind: *label, Text: e.Text, N: e.N}
	})
	processor.ToTopic(out, "rows")
}

// TestTableIsLoadedFirst: what the topic of a table holds at the first start is there when the first record is joined, though it
// is much more, and though it grows without end; a member that has lost all local state does not read it again, and a new
// incarnation does.
func TestTableIsLoadedFirst(t *testing.T) {
	s := newStage(t, "tables", 4)
	s.byText = true
	s.topic("labels", 4)
	const keys = 50
	label := func(label string) {
		t.Helper()
		var rs []*kgo.Record
		for i := range keys {
			rs = append(rs, &kgo.Record{Topic: "labels", Key: fmt.Appendf(nil, "word-%d", i), Value: []byte(label)})
		}
		s.produce(rs)
	}
	for range 400 {
		label("old")
	}
	label("new")
	s.send(200, keys)

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { // somebody who never stops
		for i := 0; ctx.Err() == nil; i++ {
			if err := s.cl.ProduceSync(ctx, &kgo.Record{Topic: "labels", Key: fmt.Append(nil, "other-", i%20), Value: []byte("x")}).FirstErr(); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	check := func(n int, want string) {
		t.Helper()
		kinds := s.kinds(n)
		if len(kinds) != len(s.sent)-n {
			t.Fatalf("%d of %d events came out", len(kinds), len(s.sent)-n)
		}
		for at, kind := range kinds {
			if kind != want {
				t.Fatalf("the label of event %d is %s, want %s", at, kind, want)
			}
		}
	}
	m := s.run(tabled, memstore.NewDir(s.app), nil)
	s.settle(m)
	check(0, "new")
	stop()
	wg.Wait()
	m.stop(t)
	if log := m.log.String(); strings.Count(log, "tables are loaded") != 4 {
		t.Errorf("the log does not say of four subtasks that they have waited:\n%s", log)
	}

	n := len(s.sent)
	s.send(100, keys)
	m = s.run(tabled, memstore.NewDir(s.app), nil)
	s.settle(m)
	check(n, "new")
	m.stop(t)
	if log := m.log.String(); strings.Contains(log, "waiting for the broadcast") {
		t.Errorf("a table that was loaded in an earlier life is waited for:\n%s", log)
	}
}

// TestSavepointWhileATableIsLoaded: a subtask takes its part in a savepoint when its table is loaded. The barrier lies behind
// records that wait for that, so the table must not wait for the barrier.
func TestSavepointWhileATableIsLoaded(t *testing.T) {
	s := newStage(t, "loading", 1)
	s.topic("labels", 1)
	var rs []*kgo.Record
	for i := range 3000 {
		rs = append(rs, &kgo.Record{Topic: "labels", Key: fmt.Appendf(nil, "word-%d", i%3), Value: fmt.Append(nil, i/2999)})
	}
	s.produce(rs)
	s.send(50, 3)
	gate := make(chan struct{})
	labels := format.Func(func(src []byte, v *string) error {
		<-gate // so the first row of the table waits for the savepoint to begin
		*v = string(src)
		return nil
	}, func(dst []byte, v *string) ([]byte, error) { return append(dst, *v...), nil })
	m := s.run(func(top *processor.Topology) {
		table := processor.TableFrom(top, "labels", format.String(), processor.Topic[string]{Name: "labels", Value: labels})
		by := processor.KeyBy(processor.From(top, timed()), "by-text", func(e event) string { return e.Text })
		processor.ToTopic(processor.JoinTable(by, table, "join", func(e event, label string) row { return row{Kind: label, Text: e.Text, N: e.N} }), "rows")
	}, memstore.NewDir(s.app), nil)
	testutil.Eventually(t, patience, func() error {
		if !strings.Contains(m.log.String(), "waiting for the broadcast inputs and the tables") {
			return errors.New("it does not wait for the table")
		}
		return nil
	})
	var once sync.Once
	sp, err := s.command(s.app, s.blobs).take(t, engine.SavepointOptions{Name: "early", AlignTimeout: 10 * time.Second, Progress: func(aligned, _, _ int) {
		if aligned > 0 { // the source has, so this member knows of it
			once.Do(func() { close(gate) })
		}
	}})
	if err != nil || sp.Status != checkpoint.StatusCompleted {
		t.Fatalf("%v, %v", sp, err)
	}
	s.settle(m)
	kinds := s.kinds(0)
	for n, kind := range kinds {
		if want := map[bool]string{true: "1", false: "0"}[s.sent[n].Text == "word-2"]; kind != want {
			t.Fatalf("event %d of %s met row %s", n, s.sent[n].Text, kind)
		}
	}
	if len(kinds) != len(s.sent) {
		t.Fatalf("%d of %d events came out", len(kinds), len(s.sent))
	}
	m.stop(t)
}
