package kafka

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Batch says under which producer a record is written.
type Batch struct {
	TransactionalID string
	ProducerID      int64
	ProducerEpoch   int16
	Sequence        int32
}

// WriteHanging writes a transactional record to partition 0 of a topic, of which no coordinator is told. The broker must
// run with transaction.partition.verification.enable=false.
func (b *access) WriteHanging(t testing.TB, topic string, in Batch, key, value []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	body := kmsg.Record{Key: key, Value: value}
	body.Length = int32(len(body.AppendTo(nil)) - 1)
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{Magic: 2, Attributes: 1 << 4, FirstTimestamp: now, MaxTimestamp: now, ProducerID: in.ProducerID,
		ProducerEpoch: in.ProducerEpoch, FirstSequence: in.Sequence, NumRecords: 1, Records: body.AppendTo(nil)}
	batch.Length = int32(len(batch.AppendTo(nil)) - 12)
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &in.TransactionalID, -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	// From version 12 on a produce request adds its partitions to the transaction, and later ones want topic ids.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.Produce.Int16(), 11)
	resp, err := req.RequestWith(ctx, b.Client(t, kgo.MaxVersions(versions)))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("write a hanging record to %s: %v", topic, err)
	}
}
