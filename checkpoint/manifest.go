package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Format is the version of manifests that this package writes, and the highest it reads.
const Format = 1

// Errors of reading manifests and what they name. Messages say where, why and what to do.
var (
	// ErrFormat: written by a newer version.
	ErrFormat = errors.New("unknown format version")
	// ErrCorrupt: the bytes are damaged.
	ErrCorrupt = errors.New("damaged")
	// ErrMissing: a blob that a manifest names is not there.
	ErrMissing = errors.New("missing")
)

// Kinds of a Manifest.
const (
	KindCheckpoint = "checkpoint" // Files are those of a statestore.Snapshot
	KindSavepoint  = "savepoint"  // Files are entries in key order, see KVFormat
)

// Manifest describes the state of one subtask at one epoch. It is encoded as indented JSON and a last line with a
// checksum of all bytes before; unknown fields are ignored, so that later versions may add some.
type Manifest struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"`

	// Whose state it is.
	App         string   `json:"app"`
	ClusterID   string   `json:"cluster_id"`
	Incarnation uint64   `json:"incarnation"`
	Subtask     string   `json:"subtask"`
	Changelogs  []string `json:"changelogs"` // topic ids of the changelog topics, as text

	// When it was.
	Epoch       uint64  `json:"epoch"`
	Positions   []int64 `json:"positions"`    // next offset to read, by changelog
	WallTime    int64   `json:"wall_time_ms"` // of the epoch record
	EpochRecord []byte  `json:"epoch_record"` // as txn encoded it: input offsets, watermarks, horizons

	// What made it, for people. Attempt is unique to one attempt to publish.
	Created int64  `json:"created_ms"`
	Owner   string `json:"owner"`
	Version string `json:"version"`
	Attempt string `json:"attempt"`

	// What it consists of.
	StoreFormat string  `json:"store_format"` // statestore.Snapshot.Format, or KVFormat
	Stores      []Store `json:"stores"`       // sorted by name
	Entries     int64   `json:"entries"`      // of a savepoint
	Files       []File  `json:"files"`        // of a checkpoint sorted by name, of a savepoint in key order

	// Savepoint is the id of the savepoint that it belongs to.
	Savepoint string `json:"savepoint,omitempty"`
}

// Store is a statestore.Spec in a manifest.
type Store struct {
	Name      string `json:"name"`
	ID        uint32 `json:"id"`
	Kind      uint8  `json:"kind"`
	KeyType   string `json:"key_type"`
	ValueType string `json:"value_type"`
	Expiring  bool   `json:"expiring,omitempty"`
}

// File is one file of a checkpoint, or one part of a savepoint.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 Hash   `json:"sha256"`
	Blob   string `json:"blob,omitempty"` // name of its blob, without the folder; "" if Data holds the contents
	Data   []byte `json:"data,omitempty"` // contents of a small file
	// Of a savepoint: keys of the first and last entry, number of entries.
	First   []byte `json:"first,omitempty"`
	Last    []byte `json:"last,omitempty"`
	Entries int64  `json:"entries,omitempty"`
}

// Hash is a SHA-256, in hexadecimal digits as text.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 64 {
		return fmt.Errorf("a SHA-256 has 64 digits, not %d", len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Limits of what Decode accepts.
const (
	maxManifest = blob.MaxSmall
	maxFiles    = 1 << 20
	// maxInline is the size up to which a file travels in the manifest, unless Options.Inline says otherwise.
	maxInline = 4 << 10
)

// StoresOf turns specs into what a manifest holds.
func StoresOf(specs []statestore.Spec) []Store {
	stores := make([]Store, 0, len(specs))
	for _, s := range specs {
		stores = append(stores, Store{s.Name, uint32(s.ID), uint8(s.Kind), s.KeyType, s.ValType, s.Expiring})
	}
	slices.SortFunc(stores, func(a, b Store) int { return strings.Compare(a.Name, b.Name) })
	return stores
}

// Identity is that of the store.
func (m *Manifest) Identity() statestore.Identity {
	return statestore.Identity{App: m.App, ClusterID: m.ClusterID, Incarnation: m.Incarnation, Subtask: m.Subtask, Changelogs: m.Changelogs}
}

// Meta is what a store that holds this state says of itself.
func (m *Manifest) Meta() statestore.Meta {
	return statestore.Meta{Epoch: m.Epoch, EpochRecord: m.EpochRecord, Positions: m.Positions}
}

// Bytes is the size of all files.
func (m *Manifest) Bytes() int64 {
	n := int64(0)
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Blobs are the names of all blobs, each once.
func (m *Manifest) Blobs() []string {
	var names []string
	for _, f := range m.Files {
		if f.Blob != "" {
			names = append(names, f.Blob)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Encode returns the manifest as bytes. Errors: what validate finds; more than 64 MiB.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("encode manifest of subtask %s: %w", m.Subtask, err)
	}
	return seal("manifest", m)
}

// DecodeManifest reads what Encode wrote. Errors are ErrCorrupt and ErrFormat.
func DecodeManifest(data []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := unseal("manifest", data, m); err != nil {
		return nil, err
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("decode manifest: %w: %w", ErrCorrupt, err)
	}
	return m, nil
}

const sumPrefix = "sha256:"

// seal encodes v as JSON and puts the checksum behind it.
func seal(what string, v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	data = append(data, '\n')
	sum := sha256.Sum256(data)
	data = append(hex.AppendEncode(append(data, sumPrefix...), sum[:]), '\n')
	if len(data) > maxManifest {
		return nil, fmt.Errorf("encode %s: %d bytes are more than the %d that it may have", what, len(data), maxManifest)
	}
	return data, nil
}

// unseal checks the checksum and the format version and decodes into v.
func unseal(what string, data []byte, v any) error {
	const tail = len(sumPrefix) + 2*sha256.Size + 1
	if len(data) > maxManifest {
		return fmt.Errorf("decode %s: %w: %d bytes are more than the %d that it may have", what, ErrCorrupt, len(data), maxManifest)
	}
	if len(data) < tail || data[len(data)-1] != '\n' || !bytes.HasPrefix(data[len(data)-tail:], []byte(sumPrefix)) {
		return fmt.Errorf("decode %s: %w: it does not end with its checksum, it may be cut short", what, ErrCorrupt)
	}
	text, line := data[:len(data)-tail], data[len(data)-tail+len(sumPrefix):len(data)-1]
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != string(line) {
		return fmt.Errorf("decode %s: %w: its checksum is %x, it says %s", what, ErrCorrupt, sum, line)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return fmt.Errorf("decode %s: %w: %w", what, ErrCorrupt, err)
	}
	switch {
	case version.Format > Format:
		return fmt.Errorf("decode %s: %w: it has format %d, this program reads up to %d; a newer millrace wrote it: run that one",
			what, ErrFormat, version.Format, Format)
	case version.Format < 1:
		return fmt.Errorf("decode %s: %w: it has format %d", what, ErrCorrupt, version.Format)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("decode %s: %w: %w", what, ErrCorrupt, err)
	}
	return nil
}

// validate checks what code that reads a manifest relies on.
func (m *Manifest) validate() error {
	if m.Format < 1 || m.Format > Format {
		return fmt.Errorf("format %d", m.Format)
	}
	if m.Kind != KindCheckpoint && m.Kind != KindSavepoint {
		return fmt.Errorf("kind %q", m.Kind)
	}
	if m.App == "" || m.StoreFormat == "" || m.Attempt == "" {
		return fmt.Errorf("app %q, store format %q and attempt %q must not be empty", m.App, m.StoreFormat, m.Attempt)
	}
	if _, err := record.ParseSubtaskID(m.Subtask); err != nil {
		return err
	}
	if len(m.Positions) != len(m.Changelogs) {
		return fmt.Errorf("%d positions for %d changelogs", len(m.Positions), len(m.Changelogs))
	}
	if m.Kind == KindSavepoint && m.StoreFormat != KVFormat {
		return fmt.Errorf("a savepoint in store format %q", m.StoreFormat)
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("%d files are more than %d", len(m.Files), maxFiles)
	}
	entries, total := int64(0), int64(0)
	for i := range m.Files {
		f := &m.Files[i]
		if err := f.validate(); err != nil {
			return fmt.Errorf("file %q: %w", f.Name, err)
		}
		if i > 0 && m.Files[i-1].Name >= f.Name {
			return fmt.Errorf("file %q is out of order", f.Name)
		}
		if m.Kind == KindSavepoint && i > 0 && bytes.Compare(m.Files[i-1].Last, f.First) >= 0 {
			return fmt.Errorf("the keys of file %q are out of order", f.Name)
		}
		entries += f.Entries
		total += f.Size
		if entries < 0 || total < 0 {
			return errors.New("sizes overflow")
		}
	}
	if entries != m.Entries {
		return fmt.Errorf("its files have %d entries, it says %d", entries, m.Entries)
	}
	return nil
}

func (f *File) validate() error {
	if f.Name == "." || f.Name == ".." || len(f.Name) > 255 || blob.CheckKey(f.Name) != nil || strings.Contains(f.Name, "/") {
		return errors.New("no name of a file")
	}
	if f.Size < 0 || f.Entries < 0 {
		return fmt.Errorf("size %d, %d entries", f.Size, f.Entries)
	}
	if f.Blob == "" {
		if int64(len(f.Data)) != f.Size || sha256.Sum256(f.Data) != f.SHA256 {
			return fmt.Errorf("its %d bytes do not match its size %d and hash", len(f.Data), f.Size)
		}
		return nil
	}
	if len(f.Data) > 0 {
		return errors.New("it has a blob and contents")
	}
	return checkBlobName(f.Blob, f.SHA256)
}

// blobName is where the contents with a hash go that an attempt uploads.
func blobName(h Hash, attempt string) string { return h.String() + "-" + attempt }

func checkBlobName(name string, h Hash) error {
	sum, attempt, ok := strings.Cut(name, "-")
	if !ok || sum != h.String() || attempt == "" || strings.Contains(name, "/") || blob.CheckKey(name) != nil {
		return fmt.Errorf("blob %q is no name of contents with hash %s", name, h)
	}
	return nil
}

// Prefix of the checkpoints of a subtask.
func Prefix(id statestore.Identity) string {
	return fmt.Sprintf("%s/%d/%s", id.App, id.Incarnation, id.Subtask)
}

func manifestKey(prefix string, epoch uint64) string {
	return fmt.Sprintf("%s/manifests/%020d", prefix, epoch)
}

func blobKey(prefix, name string) string { return prefix + "/blobs/" + name }
