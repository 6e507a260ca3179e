//go:build canary

package txn

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// offsetsOutside commits the offsets of an epoch as a consumer without transactions does.
func (p *Producer) offsetsOutside(ctx context.Context, offsets map[record.TopicPartition]int64, own Ownership) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = p.c.opts.AppID, own.MemberID, own.Generation
	if own.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(own.InstanceID)
	}
	for tp, offset := range offsets {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = tp.Topic, p.ids[tp.Topic]
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = tp.Partition, offset
		t.Partitions = append(t.Partitions, rp)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
