package statestore

// ID names a store on disk and in changelogs. It is derived from the store's name (see StoreID), so that adding an
// operator never renames the state of another. 0 is reserved.
type ID uint32

// Group is a key group: after a KeyBy the key's hash mod 4096, else the source partition. State moves between
// subtasks by ranges of it.
type Group = uint16

// Groups is the number of key groups after a KeyBy.
const Groups = 4096

// Spec describes a store: what a topology declares, and what is compared when a start takes old state over.
type Spec struct {
	Name     string // "<operator id>/<state name>"
	ID       ID
	Kind     Kind
	KeyType  string // schema of the key, as KeyCodec.Schema gives it
	ValType  string // schema of the value, as Codec.Schema gives it
	Expiring bool   // windows and TTL state: its changelog is the sub-topology's compact,delete topic
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
