package processor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
)

// ttlScript is a Process whose records say what to do with its states, all of which have the TTL; nil has none.
func ttlScript(o ...processor.StateOption) func(*processor.Topology) {
	return func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "in", Value: text})
		out := processor.Process(in, "p", func(ctx *processor.KeyedContext[string, string, string]) {
			value := processor.Value[int](ctx, "value", o...)
			dict := processor.MapOf[string, int](ctx, "dict", o...)
			list := processor.List[string](ctx, "list", o...)
			sum := processor.Accumulating(ctx, "sum", processor.Sum(func(n int) int { return n }), o...)
			ctx.OnRecord(func(cmd string) error {
				f := strings.Fields(cmd)
				n := 0
				if len(f) > 1 {
					_, _ = fmt.Sscan(f[len(f)-1], &n) // not every command has a number
				}
				switch f[0] {
				case "set":
					value.Set(n)
				case "inc":
					value.Update(func(v *int) { *v += n })
				case "get":
					v, ok := value.Load()
					ctx.Emit(fmt.Sprint("value ", v, ok))
				case "put":
					dict.Put(f[1], n)
				case "look":
					v, ok := dict.Get(f[1])
					ctx.Emit(fmt.Sprint("dict ", f[1], v, ok))
				case "dict":
					s := "dict"
					for k, v := range dict.All() {
						s += fmt.Sprint(" ", k, v)
					}
					ctx.Emit(s)
				case "push":
					list.Add(f[1])
				case "swap":
					list.Replace([]string{f[1]})
				case "list":
					ctx.Emit(fmt.Sprint("list ", slices.Collect(list.All())))
				case "sum":
					sum.Add(n)
					ctx.Emit(fmt.Sprint("sum ", sum.Get()))
				}
				return nil
			})
		})
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: text})
	}
}

var text = format.Func(func(src []byte, v *string) error { *v = string(src); return nil },
	func(dst []byte, v *string) ([]byte, error) { return append(dst, *v...), nil })

// commands sends commands one by one and gives what each emitted.
type commands struct {
	*drive.Driver
	n int
}

func (c *commands) do(key, cmd string) string {
	c.T.Helper()
	c.n++
	before := len(c.Records("out"))
	p := int(format.Partition([]byte(key), int32(c.PartitionsOf("in"))))
	c.Produce("in", p, record.Record{Key: []byte(key), Value: []byte(cmd), Timestamp: int64(c.n)})
	c.Run()
	var got []string
	for _, r := range c.Records("out")[before:] {
		got = append(got, string(r.Value))
	}
	return strings.Join(got, "; ")
}

// stamp is a value of the model.
type stamp[V any] struct {
	at int64
	v  V
}

// TestTTLEqualsModel compares states with a TTL with plain maps under an explicit clock, through crashes, restores and
// clean-up.
func TestTTLEqualsModel(t *testing.T) {
	const life = 1000
	gone := 0 // elements of lists that expired and were asked for
	for seed := range seeds(t, 24) {
		rng := rand.New(rand.NewPCG(seed, 3))
		ttl := processor.TTL{After: life * time.Millisecond, RefreshOnRead: seed%2 == 1}
		c := &commands{Driver: drive.New(t, ttlScript(ttl), drive.Options{Partitions: map[string]int{"in": 3}, Seed: seed, Still: true,
			Crash: 0.2, Behind: []float64{0, 0.5, 1}[seed%3], Copy: 0.3, Restore: drive.Mixed})}
		values, sums := map[string]stamp[int]{}, map[string]stamp[int]{}
		dicts, lists := map[string]map[string]stamp[int]{}, map[string][]stamp[string]{}
		alive := func(at int64) bool { return c.Now-at < life }
		read := func(at int64) int64 {
			if ttl.RefreshOnRead {
				return c.Now
			}
			return at
		}
		for i := range 150 {
			if i%3 == 0 {
				c.Pass([]int64{0, 1, 1, 50, 100, life / 2, life - 1, life, 3 * life}[rng.IntN(9)])
			}
			key, n, sub := fmt.Sprint("k", rng.IntN(2)), rng.IntN(100), fmt.Sprint("m", rng.IntN(3))
			if dicts[key] == nil {
				dicts[key] = map[string]stamp[int]{}
			}
			var cmd, want string
			v, valid := values[key]
			valid = valid && alive(v.at)
			switch rng.IntN(10) {
			case 0:
				cmd = fmt.Sprint("set ", n)
				values[key] = stamp[int]{c.Now, n}
			case 1:
				cmd = fmt.Sprint("inc ", n)
				if valid {
					n += v.v
				}
				values[key] = stamp[int]{c.Now, n}
			case 2:
				cmd, want = "get", "value 0 false"
				if valid {
					want = fmt.Sprint("value ", v.v, true)
					values[key] = stamp[int]{read(v.at), v.v}
				}
			case 3:
				cmd = fmt.Sprint("put ", sub, " ", n)
				dicts[key][sub] = stamp[int]{c.Now, n}
			case 4:
				cmd, want = "look "+sub, fmt.Sprint("dict ", sub, 0, false)
				if e, ok := dicts[key][sub]; ok && alive(e.at) {
					want = fmt.Sprint("dict ", sub, e.v, true)
					dicts[key][sub] = stamp[int]{read(e.at), e.v}
				}
			case 5:
				cmd, want = "dict", "dict"
				for _, sub := range []string{"m0", "m1", "m2"} {
					if e, ok := dicts[key][sub]; ok && alive(e.at) {
						want += fmt.Sprint(" ", sub, e.v)
						dicts[key][sub] = stamp[int]{read(e.at), e.v}
					}
				}
			case 6:
				cmd = fmt.Sprint("push x", n)
				lists[key] = append(lists[key], stamp[string]{c.Now, fmt.Sprint("x", n)})
			case 7:
				cmd = "list"
				var all []string
				for j, e := range lists[key] {
					if alive(e.at) {
						all = append(all, e.v)
						lists[key][j].at = read(e.at)
					} else if c.Now-e.at < 2*life {
						gone++
					}
				}
				want = fmt.Sprint("list ", all)
			case 8:
				cmd = fmt.Sprint("sum ", n)
				if s, ok := sums[key]; ok && alive(s.at) {
					n += s.v
				}
				sums[key] = stamp[int]{c.Now, n}
				want = fmt.Sprint("sum ", n)
			case 9:
				cmd = fmt.Sprint("swap x", n)
				lists[key] = []stamp[string]{{c.Now, fmt.Sprint("x", n)}}
			}
			if got := c.do(key, cmd); got != want {
				t.Fatalf("seed %d, %s %s at %d: got %q, want %q", seed, key, cmd, c.Now, got, want)
			}
		}
		// Whatever lived is removed in the end, from the changelog too.
		for range 12 {
			c.Pass(2 * life)
			for _, st := range c.Tasks {
				st.Commit()
				st.WriteBehind()
			}
		}
		for _, st := range c.Tasks {
			for k := range st.Committed {
				if k[0]|k[1]|k[2]|k[3] != 0 { // no descriptor of a schema
					t.Fatalf("seed %d: entry %x is left", seed, k)
				}
			}
		}
	}
	if gone < 20 {
		t.Errorf("only %d elements had expired when they were asked for: the test has no teeth", gone)
	}
}

// TestTTLAtItsEnd: what was written at t has expired at t + After and not before.
func TestTTLAtItsEnd(t *testing.T) {
	for _, c := range []struct {
		ttl           processor.TTL
		after, second int64 // ms before the reads
		want, then    string
	}{
		{processor.TTL{After: time.Second}, 999, 1, "value 5 true", "value 0 false"},
		{processor.TTL{After: time.Second}, 1000, 1, "value 0 false", "value 0 false"},
		{processor.TTL{After: time.Second, RefreshOnRead: true}, 999, 999, "value 5 true", "value 5 true"},
		{processor.TTL{After: time.Second, RefreshOnRead: true}, 1000, 0, "value 0 false", "value 0 false"},
		{processor.TTL{After: time.Second, ReturnExpired: true}, 5000, 5000, "value 5 true", "value 5 true"}, // never cleaned: not in the store
		{processor.TTL{}, 1 << 40, 1, "value 5 true", "value 5 true"},
		{processor.TTL{After: 1<<63 - 1}, 1 << 40, 1, "value 5 true", "value 5 true"},
	} {
		d := &commands{Driver: drive.New(t, ttlScript(c.ttl), drive.Options{Still: true})}
		d.do("a", "set 5")
		d.Now += c.after
		if got := d.do("a", "get"); got != c.want {
			t.Errorf("%+v after %d ms: %s, want %s", c.ttl, c.after, got, c.want)
		}
		d.Now += c.second
		if got := d.do("a", "get"); got != c.then {
			t.Errorf("%+v after %d more ms: %s, want %s", c.ttl, c.second, got, c.then)
		}
	}
}

// ReturnExpired gives out what has expired, until clean-up comes; to read it then does not make it young again.
func TestTTLOfWhatIsReturnedIsOver(t *testing.T) {
	d := &commands{Driver: drive.New(t, ttlScript(processor.TTL{After: time.Second, RefreshOnRead: true, ReturnExpired: true}), drive.Options{Still: true, Behind: 1})}
	get := func(want string) {
		t.Helper()
		if got := d.do("a", "get"); got != want {
			t.Fatalf("%s at %d, want %s", got, d.Now, want)
		}
	}
	d.do("a", "set 5")
	d.Now += 999
	get("value 5 true") // young again
	d.Now += 1000
	get("value 5 true") // old
	for range 5 {
		d.Pass(200)
	}
	get("value 0 false")
}

// A clock that goes back makes nothing expire.
func TestTTLClockGoesBack(t *testing.T) {
	d := &commands{Driver: drive.New(t, ttlScript(processor.TTL{After: time.Second}), drive.Options{Still: true})}
	d.do("a", "set 5")
	d.Now -= 900_000
	if got := d.do("a", "get"); got != "value 5 true" {
		t.Error(got)
	}
}

// TestTTLComesAndGoes: a state may get a TTL, change it and lose it between two runs of the program.
func TestTTLComesAndGoes(t *testing.T) {
	second := processor.TTL{After: time.Second}
	d := &commands{Driver: drive.New(t, ttlScript(), drive.Options{Still: true, Behind: 1})}
	reopen := func(o ...processor.StateOption) {
		top := processor.New()
		ttlScript(o...)(top)
		plan := drive.Plan(t, top)
		d.Plan = plan
		for _, st := range d.Tasks {
			st.Sub = plan.Subs[st.Sub.ID]
			st.Restart()
		}
	}
	get := func(want string) {
		t.Helper()
		if got := d.do("a", "get"); got != want {
			t.Fatalf("at %d: %s, want %s", d.Now, got, want)
		}
	}
	clean := func() {
		for range 4 {
			d.Pass(100)
			d.Tasks[0].Commit()
			d.Tasks[0].WriteBehind()
		}
	}
	d.do("a", "set 5")
	d.do("b", "push x")
	d.Pass(10_000)
	reopen(second)
	get("value 5 true") // from before: its life has not begun
	clean()             // now it has
	d.Pass(500)
	get("value 5 true")
	d.Pass(500)
	get("value 0 false")
	if got := d.do("b", "list"); got != "list []" {
		t.Fatal(got)
	}
	d.do("a", "set 6")
	d.Now += 2000                             // without clean-up
	reopen(processor.TTL{After: time.Minute}) // a longer one holds for what is there
	get("value 6 true")
	reopen() // without one it lives on
	get("value 6 true")
	d.do("a", "inc 1")
	d.Pass(1 << 40)
	get("value 7 true")
	d.do("b", "set 8")
	d.Now += 2000
	reopen(processor.TTL{After: time.Minute})
	d.do("b", "set 9")
	d.Now += 2000
	reopen(second) // and a shorter one, too
	if got := d.do("b", "get"); got != "value 0 false" {
		t.Fatal(got)
	}
}

// Clean-up looks at a bounded number of entries at a time, counts what it removes, and rests when nothing can be due.
func TestTTLCleanUpIsBounded(t *testing.T) {
	const keys = 3500
	d := drive.New(t, ttlScript(processor.TTL{After: time.Hour}), drive.Options{Still: true, Behind: 1})
	for i := range keys {
		d.Produce("in", 0, record.Record{Key: fmt.Append(nil, i), Value: []byte("set 1"), Timestamp: 1})
	}
	d.Run()
	st := d.Tasks[0]
	st.Commit()
	st.WriteBehind()
	st.Restart() // a pass begins
	for range 10 {
		d.Pass(100) // it finds nothing
	}
	if next := st.Task.Stats().NextTimer; next < d.Now+3_000_000 {
		t.Fatalf("the next pass begins in %d ms though nothing expires before an hour", next-d.Now)
	}
	if s, err := st.Task.Seal(st.Epoch+1, d.Now); err != nil || !s.Empty {
		t.Fatalf("a pass that removes nothing wants a commit: %+v, %v", s, err)
	}
	var removed int64
	for pass := int64(3_600_000); removed < keys; pass = 100 {
		was := removed
		d.Pass(pass)
		if removed = st.Task.Stats().Expired; removed-was > 1000 || removed == was {
			t.Fatalf("a step of clean-up removed %d, after %d", removed-was, was)
		}
	}
	if !st.Commit() {
		t.Fatal("what clean-up removed is not committed")
	}
	st.Restart()
	d.Pass(3_600_000)
	if n := st.Task.Stats().Expired; n != 0 {
		t.Fatalf("%d removed again", n)
	}
}

// The accumulators of Reduce and RunningAggregate have the TTL of their operator.
func TestOperatorTTL(t *testing.T) {
	d := drive.New(t, func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in"})
		out := processor.Reduce(in, "r", func(a, b event) event { a.N += b.N; return a }, processor.StateTTL(processor.TTL{After: time.Second}))
		processor.ToTopic(processor.Map(out, func(e event) int64 { return e.N }), "out")
	}, drive.Options{Still: true, Behind: 1})
	send := func() {
		d.Produce("in", 0, record.Record{Key: []byte("a"), Value: []byte(`{"n":1}`), Timestamp: 1})
		d.Run()
	}
	send()
	d.Now += 999
	send()
	d.Now += 1000
	send()
	var got []string
	for _, r := range d.Records("out") {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, []string{"1", "2", "1"}) {
		t.Error(got)
	}
	for range 20 {
		d.Pass(1000)
		d.Tasks[0].Commit()
		d.Tasks[0].WriteBehind()
	}
	if n := d.Tasks[0].Task.Stats().Expired; n != 1 {
		t.Errorf("%d removed", n)
	}
	top := processor.New()
	in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in"})
	processor.ToTopic(in.Filter(func(event) bool { return true }, processor.StateTTL(processor.TTL{After: time.Second})), "out")
	if err := top.Validate(); err == nil || !strings.Contains(err.Error(), "StateTTL: it has no state") {
		t.Error(err)
	}
}
