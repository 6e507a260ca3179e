package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-stream/millrace/statestore"
)

// EpochRecord is the last record of every epoch in each changelog partition that the epoch wrote, under the key
// statestore.MetaKey. It is all that an owner must know besides the state itself to go on after that epoch.
type EpochRecord struct {
	Epoch       uint64 // counted from 1 within the incarnation
	Incarnation uint64
	Owner       string // who wrote it, for people
	WallTime    int64  // ms since the epoch when it was written; decides whether a tail may lack tombstones
	// Touched, by changelog index: this epoch wrote that changelog, so this record stands in it.
	Touched []bool
	// Positions, by changelog index: where this epoch began, 0 if there was nothing before it. That is behind the last
	// epoch record, and behind what a former owner's aborted transactions left after it. A position above a high
	// watermark means that committed records are gone.
	Positions  []int64
	Inputs     []InputProgress // sorted by topic, partition
	Horizons   []Horizon       // sorted by store
	Watermarks map[string]int64
	Sinks      map[string][]byte // handles of prepared external sinks, by name
}

// InputProgress is how far one input partition was processed.
type InputProgress struct {
	Topic     string // the physical name
	TopicID   [16]byte
	Partition int32
	Offset    int64 // next offset to read, -1 if nothing was read yet
	MaxTime   int64 // highest event time seen, ms; math.MinInt64 before the first
	Watermark int64 // ms; math.MinInt64 before the first
	Idle      bool
	Upstream  []UpstreamMark // of an internal input, by upstream subtask index
}

// UpstreamMark is the last watermark record of one upstream subtask.
type UpstreamMark struct {
	Watermark int64 // ms
	Idle      bool
}

// Horizon says up to which window end (inclusive, ms) all windows of a store are gone.
type Horizon struct {
	Store statestore.ID
	End   int64
}

// ErrEpochRecord is wrapped by every error of DecodeEpochRecord.
var ErrEpochRecord = errors.New("epoch record cannot be read")

// epochRecordVersion is the first byte. Layout of version 1, numbers as varints (signed ones zigzag):
//
//	version, epoch, incarnation, owner, wall time
//	number of changelogs, per changelog: touched (0, 1), position
//	number of topics, per topic: name, 16 bytes id, number of partitions, per partition:
//	    partition, offset, max time, watermark, idle (0, 1), number of upstreams, per upstream: watermark, idle
//	number of horizons, per horizon: store, end
//	number of watermarks, per watermark: name, value; sorted by name
//	number of sinks, per sink: name, handle; sorted by name
//
// Strings and byte strings are a length and that many bytes. Equal records have equal bytes.
const epochRecordVersion = 1

// Append encodes r. Touched and Positions must have the same length, one per changelog.
func (r *EpochRecord) Append(dst []byte) []byte {
	dst = append(dst, epochRecordVersion)
	dst = binary.AppendUvarint(dst, r.Epoch)
	dst = binary.AppendUvarint(dst, r.Incarnation)
	dst = appendString(dst, r.Owner)
	dst = binary.AppendVarint(dst, r.WallTime)
	dst = binary.AppendUvarint(dst, uint64(len(r.Touched)))
	for i, touched := range r.Touched {
		dst = appendBool(dst, touched)
		dst = binary.AppendVarint(dst, r.Positions[i])
	}
	inputs := r.Inputs
	byTopic := func(a, b InputProgress) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition) - int(b.Partition)
	}
	if !slices.IsSortedFunc(inputs, byTopic) {
		inputs = slices.SortedFunc(slices.Values(inputs), byTopic)
	}
	topics := 0
	for i := range inputs {
		if i == 0 || !sameTopic(&inputs[i], &inputs[i-1]) {
			topics++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(topics))
	for i := 0; i < len(inputs); {
		n := 1
		for i+n < len(inputs) && sameTopic(&inputs[i], &inputs[i+n]) {
			n++
		}
		dst = appendString(dst, inputs[i].Topic)
		dst = append(dst, inputs[i].TopicID[:]...)
		dst = binary.AppendUvarint(dst, uint64(n))
		for _, in := range inputs[i : i+n] {
			dst = binary.AppendUvarint(dst, uint64(uint32(in.Partition)))
			dst = binary.AppendVarint(dst, in.Offset)
			dst = binary.AppendVarint(dst, in.MaxTime)
			dst = binary.AppendVarint(dst, in.Watermark)
			dst = appendBool(dst, in.Idle)
			dst = binary.AppendUvarint(dst, uint64(len(in.Upstream)))
			for _, u := range in.Upstream {
				dst = binary.AppendVarint(dst, u.Watermark)
				dst = appendBool(dst, u.Idle)
			}
		}
		i += n
	}
	horizons := r.Horizons
	byStore := func(a, b Horizon) int { return int(int64(a.Store) - int64(b.Store)) }
	if !slices.IsSortedFunc(horizons, byStore) {
		horizons = slices.SortedFunc(slices.Values(horizons), byStore)
	}
	dst = binary.AppendUvarint(dst, uint64(len(horizons)))
	for _, h := range horizons {
		dst = binary.AppendUvarint(dst, uint64(h.Store))
		dst = binary.AppendVarint(dst, h.End)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Watermarks)))
	for _, name := range slices.Sorted(maps.Keys(r.Watermarks)) {
		dst = appendString(dst, name)
		dst = binary.AppendVarint(dst, r.Watermarks[name])
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Sinks)))
	for _, name := range slices.Sorted(maps.Keys(r.Sinks)) {
		dst = appendString(dst, name)
		dst = appendString(dst, string(r.Sinks[name]))
	}
	return dst
}

func sameTopic(a, b *InputProgress) bool { return a.Topic == b.Topic && a.TopicID == b.TopicID }

// DecodeEpochRecord reads what Append wrote. The record keeps nothing of src. Errors wrap ErrEpochRecord; that of an
// unknown version says that a newer millrace wrote it.
func DecodeEpochRecord(src []byte) (*EpochRecord, error) {
	if len(src) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrEpochRecord)
	}
	if src[0] != epochRecordVersion {
		return nil, fmt.Errorf("%w: it has format version %d, this program knows only %d; it was written by another version "+
			"of millrace: run that one, or start from a savepoint", ErrEpochRecord, src[0], epochRecordVersion)
	}
	d := &decoder{src: src[1:], size: len(src)}
	r := &EpochRecord{
		Epoch:       d.uvarint(),
		Incarnation: d.uvarint(),
		Owner:       d.string(),
		WallTime:    d.varint(),
	}
	for range d.count(2) {
		r.Touched = append(r.Touched, d.bool())
		r.Positions = append(r.Positions, d.varint())
	}
	for range d.count(18) {
		topic := d.string()
		var id [16]byte
		copy(id[:], d.take(16))
		for range d.count(6) {
			in := InputProgress{Topic: topic, TopicID: id, Partition: d.partition(), Offset: d.varint(), MaxTime: d.varint(),
				Watermark: d.varint(), Idle: d.bool()}
			for range d.count(2) {
				in.Upstream = append(in.Upstream, UpstreamMark{d.varint(), d.bool()})
			}
			r.Inputs = append(r.Inputs, in)
		}
	}
	for range d.count(2) {
		store := d.uvarint()
		if store>>32 != 0 {
			d.fail("store id")
		}
		r.Horizons = append(r.Horizons, Horizon{statestore.ID(store), d.varint()})
	}
	if n := d.count(2); n > 0 {
		r.Watermarks = make(map[string]int64, n)
		for range n {
			name := d.string()
			r.Watermarks[name] = d.varint()
		}
	}
	if n := d.count(2); n > 0 {
		r.Sinks = make(map[string][]byte, n)
		for range n {
			name := d.string()
			r.Sinks[name] = []byte(d.string())
		}
	}
	if d.err == nil && len(d.src) > 0 {
		d.fail("end")
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// decoder reads front to back. After the first fault every read is zero, so that callers check once, at the end.
type decoder struct {
	src  []byte
	size int
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: bad %s at byte %d of %d; the changelog record is damaged, restore from a savepoint",
			ErrEpochRecord, what, d.size-len(d.src), d.size)
	}
	d.src = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.src)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.src = d.src[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.src)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.src = d.src[n:]
	return v
}

// count reads the number of entries of at least min bytes each, so that a damaged count cannot ask for memory.
func (d *decoder) count(min int) int {
	v := d.uvarint()
	if v > uint64(len(d.src)/min) {
		d.fail("count")
		return 0
	}
	return int(v)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.src) {
		d.fail("length")
		return nil
	}
	b := d.src[:n]
	d.src = d.src[n:]
	return b
}

func (d *decoder) string() string { return string(d.take(d.count(1))) }

func (d *decoder) bool() bool {
	b := d.take(1)
	if len(b) == 1 && b[0] > 1 {
		d.fail("flag")
	}
	return len(b) == 1 && b[0] == 1
}

func (d *decoder) partition() int32 {
	v := d.uvarint()
	if v > 1<<31-1 {
		d.fail("partition")
		return 0
	}
	return int32(v)
}
