// Package record holds the few plain types that cross package borders on the way of a record: what was read from
// Kafka, what is to be written, and the names of subtasks. It imports nothing.
package record

import (
	"fmt"
	"strconv"
	"strings"
)

// Header is one Kafka record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record read from a partition. Key, Value and Headers point into the fetched batch and stay valid
// (they pin it) until the last reference is dropped; they must not be written to.
type Record struct {
	Key, Value []byte // nil means null
	Headers    []Header
	Timestamp  int64 // Kafka record timestamp, ms since the epoch; -1 if the record has none
	Offset     int64
	// LeaderEpoch of the partition's leader that took the record; -1 = not known.
	LeaderEpoch int32
	AppendTime  bool // the broker set Timestamp (LogAppendTime)
	Control     bool // a transaction marker: moves the position, carries no data
}

// Output is one record to be written to Kafka. Topic indexes the outputs of the sub-topology
// (task.SubTopology.Outputs). Key, Value and Headers must stay unchanged until the epoch they belong to is over.
type Output struct {
	Topic      int32
	Partition  int32
	Key, Value []byte
	Headers    []Header
	Timestamp  int64 // ms since the epoch
}

// SubtaskID names a subtask: the unit of work, state, transaction and movement. It is written
// "<sub-topology>_<index>", for example "0_3".
type SubtaskID struct {
	SubTopology int
	Index       int
}

func (id SubtaskID) String() string {
	return strconv.Itoa(id.SubTopology) + "_" + strconv.Itoa(id.Index)
}

// ParseSubtaskID reads what String wrote.
func ParseSubtaskID(s string) (SubtaskID, error) {
	sub, idx, ok := strings.Cut(s, "_")
	a, err1 := strconv.Atoi(sub)
	b, err2 := strconv.Atoi(idx)
	if !ok || err1 != nil || err2 != nil || a < 0 || b < 0 {
		return SubtaskID{}, fmt.Errorf("subtask id %q: want <sub-topology>_<index>, as in 0_3", s)
	}
	return SubtaskID{a, b}, nil
}

// Compare orders subtasks by sub-topology, then index.
func (id SubtaskID) Compare(o SubtaskID) int {
	if id.SubTopology != o.SubTopology {
		return id.SubTopology - o.SubTopology
	}
	return id.Index - o.Index
}

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return tp.Topic + "/" + strconv.Itoa(int(tp.Partition)) }
