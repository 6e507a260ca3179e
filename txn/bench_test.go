package txn

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
)

// BenchmarkPollOurs measures what is ours of a polled record's way: from kgo's form into that of the task.
func BenchmarkPollOurs(b *testing.B) {
	const n = 4096
	tp := record.TopicPartition{Topic: "topic"}
	k := &Consumer{next: map[record.TopicPartition]int64{}}
	fetched := kgo.FetchPartition{Records: make([]*kgo.Record, n)}
	for i := range fetched.Records {
		fetched.Records[i] = &kgo.Record{Key: fmt.Appendf(nil, "u%06d", i), Value: make([]byte, 141), Offset: int64(i), Timestamp: time.UnixMilli(1_700_000_000_000)}
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		k.next[tp] = 0
		if f, ok := k.translate(b.Context(), tp.Topic, [16]byte{}, &fetched); !ok || len(f.Records) != n {
			b.Fatal("not all were polled")
		}
	}
}

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
