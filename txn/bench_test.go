package txn

import (
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
)

// BenchmarkProduceOurs measures what is ours of a record's way: slab, fields, acknowledgement.
func BenchmarkProduceOurs(b *testing.B) {
	p := &Producer{ctx: b.Context()}
	o := record.Output{Key: []byte("key"), Value: []byte("value"), Timestamp: 1, Headers: []record.Header{{Key: "h", Value: []byte("v")}}}
	b.ReportAllocs()
	for b.Loop() {
		r, err := p.next(b.Context(), len(o.Key)+len(o.Value))
		if err != nil {
			b.Fatal(err)
		}
		fill(r, "topic", &o)
		p.acked(r, nil)
	}
}
