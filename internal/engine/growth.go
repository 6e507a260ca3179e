package engine

import (
	"maps"

	"github.com/millrace-stream/millrace/txn"
)

// held are the external topics as the next start of the incarnation takes them (pure): one that has grown to a number that
// the subtasks of its sub-topology do not divide counts with the partitions that it had, so that the app goes on until a
// rescale takes the others in.
func (t topologyRecord) held(topics map[string]txn.TopicInfo) map[string]txn.TopicInfo {
	held := maps.Clone(topics)
	for _, s := range t.Subs {
		for _, in := range s.Inputs {
			info, ok := topics[in.Topic]
			if n := int32(s.Parallelism); !in.Internal && ok && beyond(in.Partitions, info.Partitions, n) && in.Partitions%n == 0 {
				info.Partitions = in.Partitions
				held[in.Topic] = info
			}
		}
	}
	return held
}

// beyond says that a topic has grown to a number of partitions that its subtasks do not divide.
func beyond(had, has, subtasks int32) bool { return has > had && subtasks > 0 && has%subtasks != 0 }

// tellGrowth says once that partitions of an input are not read.
func (w *Worker) tellGrowth(in resolvedInput, has int32, s *resolvedSub) {
	if w.grown[in.topic] == has {
		return
	}
	if w.grown == nil {
		w.grown = map[string]int32{}
	}
	w.grown[in.topic] = has
	w.log.Error("an input has grown to a number of partitions that its subtasks do not divide: the new ones are not read. Take them in with millrace rescale, to a number that divides both, before records of a keyed input lie where other subtasks want them",
		"topic", in.topic, "had", in.partitions, "has", has, "subtasks", s.parallelism, "divisors_of", gcd(int(in.partitions), int(has)))
}
