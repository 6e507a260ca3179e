package processor_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
)

// raw is a value of these tests: a decoder has one and sends it on again and again.
type raw struct {
	word []byte
	at   int64
	n    int64
}

// rawDecoder decodes "word time [watermark]"; several words are joined with +; "-" is no word, "bad" an error.
type rawDecoder struct {
	words [][]byte
	v     raw
	mark  int64
}

func (d *rawDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	f := strings.Fields(string(r.Value))
	if f[0] == "bad" {
		return 0, errors.New("decode value: it is bad")
	}
	d.words = nil
	for _, w := range strings.Split(f[0], "+") {
		if w != "-" {
			d.words = append(d.words, []byte(w))
		}
	}
	d.v.at, d.mark = processor.NoTime, processor.NoTime
	var err error
	if len(f) > 1 {
		d.v.at, err = strconv.ParseInt(f[1], 10, 64)
	}
	if len(f) > 2 && err == nil {
		d.mark, err = strconv.ParseInt(f[2], 10, 64)
	}
	return d.v.at, err
}

func (d *rawDecoder) Run(emit func(*raw) error) error {
	for _, w := range d.words {
		d.v.word, d.v.n = w, 0
		if err := emit(&d.v); err != nil {
			return err
		}
	}
	return nil
}

func (d *rawDecoder) Watermark() int64 { return d.mark }

func rawTopic(topics ...string) processor.RawTopic[*raw] {
	return processor.RawTopic[*raw]{Topics: topics, ID: "in-" + topics[0], Open: func(*processor.SubtaskContext) (processor.Decoder[*raw], error) { return &rawDecoder{}, nil }}
}

// rawSink writes "word n@time|watermark-free" as text.
func rawSink(topic string) processor.RawSink[*raw] {
	return processor.RawSink[*raw]{Topic: topic, Open: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func(*raw) error, error) {
		return func(v *raw) error {
			if string(v.word) == "unwritable" {
				return errors.New("encode value: it is unwritable")
			}
			key := w.Keep(append(w.Buf(), v.word...))
			value := w.Keep(fmt.Appendf(w.Buf(), "%s %d@%d", v.word, v.n, w.Time()))
			return w.Write(processor.SinkRecord{Key: key, Value: value, Timestamp: w.Time(), Partition: processor.AnyPartition})
		}, nil
	}}
}

// counter is an operator that counts words in a table and tells the counts at watermarks that are multiples of 10, of one
// step for each word; "boom" fails.
type counter struct {
	ctx    *processor.TransformContext[*raw, *raw]
	counts *statestore.Table[string, int64]
	out    raw
	held   []string // told before commit
}

func (c *counter) setUp(ctx *processor.TransformContext[*raw, *raw]) {
	keys, _ := statestore.KeyCodecOf[string]()
	codec, _ := statestore.CodecOf[int64]()
	spec, open := ctx.Store(processor.StoreSpec{Name: "counts", Kind: statestore.KindTable, Key: keys.Schema(), Value: codec.Schema()})
	if open {
		c.counts, _ = statestore.NewTable(ctx.State(), spec, keys, codec)
		ctx.OnOpen(func() error { ctx.Due((max(ctx.Watermark(), 0)/10 + 1) * 10); return nil })
	}
	c.ctx = ctx
	ctx.OnRecord(func(input int, v *raw) error {
		n, _ := c.counts.Update(processor.KeyGroup(v.word), string(v.word))
		*n += int64(1 + 99*input)
		c.out = raw{word: v.word, n: *n}
		if v.at <= ctx.Watermark() {
			ctx.CountLate()
		}
		if err := ctx.Emit(&c.out); err != nil {
			return err
		}
		if string(v.word) == "boom" {
			return errors.New("boom")
		}
		if string(v.word) == "bang" {
			panic(refused{})
		}
		return nil
	})
	ctx.OnWatermark(func(_, watermark int64) error {
		var words []string
		c.counts.All(func(_ statestore.Group, k string, _ *int64) bool { words = append(words, k); return true })
		slices.Sort(words)
		for _, w := range words {
			if err := ctx.Atomic(processor.KeyGroup([]byte(w)), watermark, []byte(w), func() error {
				c.out = raw{word: []byte("all-" + w), n: *c.counts.Get(processor.KeyGroup([]byte(w)), w)}
				c.counts.Delete(processor.KeyGroup([]byte(w)), w)
				return ctx.Emit(&c.out)
			}); err != nil {
				return err
			}
		}
		if watermark < math.MaxInt64-10 {
			ctx.Due((watermark/10 + 1) * 10)
		}
		return nil
	})
}

type refused struct{}

func (refused) Error() string { return "refuse word: it is refused" }
func (refused) Expected()     {}

func texts(d *drive.Driver, topic string) (all []string) {
	for _, r := range d.Records(topic) {
		all = append(all, string(r.Value))
	}
	return all
}

func TestTransformHasStateWatermarkAndSteps(t *testing.T) {
	for _, restart := range []bool{false, true} {
		d := drive.New(t, func(top *processor.Topology) {
			out := processor.Transform([]processor.Flow[*raw]{processor.FromRaw(top, rawTopic("a"))}, "count", func(ctx *processor.TransformContext[*raw, *raw]) {
				(&counter{}).setUp(ctx)
			}, processor.OnError(processor.DeadLetter))
			processor.ToRaw(out, rawSink("out"), processor.OnError(processor.Skip))
		}, drive.Options{Still: true})
		for _, line := range []string{"x 1 0", "x+y 2 9", "boom 3 5", "- 4 10", "unwritable 5", "bad 1", "bang 2", "x 7 12", "z", "- 3 25"} {
			d.Produce("a", 0, record.Record{Value: []byte(line)})
			d.Run()
			if restart {
				d.Tasks[0].Restart()
			}
		}
		want := []string{"x 1@1", "x 2@2", "y 1@2", "all-x 2@10", "all-y 1@10", "x 1@7", fmt.Sprintf("z 1@%d", processor.NoTime), "all-x 1@25", "all-z 1@25"}
		if got := texts(d, "out"); !slices.Equal(got, want) {
			t.Errorf("restart %v:\ngot  %q\nwant %q", restart, got, want)
		}
		var bad []string
		for _, r := range d.Records(drive.DeadLetters) {
			for _, h := range r.Headers {
				if h.Key == "millrace-error" || h.Key == "millrace-stack" {
					bad = append(bad, string(r.Value)+": "+string(h.Value))
				}
			}
		}
		if want := []string{"boom 3 5: boom", "bad 1: decode value: it is bad", "bang 2: refuse word: it is refused"}; !slices.Equal(bad, want) {
			t.Errorf("dead letters %q, want %q", bad, want)
		}
		if n := d.Late(); n != 2 { // x at 7 behind 12, and z without a time
			t.Errorf("%d late, want 2", n)
		}
		d.Close()
	}
}

// A transform that does not read input b is not held back by it, and one that reads both is.
func TestWatermarkIsOfTheOwnInputs(t *testing.T) {
	d := drive.New(t, func(top *processor.Topology) {
		a, b := processor.FromRaw(top, rawTopic("a")), processor.FromRaw(top, rawTopic("b"))
		one := processor.Transform([]processor.Flow[*raw]{a}, "one", func(ctx *processor.TransformContext[*raw, *raw]) { (&counter{}).setUp(ctx) })
		two := processor.Transform([]processor.Flow[*raw]{one, b}, "two", func(ctx *processor.TransformContext[*raw, *raw]) { (&counter{}).setUp(ctx) })
		processor.ToRaw(one, rawSink("of-one"))
		processor.ToRaw(two, rawSink("of-two"))
	}, drive.Options{Still: true})
	defer d.Close()
	send := func(topic, line string) {
		d.Produce(topic, 0, record.Record{Value: []byte(line)})
		d.Run()
	}
	send("a", "x 1 10")
	if got, want := texts(d, "of-one"), []string{"x 1@1", "all-x 1@10"}; !slices.Equal(got, want) {
		t.Errorf("of one %q, want %q", got, want)
	}
	if got, want := texts(d, "of-two"), []string{"x 1@1", "all-x 1@10"}; !slices.Equal(got, want) {
		t.Errorf("of two %q, want %q", got, want)
	}
	send("b", "x 1 10")
	if got, want := texts(d, "of-two"), []string{"x 1@1", "all-x 1@10", "x 101@1", "all-all-x 1@10", "all-x 101@10"}; !slices.Equal(got, want) {
		t.Errorf("of two %q, want %q", got, want)
	}
	d.SetIdle("b", 0)
	send("a", "- 1 20")
	send("a", "y 11 30")
	if got, want := texts(d, "of-two")[5:], []string{"y 1@11", "all-y 1@30", "all-all-y 1@30", "all-y 1@30"}; !slices.Equal(got, want) {
		t.Errorf("of two while b is idle %q, want %q", got, want)
	}
}

// rawExchange writes the word as key, and n in 8 bytes.
type rawExchange struct{ v raw }

func (*rawExchange) AppendKey(dst []byte, v *raw) []byte { return append(dst, v.word...) }
func (*rawExchange) AppendValue(dst []byte, v *raw) []byte {
	return append(binary.BigEndian.AppendUint64(dst, uint64(v.at)), v.word...)
}

func (e *rawExchange) Read(key, payload []byte, _ int64) (*raw, error) {
	if len(payload) < 8 || !bytes.Equal(key, payload[8:]) {
		return nil, fmt.Errorf("key %q, payload %q", key, payload)
	}
	e.v = raw{word: payload[8:], at: int64(binary.BigEndian.Uint64(payload))}
	return &e.v, nil
}

func exchange() processor.Exchange[*raw] {
	return processor.Exchange[*raw]{KeySchema: "word", ValueSchema: "time, word",
		Writer: func(*processor.SubtaskContext) (processor.ExchangeWriter[*raw], error) { return &rawExchange{}, nil },
		Reader: func(*processor.SubtaskContext) (processor.ExchangeReader[*raw], error) { return &rawExchange{}, nil }}
}

func TestExchangeBringsEqualKeysTogetherInThreeSubtasks(t *testing.T) {
	for seed := range uint64(20) {
		d := drive.New(t, func(top *processor.Topology) {
			words := processor.ExchangeBy(processor.FromRaw(top, rawTopic("a", "b")), "by-word", exchange())
			out := processor.Transform([]processor.Flow[*raw]{words}, "count", func(ctx *processor.TransformContext[*raw, *raw]) { (&counter{}).setUp(ctx) })
			processor.ToRaw(out, rawSink("out"))
		}, drive.Options{Default: 3, Seed: seed, Crash: 0.2, Behind: 0.3, Batch: 3, Restore: drive.Mixed})
		want := map[string]int{}
		for i := range 60 {
			word := fmt.Sprint("w", i%7)
			want[word]++
			d.Produce([]string{"a", "b"}[i%2], i/2%3, record.Record{Value: fmt.Appendf(nil, "%s %d %d", word, i, 0)})
		}
		d.Run()
		for _, topic := range []string{"a", "b"} {
			for p := range 3 {
				d.Produce(topic, p, drive.WatermarkRecord(100))
			}
		}
		d.Run()
		got := map[string]int{}
		for _, text := range texts(d, "out") {
			var w string
			var n, at int64
			if _, err := fmt.Sscanf(strings.ReplaceAll(text, "@", " "), "%s %d %d", &w, &n, &at); err != nil {
				t.Fatal(err)
			}
			if w, all := strings.CutPrefix(w, "all-"); all {
				got[w] += int(n)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d: got %v, want %v", seed, got, want)
		}
		d.Close()
	}
}

func TestBeforeCommitAndGenerate(t *testing.T) {
	for _, restart := range []bool{false, true} {
		d := drive.New(t, func(top *processor.Topology) {
			gen := processor.Generate(top, "numbers", func(ctx *processor.TransformContext[struct{}, *raw]) {
				keys, _ := statestore.KeyCodecOf[uint8]()
				codec, _ := statestore.CodecOf[int64]()
				spec, open := ctx.Store(processor.StoreSpec{Name: "next", Kind: statestore.KindTable, Key: keys.Schema(), Value: codec.Schema()})
				var next *statestore.Table[uint8, int64]
				if open {
					next, _ = statestore.NewTable(ctx.State(), spec, keys, codec)
					ctx.OnOpen(func() error { ctx.DueProcessing(0); return nil })
				}
				v := raw{word: []byte("n")}
				ctx.OnTime(func(now int64) error {
					ctx.DueProcessing(now + 10)
					return ctx.Atomic(0, now, nil, func() error {
						n, _ := next.Update(0, 0)
						if *n == 5 {
							ctx.AdvanceWatermark(math.MaxInt64)
							return nil
						}
						*n++
						v.n = *n
						return ctx.Emit(&v)
					})
				})
			})
			sum := processor.Transform([]processor.Flow[*raw]{gen}, "", func(ctx *processor.TransformContext[*raw, *raw]) {
				held := raw{word: []byte("sum")}
				ctx.OnRecord(func(_ int, v *raw) error { held.n += v.n; return nil })
				ctx.BeforeCommit(func() error {
					if held.n == 0 {
						return nil
					}
					err := ctx.EmitAt(&held, 7)
					held.n = 0
					return err
				})
			})
			end := processor.Transform([]processor.Flow[*raw]{sum}, "end", func(ctx *processor.TransformContext[*raw, *raw]) {
				ctx.OnOpen(func() error { ctx.Due(math.MaxInt64); return nil })
				ctx.OnRecord(func(_ int, v *raw) error { return ctx.Emit(v) })
				ctx.OnWatermark(func(_, w int64) error {
					return ctx.Atomic(0, 1, nil, func() error { return ctx.Emit(&raw{word: []byte("end")}) })
				})
			})
			processor.ToRaw(end, rawSink("out"))
		}, drive.Options{Still: true})
		for range 8 {
			d.Pass(10)
			d.Run()
			if restart {
				d.Tasks[0].Restart()
			}
		}
		want := []string{"sum 1@7", "sum 2@7", "sum 3@7", "sum 4@7", "sum 5@7", "end 0@1"}
		if got := texts(d, "out"); !slices.Equal(got[:min(6, len(got))], want) {
			t.Errorf("restart %v: got %q, want %q", restart, got, want)
		}
		d.Close()
	}
}

func TestLowLevelRefusesWhatIsMissing(t *testing.T) {
	top := processor.New()
	s := processor.FromRaw(top, processor.RawTopic[*raw]{})
	processor.Transform([]processor.Flow[*raw]{s}, "", func(ctx *processor.TransformContext[*raw, *raw]) {
		ctx.OnRecord(func(int, *raw) error { return nil })
		ctx.OnTime(func(int64) error { return nil })
	})
	processor.Transform([]processor.Flow[*raw]{s}, "empty", func(*processor.TransformContext[*raw, *raw]) {})
	processor.ExchangeBy(s, "exchange", processor.Exchange[*raw]{})
	processor.ToRaw(s, processor.RawSink[*raw]{Topic: "out"})
	err := top.Validate()
	for _, want := range []string{`topic name ""`, "Open is nil", "so it needs an id", "OnRecord callback is nil", "Writer is nil", "Reader is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want %s", err, want)
		}
	}
}

// The steps of the low-level contract allocate nothing per record.
func TestLowLevelAllocatesNothing(t *testing.T) {
	d := drive.New(t, func(top *processor.Topology) {
		s := processor.FromRaw(top, processor.RawTopic[*raw]{Topics: []string{"a"}, Open: func(*processor.SubtaskContext) (processor.Decoder[*raw], error) { return &plainDecoder{}, nil }})
		s = processor.Transform([]processor.Flow[*raw]{s, s}, "", func(ctx *processor.TransformContext[*raw, *raw]) {
			ctx.OnRecord(func(_ int, v *raw) error { return ctx.Emit(v) })
		})
		processor.ExchangeBy(s, "e", exchange())
	}, drive.Options{Still: true})
	defer d.Close()
	const n = 1000
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Value: []byte("some word"), Offset: int64(i)}
	}
	tk := d.Tasks[0].Task
	step := func(n int) {
		if k, err := tk.Step(n, d.Now); k != n || err != nil {
			t.Fatal(k, err)
		}
		tk.TakeOutputs()
	}
	tk.Enqueue(0, 0, recs)
	step(n / 2)
	step(n / 4)
	if a := testing.AllocsPerRun(1, func() { step(n / 8) }); a > 12 { // blocks of the arena
		t.Errorf("%d records: %v allocations", n/8, a)
	}
}

type plainDecoder struct{ v raw }

func (d *plainDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	d.v = raw{word: r.Value, at: r.Offset}
	return r.Offset, nil
}
func (d *plainDecoder) Run(emit func(*raw) error) error { return emit(&d.v) }
func (d *plainDecoder) Watermark() int64                { return d.v.at - 1 }

// outsideDecoder fails as a decoder does whose schema registry does not answer.
type outsideDecoder struct{ plainDecoder }

func (d *outsideDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	return 0, fmt.Errorf("decode value: %w", &format.OutsideError{Err: errors.New("the registry does not answer")})
}

// What is not the record's fault stops the program and leaves no dead letter.
func TestOutsideErrorStops(t *testing.T) {
	d := drive.New(t, func(top *processor.Topology) {
		s := processor.FromRaw(top, processor.RawTopic[*raw]{Topics: []string{"a"}, Open: func(*processor.SubtaskContext) (processor.Decoder[*raw], error) { return &outsideDecoder{}, nil }})
		processor.ToRaw(s, rawSink("out"))
	}, drive.Options{Still: true})
	defer d.Close()
	wantOutside(t, d)
	written := drive.New(t, func(top *processor.Topology) {
		s := processor.FromRaw(top, processor.RawTopic[*raw]{Topics: []string{"a"}, Open: func(*processor.SubtaskContext) (processor.Decoder[*raw], error) { return &plainDecoder{}, nil }})
		processor.ToRaw(s, processor.RawSink[*raw]{Topic: "out", Open: func(*processor.SubtaskContext, *processor.SinkWriter) (func(*raw) error, error) {
			return func(*raw) error { return &format.OutsideError{Err: errors.New("the registry does not answer")} }, nil
		}})
	}, drive.Options{Still: true})
	defer written.Close()
	wantOutside(t, written)
}

func wantOutside(t *testing.T, d *drive.Driver) {
	t.Helper()
	tk := d.Tasks[0].Task
	tk.Enqueue(0, 0, []record.Record{{Value: []byte("word"), Offset: 7}})
	if _, err := tk.Step(1, d.Now); err == nil || !strings.Contains(err.Error(), "the registry does not answer") || len(tk.TakeOutputs()) > 0 {
		t.Errorf("error %v, want one of the registry, and nothing written", err)
	}
}
