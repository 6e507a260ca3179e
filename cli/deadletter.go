package cli

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/txn"
)

// newDeadLetterCommand shows the records that an app gave up, and sends them again.
func newDeadLetterCommand(environ []string) *cobra.Command {
	cmd := parentCommand("dead-letter", "Show the records that the app could not use, and send them again")
	cmd.AddCommand(
		appCommand{
			use: "list", short: "List dead letters: where each came from, and why it is there",
			flags: func(own *pflag.FlagSet) {
				own.StringP("output", "o", "text", "form of the output: text, or json (one object a line)")
				own.String("since", "", "only those written since then: a duration before now (2h, 7d) or a time (2026-01-31T15:04:05Z)")
				own.Int("limit", 100, "only the newest so many; 0 = all since --since")
			},
			run: listDeadLetters,
		}.command(environ),
		appCommand{
			use: "show", short: "Show one dead letter: headers, key and value", args: "<offset>",
			flags: func(own *pflag.FlagSet) {
				own.StringP("output", "o", "text", "form of the output: text or json")
				own.Int32("partition", 0, "partition of the dead-letter topic")
				own.String("as", "auto", "form of key and value: text, hex, or auto (text where it is printable)")
			},
			run: showDeadLetter,
		}.command(environ),
		appCommand{
			use: "replay", short: "Write dead letters to their source topics again, as they were", args: "[offset ...]",
			flags: func(own *pflag.FlagSet) {
				own.Int32("partition", 0, "partition of the dead-letter topic")
				own.Int64("from", -1, "first offset")
				own.Int64("to", -1, "last offset, itself included; without it up to the newest one")
				own.String("topic", "", "write to this topic instead, partitioned by key as Kafka does")
				own.Bool("by-key", false, "partition by key as Kafka does, instead of to the partition that each record came from")
				own.Bool("yes", false, "do not ask")
			},
			run: replayDeadLetters,
		}.command(environ),
	)
	return cmd
}

// letter is one record of the dead-letter topic.
type letter struct {
	partition int32
	record    record.Record
	task.DeadLetter
	err error // it is none of ours
}

// letterbox reads the dead letters of an app.
type letterbox struct {
	call    *appCall
	cluster *txn.Cluster
	topic   string
	starts  map[record.TopicPartition]int64
	ends    map[record.TopicPartition]int64 // last stable offsets
}

// openLetterbox connects; who gets it closes its cluster.
func openLetterbox(c *appCall) (*letterbox, error) {
	cluster, err := txn.Connect(c.ctx, c.kafka)
	if err != nil {
		return nil, err
	}
	b := &letterbox{call: c, cluster: cluster, topic: c.app + "-dead-letter"}
	if err := b.look(); err != nil {
		cluster.Close()
		return nil, err
	}
	return b, nil
}

func (b *letterbox) look() error {
	infos, err := b.cluster.Topics(b.call.ctx, b.topic)
	if err != nil {
		return err
	}
	info, ok := infos[b.topic]
	if !ok {
		return fmt.Errorf("read dead letters: topic %s does not exist: app.id is wrong, the app never ran here, or it can write no dead letters", b.topic)
	}
	var tps []record.TopicPartition
	for p := range info.Partitions {
		tps = append(tps, record.TopicPartition{Topic: b.topic, Partition: p})
	}
	if b.starts, err = b.cluster.StartOffsets(b.call.ctx, tps); err != nil {
		return err
	}
	b.ends, err = b.cluster.StableOffsets(b.call.ctx, tps)
	return err
}

// partition is the one named by the flag --partition.
func (b *letterbox) partition() (record.TopicPartition, error) {
	n, err := b.call.flags.GetInt32("partition")
	if err != nil {
		return record.TopicPartition{}, err
	}
	tp := record.TopicPartition{Topic: b.topic, Partition: n}
	if _, ok := b.ends[tp]; !ok {
		return tp, usageError{fmt.Errorf("partition %d: topic %s has %s", n, b.topic, plural(len(b.ends), "partition"))}
	}
	return tp, nil
}

// read hands over the letters of a partition in [from, to), as far as they are there.
func (b *letterbox) read(tp record.TopicPartition, from, to int64, fn func(letter) error) error {
	return b.cluster.ReadCommitted(b.call.ctx, tp, from, min(to, b.ends[tp]), func(r record.Record) error {
		l := letter{partition: tp.Partition, record: r}
		l.DeadLetter, l.err = task.ReadDeadLetter(r.Headers)
		return fn(l)
	})
}

func listDeadLetters(c *appCall) error {
	limit, err := c.flags.GetInt("limit")
	if err != nil {
		return err
	}
	text, err := c.flags.GetString("since")
	if err != nil {
		return err
	}
	since, err := readSince(text, time.Now())
	if err != nil {
		return usageError{err}
	}
	if limit < 0 {
		return usageError{fmt.Errorf("read --limit %d: 0 or more is wanted", limit)}
	}
	b, err := openLetterbox(c)
	if err != nil {
		return err
	}
	defer b.cluster.Close()
	tps := slices.SortedFunc(maps.Keys(b.ends), func(x, y record.TopicPartition) int { return int(x.Partition) - int(y.Partition) })
	from := b.starts
	if !since.IsZero() {
		if from, err = b.cluster.OffsetsAt(c.ctx, tps, since); err != nil {
			return err
		}
	}
	var letters []letter
	total := 0
	for _, tp := range tps {
		err := b.read(tp, from[tp], math.MaxInt64, func(l letter) error {
			total++
			letters = append(letters, l)
			if limit > 0 && len(letters) >= 2*limit {
				letters = newest(letters, limit)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if limit > 0 {
		letters = newest(letters, limit)
	}
	if c.json {
		enc := json.NewEncoder(c.out)
		enc.SetEscapeHTML(false)
		for _, l := range letters {
			if err := enc.Encode(newLetterJSON(l)); err != nil {
				return err
			}
		}
		return nil
	}
	return writeLetters(c.out, b.topic, letters, total)
}

// newest are the last n by the time of writing, oldest first. The array is used again.
func newest(letters []letter, n int) []letter {
	slices.SortStableFunc(letters, func(a, b letter) int { return int(min(max(a.record.Timestamp-b.record.Timestamp, -1), 1)) })
	if len(letters) <= n {
		return letters
	}
	kept := copy(letters, letters[len(letters)-n:])
	clear(letters[kept:])
	return letters[:kept]
}

// readSince reads a duration before now, or a time; "" is the zero time.
func readSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := configs.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("read --since %q: a duration (2h, 7d) or a time (2026-01-31T15:04:05Z) is wanted", text)
	}
	return t, nil
}

func written(l letter) string { return instant(time.UnixMilli(l.record.Timestamp)) }

func source(l letter) string {
	if l.Topic == "" {
		return "-"
	}
	return fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset)
}

// maxCause bounds the cause in a table.
const maxCause = 120

// oneLine makes a text fit into a table.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if r := []rune(s); len(r) > maxCause {
		s = string(r[:maxCause-3]) + "..."
	}
	return s
}

// writeLetters writes a table for people.
func writeLetters(w io.Writer, topic string, letters []letter, total int) error {
	var sb strings.Builder
	if len(letters) > 0 {
		tw := tabwriter.NewWriter(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "PARTITION\tOFFSET\tWRITTEN\tSOURCE\tOPERATOR\tCAUSE")
		for _, l := range letters {
			operator, cause := l.Operator, oneLine(l.Error)
			if l.err != nil {
				operator, cause = "-", oneLine(l.err.Error())
			}
			fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%s\n", l.partition, l.record.Offset, written(l), source(l), operator, cause)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		sb.WriteByte('\n')
	}
	fmt.Fprintf(&sb, "%s in %s", plural(total, "dead letter"), topic)
	if len(letters) < total {
		fmt.Fprintf(&sb, ", the newest %d are shown (--limit)", len(letters))
	}
	sb.WriteByte('\n')
	_, err := io.WriteString(w, sb.String())
	return err
}

// letterJSON is a dead letter as JSON.
type letterJSON struct {
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Written   time.Time    `json:"written"`
	Source    *sourceJSON  `json:"source,omitempty"` // absent if there is no original record
	Operator  string       `json:"operator,omitempty"`
	Cause     string       `json:"cause,omitempty"`
	Problem   string       `json:"problem,omitempty"` // the record is no dead letter of ours
	Headers   []headerJSON `json:"headers,omitempty"` // of the original record; show only
	Key       *bytesJSON   `json:"key,omitempty"`     // show only, absent if null
	Value     *bytesJSON   `json:"value,omitempty"`   // show only, absent if null
}

type sourceJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"` // ms
}

type headerJSON struct {
	Key string `json:"key"`
	*bytesJSON
}

// bytesJSON are bytes as text, if they are UTF-8, else in base64.
type bytesJSON struct {
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

func newBytesJSON(b []byte) *bytesJSON {
	if b == nil {
		return nil
	}
	s := string(b)
	if utf8.Valid(b) {
		return &bytesJSON{Text: &s}
	}
	s = base64.StdEncoding.EncodeToString(b)
	return &bytesJSON{Base64: &s}
}

func newLetterJSON(l letter) letterJSON {
	j := letterJSON{Partition: l.partition, Offset: l.record.Offset, Written: time.UnixMilli(l.record.Timestamp).UTC(), Operator: l.Operator, Cause: strings.ToValidUTF8(l.Error, "\uFFFD")}
	if l.err != nil {
		j.Problem = l.err.Error()
	}
	if l.Topic != "" {
		j.Source = &sourceJSON{l.Topic, l.Partition, l.Offset, l.Timestamp}
	}
	return j
}

// original are the headers of the record before it became a dead letter.
func (l letter) original() []record.Header {
	if l.err != nil {
		return l.record.Headers
	}
	return l.Headers
}

func showDeadLetter(c *appCall) error {
	arg, err := c.oneArg("an offset")
	if err != nil {
		return err
	}
	offset, err := readOffset(arg)
	if err != nil {
		return err
	}
	as, err := c.flags.GetString("as")
	if err != nil {
		return err
	}
	if as != "auto" && as != "text" && as != "hex" {
		return usageError{fmt.Errorf("read --as %q: auto, text or hex is wanted", as)}
	}
	b, err := openLetterbox(c)
	if err != nil {
		return err
	}
	defer b.cluster.Close()
	tp, err := b.partition()
	if err != nil {
		return err
	}
	var found *letter
	if err := b.read(tp, offset, offset+1, func(l letter) error { found = &l; return nil }); err != nil {
		return err
	}
	if found == nil {
		return b.none(tp, offset)
	}
	if !c.json {
		return writeLetter(c.out, *found, as)
	}
	j := newLetterJSON(*found)
	j.Key, j.Value = newBytesJSON(found.record.Key), newBytesJSON(found.record.Value)
	for _, h := range found.original() {
		j.Headers = append(j.Headers, headerJSON{h.Key, newBytesJSON(h.Value)})
	}
	return c.writeJSON(j)
}

// none says that there is no letter at an offset.
func (b *letterbox) none(tp record.TopicPartition, offset int64) error {
	return fmt.Errorf("read dead letter at offset %d of %s: there is none; the partition holds offsets %d to %d, of which some are transaction markers", offset, tp, b.starts[tp], b.ends[tp]-1)
}

func readOffset(arg string) (int64, error) {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 0 {
		return 0, usageError{fmt.Errorf("read offset %q: a number from 0 is wanted", arg)}
	}
	return n, nil
}

// writeLetter writes everything about one for people.
func writeLetter(w io.Writer, l letter, as string) error {
	var sb strings.Builder
	line := func(name, value string) { fmt.Fprintf(&sb, "%-10s %s\n", name, value) }
	line("written", written(l))
	if l.err != nil {
		line("problem", l.err.Error())
	} else {
		if l.Topic == "" {
			line("source", "none: a timer or the result of a window")
			line("event time", strconv.FormatInt(l.Timestamp, 10)+" ("+instant(time.UnixMilli(l.Timestamp))+")")
		} else {
			line("source", fmt.Sprintf("%s/%d at offset %d", l.Topic, l.Partition, l.Offset))
			line("timestamp", strconv.FormatInt(l.Timestamp, 10)+" ("+instant(time.UnixMilli(l.Timestamp))+")")
		}
		line("operator", l.Operator)
		line("cause", strings.ReplaceAll(strings.ToValidUTF8(l.Error, "?"), "\n", "\n           "))
	}
	for _, h := range l.original() {
		line("header", h.Key+" = "+shown(h.Value, as))
	}
	line("key", shown(l.record.Key, as))
	line("value", shown(l.record.Value, as))
	_, err := io.WriteString(w, sb.String())
	return err
}

// shown is how bytes are shown: text that holds nothing unprintable as it is, else a dump.
func shown(b []byte, as string) string {
	switch {
	case b == nil:
		return "null"
	case len(b) == 0:
		return "empty"
	case as == "text", as == "auto" && printable(b):
		return strings.ToValidUTF8(string(b), "?")
	}
	return fmt.Sprintf("%s\n%s", plural(len(b), "byte"), strings.TrimSuffix(hex.Dump(b), "\n"))
}

func printable(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return false
		}
	}
	return true
}

// replay is what is to be sent again.
type replay struct {
	box      *letterbox
	tp       record.TopicPartition // of the dead-letter topic
	from, to int64                 // [from, to)
	only     []int64               // offsets, sorted; nil = all in [from, to)
	topic    string                // instead of the source topic
	byKey    bool

	targets map[string]*target
	infos   map[string]txn.TopicInfo
	skipped int // without an original record
	foreign int // none of ours
}

// target is a topic that records go to.
type target struct {
	name       string
	records    int
	partitions map[int32]bool
	elsewhere  int // records whose key Kafka's partitioner puts into another partition
}

// batchRecords and batchBytes bound what is on its way at once.
const (
	batchRecords = 500
	batchBytes   = 8 << 20
)

func replayDeadLetters(c *appCall) error {
	r, yes, err := readReplay(c)
	if err != nil {
		return err
	}
	if r.box, err = openLetterbox(c); err != nil {
		return err
	}
	defer r.box.cluster.Close()
	if r.tp, err = r.box.partition(); err != nil {
		return err
	}
	r.to = min(r.to, r.box.ends[r.tp])
	if err := r.plan(); err != nil {
		return err
	}
	if err := r.writePlan(c.out); err != nil {
		return err
	}
	if len(r.targets) == 0 {
		return nil
	}
	if !yes {
		if err := c.confirm("Go on?", "nothing was written"); err != nil {
			return err
		}
	}
	return r.run(c)
}

// readReplay reads the flags and arguments.
func readReplay(c *appCall) (r *replay, yes bool, err error) {
	r = &replay{targets: map[string]*target{}}
	var errs [5]error
	var to int64
	r.from, errs[0] = c.flags.GetInt64("from")
	to, errs[1] = c.flags.GetInt64("to")
	r.topic, errs[2] = c.flags.GetString("topic")
	r.byKey, errs[3] = c.flags.GetBool("by-key")
	yes, errs[4] = c.flags.GetBool("yes")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, false, err
	}
	r.byKey = r.byKey || r.topic != ""
	r.to = math.MaxInt64
	ranged := c.flags.Changed("from") || c.flags.Changed("to")
	switch {
	case ranged && len(c.args) > 0:
		return nil, false, usageError{errors.New("give offsets, or --from and --to, not both")}
	case ranged:
		if c.flags.Changed("from") && r.from < 0 || c.flags.Changed("to") && to < max(r.from, 0) {
			return nil, false, usageError{fmt.Errorf("read --from %d --to %d: offsets from 0 are wanted, the second not below the first", r.from, to)}
		}
		if c.flags.Changed("to") && to < math.MaxInt64 {
			r.to = to + 1
		}
		r.from = max(r.from, 0)
	case len(c.args) == 0:
		return nil, false, usageError{errors.New("which dead letters? give their offsets, or --from and --to (--from 0 for all); millrace dead-letter list shows them")}
	default:
		for _, a := range c.args {
			n, err := readOffset(a)
			if err != nil {
				return nil, false, err
			}
			r.only = append(r.only, n)
		}
		slices.Sort(r.only)
		r.only = slices.Compact(r.only)
		r.from, r.to = r.only[0], r.only[len(r.only)-1]+1
	}
	return r, yes, nil
}

// each hands over the chosen letters.
func (r *replay) each(fn func(letter) error) error {
	return r.box.read(r.tp, r.from, r.to, func(l letter) error {
		if r.only != nil {
			if _, ok := slices.BinarySearch(r.only, l.record.Offset); !ok {
				return nil
			}
		}
		return fn(l)
	})
}

// plan looks at all that would be written, and refuses what cannot be.
func (r *replay) plan() error {
	missing := slices.Clone(r.only)
	r.infos = map[string]txn.TopicInfo{}
	err := r.each(func(l letter) error {
		missing = slices.DeleteFunc(missing, func(o int64) bool { return o == l.record.Offset })
		name := r.topic
		switch {
		case l.err != nil:
			r.foreign++
			return nil
		case l.Topic == "":
			r.skipped++
			return nil
		case name == "":
			name = l.Topic
		}
		info, known := r.infos[name]
		if !known {
			infos, err := r.box.cluster.Topics(r.box.call.ctx, name)
			if err != nil {
				return err
			}
			var ok bool
			if info, ok = infos[name]; !ok {
				return fmt.Errorf("replay dead letter at offset %d: topic %s does not exist; --topic names another one", l.record.Offset, name)
			}
			r.infos[name] = info
		}
		t := r.targets[name]
		if t == nil {
			t = &target{name: name, partitions: map[int32]bool{}}
			r.targets[name] = t
		}
		p, elsewhere := r.place(l, info.Partitions)
		if p >= info.Partitions {
			return fmt.Errorf("replay dead letter at offset %d: it came from partition %d of topic %s, which has %s now; --by-key places it by its key", l.record.Offset, p, name, plural(int(info.Partitions), "partition"))
		}
		t.records++
		t.partitions[p] = true
		if elsewhere {
			t.elsewhere++
		}
		return nil
	})
	if err == nil && len(missing) > 0 {
		err = r.box.none(r.tp, missing[0])
	}
	return err
}

// place chooses the partition (pure); elsewhere says that Kafka's partitioner would choose another one.
func (r *replay) place(l letter, partitions int32) (p int32, elsewhere bool) {
	p = l.Partition
	if l.record.Key == nil {
		if r.byKey {
			p %= partitions // no key: any will do, and always the same one
		}
		return p, false
	}
	byKey := format.Partition(l.record.Key, partitions)
	if r.byKey {
		return byKey, false
	}
	return p, byKey != p
}

// writePlan tells what would be done.
func (r *replay) writePlan(w io.Writer) error {
	var sb strings.Builder
	total := 0
	for _, t := range r.targets {
		total += t.records
	}
	if total == 0 {
		fmt.Fprintf(&sb, "No dead letter to replay in %s from offset %d.\n", r.tp, r.from)
	} else {
		fmt.Fprintf(&sb, "Replay %s of %s:\n", plural(total, "dead letter"), r.tp)
	}
	for _, name := range slices.Sorted(maps.Keys(r.targets)) {
		t := r.targets[name]
		var ps []string
		for _, p := range slices.Sorted(maps.Keys(t.partitions)) {
			ps = append(ps, strconv.Itoa(int(p)))
		}
		word := "partitions "
		if len(ps) == 1 {
			word = "partition "
		}
		fmt.Fprintf(&sb, "  %s to %s, %s%s\n", plural(t.records, "record"), name, word, strings.Join(ps, ", "))
		if t.elsewhere > 0 {
			fmt.Fprintf(&sb, "    %d of them would be in another partition by their key (the topic has grown, or is partitioned in another way): --by-key sends them there\n", t.elsewhere)
		}
	}
	if r.skipped > 0 {
		fmt.Fprintf(&sb, "  left out: %s of a timer or a window, which had no record\n", plural(r.skipped, "dead letter"))
	}
	if r.foreign > 0 {
		fmt.Fprintf(&sb, "  left out: %s not written by millrace\n", plural(r.foreign, "record"))
	}
	if total > 0 {
		fmt.Fprintf(&sb, "Key, value, headers and timestamp are as they were. Every consumer of these topics sees the records again, not only %s.\n"+
			"The dead letters stay where they are: a second replay writes the records once more.\n", r.box.call.app)
	}
	_, err := io.WriteString(w, sb.String())
	return err
}

// rewrite is the original record of a letter, for its target.
func (r *replay) rewrite(l letter) txn.Rewrite {
	name := r.topic
	if name == "" {
		name = l.Topic
	}
	p, _ := r.place(l, r.infos[name].Partitions)
	return txn.Rewrite{TopicPartition: record.TopicPartition{Topic: name, Partition: p}, Key: l.record.Key, Value: l.record.Value, Headers: l.Headers, Timestamp: l.Timestamp}
}

// run writes what was planned, batch after batch, and stops after the first batch in which something was refused.
func (r *replay) run(c *appCall) error {
	w, err := r.box.cluster.OpenRewriter(r.infos)
	if err != nil {
		return err
	}
	defer w.Close()
	var (
		batch   []txn.Rewrite
		offsets []int64 // of the dead letters in the batch
		size    int
		done    int
	)
	flush := func() error {
		var failed []string
		var first error
		for i, err := range w.Write(c.ctx, batch) {
			if err == nil {
				done++
				continue
			}
			if first == nil {
				first = err
			}
			failed = append(failed, strconv.FormatInt(offsets[i], 10))
		}
		if first != nil {
			next := "; nothing comes after them"
			if last := offsets[len(offsets)-1]; last+1 < r.to {
				next = fmt.Sprintf("; those above %d were not tried", last)
			}
			return fmt.Errorf("replay dead letters: %w; %d were written, not written are the dead letters at offsets %s%s", first, done, strings.Join(failed, " "), next)
		}
		batch, offsets, size = batch[:0], offsets[:0], 0
		return nil
	}
	err = r.each(func(l letter) error {
		if l.err != nil || l.Topic == "" {
			return nil
		}
		batch, offsets = append(batch, r.rewrite(l)), append(offsets, l.record.Offset)
		if size += len(l.record.Key) + len(l.record.Value); len(batch) < batchRecords && size < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(batch) > 0 {
		err = flush()
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s written.\n", plural(done, "record"))
	return err
}
