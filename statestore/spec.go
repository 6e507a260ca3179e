package statestore

import (
	"strconv"
	"time"
)

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
	Name    string // "<operator id>/<state name>"
	ID      ID
	Kind    Kind
	KeyType string // schema of the key, as KeyCodec.Schema gives it
	ValType string // schema of the value, as Codec.Schema gives it
	// Replicated: every subtask has a copy of the whole, under the key group of its own index. A rescale copies it.
	Replicated bool `json:",omitempty"`
	Expiring   bool // windows and TTL state: its changelog is the sub-topology's compact,delete topic
	// Life is how long an entry of an expiring store may be needed after its last write, in event time: window size
	// and allowed lateness. The changelog's retention follows from it.
	Life time.Duration `json:",omitempty"`

	// TTL of a state whose entries expire so long after their last write, by the processing time that is kept with them;
	// 0: none do, or they are read until clean-up has removed them. For who shows entries: see Inspector.Expired.
	TTL time.Duration `json:"-"`

	// What else the entries only have a meaning with; "" = unknown, which fits everything.

	Windows   string `json:",omitempty"` // of a windows store: how its windows lie, as "tumbling 1m0s"
	Aggregate string `json:",omitempty"` // the library's function that made the values, as "count"; "" = the program's own
	Operator  string `json:",omitempty"` // kind of the operator, as "reduce"

	// Migrations are the schemas that the program has migrations for: see CanRead.
	Migrations []string `json:"-"`
}

// Kind is the layout of a store.
type Kind uint8

// The kinds of stores and their key layouts (all after the 4-byte store id).
const (
	KindTable      Kind = 1 + iota // key group, key
	KindWindows                    // window end (8 bytes, sign flipped), key group, key
	KindMap                        // key group, key, map key
	KindTimers                     // time (8 bytes, sign flipped), key group, key, timer id
	KindList                       // key group, key, sequence number
	KindWindowRows                 // window end (8 bytes, sign flipped), key group, key, time (likewise), sequence number (4 bytes)
)

// Windowed says that keys of the kind begin with a window end, and that a Horizon says which of them are gone.
func (k Kind) Windowed() bool { return k == KindWindows || k == KindWindowRows }

// Timed says that keys of the kind begin with a window end or a time.
func (k Kind) Timed() bool { return k.Windowed() || k == KindTimers }

func (k Kind) String() string {
	switch k {
	case KindTable:
		return "table"
	case KindWindows:
		return "windows"
	case KindMap:
		return "map"
	case KindTimers:
		return "timers"
	case KindList:
		return "list"
	case KindWindowRows:
		return "window rows"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Change is one record of a changelog: a key of the store and its new value.
type Change struct {
	Changelog int // 0 = the compacted topic of the sub-topology, 1 = its compact,delete topic
	Key       []byte
	Value     []byte // nil = deleted (a tombstone)
}
