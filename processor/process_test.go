package processor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

// script is a Process whose records say what to do: "set 5", "timer 30", ...
func script(t *processor.Topology) {
	text := format.Func(func(src []byte, v *string) error { *v = string(src); return nil },
		func(dst []byte, v *string) ([]byte, error) { return append(dst, *v...), nil })
	in := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "in", Value: text})
	side := processor.NewOutputTag[string]("side")
	out := processor.Process(in, "script", func(ctx *processor.KeyedContext[string, string, string]) {
		value := processor.Value[int](ctx, "value")
		list := processor.List[string](ctx, "list")
		dict := processor.MapOf[string, int](ctx, "dict")
		dump := func(why string) {
			v, ok := value.Load()
			s := fmt.Sprintf("%s %s value=%d/%v list=%v dict=", ctx.Key(), why, v, ok, slices.Collect(list.All()))
			for k, v := range dict.All() {
				s += fmt.Sprintf("%s:%d,", k, v)
			}
			s += " range="
			for k := range dict.Range("b", "d") {
				s += k
			}
			ctx.Emit(s)
		}
		ctx.OnRecord(func(cmd string) error {
			f := strings.Fields(cmd)
			n := 0
			if len(f) > 1 {
				_, _ = fmt.Sscan(f[1], &n) // not every command has a number
			}
			switch f[0] {
			case "set":
				value.Set(n)
			case "add":
				value.Update(func(v *int) { *v += n })
			case "clear":
				value.Clear()
				list.Clear()
				dict.Clear()
			case "push":
				list.Add(f[1])
			case "replace":
				list.Replace(f[1:])
			case "put":
				dict.Put(f[1], len(f[1]))
			case "del":
				dict.Delete(f[1])
			case "timer":
				ctx.RegisterEventTimer(time.UnixMilli(int64(n)))
			case "untimer":
				ctx.DeleteEventTimer(time.UnixMilli(int64(n)))
			case "ptimer":
				ctx.RegisterProcessingTimer(ctx.ProcessingTime().Add(ms(int64(n))))
			case "side":
				side.Emit(ctx, ctx.Key()+f[1])
			case "where":
				ctx.Emit(fmt.Sprintf("%+v %s %s %+v %d", ctx.Position(), ctx.Timestamp().Format(time.RFC3339Nano), ctx.Watermark().Format(time.RFC3339Nano), ctx.Subtask(), len(ctx.Headers())))
			case "dump":
				dump("dump")
			}
			return nil
		})
		ctx.OnTimer(func(at processor.Timer) error {
			dump(fmt.Sprintf("timer%d@%d now=%d wm=%d", at.Domain, at.At.UnixMilli(), ctx.Timestamp().UnixMilli(), ctx.Watermark().UnixMilli()))
			value.Update(func(v *int) { *v++ })
			if v := value.Get(); at.Domain == processor.EventTime && v%10 == 1 {
				ctx.RegisterEventTimer(at.At.Add(ms(1))) // often due at once
			}
			return nil
		})
	})
	processor.To(out, processor.SinkTopic[string]{Name: "out", Value: text})
	processor.To(processor.SideOutput(out, side), processor.SinkTopic[string]{Name: "side", Value: text})
}

func TestProcess(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, behind := range []float64{0, 1} {
			d := newDriver(t, script, driverOptions{behind: behind})
			at := int64(0)
			do := func(key, cmd string, want ...string) {
				t.Helper()
				before := len(d.records("out"))
				at += 10
				d.produce("in", 0, []byte(key), []byte(cmd), at)
				d.run()
				var got []string
				for _, r := range d.records("out")[before:] {
					got = append(got, string(r.Value))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s %s: got\n%s\nwant\n%s", key, cmd, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				if restart {
					d.Tasks[0].Restart()
				}
			}
			do("a", "dump", "a dump value=0/false list=[] dict= range=")
			do("a", "set 5")
			do("b", "add 7")
			do("a", "push x")
			do("a", "push y")
			do("a", "put c")
			do("a", "put bb")
			do("a", "put a")
			do("a", "put d")
			do("a", "dump", "a dump value=5/true list=[x y] dict=a:1,bb:2,c:1,d:1, range=bbc")
			do("a", "del c")
			do("a", "replace p q r")
			do("a", "dump", "a dump value=5/true list=[p q r] dict=a:1,bb:2,d:1, range=bb")
			do("b", "dump", "b dump value=7/true list=[] dict= range=")
			do("a", "clear")
			do("a", "dump", "a dump value=0/false list=[] dict= range=")
			// at is 160; the watermark is 159 then
			do("b", "timer 200")
			do("b", "timer 200") // one
			do("b", "timer 201")
			do("b", "untimer 201")
			do("a", "timer 250", // 210: watermark 209
				"b timer1@200 now=200 wm=209 value=7/true list=[] dict= range=")
			do("a", "set 9")
			do("a", "timer 100", // in the past: at once, after the callback
				"a timer1@100 now=100 wm=229 value=9/true list=[] dict= range=")
			do("a", "set 10")
			do("a", "timer 50", // registers 51 in the past from within the timer
				"a timer1@50 now=50 wm=249 value=10/true list=[] dict= range=",
				"a timer1@51 now=51 wm=249 value=11/true list=[] dict= range=")
			do("a", "set 2", "a timer1@250 now=250 wm=259 value=2/true list=[] dict= range=")
			do("a", "side 1")
			wantRows(t, d.rows("side"), "=a1 @270")
			do("c", "where", "{Topic:in Partition:0 Offset:27} 1970-01-01T00:00:00.28Z 1970-01-01T00:00:00.269Z {SubTopology:0 Index:0 Parallelism:1} 0")
		}
	}
}

func TestProcessingTimers(t *testing.T) {
	for _, restart := range []bool{false, true} {
		d := newDriver(t, script, driverOptions{})
		d.produce("in", 0, []byte("a"), []byte("ptimer 5000"), 10)
		d.produce("in", 0, []byte("b"), []byte("ptimer 6000"), 20)
		from := d.Now
		d.run()
		if next := d.Tasks[0].Task.Stats().NextTimer; next != from+5000 {
			t.Fatalf("next timer %d, want %d", next, from+5000)
		}
		if restart {
			d.Tasks[0].Restart()
		}
		d.Now = from + 4999
		d.pass(0)
		if n := len(d.Tasks[0].Pending); n != 0 {
			t.Fatal("fired too early")
		}
		d.pass(1)
		if d.Tasks[0].Task.Stats().OldestUncommittedIn != d.Now {
			t.Fatalf("what a timer did wants a commit since %d, want %d", d.Tasks[0].Task.Stats().OldestUncommittedIn, d.Now)
		}
		d.run()
		if n := len(d.records("out")); n != 1 || !strings.HasPrefix(string(d.records("out")[0].Value), "a timer2@") {
			t.Fatalf("%d results: %v", n, d.rows("out"))
		}
		if restart {
			d.Tasks[0].Restart()
		}
		d.pass(10_000)
		d.run()
		if n := len(d.records("out")); n != 2 {
			t.Fatalf("%d results: %v", n, d.rows("out"))
		}
		if next := d.Tasks[0].Task.Stats().NextTimer; next < d.Now {
			t.Fatalf("next timer %d is in the past", next)
		}
	}
}

// A timer that fails is gone under Skip; under Fail the task stops.
func TestFailedTimer(t *testing.T) {
	for _, policy := range []processor.Policy{processor.Skip, processor.DeadLetter, processor.Fail} {
		fired := 0
		d := newDriver(t, func(t *processor.Topology) {
			in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
			out := processor.Process(in, "p", func(ctx *processor.KeyedContext[string, event, string]) {
				count := processor.Value[int](ctx, "count")
				ctx.OnRecord(func(e event) error { ctx.RegisterEventTimer(time.UnixMilli(e.At)); return nil })
				ctx.OnTimer(func(at processor.Timer) error {
					count.Update(func(n *int) { *n++ })
					ctx.Emit(fmt.Sprint(count.Get()))
					if at.At.UnixMilli() == 20 {
						fired++
						panic("timer")
					}
					return nil
				})
			}, processor.OnError(policy))
			processor.ToTopic(out, "out")
		}, driverOptions{mayFail: true})
		for _, at := range []int64{10, 20, 30, 40} {
			d.sendKeyed("in", "a", event{Key: "a", At: at}, at)
		}
		d.run()
		if policy == processor.Fail {
			if d.Failed == nil || !strings.Contains(d.Failed.Error(), `operator "p"`) {
				t.Fatalf("error %v", d.Failed)
			}
			continue
		}
		wantRows(t, d.rows("out"), "a=1 @10", "a=2 @30")
		if fired != 1 {
			t.Fatalf("%s: the failed timer fired %d times", policy, fired)
		}
		if n := len(d.records("dead-letter")); (n == 1) != (policy == processor.DeadLetter) {
			t.Fatalf("%s: %d dead letters", policy, n)
		}
	}
}
