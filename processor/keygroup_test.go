package processor_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

type place struct {
	City string `json:"city"`
	Zone int16  `json:"zone"`
}

// code is written by methods of the program, which its bytes in state do not show.
type code uint16

func (c code) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprintf("code-%d", uint16(c))) }

func (c *code) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	n, err := strconv.ParseUint(s[len("code-"):], 10, 16)
	*c = code(n)
	return err
}

type row struct{ N int64 }

// keyedSum has a store of keys that key makes.
func keyedSum[K comparable](rows processor.Stream[row], id string, key func(row) K) {
	sums := processor.RunningAggregate(processor.KeyBy(rows, "by-"+id, key), id, processor.Fold(func(a *int64, r row) { *a += r.N }),
		func(_ K, a int64, _ row) int64 { return a })
	processor.ToTopic(sums, "out-"+id)
}

// TestKeyGroupIsThatOfTheRunningProgram compares the group under which each key lies in state, where it came the whole way
// through Kafka, with what KeyGroup says of the key alone.
func TestKeyGroupIsThatOfTheRunningProgram(t *testing.T) {
	d := newDriver(t, func(top *processor.Topology) {
		rows := processor.From(top, processor.Topic[row]{Name: "rows"})
		keyedSum(rows, "text", func(r row) string { return fmt.Sprint("key ", r.N) })
		keyedSum(rows, "int", func(r row) int { return int(-r.N) })
		keyedSum(rows, "int32", func(r row) int32 { return int32(r.N) })
		keyedSum(rows, "uint64", func(r row) uint64 { return uint64(r.N) << 40 })
		keyedSum(rows, "place", func(r row) place { return place{fmt.Sprint(r.N), -1} })
		keyedSum(rows, "code", func(r row) code { return code(r.N) })
		// A serde of the program's own, and stores of all kinds.
		decimal := format.Func(func(src []byte, v *int64) (err error) { *v, err = strconv.ParseInt(string(src), 10, 64); return err },
			func(dst []byte, v *int64) ([]byte, error) {
				if *v < 0 {
					return nil, errors.New("negative")
				}
				return strconv.AppendInt(dst, *v, 10), nil
			})
		own := processor.FromKeyed(top, decimal, processor.Topic[row]{Name: "own"})
		processor.ToTopic(processor.Process(own, "all", func(ctx *processor.KeyedContext[int64, row, row]) {
			list, byText := processor.List[row](ctx, "list"), processor.MapOf[string, row](ctx, "map")
			ctx.OnRecord(func(r row) error {
				list.Add(r)
				byText.Put("x", r)
				ctx.RegisterEventTimer(time.UnixMilli(1 << 40))
				return nil
			})
			ctx.OnTimer(func(processor.Timer) error { return nil })
		}), "out-all")
		processor.ToTopic(processor.ReduceWindow(own.Window(window.Tumbling(time.Hour)), "win", func(kept, _ row) row { return kept }), "out-win")
	}, driverOptions{parallelism: 1})
	for n := range int64(30) {
		v, err := json.Marshal(row{n})
		if err != nil {
			t.Fatal(err)
		}
		d.produce("rows", 0, nil, v, 5)
		d.produce("own", 0, []byte(strconv.FormatInt(n, 10)), v, 5)
	}
	d.run()
	checked := map[string]int{}
	for _, st := range d.Tasks {
		for phys := range st.Live() {
			id := statestore.ID(binary.BigEndian.Uint32([]byte(phys)))
			for _, spec := range st.Sub.Stores {
				if spec.ID != id {
					continue
				}
				at, behind := 4, map[statestore.Kind]int{statestore.KindMap: len("x\x00\x01"), statestore.KindTimers: 4, statestore.KindList: 8}[spec.Kind]
				if spec.Kind == statestore.KindWindows || spec.Kind == statestore.KindTimers {
					at += 8
				}
				got, err := st.Sub.KeyGroup(id, []byte(phys[at+2:len(phys)-behind]))
				if want := statestore.Group(phys[at])<<8 | statestore.Group(phys[at+1]); err != nil || got != want {
					t.Errorf("%s, key %x: group %d (%v), the program took %d", spec.Name, phys, got, err, want)
				}
				checked[spec.Name]++
			}
		}
	}
	for _, name := range []string{"text/value", "int/value", "int32/value", "uint64/value", "place/value", "code/value", "all/list", "all/map", "win/windows", "all/timers.event"} {
		if checked[name] != 30 {
			t.Errorf("%d keys of %s were checked: %v", checked[name], name, checked)
		}
	}
	own := d.Plan.Subs[0]
	for _, st := range d.Tasks {
		for _, spec := range st.Sub.Stores {
			if spec.Name == "all/list" {
				own = st.Sub
			}
		}
	}
	id := statestore.StoreID("all/list")
	for what, key := range map[string][]byte{"too short": {1}, "too long": make([]byte, 9), "one that the program cannot write": {0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		if _, err := own.KeyGroup(id, key); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := own.KeyGroup(id+1, nil); err == nil {
		t.Error("a store that is not there: no error")
	}
}
