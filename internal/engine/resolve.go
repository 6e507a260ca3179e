package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// resolved is a plan bound to a cluster: physical topic names, partition counts, parallelism.
type resolved struct {
	app         string
	incarnation uint64
	fingerprint string
	subs        []*resolvedSub
}

type resolvedSub struct {
	plan        *task.SubTopology
	parallelism int
	inputs      []resolvedInput
	outputs     []resolvedOutput
	changelogs  []string // [0] compacted; [1] compact,delete if a store expires
	maxChange   []int    // key and value of a changelog record, in bytes, by changelog; 0 = unknown
}

type resolvedInput struct {
	topic      string
	partitions int32
	internal   bool
	broadcast  bool // see task.Input.Broadcast
	maxRecord  int  // max.message.bytes of an external topic
	moved      bool // see topologyInput.Moved
}

type resolvedOutput struct {
	topic      string
	partitions int32
	maxRecord  int
	before     int64 // bounds of timestamps, ms; 0 = none
	after      int64
}

// Names of internal topics. The first incarnation has no mark in its names; later ones do, so that nothing of an older
// one is ever read again.

func internalName(app string, incarnation uint64, rest string) string {
	if incarnation > 1 {
		return fmt.Sprintf("%s-i%d-%s", app, incarnation, rest)
	}
	return app + "-" + rest
}

func repartitionTopic(app string, incarnation uint64, id string) string {
	return internalName(app, incarnation, id+"-repartition")
}

func changelogTopic(app string, incarnation uint64, sub int) string {
	return internalName(app, incarnation, fmt.Sprintf("%d-changelog", sub))
}

func expiringTopic(app string, incarnation uint64, sub int) string {
	return internalName(app, incarnation, fmt.Sprintf("%d-changelog-expiring", sub))
}

func deadLetterTopic(app string) string { return app + "-dead-letter" }

// externalTopics are the topics that must exist before the app starts.
func externalTopics(p *task.Plan) []string {
	var names []string
	for _, s := range p.Subs {
		for _, in := range s.Inputs {
			if !in.Internal {
				names = append(names, in.Topic)
			}
		}
		for _, out := range s.Outputs {
			if !out.Internal && !out.DeadLetter {
				names = append(names, out.Topic)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// resolve binds a plan to the partition counts of its external topics (pure). pinned is the parallelism that the state
// was made with, by sub-topology; 0 or absent = free.
func resolve(app string, incarnation uint64, p *task.Plan, wanted int, pinned map[int]int, topics map[string]txn.TopicInfo) (*resolved, error) {
	r := &resolved{app: app, incarnation: incarnation, fingerprint: p.Fingerprint}
	repartition := map[string]int32{}
	for _, s := range p.Subs {
		rs := &resolvedSub{plan: s}
		var counts []int32
		for _, in := range s.Inputs {
			ri := resolvedInput{topic: in.Topic, internal: in.Internal, broadcast: in.Broadcast}
			if in.Broadcast {
				ri.topic = repartitionTopic(app, incarnation, in.Topic)
				rs.inputs = append(rs.inputs, ri) // its partitions follow from the subtasks
				continue
			}
			if in.Internal {
				ri.topic = repartitionTopic(app, incarnation, in.Topic)
				ri.partitions = int32(in.Partitions)
				if ri.partitions == 0 {
					for _, up := range r.subs[in.Upstream].inputs {
						ri.partitions = max(ri.partitions, up.partitions)
					}
				}
				repartition[in.Topic] = ri.partitions
			} else {
				info, ok := topics[in.Topic]
				if !ok {
					return nil, fatalf("input topic %s does not exist; create it, or correct the name", in.Topic)
				}
				ri.partitions, ri.maxRecord = info.Partitions, info.MaxMessageBytes
			}
			counts = append(counts, ri.partitions)
			rs.inputs = append(rs.inputs, ri)
		}
		want := s.Parallelism
		if want == 0 {
			want = wanted
			if s.Feeds {
				want = task.WithinParallelism(wanted, counts)
			}
		}
		if pin := pinned[s.ID]; pin > 0 {
			if want != 0 && want != pin {
				return nil, fatalf("sub-topology %d: parallelism %d is wanted, but its state was made with %d subtasks; ask for %d or leave it open (0): millrace rescale --subtasks=%d changes the number", s.ID, want, pin, pin, want)
			}
			want = pin
		}
		n, err := task.ResolveParallelism(want, counts)
		if err != nil {
			var in []string
			for _, i := range rs.inputs {
				if !i.broadcast {
					in = append(in, fmt.Sprintf("%s (%d partitions)", i.topic, i.partitions))
				}
			}
			hint := ""
			if pinned[s.ID] > 0 {
				hint = fmt.Sprintf("; its state was made with %d subtasks: a keyed input may grow only to another multiple of that", pinned[s.ID])
			}
			return nil, fatalf("sub-topology %d, inputs %s: %v%s", s.ID, strings.Join(in, ", "), err, hint)
		}
		rs.parallelism = n
		for i := range rs.inputs {
			if in := &rs.inputs[i]; in.broadcast {
				in.partitions = int32(n)
				repartition[s.Inputs[i].Topic] = int32(n)
			}
		}
		rs.changelogs = []string{changelogTopic(app, incarnation, s.ID)}
		for _, st := range s.Stores {
			if st.Expiring {
				rs.changelogs = append(rs.changelogs, expiringTopic(app, incarnation, s.ID))
				break
			}
		}
		r.subs = append(r.subs, rs)
	}
	for _, rs := range r.subs {
		for _, out := range rs.plan.Outputs {
			ro := resolvedOutput{topic: out.Topic}
			switch {
			case out.Internal:
				ro.topic = repartitionTopic(app, incarnation, out.Topic)
				ro.partitions = repartition[out.Topic]
			case out.DeadLetter:
				ro.topic = deadLetterTopic(app)
				ro.partitions = 1
				if info, ok := topics[ro.topic]; ok {
					ro.partitions = info.Partitions
				}
			default:
				info, ok := topics[out.Topic]
				if !ok {
					return nil, fatalf("output topic %s does not exist; create it, or correct the name", out.Topic)
				}
				ro.partitions = info.Partitions
			}
			rs.outputs = append(rs.outputs, ro)
		}
	}
	return r, nil
}

// batchOverhead is kept free below max.message.bytes for the batch and record headers around one record.
const batchOverhead = 256

// expiringRetention is how long records of an expiring changelog are kept, in wall-clock time since they were written: a
// week and twice the life of the store's entries in event time. A stream that stands still for longer while windows are
// open loses them from the changelog, though not from the local store.
func expiringRetention(stores []statestore.Spec) string {
	keep := 7 * 24 * time.Hour
	for _, s := range stores {
		if s.Expiring {
			keep = max(keep, 7*24*time.Hour+2*s.Life)
		}
	}
	return strconv.FormatInt(keep.Milliseconds(), 10)
}

// internalTopics lists the topics that the app makes for itself.
func (r *resolved) internalTopics(rf int16, compression string) []txn.TopicSpec {
	var specs []txn.TopicSpec
	add := func(name string, partitions int32, configs map[string]string) {
		configs["compression.type"] = compression
		specs = append(specs, txn.TopicSpec{Name: name, Partitions: partitions, ReplicationFactor: rf, Configs: configs})
	}
	dead := false
	for _, s := range r.subs {
		for _, in := range s.inputs {
			if in.internal {
				add(in.topic, in.partitions, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime"})
			}
		}
		add(s.changelogs[0], int32(s.parallelism), map[string]string{"cleanup.policy": "compact", "segment.bytes": "67108864"})
		if len(s.changelogs) > 1 {
			add(s.changelogs[1], int32(s.parallelism), map[string]string{"cleanup.policy": "compact,delete", "segment.bytes": "67108864", "retention.ms": expiringRetention(s.plan.Stores)})
		}
		for _, o := range s.plan.Outputs {
			dead = dead || o.DeadLetter
		}
	}
	if dead {
		// What is too large for its sink must still fit here, with the headers that say why.
		largest := 1 << 20
		for _, s := range r.subs {
			for _, in := range s.inputs {
				largest = max(largest, in.maxRecord)
			}
		}
		add(deadLetterTopic(r.app), 1, map[string]string{"cleanup.policy": "delete", "max.message.bytes": strconv.Itoa(largest + deadLetterRoom)})
	}
	return specs
}

// bind takes the real sizes of the topics that are written in, once all exist.
func (r *resolved) bind(topics map[string]txn.TopicInfo) {
	for _, s := range r.subs {
		s.maxChange = make([]int, len(s.changelogs))
		for i, c := range s.changelogs {
			if info, ok := topics[c]; ok && info.MaxMessageBytes > 0 {
				s.maxChange[i] = info.MaxMessageBytes - batchOverhead
			}
		}
		for i := range s.outputs {
			o := &s.outputs[i]
			if info, ok := topics[o.topic]; ok {
				o.partitions = info.Partitions
				o.maxRecord = info.MaxMessageBytes - batchOverhead
				if info.TimestampType == "CreateTime" {
					o.before, o.after = timestampBound(info.TimestampBeforeMaxMs), timestampBound(info.TimestampAfterMaxMs)
				}
			}
		}
	}
}

// checkSizes refuses changes that their changelog does not take (pure): the broker would too, and say nothing of the state.
// The size is that before compression: a value that fits only while it compresses well would end the job on a worse day.
func (s *resolvedSub) checkSizes(changes []statestore.Change) error {
	for i := range changes {
		c := &changes[i]
		size, limit := len(c.Key)+len(c.Value), s.maxChange[c.Changelog]
		if limit == 0 || size <= limit {
			continue
		}
		name, kind := "unknown", statestore.KindTable
		for _, st := range s.plan.Stores {
			if len(c.Key) >= 4 && st.ID == statestore.ID(binary.BigEndian.Uint32(c.Key)) {
				name, kind = st.Name, st.Kind
			}
		}
		return fatalf("state %q: the entry of key %s has %d bytes, but changelog %s takes %d; spread it over a list or a map, or raise max.message.bytes of the topic", name, keyText(kind, c.Key), size, s.changelogs[c.Changelog], limit)
	}
	return nil
}

// keyText shows the user's part of a store key, for people (pure): text as it is, other keys as their bytes.
func keyText(kind statestore.Kind, key []byte) string {
	skip := 4 + 2 // store id, key group
	if kind.Timed() {
		skip += 8 // window end, time
	}
	if len(key) < skip {
		return strconv.Quote(string(key))
	}
	return strconv.Quote(strings.TrimSuffix(string(key[skip:]), "\x00\x01")) // how text ends
}

// deadLetterRoom is kept for the headers of a dead letter.
const deadLetterRoom = 64 << 10

// timestampBound is a topic's bound less a margin for clocks that differ; 0 = none.
func timestampBound(ms int64) int64 {
	if ms <= 0 || ms == math.MaxInt64 {
		return 0
	}
	return max(ms-min(ms/10, 60_000), 1)
}

// topicNames are all topics that the app touches.
func (r *resolved) topicNames() []string {
	var names []string
	for _, s := range r.subs {
		for _, in := range s.inputs {
			names = append(names, in.topic)
		}
		for _, out := range s.outputs {
			names = append(names, out.topic)
		}
		names = append(names, s.changelogs...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// layout is what the group session needs.
func (r *resolved) layout() txn.Layout {
	l := txn.Layout{Version: 1, Fingerprint: r.fingerprint}
	if r.incarnation > 1 {
		l.Fingerprint += fmt.Sprintf("-i%d", r.incarnation) // members of two incarnations never share the work
	}
	for _, s := range r.subs {
		ls := txn.LayoutSub{ID: s.plan.ID, Parallelism: s.parallelism, Stateful: len(s.plan.Stores) > 0}
		for _, in := range s.inputs {
			ls.Inputs = append(ls.Inputs, txn.LayoutInput{Topic: in.topic, Partitions: in.partitions})
		}
		l.Subs = append(l.Subs, ls)
	}
	return l
}

// partitionsOf are the partitions of an input that subtask k of n owns.
func partitionsOf(k, n int, partitions int32) []int32 {
	var ps []int32
	for p := int32(k); p < partitions; p += int32(n) {
		ps = append(ps, p)
	}
	return ps
}

// subtaskInputs are all partitions of a subtask.
func (r *resolved) subtaskInputs(id record.SubtaskID) []record.TopicPartition {
	s := r.subs[id.SubTopology]
	var tps []record.TopicPartition
	for _, in := range s.inputs {
		for _, p := range partitionsOf(id.Index, s.parallelism, in.partitions) {
			tps = append(tps, record.TopicPartition{Topic: in.topic, Partition: p})
		}
	}
	return tps
}
