package statestore

import (
	"errors"
	"io"
)

// Checkpointer is a Store that can make snapshots of itself. It is optional: ask a Store with a type assertion. Those of
// pebblestore and memstore can, unless they belong to no Dir.
type Checkpointer interface {
	// Checkpoint makes a Snapshot of the last flushed state. It flushes nothing itself: who needs the newest epoch in it
	// calls Flush before. A store that writes out batches by itself may give a newer state than that of the last Flush;
	// it is the state after some committed batch in any case, so its Meta counts and not that of the live store.
	//
	// Unlike all other methods it may be called from another goroutine while the store is in use; one call at a time,
	// and Close waits for it. A failure does not harm the store. Errors: ErrEmpty, ErrNoSpace, ErrCorrupt.
	Checkpoint() (Snapshot, error)
}

// Snapshot is the state of a store at one batch, as files. It does not change, and outlives the store, but not its Dir:
// the next one to open the directory removes what was left. It is safe for concurrent use.
type Snapshot interface {
	Identity() Identity
	Meta() Meta // the caller must not change it
	// Format names who can read the files, as "pebble-24": the kind of store and its version.
	Format() string
	// Instance names a store as one process knows it. As long as it is the same, Fixed files of equal names have equal
	// contents; names alone prove nothing, since a store that is built again uses the same ones.
	Instance() string
	Files() []SnapshotFile // sorted by name
	Open(name string) (io.ReadSeekCloser, error)
	// View opens the snapshot for reading its entries.
	View() (View, error)
	// Close removes the snapshot. Views and files must be closed before.
	Close() error
}

// SnapshotFile is one file of a Snapshot.
type SnapshotFile struct {
	Name  string // without any folder
	Size  int64  // bytes
	Fixed bool   // see Snapshot.Instance
}

// View reads the entries of a Snapshot. It belongs to one goroutine.
type View interface {
	// Get is Store.Get.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan is Store.Scan.
	Scan(lo, hi []byte) (Iterator, error)
	Close() error
}

// Staging is a store of one subtask that is being made beside the one in use, from the files of a Snapshot or by writes
// to an empty store. It takes its place as a whole, or leaves nothing behind.
type Staging interface {
	// Create makes a file of the snapshot that is copied in; Close of it makes it durable. Names with a folder are
	// refused. It is safe for concurrent use. Errors: ErrNoSpace.
	Create(name string) (io.WriteCloser, error)
	// Store opens the staged store for reading and writing, an empty one if no file was created. It must be closed, and
	// flushed, before Adopt. Errors: those of Dir.Open.
	Store() (Store, error)
	// Adopt puts the staged store in the place of the subtask's store, which must be closed and is removed. After a crash
	// the store is the old one, the new one, or not there. The Staging ends.
	Adopt() error
	// Discard removes what was staged. It does nothing after Adopt.
	Discard() error
}

// ErrEmpty: nothing was flushed yet, so there is nothing to snapshot.
var ErrEmpty = errors.New("state store holds no flushed epoch")
