package filesystem

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
)

// commitOptions are those of sink.partition-commit, and of how the time of a folder is found.
var commitOptions = []format.Option{
	{Name: "sink.partition-commit.policy.kind", Kind: format.Text, Doc: "success-file writes an empty file into each folder of PARTITIONED BY that is complete, once all of its rows show. Without it nobody is told."},
	{Name: "sink.partition-commit.success-file.name", Kind: format.Text, Default: "_SUCCESS", Doc: "The name of that file. It must begin with _ or a dot, so that it is no file of the table."},
	{Name: "sink.partition-commit.trigger", Kind: format.Enum, Default: "process-time", Values: []string{"process-time", "partition-time"}, Doc: "When a folder is complete: sink.partition-commit.delay after its first row was written, by the clock; or when the watermark has passed the folder's own time and the delay."},
	{Name: "sink.partition-commit.delay", Kind: format.Duration, Default: "0 s", Doc: "See the trigger. By partition-time it is as long as a folder covers, such as 1 h."},
	{Name: "sink.partition-commit.watermark-time-zone", Kind: format.Text, Default: "UTC", Doc: "The zone of the times of folders, by partition-time; for a watermark of TIMESTAMP columns it is UTC."},
	{Name: "partition.time-extractor.timestamp-pattern", Kind: format.Text, Doc: "How the time of a folder is put together of its columns, as $dt $hour:00:00. By default it is the first column."},
	{Name: "partition.time-extractor.timestamp-formatter", Kind: format.Text, Doc: "How that time is written, in the letters of Java's SimpleDateFormat. By default yyyy-MM-dd HH:mm:ss, or yyyy-MM-dd."},
	{Name: "partition.time-extractor.kind", Kind: format.Enum, Default: "default", Values: []string{"default"}, Doc: "Only default: a class of Java cannot be used."},
}

// commitPolicy says when a folder is complete.
type commitPolicy struct {
	file    string
	byTime  bool // partition-time
	delay   int64
	zone    *row.Zone
	names   []string // of the columns
	pattern string
	format  *row.SimpleFormat // nil = the default ones
}

// readCommit reads the policy of a table; nil = it has none. names are the columns of PARTITIONED BY.
func readCommit(o *format.Options, names []string) (*commitPolicy, error) {
	kind := o.Text("sink.partition-commit.policy.kind")
	if kind == "" {
		for _, opt := range commitOptions {
			if o.Has(opt.Name) && strings.HasPrefix(opt.Name, "sink.") {
				return nil, fmt.Errorf("option '%s' needs 'sink.partition-commit.policy.kind' = 'success-file'", opt.Name)
			}
		}
		return nil, nil
	}
	if kind != "success-file" {
		return nil, fmt.Errorf("option 'sink.partition-commit.policy.kind' = '%s': there is success-file; a metastore or a class of Java cannot be told", kind)
	}
	if len(names) == 0 {
		return nil, errors.New("option 'sink.partition-commit.policy.kind' needs PARTITIONED BY: it is its folders that are complete")
	}
	p := &commitPolicy{file: o.Text("sink.partition-commit.success-file.name"), byTime: o.Text("sink.partition-commit.trigger") == "partition-time",
		delay: o.Duration("sink.partition-commit.delay").Milliseconds(), names: names, pattern: o.Text("partition.time-extractor.timestamp-pattern")}
	if p.file == "" || p.file[0] != '_' && p.file[0] != '.' || strings.ContainsAny(p.file, "/\x00") {
		return nil, fmt.Errorf("option 'sink.partition-commit.success-file.name' = '%s': must be a name that begins with _ or a dot, so that it is not read as a file of the table", p.file)
	}
	var err error
	if p.zone, err = row.LoadZone(o.Text("sink.partition-commit.watermark-time-zone")); err != nil {
		return nil, fmt.Errorf("option 'sink.partition-commit.watermark-time-zone': %w", err)
	}
	if f := o.Text("partition.time-extractor.timestamp-formatter"); f != "" {
		if p.format, err = row.NewSimpleFormat(f); err != nil {
			return nil, fmt.Errorf("option 'partition.time-extractor.timestamp-formatter': %w", err)
		}
	}
	if p.pattern == "" {
		p.pattern = "$" + names[0]
	} else if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(p.pattern, "$"+n) }) {
		return nil, fmt.Errorf("option 'partition.time-extractor.timestamp-pattern' = '%s' names none of the columns of PARTITIONED BY: $%s", p.pattern, strings.Join(names, ", $"))
	}
	return p, nil
}

// due is when a folder is complete: in event time, or by the clock if its first row was written at now. Never = at the end of
// the input.
func (p *commitPolicy) due(folder string, now int64) int64 {
	if !p.byTime {
		return now + p.delay
	}
	at, ok := p.timeOf(folder)
	if !ok {
		return processor.Never
	}
	return at + p.delay
}

// timeOf is the time of a folder; ok is false if it has none, as that of NULL.
func (p *commitPolicy) timeOf(folder string) (ms int64, ok bool) {
	values := map[string]string{}
	for part := range strings.SplitSeq(folder, "/") {
		name, value, _ := strings.Cut(part, "=")
		values[unescape(name)] = unescape(value)
	}
	text := p.pattern
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return len(b) - len(a) }) // $dt2 before $dt
	for _, n := range names {
		text = strings.ReplaceAll(text, "$"+n, values[n])
	}
	if p.format != nil {
		return p.format.Parse([]byte(text), p.zone)
	}
	local, _, err := row.ParseTimestamp([]byte(text))
	return p.zone.Instant(local), err == nil
}

// A note is what the subtasks that write one table tell each other, in the staging folder: a folder is written by all of them, each
// commits by itself, and only together they know that it is complete. Whoever has changed its note looks at those of all.
type note struct {
	// Low: all that this subtask has committed of folders whose due is not after it shows, and nothing more will come but what is late.
	Low int64 `json:"low"`
	// Pending are the folders in which something shows that no success file was written for, and when they are due.
	Pending map[string]int64 `json:"pending,omitempty"`
	// Ended: nothing more will come.
	Ended bool `json:"ended,omitempty"`
}

const (
	noted = ".note" // behind <app>.<incarnation>.<sink>.<subtask>.<epoch>
	// notePause is how often a note tells at most that event time went on.
	notePause = time.Second
)

// reached says that a file of a folder is to be closed, since the folder is complete.
func (w *writer) reached(folder string, now time.Time) bool {
	due, ok := w.pending[folder]
	switch {
	case !ok:
		return false
	case w.commit.byTime:
		return due <= w.watermark()
	}
	return due <= now.UnixMilli()
}

// lowOpen is the Low of a subtask by the clock: before the oldest file that does not show.
func (w *writer) lowOpen() int64 {
	low := int64(processor.Never)
	before := func(t time.Time) { low = min(low, t.UnixMilli()-1) }
	for _, p := range w.open {
		before(p.created)
	}
	for _, h := range w.closed {
		before(h.created)
	}
	for _, h := range w.ready {
		before(h.created)
	}
	return low
}

// noteBefore tells, before an epoch commits, of files that it has and the note does not know.
func (w *writer) noteBefore() error {
	if low := w.lowOpen(); !w.commit.byTime && low < w.note.Low {
		return w.write(note{Low: low, Pending: w.note.Pending})
	}
	return nil
}

// noteAfter tells what shows now that an epoch is committed, and completes folders; more says that files have come to show.
func (w *writer) noteAfter(more bool) error {
	n := note{Low: w.marked, Pending: maps.Clone(w.waiting), Ended: w.marked == processor.Never}
	if !w.commit.byTime {
		n.Low = w.lowOpen()
	}
	now := w.now()
	changed := more || n.Ended != w.note.Ended || !maps.Equal(n.Pending, w.note.Pending)
	if n.Low != w.note.Low && (!w.commit.byTime || now.Sub(w.notedAt) >= notePause) {
		changed = true
	}
	if changed {
		if err := w.write(n); err != nil {
			return err
		}
		return w.complete(now.UnixMilli())
	}
	for _, due := range w.waiting {
		if !w.commit.byTime && due <= now.UnixMilli() {
			return w.complete(now.UnixMilli())
		}
	}
	return nil
}

// write replaces the note of this life.
func (w *writer) write(n note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	name := w.stage(fmt.Sprintf("%s%d%s", w.prefix, w.from.Epoch, noted))
	f, err := os.Create(name + ".new")
	if err != nil {
		return fmt.Errorf("note how far a subtask is: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("note how far a subtask is: %w", err)
	}
	w.note, w.notedAt = n, w.now()
	return syncFolder(w.stage(""))
}

// notes are the newest notes of all subtasks; nil if one has none yet.
func (w *writer) notes() ([]note, error) {
	entries, err := os.ReadDir(w.stage(""))
	if err != nil {
		return nil, fmt.Errorf("look how far the subtasks are: %w", err)
	}
	of := strings.TrimSuffix(w.prefix, fmt.Sprintf("%d.", w.subtask))
	newest := map[int]uint64{}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), of)
		rest, is := strings.CutSuffix(rest, noted)
		k, epoch, _ := strings.Cut(rest, ".")
		subtask, err := strconv.Atoi(k)
		n, err2 := strconv.ParseUint(epoch, 10, 64)
		if ok && is && err == nil && err2 == nil {
			newest[subtask] = max(newest[subtask], n)
		}
	}
	var all []note
	for k := range w.subtasks {
		epoch, ok := newest[k]
		if !ok {
			return nil, nil
		}
		b, err := os.ReadFile(w.stage(fmt.Sprintf("%s%d.%d%s", of, k, epoch, noted)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // the subtask begins anew at this moment
		}
		var n note
		if err == nil {
			err = json.Unmarshal(b, &n)
		}
		if err != nil {
			return nil, fmt.Errorf("look how far the subtasks are: %w", err)
		}
		all = append(all, n)
	}
	return all, nil
}

// complete writes the success files of folders that are due for all subtasks.
func (w *writer) complete(now int64) error {
	all, err := w.notes()
	if err != nil || all == nil {
		return err
	}
	low, ended := int64(processor.Never), true
	for _, n := range all {
		low, ended = min(low, n.Low), ended && n.Ended
	}
	done := map[string]bool{}
	for _, n := range all {
		for folder, due := range n.Pending {
			if done[folder] || due > low || !w.commit.byTime && !ended && due > now {
				continue
			}
			done[folder] = true
			if err := w.succeed(folder); err != nil {
				return err
			}
		}
	}
	for folder := range done {
		delete(w.waiting, folder)
		if !w.hides(folder) {
			delete(w.pending, folder)
		}
	}
	return nil
}

// hides says that there are files of a folder that do not show.
func (w *writer) hides(folder string) bool {
	in := func(h handle) bool {
		return strings.HasPrefix(h.Final, folder+"/") && strings.Count(h.Final, "/") == strings.Count(folder, "/")+1
	}
	return w.open[folder] != nil || slices.ContainsFunc(w.closed, in) || slices.ContainsFunc(w.ready, in)
}

// succeed writes the success file of a folder, unless somebody took the folder away.
func (w *writer) succeed(folder string) error {
	path := filepath.Join(w.path, filepath.FromSlash(folder))
	err := os.WriteFile(filepath.Join(path, w.commit.file), nil, 0o666)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("tell that a folder is complete: %w", err)
	}
	return syncFolder(path)
}

// dueCommit is when folders or the note want a Prepare.
func (w *writer) dueCommit() int64 {
	at := int64(processor.Never)
	switch {
	case !w.commit.byTime:
		for _, due := range w.pending {
			at = min(at, due)
		}
	case w.watermark() > w.note.Low:
		at = 0
	}
	if at == processor.Never {
		return at
	}
	return max(at, w.prepared.Add(notePause).UnixMilli())
}
