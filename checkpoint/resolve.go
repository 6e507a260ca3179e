package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// Way is a way to get the state of a subtask back.
type Way int

// The ways. Those of Resolve end with reading the changelog, from the positions of what was taken.
const (
	FromLocal      Way = 1 + iota // the store on this machine's disk, and the changelog's tail
	FromCheckpoint                // a checkpoint, and the changelog's tail
	FromChangelog                 // the changelog from its start
	FromSavepoint                 // the savepoint that the incarnation begins from: once, before its changelog counts
)

func (w Way) String() string {
	switch w {
	case FromLocal:
		return "local store"
	case FromCheckpoint:
		return "checkpoint"
	case FromSavepoint:
		return "savepoint"
	case FromChangelog:
		return "changelog"
	default:
		return fmt.Sprintf("way %d", int(w))
	}
}

// Changelog is what the broker says of one changelog partition of the subtask.
type Changelog struct {
	Topic     string
	Low, High int64 // log start offset and high watermark
	// DeleteRetention is how long tombstones are kept after they were cleaned (delete.retention.ms of the topic, as it is
	// now); 0 = for ever.
	DeleteRetention time.Duration
}

// Local is the store on this machine's disk.
type Local struct {
	Meta     statestore.Meta
	WallTime int64 // ms, of its epoch record
	Err      error // why it cannot be used, such as statestore.ErrCorrupt; nil = it was opened
}

// View is all that a decision about a restore depends on.
type View struct {
	Now        int64               // ms, by this machine's clock
	Identity   statestore.Identity // whose state is wanted
	Changelogs []Changelog         // by changelog
	Local      *Local              // nil = nothing on disk
	// Checkpoints as Find returned them, in any order. FindErr is why they are not known: then they may exist.
	Checkpoints []Found
	FindErr     error
	// Reads says whether files of a format can be put into the local directory: statestore.Dir.Reads.
	Reads func(format string) bool
}

// Option is one way of restoring, usable or not.
type Option struct {
	Way      Way
	Key      string    // of the manifest of a checkpoint
	Manifest *Manifest // of a checkpoint
	Epoch    uint64    // where it starts from; 0 = from nothing
	Bytes    int64     // to download
	Records  int64     // of the changelog that are to be read at most; offsets are counted, and some are holes
	Estimate time.Duration
	// Refused is why it cannot be used; "" = it can.
	Refused string
	// Quarantine: the local store is not to be used any more, by nobody, but somebody should look at it. A local store
	// that is refused without it can be removed.
	Quarantine bool
	// Ahead: it knows of changelog records that are gone, as after an unclean leader election, or with the topic. What comes back
	// is older than what was committed. A checkpoint that is ahead is to be put aside (Reject), or it becomes wrong when its
	// epoch and positions are reached again.
	Ahead bool
}

func (o Option) String() string {
	var b strings.Builder
	b.WriteString(o.Way.String())
	if o.Epoch > 0 {
		fmt.Fprintf(&b, " of epoch %d", o.Epoch)
	}
	if o.Refused != "" {
		return b.String() + ": " + o.Refused
	}
	if o.Bytes > 0 {
		fmt.Fprintf(&b, ", %d bytes", o.Bytes)
	}
	fmt.Fprintf(&b, ", at most %d records of the changelog", o.Records)
	return b.String()
}

// What an estimate assumes. Ways differ by orders of magnitude, so that it need not be exact.
const (
	replayRate   = 400_000                // records of a changelog a second
	downloadRate = 100 << 20              // bytes a second
	downloadWait = 300 * time.Millisecond // until the first byte
)

// Resolve returns all ways of restoring, the usable ones first, the cheapest of them first; then those that are refused. A
// way that fails when it is tried (a blob is damaged or missing) is left out, and the next one taken: each is right
// by itself. It is pure.
func Resolve(v View) []Option {
	var options []Option
	add := func(o Option) {
		o.Estimate = time.Duration(float64(o.Records) / replayRate * float64(time.Second))
		if o.Way == FromCheckpoint {
			o.Estimate += downloadWait + time.Duration(float64(o.Bytes)/downloadRate*float64(time.Second))
		}
		options = append(options, o)
	}
	if v.Local != nil {
		add(v.local())
	}
	if v.FindErr != nil {
		add(Option{Way: FromCheckpoint, Refused: fmt.Sprintf("checkpoints are not known: %v", v.FindErr)})
	}
	for _, f := range v.Checkpoints {
		add(v.checkpoint(f))
	}
	add(v.changelog())
	slices.SortStableFunc(options, func(a, b Option) int {
		if (a.Refused == "") != (b.Refused == "") {
			if a.Refused == "" {
				return -1
			}
			return 1
		}
		if a.Refused != "" {
			return cmp.Or(cmp.Compare(a.Way, b.Way), cmp.Compare(b.Epoch, a.Epoch))
		}
		return cmp.Or(cmp.Compare(a.Estimate, b.Estimate), cmp.Compare(a.Way, b.Way), cmp.Compare(b.Epoch, a.Epoch))
	})
	return options
}

func (v *View) local() Option {
	o := Option{Way: FromLocal, Epoch: v.Local.Meta.Epoch}
	if v.Local.Err != nil {
		o.Refused, o.Quarantine = v.Local.Err.Error(), true
		return o
	}
	o.Records, o.Refused, o.Ahead = v.tail(v.Local.Meta.Positions, v.Local.WallTime)
	o.Quarantine = o.Ahead
	return o
}

func (v *View) checkpoint(f Found) Option {
	o := Option{Way: FromCheckpoint, Key: f.Key, Epoch: f.Epoch}
	m := f.Manifest
	if f.Err != nil {
		o.Refused = f.Err.Error()
		return o
	}
	o.Manifest, o.Bytes = m, m.Bytes()
	switch diff := m.Identity().Diff(v.Identity); {
	case m.Kind != KindCheckpoint:
		o.Refused = fmt.Sprintf("its manifest is that of a %s", m.Kind)
	case m.Epoch != f.Epoch:
		o.Refused = fmt.Sprintf("its manifest says epoch %d", m.Epoch)
	case diff != "":
		o.Refused = "it belongs to another state: " + diff
		// Of this cluster's other topics of that name nothing is left. Another cluster may be alive, and a program without the
		// second changelog may come back.
		mine := v.Identity
		mine.Changelogs = m.Changelogs
		o.Ahead = m.Identity().Diff(mine) == "" && !slices.ContainsFunc(m.Changelogs, func(id string) bool { return slices.Contains(v.Identity.Changelogs, id) })
	case v.Reads != nil && !v.Reads(m.StoreFormat):
		o.Refused = fmt.Sprintf("its files have the format %s, which the local store does not read", m.StoreFormat)
	default:
		o.Records, o.Refused, o.Ahead = v.tail(m.Positions, m.WallTime)
	}
	return o
}

func (v *View) changelog() Option {
	o := Option{Way: FromChangelog}
	for _, c := range v.Changelogs {
		o.Records += max(c.High-c.Low, 0)
	}
	return o
}

// tail says how much of the changelogs is to be read from positions on, and why that would not give the right state.
func (v *View) tail(positions []int64, wallTime int64) (records int64, refused string, ahead bool) {
	if len(positions) != len(v.Changelogs) {
		return 0, fmt.Sprintf("it has positions in %d changelogs, there are %d", len(positions), len(v.Changelogs)), false
	}
	age := time.Duration(v.Now-wallTime) * time.Millisecond
	for i, c := range v.Changelogs {
		pos := positions[i]
		switch {
		case pos > c.High:
			return 0, fmt.Sprintf("it was made up to offset %d of %s, whose high watermark is %d: records that were committed are gone, "+
				"as after an unclean leader election", pos, c.Topic, c.High), true
		case pos >= 0 && pos < c.Low:
			return 0, fmt.Sprintf("it was made up to offset %d of %s, which now starts at %d", pos, c.Topic, c.Low), false
		}
		rest := c.High - max(pos, c.Low)
		// One offset can only be the end marker of the last transaction: a record never stands without one. So nothing came
		// after it, however old it is.
		if c.DeleteRetention > 0 && age > c.DeleteRetention && rest > 1 {
			return 0, fmt.Sprintf("it is %s old, but %s keeps tombstones for %s only (delete.retention.ms): a delete may have been missed",
				age.Round(time.Second), c.Topic, c.DeleteRetention), false
		}
		records += rest
	}
	return records, "", false
}
