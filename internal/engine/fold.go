package engine

import (
	"bytes"
	"fmt"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// fold puts the records of a subtask's changelogs together to whole epochs (pure). Each changelog is read by itself, so
// that one may be ahead of the other; an epoch is whole when its records of all changelogs are there, and epochs come out
// in their order.
type fold struct {
	logs  []foldLog
	base  uint64 // epoch of the state that the fold goes on from: what comes up to it is the rest of a restore
	bytes int64  // that wait
}

type foldLog struct {
	topic     string
	partition int
	parts     []foldPart // that are closed by their epoch record
	open      foldPart
	read      int64 // next offset to read
}

// foldPart is what one epoch wrote into one changelog.
type foldPart struct {
	changes []foldChange
	bytes   int64
	rec     *txn.EpochRecord // nil while it is open
	raw     []byte
	next    int64 // the offset after it
}

type foldChange struct{ key, value []byte } // value nil = delete

func newFold(topics []string, partition int, positions []int64, base uint64) *fold {
	f := &fold{base: base}
	for i, t := range topics {
		at := max(positions[i], 0)
		f.logs = append(f.logs, foldLog{topic: t, partition: partition, open: foldPart{next: at}, read: at})
	}
	return f
}

// add takes what was read of a changelog, transaction markers included.
func (f *fold) add(changelog int, recs []record.Record) error {
	l := &f.logs[changelog]
	meta := statestore.MetaKey()
	for i := range recs {
		r := &recs[i]
		l.read = r.Offset + 1
		if r.Control {
			continue
		}
		l.open.next = r.Offset + 1
		if !bytes.Equal(r.Key, meta) {
			l.open.changes = append(l.open.changes, foldChange{r.Key, r.Value})
			l.open.bytes += int64(len(r.Key) + len(r.Value))
			f.bytes += int64(len(r.Key) + len(r.Value))
			continue
		}
		rec, err := txn.DecodeEpochRecord(r.Value)
		if err != nil {
			return fmt.Errorf("read changelog %s/%d at offset %d: %w", l.topic, l.partition, r.Offset, err)
		}
		l.open.rec, l.open.raw = rec, r.Value
		l.parts = append(l.parts, l.open)
		l.open = foldPart{next: r.Offset + 1}
	}
	return nil
}

// next hands out the oldest whole epoch: by changelog what it wrote, nil = nothing. ok is false if there is none yet.
func (f *fold) next() (parts []*foldPart, ok bool) {
	var first *foldPart
	for i := range f.logs {
		if ps := f.logs[i].parts; len(ps) > 0 && (first == nil || ps[0].rec.Epoch < first.rec.Epoch) {
			first = &ps[0]
		}
	}
	if first == nil {
		return nil, false
	}
	parts = make([]*foldPart, len(f.logs))
	for i := range f.logs {
		l := &f.logs[i]
		if len(l.parts) > 0 {
			// A later one here means that this changelog has nothing of this epoch, or that compaction took its epoch
			// record: what it wrote is part of the later one then.
			if l.parts[0].rec.Epoch == first.rec.Epoch {
				parts[i] = &l.parts[0]
			}
			continue
		}
		if first.rec.Epoch <= f.base {
			continue // read by the restore
		}
		if i < len(first.rec.Touched) && (first.rec.Touched[i] || l.read < first.rec.Positions[i]) {
			return nil, false // its part, or that of an epoch before it, has not been read yet
		}
	}
	for i, p := range parts {
		if p != nil {
			f.logs[i].parts = f.logs[i].parts[1:]
			f.bytes -= p.bytes
		}
	}
	return parts, true
}

// takeOpen hands out all that waits, whole or not, by changelog: an epoch larger than the memory for it.
func (f *fold) takeOpen() [][]foldPart {
	out := make([][]foldPart, len(f.logs))
	for i := range f.logs {
		l := &f.logs[i]
		out[i] = append(l.parts, l.open)
		l.parts, l.open = nil, foldPart{next: l.open.next}
	}
	f.bytes = 0
	return out
}

// idle is where changelog i is read to, if nothing of it waits: behind the markers that follow the last record.
func (f *fold) idle(i int) (int64, bool) {
	l := &f.logs[i]
	return l.read, len(l.parts) == 0 && len(l.open.changes) == 0
}
