package txn

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// TopicIDString writes a topic id as Kafka's own tools do (base64 without padding); the zero id is "none".
func TopicIDString(id [16]byte) string {
	if id == [16]byte{} {
		return "none"
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// retryPause is the wait between tries of a call whose failure heals by itself (a moved leader, metadata that has not
// yet reached every broker).
const retryPause = 100 * time.Millisecond

// Sleep waits, or returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Topics describes the named topics with their configuration, in one round of requests for all. Missing topics are
// absent from the result. A missing ACL is an error that names topic and ACL.
func (c *Cluster) Topics(ctx context.Context, names ...string) (map[string]TopicInfo, error) {
	out := make(map[string]TopicInfo, len(names))
	if len(names) == 0 {
		return out, nil
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for {
		ids, err := c.topicIDs(ctx, names)
		if err != nil {
			return nil, err
		}
		clear(out)
		maps.Copy(out, ids)
		again, err := c.topicConfigs(ctx, out)
		if err != nil {
			return nil, err
		}
		if !again {
			return out, nil
		}
		if err := Sleep(ctx, retryPause); err != nil {
			return nil, fmt.Errorf("describe topics: a topic came or went all the time: %w", err)
		}
	}
}

// topicIDs fills what metadata tells: id, partitions, replication factor.
func (c *Cluster) topicIDs(ctx context.Context, names []string) (map[string]TopicInfo, error) {
	out, _, err := c.metadata(ctx, names)
	return out, err
}

func metadataRequest(names []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// metadata describes topics by one metadata request; leaderless names a topic of which a partition has no leader, or
// is "".
func (c *Cluster) metadata(ctx context.Context, names []string) (infos map[string]TopicInfo, leaderless string, err error) {
	for {
		resp, err := metadataRequest(names).RequestWith(ctx, c.cl)
		if err != nil {
			return nil, "", fmt.Errorf("describe topics: %w", err)
		}
		infos, leaderless = make(map[string]TopicInfo, len(names)), ""
		var retry error
		for _, t := range resp.Topics {
			name := ""
			if t.Topic != nil {
				name = *t.Topic
			}
			err := kerr.ErrorForCode(t.ErrorCode)
			switch {
			case err == nil:
				ti := TopicInfo{Name: name, ID: t.TopicID, Partitions: int32(len(t.Partitions)), RetentionMs: -1}
				for i, p := range t.Partitions {
					if i == 0 || len(p.Replicas) < ti.ReplicationFactor {
						ti.ReplicationFactor = len(p.Replicas)
					}
					if p.Leader < 0 {
						leaderless = name
					}
				}
				infos[name] = ti
			case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
				// Missing.
			case isAuthErr(err):
				return nil, "", authErr("describe topic "+name, "topic "+name, "Describe and DescribeConfigs", err)
			case kerr.IsRetriable(err):
				retry = fmt.Errorf("describe topic %s: %w", name, err)
			default:
				return nil, "", fmt.Errorf("describe topic %s: %w", name, err)
			}
		}
		if retry == nil {
			return infos, leaderless, nil
		}
		if Sleep(ctx, retryPause) != nil {
			return nil, "", retry
		}
	}
}

// topicConfigs fills in the configuration. again means that a topic vanished between the two questions.
func (c *Cluster) topicConfigs(ctx context.Context, infos map[string]TopicInfo) (again bool, err error) {
	if len(infos) == 0 {
		return false, nil
	}
	rcs, err := c.adm.DescribeTopicConfigs(ctx, slices.Sorted(maps.Keys(infos))...)
	if err != nil {
		if isAuthErr(err) {
			return false, authErr("describe configs of topics", "topics "+strings.Join(slices.Sorted(maps.Keys(infos)), ", "),
				"DescribeConfigs", err)
		}
		return false, fmt.Errorf("describe configs of topics: %w", err)
	}
	for _, rc := range rcs {
		switch {
		case rc.Err == nil:
		case errors.Is(rc.Err, kerr.UnknownTopicOrPartition):
			again = true
			continue
		case isAuthErr(rc.Err):
			return false, authErr("describe configs of topic "+rc.Name, "topic "+rc.Name, "DescribeConfigs", rc.Err)
		default:
			return false, fmt.Errorf("describe configs of topic %s: %w", rc.Name, rc.Err)
		}
		ti, ok := infos[rc.Name]
		if !ok {
			continue
		}
		for _, cfg := range rc.Configs {
			v := cfg.MaybeValue()
			n, _ := strconv.ParseInt(v, 10, 64) // the broker has checked the numbers
			switch cfg.Key {
			case "max.message.bytes":
				ti.MaxMessageBytes = int(n)
			case "cleanup.policy":
				ti.CleanupPolicy = v
			case "retention.ms":
				ti.RetentionMs = n
			case "delete.retention.ms":
				ti.DeleteRetentionMs = n
			case "min.insync.replicas":
				ti.MinISR = int(n)
			case "message.timestamp.type":
				ti.TimestampType = v
			case "message.timestamp.before.max.ms":
				ti.TimestampBeforeMaxMs = n
			case "message.timestamp.after.max.ms":
				ti.TimestampAfterMaxMs = n
			}
		}
		infos[rc.Name] = ti
	}
	return again, nil
}

// EnsureTopics creates the topics that are missing and verifies all of them: partitions, and cleanup.policy where the
// spec gives it. Several members may do this at once. What differs is never changed but refused with ErrTopicDiffers,
// all differences at once.
func (c *Cluster) EnsureTopics(ctx context.Context, specs []TopicSpec) (map[string]TopicInfo, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	infos, err := c.Topics(ctx, names...)
	if err != nil {
		return nil, err
	}
	var missing []TopicSpec
	for _, s := range specs {
		if _, ok := infos[s.Name]; !ok {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		if err := c.createTopics(ctx, missing); err != nil {
			return nil, err
		}
		if infos, err = c.awaitTopics(ctx, names); err != nil {
			return nil, err
		}
	}
	var faults []error
	for _, s := range specs {
		if err := s.verify(infos[s.Name]); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return infos, nil
}

// verify compares a topic with its spec.
func (s TopicSpec) verify(ti TopicInfo) error {
	if s.Partitions > 0 && ti.Partitions != s.Partitions {
		return fmt.Errorf("topic %s: %w: it has %d partitions, needed are %d; delete it if it is left from something else, "+
			"or set the parallelism it was made for", s.Name, ErrTopicDiffers, ti.Partitions, s.Partitions)
	}
	want, ok := s.Configs["cleanup.policy"]
	if ok && !samePolicy(want, ti.CleanupPolicy) {
		return fmt.Errorf("topic %s: %w: cleanup.policy is %q, needed is %q; set it with kafka-configs (a wrong policy loses "+
			"state)", s.Name, ErrTopicDiffers, ti.CleanupPolicy, want)
	}
	return nil
}

// samePolicy compares two values of cleanup.policy: lists without order.
func samePolicy(a, b string) bool {
	split := func(s string) []string {
		var out []string
		for p := range strings.SplitSeq(s, ",") {
			if p = strings.TrimSpace(p); p != "" {
				out = append(out, p)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(split(a), split(b))
}

func (c *Cluster) createTopics(ctx context.Context, specs []TopicSpec) error {
	for {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = int32(c.opts.RequestTimeout.Milliseconds())
		for _, s := range specs {
			t := kmsg.NewCreateTopicsRequestTopic()
			t.Topic = s.Name
			t.NumPartitions = s.Partitions
			t.ReplicationFactor = s.ReplicationFactor
			for _, k := range slices.Sorted(maps.Keys(s.Configs)) {
				cfg := kmsg.NewCreateTopicsRequestTopicConfig()
				cfg.Name, cfg.Value = k, kmsg.StringPtr(s.Configs[k])
				t.Configs = append(t.Configs, cfg)
			}
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, c.cl)
		if err != nil {
			return fmt.Errorf("create topics: %w", err)
		}
		byName := make(map[string]TopicSpec, len(specs))
		for _, s := range specs {
			byName[s.Name] = s
		}
		specs = specs[:0:0]
		for _, t := range resp.Topics {
			s := byName[t.Topic]
			err := kerr.ErrorForCode(t.ErrorCode)
			msg := ""
			if t.ErrorMessage != nil {
				msg = " (" + *t.ErrorMessage + ")"
			}
			switch {
			case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
				// Another member was first; it is verified like any other.
			case errors.Is(err, kerr.InvalidReplicationFactor) && s.ReplicationFactor == -1:
				// Brokers before 2.4 (KIP-464) know no default here.
				if s.ReplicationFactor, err = c.fallbackReplication(ctx); err != nil {
					return err
				}
				specs = append(specs, s)
			case isAuthErr(err):
				return authErr("create topic "+t.Topic, "topic "+t.Topic, "Create", err)
			case kerr.IsRetriable(err):
				specs = append(specs, s)
			default:
				return fmt.Errorf("create topic %s with %d partitions: %w%s", t.Topic, s.Partitions, err, msg)
			}
		}
		if len(specs) == 0 {
			return nil
		}
		if err := Sleep(ctx, retryPause); err != nil {
			return fmt.Errorf("create topic %s: %w", specs[0].Name, err)
		}
	}
}

// fallbackReplication is 3, or the number of brokers if there are fewer.
func (c *Cluster) fallbackReplication(ctx context.Context) (int16, error) {
	brokers, err := c.adm.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("count brokers for the replication factor: %w", err)
	}
	return int16(max(1, min(3, len(brokers)))), nil
}

// awaitTopics waits until just created topics are visible with a leader for each partition.
func (c *Cluster) awaitTopics(ctx context.Context, names []string) (map[string]TopicInfo, error) {
	for {
		infos, missing, err := c.metadata(ctx, names)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if infos[n].Partitions == 0 {
				missing = n
			}
		}
		if missing == "" {
			if infos, err = c.Topics(ctx, names...); err != nil {
				return nil, err
			}
			// That may have been another broker, to which the news has not come yet.
			for _, n := range names {
				if _, ok := infos[n]; !ok {
					missing = n
				}
			}
			if missing == "" {
				return infos, nil
			}
		}
		if err := Sleep(ctx, retryPause); err != nil {
			return nil, fmt.Errorf("wait for created topic %s: not every partition has a leader yet: %w", missing, err)
		}
	}
}

// StartOffsets are the log start offsets.
func (c *Cluster) StartOffsets(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	return c.listOffsets(ctx, "start", tps, 0, -2)
}

// EndOffsets are the high watermarks.
func (c *Cluster) EndOffsets(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	return c.listOffsets(ctx, "end", tps, 0, -1)
}

// StableOffsets are the last stable offsets: below them no transaction is open.
func (c *Cluster) StableOffsets(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	return c.listOffsets(ctx, "last stable", tps, 1, -1)
}

// OffsetsAt are the offsets of the first records with a timestamp of at or later; the high watermark where there is
// none.
func (c *Cluster) OffsetsAt(ctx context.Context, tps []record.TopicPartition, at time.Time) (map[record.TopicPartition]int64, error) {
	out, err := c.listOffsets(ctx, "timestamp", tps, 0, at.UnixMilli())
	if err != nil {
		return nil, err
	}
	var none []record.TopicPartition
	for tp, o := range out {
		if o < 0 {
			none = append(none, tp)
		}
	}
	ends, err := c.listOffsets(ctx, "end", none, 0, -1)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, ends)
	return out, nil
}

// listOffsets asks the leaders; what is retriable is asked again within the request timeout.
func (c *Cluster) listOffsets(ctx context.Context, what string, tps []record.TopicPartition, isolation int8, ts int64) (map[record.TopicPartition]int64, error) {
	out := make(map[record.TopicPartition]int64, len(tps))
	todo := make(map[record.TopicPartition]bool, len(tps))
	for _, tp := range tps {
		todo[tp] = true
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for len(todo) > 0 {
		req := kmsg.NewPtrListOffsetsRequest()
		req.IsolationLevel = isolation
		byTopic := make(map[string][]int32)
		for tp := range todo {
			byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
		}
		for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			for _, p := range byTopic[topic] {
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Partition, rp.Timestamp = p, ts
				t.Partitions = append(t.Partitions, rp)
			}
			req.Topics = append(req.Topics, t)
		}
		var retry error
		for _, shard := range c.cl.RequestSharded(ctx, req) {
			if shard.Err != nil {
				if isAuthErr(shard.Err) {
					return nil, authErr("list offsets", "topics "+strings.Join(slices.Sorted(maps.Keys(byTopic)), ", "), "Describe",
						shard.Err)
				}
				retry = shard.Err
				continue
			}
			resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
			if !ok {
				return nil, fmt.Errorf("list %s offsets: unexpected response %T", what, shard.Resp)
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					tp := record.TopicPartition{Topic: t.Topic, Partition: p.Partition}
					err := kerr.ErrorForCode(p.ErrorCode)
					switch {
					case err == nil:
						out[tp] = p.Offset
						delete(todo, tp)
					case isAuthErr(err):
						return nil, authErr("list offsets of "+tp.String(), "topic "+t.Topic, "Describe", err)
					case kerr.IsRetriable(err):
						// UNKNOWN_TOPIC_OR_PARTITION too: a new topic may not have reached every broker.
						retry = fmt.Errorf("%s: %w", tp, err)
					default:
						return nil, fmt.Errorf("list %s offset of %s: %w", what, tp, err)
					}
				}
			}
		}
		if len(todo) == 0 {
			break
		}
		if err := Sleep(ctx, retryPause); err != nil {
			if retry == nil {
				retry = err
			}
			return nil, fmt.Errorf("list %s offsets: %d partitions without an answer: %w", what, len(todo), retry)
		}
	}
	return out, nil
}

// DeleteRecords deletes what lies below the given offsets.
func (c *Cluster) DeleteRecords(ctx context.Context, below map[record.TopicPartition]int64) error {
	if len(below) == 0 {
		return nil
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	todo := make(kadm.Offsets)
	for tp, o := range below {
		todo.AddOffset(tp.Topic, tp.Partition, o, -1)
	}
	for {
		resps, err := c.adm.DeleteRecords(ctx, todo)
		var retry error
		if err != nil {
			retry = err
			if isAuthErr(err) {
				return authErr("delete records", "topics "+strings.Join(slices.Sorted(maps.Keys(todo)), ", "), "Delete", err)
			}
		}
		done := make(map[record.TopicPartition]bool)
		for t, ps := range resps {
			for p, r := range ps {
				switch {
				case r.Err == nil:
					done[record.TopicPartition{Topic: t, Partition: p}] = true
				case isAuthErr(r.Err):
					return authErr(fmt.Sprintf("delete records of %s/%d", t, p), "topic "+t, "Delete", r.Err)
				case kerr.IsRetriable(r.Err):
					retry = fmt.Errorf("%s/%d: %w", t, p, r.Err)
				default:
					return fmt.Errorf("delete records of %s/%d below %d: %w", t, p, todo[t][p].At, r.Err)
				}
			}
		}
		todo.KeepFunc(func(o kadm.Offset) bool { return !done[record.TopicPartition{Topic: o.Topic, Partition: o.Partition}] })
		left := 0
		todo.Each(func(kadm.Offset) { left++ })
		if left == 0 {
			return nil
		}
		if err := Sleep(ctx, retryPause); err != nil {
			if retry == nil {
				retry = err
			}
			return fmt.Errorf("delete records of %d partitions: %w", left, retry)
		}
	}
}
