package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// CommittedOffsets asks a group ("" = that of the app) for the committed offsets of the given partitions: next offset to read,
// -1 where none is committed. It asks for stable ones (KIP-447): while a transaction with offsets of these partitions
// is undecided the coordinator answers UNSTABLE_OFFSET_COMMIT, and so it does for a short time after EndTxn returned;
// the call waits that long, at most Options.RequestTimeout. It never falls back to unstable offsets.
func (c *Cluster) CommittedOffsets(ctx context.Context, name string, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	out := make(map[record.TopicPartition]int64, len(tps))
	if len(tps) == 0 {
		return out, nil
	}
	name = cmp.Or(name, c.opts.AppID)
	byTopic := map[string][]int32{}
	for _, tp := range tps {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	names := make([]string, 0, len(byTopic))
	for topic := range byTopic {
		names = append(names, topic)
	}
	slices.Sort(names)
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	infos, err := c.topicIDs(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("fetch committed offsets of group %s: %w", name, err)
	}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = name
	for _, topic := range names {
		info, ok := infos[topic]
		if !ok {
			return nil, fmt.Errorf("fetch committed offsets of group %s: topic %s does not exist", name, topic)
		}
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		// Version 10 sends the id, older ones the name. kgo fills in neither if both are there, and its cache may know
		// the id of a topic that was deleted since.
		t.Topic, t.TopicID, t.Partitions = topic, info.ID, byTopic[topic]
		group.Topics = append(group.Topics, t)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	req.Groups = []kmsg.OffsetFetchRequestGroup{group}
	for try := 1; ; try++ {
		clear(out)
		err := c.fetchOffsets(ctx, req, out)
		if err == nil {
			for _, tp := range tps {
				if _, ok := out[tp]; !ok {
					return nil, fmt.Errorf("fetch committed offsets of group %s: the coordinator did not answer for %s", name, tp)
				}
			}
			return out, nil
		}
		if errors.Is(err, kerr.GroupIDNotFound) {
			for _, tp := range tps {
				out[tp] = -1
			}
			return out, nil
		}
		if isAuthErr(err) {
			return nil, authErr("fetch committed offsets", "group "+name+" and its topics", "Describe", err)
		}
		if !retriable(replyOf(err)) || ctx.Err() != nil {
			return nil, fmt.Errorf("fetch committed offsets of group %s: %w", name, err)
		}
		if perr := pause(ctx, try); perr != nil {
			hint := "is the group coordinator reachable?"
			if errors.Is(err, kerr.UnstableOffsetCommit) {
				hint = "a transaction with offsets of this group stays undecided; it ends at the latest with its transaction timeout"
			}
			return nil, fmt.Errorf("fetch committed offsets of group %s: no stable answer within %v: %w; %s", name,
				c.opts.RequestTimeout, err, hint)
		}
	}
}

// fetchOffsets asks once and puts the answers into out; the first error code that it meets is returned. It looks the coordinator
// up each time and asks it by its number: kgo remembers the coordinator that it once found for this request, and asks a broker
// that is dead until it is back, though the group has moved on.
func (c *Cluster) fetchOffsets(ctx context.Context, req *kmsg.OffsetFetchRequest, out map[record.TopicPartition]int64) error {
	coordinator, err := c.groupCoordinator(ctx, req.Groups[0].Group)
	if err != nil {
		return err
	}
	resp, err := req.RequestWith(ctx, c.cl.Broker(int(coordinator)))
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
				out[record.TopicPartition{Topic: topicOf(req, t), Partition: p.Partition}] = p.Offset
			}
		}
	}
	return nil
}

// topicOf is the name of a topic in an answer, which from version 10 on has its id only.
func topicOf(req *kmsg.OffsetFetchRequest, t kmsg.OffsetFetchResponseGroupTopic) string {
	for _, g := range req.Groups {
		for _, asked := range g.Topics {
			if t.Topic == "" && asked.TopicID == t.TopicID {
				return asked.Topic
			}
		}
	}
	return t.Topic
}

// groupCoordinator asks which broker is the coordinator of a group.
func (c *Cluster) groupCoordinator(ctx context.Context, group string) (int32, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 0 // of a group
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return -1, err
	}
	if len(resp.Coordinators) == 0 {
		return resp.NodeID, kerr.ErrorForCode(resp.ErrorCode)
	}
	return resp.Coordinators[0].NodeID, kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
}

// replyOf turns an error of kgo into what a Machine understands.
func replyOf(err error) Reply {
	if err == nil {
		return Reply{}
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return Reply{Code: ke.Code}
	}
	return Reply{Lost: true}
}

// pause waits between two tries: 10 ms, doubling up to 500 ms. It returns ctx's error if ctx ends first.
func pause(ctx context.Context, try int) error {
	return Sleep(ctx, min(10*time.Millisecond<<min(try-1, 10), 500*time.Millisecond))
}
