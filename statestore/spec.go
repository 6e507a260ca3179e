package statestore

import "time"

// ID names a store on disk and in changelogs. It is derived from the store's name (see StoreID), so that adding an
// operator never renames the state of another. 0 is reserved.
type ID uint32

// Group is a key group: murmur2 of the Kafka key (as Kafka's default partitioner takes it) mod Groups. It says which
// subtask a key belongs to without knowing the key's partition: with S subtasks, S a divisor of Groups and of the
// partition count of every input, the subtask is both partition mod S and group mod S. So an input may grow to another
// multiple of S, and state can move to another S by groups.
type Group = uint16

// Groups is the number of key groups: 5040 has every divisor up to 10, and 12, 14, 15, 16.
const Groups = 5040

// Spec describes a store: what a topology declares, and what is compared when a start takes old state over.
type Spec struct {
	Name     string // "<operator id>/<state name>"
	ID       ID
	Kind     Kind
	KeyType  string // schema of the key, as KeyCodec.Schema gives it
	ValType  string // schema of the value, as Codec.Schema gives it
	Expiring bool   // windows and TTL state: its changelog is the sub-topology's compact,delete topic
	// Life is how long an entry of an expiring store may be needed after its last write, in event time: window size
	// and allowed lateness. The changelog's retention follows from it.
	Life time.Duration `json:",omitempty"`
}

// Kind is the layout of a store.
type Kind uint8

// The kinds of stores and their key layouts (all after the 4-byte store id).
const (
	KindTable   Kind = 1 + iota // key group, key
	KindWindows                 // window end (8 bytes, sign flipped), key group, key
	KindMap                     // key group, key, map key
	KindTimers                  // time (8 bytes, sign flipped), key group, key, timer id
	KindList                    // key group, key, sequence number
)

// Change is one record of a changelog: a key of the store and its new value.
type Change struct {
	Changelog int // 0 = the compacted topic of the sub-topology, 1 = its compact,delete topic
	Key       []byte
	Value     []byte // nil = deleted (a tombstone)
}
