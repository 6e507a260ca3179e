package processor_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
)

// wordDecoder gives the words of a line.
type wordDecoder struct{ line []byte }

func (d *wordDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	d.line = r.Value
	return r.Timestamp, nil
}

func (d *wordDecoder) Run(emit func([]byte) error) error {
	for _, w := range bytes.Fields(d.line) {
		if err := emit(w); err != nil {
			return err
		}
	}
	return nil
}

func (d *wordDecoder) Watermark() int64 { return processor.NoTime }

// The low-level contract: a source with a decoder of its own, an operator, and a sink that appends records.
func ExampleTransform() {
	topology := func(t *processor.Topology) {
		words := processor.FromRaw(t, processor.RawTopic[[]byte]{Topics: []string{"lines"}, Open: func(*processor.SubtaskContext) (processor.Decoder[[]byte], error) {
			return &wordDecoder{}, nil
		}})
		upper := processor.Transform([]processor.Flow[[]byte]{words}, "", func(ctx *processor.TransformContext[[]byte, []byte]) {
			ctx.OnRecord(func(_ int, word []byte) error { return ctx.Emit(bytes.ToUpper(word)) })
		})
		processor.ToRaw(upper, processor.RawSink[[]byte]{Topic: "words", Open: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func([]byte) error, error) {
			return func(word []byte) error {
				return w.Write(processor.SinkRecord{Value: w.Keep(append(w.Buf(), word...)), Timestamp: w.Time(), Partition: processor.AnyPartition})
			}, nil
		}})
	}
	d := drive.New(&testing.T{}, topology, drive.Options{Still: true})
	defer d.Close()
	d.Produce("lines", 0, record.Record{Value: []byte("over the weir")})
	d.Run()
	for _, r := range d.Records("words") {
		fmt.Println(string(r.Value))
	}
	// Output:
	// OVER
	// THE
	// WEIR
}
