package processortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
)

// Output is a topic that the topology writes, as a reader of committed records sees it.
type Output[T any] struct {
	d     *Driver
	topic string
	value format.Serde[T]
	read  []int // by partition: what Want has judged
}

// Row is one committed record of a topic.
type Row[T any] struct {
	Key       []byte // nil is null
	Value     T      // zero if Null
	Null      bool   // a tombstone
	Time      time.Time
	Headers   []Header
	Partition int
}

// Out is the output of a topic, whose values are decoded with the serde of the sink that writes it. The test fails if the
// topology does not write it, or writes another type.
func Out[T any](d *Driver, topic string) *Output[T] {
	d.tb.Helper()
	var names []string
	for _, sub := range d.plan.Subs {
		for _, o := range sub.Outputs {
			switch {
			case o.Internal || o.DeadLetter:
			case o.Topic != topic:
				names = append(names, o.Topic)
			default:
				value, ok := o.Value.(format.Serde[T])
				if !ok {
					d.tb.Fatalf("topic %s does not get %v: its serde is a %s", topic, reflect.TypeFor[T](), describeType(o.Value))
				}
				return &Output[T]{d: d, topic: topic, value: value}
			}
		}
	}
	d.tb.Fatalf("the topology does not write topic %s; it writes %v", topic, names)
	return nil
}

// Side is the side output of an operator by its tag, as a topic, for topologies that leave it unused or use it otherwise. It
// must be taken before the first record is sent. Its rows have no key.
func Side[T any](d *Driver, operator string, tag processor.OutputTag[T]) *Output[T] {
	d.tb.Helper()
	if d.run != nil {
		d.tb.Fatalf("take side output of %q: take it before the first record is sent", operator)
	}
	topic := "side-output-" + operator + "-" + tag.ID()
	value, err := format.Default[T]()
	if err != nil {
		if value, err = storedForm[T](); err != nil {
			d.tb.Fatalf("take side output of %q: %v", operator, err)
		}
	}
	before := d.topology
	d.topology = func(t *processor.Topology) {
		before(t)
		op, ok := t.Operator(operator)
		if !ok {
			d.tb.Fatalf("take side output of %q: the topology has no such operator", operator)
		}
		processor.To(processor.SideOutput(op, tag), processor.SinkTopic[T]{Name: topic, Value: value})
	}
	d.top = d.build()
	d.plan = d.planOf(d.top)
	return Out[T](d, topic)
}

// storedForm writes values as state does, which takes more types than JSON.
func storedForm[T any]() (format.Serde[T], error) {
	codec, err := statestore.CodecOf[T]()
	if err != nil {
		return nil, err
	}
	return format.Func(codec.Decode, func(dst []byte, v *T) ([]byte, error) { return codec.Append(dst, v), nil }), nil
}

// Rows are all rows of the topic so far, partition by partition.
func (out *Output[T]) Rows() []Row[T] {
	out.d.tb.Helper()
	return out.rows(make([]int, len(out.log())))
}

// Values are the values of Rows.
func (out *Output[T]) Values() []T {
	out.d.tb.Helper()
	var vs []T
	for _, r := range out.Rows() {
		vs = append(vs, r.Value)
	}
	return vs
}

func (out *Output[T]) log() [][]record.Record {
	run := out.d.start()
	return run.Log(out.topic, run.PartitionsOf(out.topic))
}

func (out *Output[T]) rows(from []int) []Row[T] {
	out.d.tb.Helper()
	var rows []Row[T]
	for p, log := range out.log() {
		for i := from[p]; i < len(log); i++ {
			r := &log[i]
			if r.Control {
				continue
			}
			row := Row[T]{Key: r.Key, Null: r.Value == nil, Time: time.UnixMilli(r.Timestamp).UTC(), Headers: r.Headers, Partition: p}
			if !row.Null {
				if err := out.value.Decode(r.Value, &row.Value); err != nil {
					out.d.tb.Fatalf("decode a row of topic %s: %v", out.topic, err)
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// placed is a record with its partition.
type placed struct {
	record.Record
	partition int
}

// order names what the records must be in order with: those of their key, or of their partition if they have none.
func (r *placed) order() string {
	if r.Key != nil {
		return "key " + string(r.Key)
	}
	return "partition " + strconv.Itoa(r.partition)
}

// fresh are the records since the last call.
func (out *Output[T]) fresh() []placed {
	var recs []placed
	logs := out.log()
	if out.read == nil {
		out.read = make([]int, len(logs))
	}
	for p, log := range logs {
		for _, r := range log[out.read[p]:] {
			if !r.Control {
				recs = append(recs, placed{r, p})
			}
		}
		out.read[p] = len(log)
	}
	return recs
}

// Want fails the test with a diff unless the rows since the last Want have these values, in any order. Values are equal if
// the sink's serde writes them alike. In a run of Schedules it does nothing.
func (out *Output[T]) Want(vs ...T) {
	out.d.tb.Helper()
	out.want(vs, false)
}

// WantOrdered is Want where the rows of each record key, or of the whole partition if they have none, must also come in the
// order of vs.
func (out *Output[T]) WantOrdered(vs ...T) {
	out.d.tb.Helper()
	out.want(vs, true)
}

func (out *Output[T]) want(vs []T, ordered bool) {
	d := out.d
	d.tb.Helper()
	recs := out.fresh()
	if d.wild != nil {
		return
	}
	if err := d.Err(); err != nil {
		d.tb.Fatalf("the app has stopped: %v", err)
	}
	var got, want []string
	byKey := map[string][]string{}
	for i := range recs {
		text := rowText(out.value, recs[i].Value)
		got = append(got, text)
		byKey[recs[i].order()] = append(byKey[recs[i].order()], text)
	}
	for i := range vs {
		b, err := out.value.Append([]byte{}, &vs[i])
		if err != nil {
			d.tb.Fatalf("encode a wanted row of topic %s: %v", out.topic, err)
		}
		want = append(want, rowText(out.value, b))
	}
	inOrder := slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if diff := drive.DiffRows(got, want); diff != "" {
		d.tb.Fatalf("topic %s: rows differ (+ too many, - missing), %d got, %d wanted:\n%s", out.topic, len(got), len(want), diff)
	}
	if ordered {
		if diff := orderDiff(byKey, inOrder); diff != "" {
			d.tb.Fatalf("topic %s: the rows are the wanted ones in another order:\n%s", out.topic, diff)
		}
	}
}

// orderDiff tells which key's rows have another order than in want; "" if want can be dealt out to the keys so that each has
// its own sequence.
func orderDiff(byKey map[string][]string, want []string) string {
	keys := make([]string, 0, len(byKey))
	for k := range byKey {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	at := make([]int, len(keys))
	best, bestAt := 0, make([]int, len(keys))
	tried := map[string]bool{}
	var deal func(i int) bool
	deal = func(i int) bool {
		if i == len(want) {
			return true
		}
		state := fmt.Sprint(at)
		if tried[state] {
			return false
		}
		tried[state] = true
		if i >= best {
			best = i
			copy(bestAt, at)
		}
		for k, key := range keys {
			if at[k] < len(byKey[key]) && byKey[key][at[k]] == want[i] {
				at[k]++
				if deal(i + 1) {
					return true
				}
				at[k]--
			}
		}
		return false
	}
	if deal(0) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "row %d of the wanted ones does not come next:\n  wanted %s", best+1, want[best])
	for k, key := range keys {
		if bestAt[k] < len(byKey[key]) {
			fmt.Fprintf(&b, "\n  next   %s (%s)", byKey[key][bestAt[k]], key)
		}
	}
	return b.String()
}

// rowText shows a value: as it is written if that is text, or as Go shows it.
func rowText[T any](serde format.Serde[T], b []byte) string {
	if b == nil {
		return "null"
	}
	if isText(b) {
		return string(b)
	}
	var v T
	if err := serde.Decode(bytes.Clone(b), &v); err == nil {
		if j, err := json.Marshal(v); err == nil {
			return string(j)
		}
		return fmt.Sprintf("%+v", v)
	}
	return strconv.Quote(string(b))
}

func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && r != '\t' {
			return false
		}
	}
	return true
}
