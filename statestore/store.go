package statestore

import (
	"context"
	"errors"
)

// Store is the ordered byte store under one subtask. It holds only committed state: state moves from epoch record to
// epoch record (invariant I1: the store equals the fold of the committed changelog up to its Meta). A Store is used
// by one goroutine at a time.
//
// Keys are built by this package (see Key in keys.go): 4 bytes store id, then what the kind of store puts behind it.
// Store id 0 is reserved for the Meta.
type Store interface {
	// Get returns the value of key. The value is valid until the next call on the store.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan iterates lo <= key < hi in byte order over what was applied before the call. hi nil means no bound.
	Scan(lo, hi []byte) (Iterator, error)
	// NewBatch starts an empty batch.
	NewBatch() Batch
	// Flush makes all that was committed durable.
	Flush() error
	// FlushBehind begins to make durable all that was committed, beside the caller, who may go on to read and commit.
	// Busy tells when it is done.
	FlushBehind() error
	// Busy says whether a FlushBehind still runs, or the store has so much else to put in order that a Commit would wait.
	// It does not wait itself. An error is why the store takes no more writes.
	Busy() (bool, error)
	// Meta returns the Meta of the last committed batch; ok is false on an empty store.
	Meta() (m Meta, ok bool)
	// Size is the approximate number of bytes on disk (or in memory).
	Size() int64
	Close() error
}

// Batch collects writes that become visible together with a Meta.
type Batch interface {
	Set(key, value []byte) // copies both
	Delete(key []byte)
	DeleteRange(lo, hi []byte)
	Len() int
	// Commit applies the batch and the meta atomically and ends the batch. It is durable after Store.Flush, or a
	// FlushBehind that ended, and never durable in part. So that memory is bounded it may wait for what was committed
	// before to become durable.
	Commit(m Meta) error
	// Discard ends the batch without applying it.
	Discard()
}

// BulkStore is a Store that can take more at once than memory holds, in far less time than in batches.
type BulkStore interface {
	Store
	// NewBulk starts an empty bulk, of which about so many bytes are in memory and the rest is beside the store. Nothing
	// else is written to the store, and no other bulk is open, before it ends. When ctx ends Commit gives up.
	NewBulk(ctx context.Context, memory int64) Bulk
}

// Bulk collects writes as a Batch does, as many as there are: of several to one key the last one counts.
type Bulk interface {
	Set(key, value []byte) // copies both
	Delete(key []byte)
	// Len is the bytes of keys and values that it was given.
	Len() int64
	// Full says that it should be committed, and another one begun: it has as much as can be put in order at once, the disk
	// has no room for more, or something went wrong, which Commit tells.
	Full() bool
	// Commit applies the writes and the meta atomically and ends the bulk. It is durable after Store.Flush.
	Commit(m Meta) error
	// Discard ends the bulk without applying it.
	Discard()
}

// Lender is a Store with caches of its own, whose room it can do without.
type Lender interface {
	Store
	// Lend makes those caches smaller by n bytes than they are meant to be: n is all that is lent, not what is added to it.
	// Closing the store ends it.
	Lend(n int64)
}

// Iterator walks a Scan. Key and Value are valid until the next call.
type Iterator interface {
	Next() bool // moves to the first or next entry
	Key() []byte
	Value() []byte
	Err() error
	Close() error
}

// Meta says up to where a store has folded its changelog.
type Meta struct {
	Epoch       uint64  // epoch of EpochRecord, 0 before the first
	EpochRecord []byte  // the last epoch record contained, as txn encoded it; nil before the first
	Positions   []int64 // next offset to read, for each changelog topic of the sub-topology
}

// Identity says whose state a store is. It is written into a new store and compared on open.
type Identity struct {
	App         string
	ClusterID   string
	Incarnation uint64
	Subtask     string   // record.SubtaskID.String
	Changelogs  []string // topic ids of the changelog topics, as text
}

// Dir opens the stores of one process. Implementations: pebblestore.OpenDir (a state directory, locked against a
// second process), memstore.NewDir.
type Dir interface {
	// Open opens the store of id.Subtask, or makes an empty one. The errors below are matched with errors.Is.
	Open(id Identity) (Store, error)
	// Wipe removes the store of id.Subtask; it must be closed.
	Wipe(id Identity) error
	// Subtasks lists the subtasks of an incarnation that have a store, sorted as text (record.SubtaskID.String).
	Subtasks(incarnation uint64) ([]string, error)
	// Stage begins a store of id.Subtask that is made beside the one in use; one at a time. What an earlier process left
	// half-done is removed when the directory is opened. Errors: ErrNoSpace.
	Stage(id Identity) (Staging, error)
	// Reads says whether Staging.Create takes files of a Snapshot.Format.
	Reads(format string) bool
	// Quarantine puts the store of id.Subtask out of the way, so that people can look at it; it must be closed. where is
	// its new place, "" if there was none. One is kept per subtask: an older one is removed.
	Quarantine(id Identity) (where string, err error)
	// InstanceID is the static group member id kept in the directory; it is made on first use.
	InstanceID() (string, error)
	Close() error
}

// Errors of Dir and Store. Messages name the path, what was found and what to do.
var (
	// ErrLocked: another process holds the state directory.
	ErrLocked = errors.New("state directory is in use by another process")
	// ErrForeign: the directory or store belongs to another app or cluster.
	ErrForeign = errors.New("state belongs to another app, cluster or topic")
	// ErrFormat: written by a newer version.
	ErrFormat = errors.New("state has an unknown format version")
	// ErrCorrupt: the files are damaged; the store can be wiped and restored from its changelog.
	ErrCorrupt = errors.New("state store is damaged")
	// ErrNoSpace: the disk is full; nothing was damaged.
	ErrNoSpace = errors.New("no space left in the state directory")
)
