package task

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
)

// What operators do before an epoch is sealed belongs to it, in the order of the graph; an empty epoch stays empty.
func TestBeforeSeal(t *testing.T) {
	tk, _ := numbers(t, Env{}, false)
	x := tk.Exec()
	var calls []string
	held := 0
	tk.BeforeSeal(2, 0, func() error {
		calls = append(calls, "second")
		if held > 0 {
			held = 0
			x.Time = 99
			return x.Output(0, 0, 1, nil, []byte("flushed"), nil, x.Time, 0)
		}
		return nil
	})
	tk.BeforeSeal(1, 0, func() error { calls = append(calls, "first"); held++; return nil })
	if s, err := tk.Seal(1, 5); err != nil || !s.Empty || len(calls) > 0 {
		t.Fatalf("%+v, %v, %v", s, err, calls)
	}
	tk.Enqueue(0, 2, []record.Record{{Key: []byte("k"), Value: []byte("1"), Offset: 0, Timestamp: 7}})
	mustStep(t, tk, 10, 1)
	tk.TakeOutputs()
	s, err := tk.Seal(1, 5)
	if err != nil || s.Empty || !slices.Equal(calls, []string{"first", "second"}) {
		t.Fatalf("%+v, %v, %v", s, err, calls)
	}
	if len(s.Outputs) != 1 || string(s.Outputs[0].Value) != "flushed" || s.Outputs[0].Timestamp != 99 {
		t.Fatalf("%+v", s.Outputs)
	}
}

// A failure before the seal that no policy lets pass ends the task.
func TestBeforeSealFails(t *testing.T) {
	tk, _ := numbers(t, Env{}, false)
	tk.BeforeSeal(0, 0, func() error { return errors.New("oh") })
	tk.Enqueue(0, 2, []record.Record{{Key: []byte("k"), Value: []byte("1"), Offset: 0, Timestamp: 7}})
	mustStep(t, tk, 10, 1)
	var e *Error
	if _, err := tk.Seal(1, 5); !errors.As(err, &e) || e.Kind != Data {
		t.Fatal(err)
	}
}

// Upkeep runs when it is due, moves NextTimer, and makes an epoch only if it says that it wrote.
func TestUpkeep(t *testing.T) {
	tk, _ := numbers(t, Env{Now: 1000}, false)
	n, wrote := 0, false
	tk.AddUpkeep(1100, func(now int64) (int64, bool, error) { n++; return now + 50, wrote, nil })
	tick := func(now int64, runs int, next int64, empty bool) {
		t.Helper()
		if err := tk.Tick(now); err != nil {
			t.Fatal(err)
		}
		if got := tk.Stats().NextTimer; n != runs || got != next {
			t.Fatalf("at %d: %d runs, next %d; want %d, %d", now, n, got, runs, next)
		}
		if s, err := tk.Seal(1, now); err != nil || s.Empty != empty {
			t.Fatalf("at %d: empty %v, %v", now, s.Empty, err)
		}
	}
	tick(1099, 0, 1100, true)
	tick(1100, 1, 1150, true)
	tick(1140, 1, 1150, true)
	wrote = true
	tick(1160, 2, 1210, false)
}
