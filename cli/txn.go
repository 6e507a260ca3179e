package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// offsetsTopic is where Kafka keeps the offsets of groups. Not everybody may look at it.
const offsetsTopic = "__consumer_offsets"

// newTxnCommand shows the open transactions around an app.
func newTxnCommand(environ []string) *cobra.Command {
	cmd := parentCommand("txn", "Show open transactions on the app's topics, and what to do about them")
	cmd.AddCommand(
		appCommand{
			use: "list", short: "List the open transactions on the app's topics",
			flags: func(own *pflag.FlagSet) {
				own.StringP("output", "o", "text", "form of the output: text or json")
				own.StringSlice("topic", nil, "look at this topic, too; may be given several times")
			},
			run: listTransactions,
		}.command(environ),
		appCommand{
			use: "describe", short: "Describe one transactional id, or the transactions in one partition, and what to do",
			args: "<transactional-id | topic/partition>",
			flags: func(own *pflag.FlagSet) {
				own.StringP("output", "o", "text", "form of the output: text or json")
			},
			run: describeTransactions,
		}.command(environ),
	)
	return cmd
}

// parentCommand only has commands below it.
func parentCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usageError{fmt.Errorf("unknown command %q; %s --help shows the usage", args[0], cmd.CommandPath())}
		},
	}
}

// appCommand is a command that looks at an app's topics: it takes the configuration of every program and flags of its own.
type appCommand struct {
	use, args, short string
	flags            func(own *pflag.FlagSet)
	run              func(call *appCall) error
}

// appCall is one call of an appCommand.
type appCall struct {
	ctx     context.Context
	cmd     *cobra.Command
	flags   *pflag.FlagSet
	args    []string
	app     string
	brokers string
	timeout time.Duration // for one request
	config  configs.Config
	kafka   txn.Options
	in      *bufio.Reader // of answers
	out     io.Writer
	json    bool
}

func (a appCommand) command(environ []string) *cobra.Command {
	return &cobra.Command{
		Use: strings.TrimSpace(a.use + " [flags] " + a.args), Short: a.short,
		// The flags are those of every program, so configs parses them.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			own := pflag.NewFlagSet(a.use, pflag.ContinueOnError)
			a.flags(own)
			loaded, err := configs.Load(configs.LoadOptions{Args: args, Environ: environ, Flags: own})
			if errors.Is(err, pflag.ErrHelp) {
				_, err := fmt.Fprint(cmd.OutOrStdout(), configs.Usage(strings.TrimSpace(cmd.CommandPath()+" "+a.args), own))
				return err
			}
			if err != nil {
				return err
			}
			if a.args == "" {
				if err := noArgs(cmd, loaded.Args); err != nil {
					return err
				}
			}
			call := &appCall{ctx: cmd.Context(), cmd: cmd, flags: own, args: loaded.Args, app: loaded.Config.App.ID,
				brokers: strings.Join(loaded.Config.Brokers, ","), timeout: loaded.Config.Request.Timeout, config: loaded.Config,
				in: bufio.NewReader(cmd.InOrStdin()), out: cmd.OutOrStdout()}
			if form, err := own.GetString("output"); err == nil {
				if form != "text" && form != "json" {
					return usageError{fmt.Errorf("unknown output %q: text or json is wanted", form)}
				}
				call.json = form == "json"
			}
			if call.app == "" {
				return usageError{fmt.Errorf("app.id is not set: %s must know which app is meant", cmd.CommandPath())}
			}
			if call.kafka, err = library.KafkaOptions(loaded.Config, nil, slog.New(slog.DiscardHandler)); err != nil {
				return err
			}
			return a.run(call)
		},
	}
}

// oneArg is the only argument.
func (c *appCall) oneArg(what string) (string, error) {
	if len(c.args) != 1 {
		return "", usageError{fmt.Errorf("%d arguments, wanted is one: %s; %s --help shows the usage", len(c.args), what, c.cmd.CommandPath())}
	}
	return c.args[0], nil
}

// confirm asks before something is changed. nothing says what it means that the answer was not yes.
func (c *appCall) confirm(question, nothing string) error {
	yes, err := c.ask(question)
	if err == nil && !yes {
		err = fmt.Errorf("%s: not confirmed; answer y, or give --yes", nothing)
	}
	return err
}

// ask asks a question; anything but y and yes is no. It is written to where it does not disturb JSON.
func (c *appCall) ask(question string) (yes bool, err error) {
	w := c.out
	if c.json {
		w = c.cmd.ErrOrStderr()
	}
	if _, err := fmt.Fprintf(w, "%s [y/N] ", question); err != nil {
		return false, err
	}
	answer, err := c.in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		_, err = fmt.Fprintln(w)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", err
}

// writeJSON writes one indented object.
func (c *appCall) writeJSON(v any) error { return writeJSON(c.out, v) }

// writeJSON writes an indented JSON value.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func listTransactions(c *appCall) error {
	extra, err := c.flags.GetStringSlice("topic")
	if err != nil {
		return err
	}
	cluster, err := txn.Connect(c.ctx, c.kafka)
	if err != nil {
		return err
	}
	defer cluster.Close()
	topics, err := cluster.AppTopics(c.ctx)
	if err != nil && (len(extra) == 0 || !errors.Is(err, txn.ErrNoApp)) {
		return err
	}
	topics = append(append(topics, extra...), offsetsTopic)
	slices.Sort(topics)
	found, err := cluster.OpenTransactions(c.ctx, slices.Compact(topics))
	if err != nil {
		return err
	}
	if c.json {
		err = c.writeJSON(newTransactionList(c.app, found))
	} else {
		err = writeTransactions(c.out, found)
	}
	if err != nil {
		return err
	}
	return unseen(found)
}

// unseen is an error if a look was not complete. The group's offsets may be left out: many principals may not read them.
func unseen(found txn.OpenTransactions) error {
	var errs []string
	for _, u := range found.Unseen {
		if u.Topic != offsetsTopic {
			errs = append(errs, u.Err.Error())
		}
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("the list is not complete: %s", strings.Join(errs, "; "))
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// openSince is when a transaction began, or before which moment, as far as anybody knows. The time of the last record is what
// its producer says.
func openSince(t txn.OpenTransaction) string {
	switch {
	case t.Coordinator != nil && t.Hanging == txn.HangingNo && !t.Coordinator.Started.IsZero():
		return instant(t.Coordinator.Started)
	case !t.LastTimestamp.IsZero():
		return "before " + instant(t.LastTimestamp)
	}
	return "-"
}

// holdsBack is the number of offsets that readers of committed records wait for, "-" if it is not this transaction's fault.
func holdsBack(t txn.OpenTransaction) string {
	if !t.HoldsBack() {
		return "-"
	}
	return strconv.FormatInt(t.HighWatermark-t.LastStable, 10)
}

func transactionalID(t txn.OpenTransaction) (id, state string) {
	if t.Coordinator == nil {
		return "unknown", "-"
	}
	return t.Coordinator.TransactionalID, t.Coordinator.State
}

// writeTransactions writes a table for people.
func writeTransactions(w io.Writer, found txn.OpenTransactions) error {
	var sb strings.Builder
	blocking := 0
	if len(found.Open) > 0 {
		tw := tabwriter.NewWriter(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "PARTITION\tPRODUCER/EPOCH\tTRANSACTIONAL ID\tSTATE\tFIRST OFFSET\tOPEN SINCE\tHOLDS BACK\tHANGS")
		for _, t := range found.Open {
			if t.HoldsBack() {
				blocking++
			}
			id, state := transactionalID(t)
			fmt.Fprintf(tw, "%s\t%d/%d\t%s\t%s\t%d\t%s\t%s\t%s\n", t.TopicPartition, t.ProducerID, t.ProducerEpoch, id, state, t.FirstOffset, openSince(t), holdsBack(t), t.Hanging)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		sb.WriteByte('\n')
	}
	fmt.Fprintf(&sb, "%s in %s looked at", plural(len(found.Open), "open transaction"), plural(found.Looked, "partition"))
	if blocking > 0 {
		fmt.Fprintf(&sb, "; readers of committed records wait in %s", plural(blocking, "partition"))
	}
	sb.WriteByte('\n')
	if slices.ContainsFunc(found.Open, func(t txn.OpenTransaction) bool { return t.Hanging == txn.HangingUnknown }) {
		fmt.Fprintf(&sb, "not known whether all hang: %s\n", found.Hidden)
	}
	for _, u := range found.Unseen {
		fmt.Fprintf(&sb, "not looked at: %v\n", u.Err)
	}
	if len(found.Open) > 0 {
		sb.WriteString("what to do about one: millrace txn describe <transactional-id | topic/partition>\n")
	}
	_, err := io.WriteString(w, sb.String())
	return err
}

func plural(n int, noun string) string { return plural64(int64(n), noun) }

func plural64(n int64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}

// transactionList is what list writes as JSON.
type transactionList struct {
	App        string            `json:"app"`
	Partitions int               `json:"partitions"` // looked at
	Open       []transactionJSON `json:"open"`
	Hidden     string            `json:"hidden,omitempty"` // why hanging may be unknown
	Unseen     []string          `json:"unseen,omitempty"`
}

// transactionJSON is an open transaction in one partition.
type transactionJSON struct {
	Topic           string      `json:"topic"`
	Partition       int32       `json:"partition"`
	ProducerID      int64       `json:"producer_id"`
	ProducerEpoch   int16       `json:"producer_epoch"`
	TransactionalID string      `json:"transactional_id,omitempty"`
	State           string      `json:"state,omitempty"`
	FirstOffset     int64       `json:"first_offset"`
	OpenSince       *time.Time  `json:"open_since,omitempty"`     // as its coordinator says
	LastTimestamp   *time.Time  `json:"last_timestamp,omitempty"` // of its last record
	LastStable      int64       `json:"last_stable_offset"`
	HighWatermark   int64       `json:"high_watermark"`
	HoldsBack       int64       `json:"holds_back"` // offsets; 0 if it is not the first open one
	Hanging         txn.Hanging `json:"hanging"`
	Decided         string      `json:"decided,omitempty"`
	Do              []string    `json:"do,omitempty"` // describe only
}

func newTransactionList(app string, found txn.OpenTransactions) transactionList {
	l := transactionList{App: app, Partitions: found.Looked, Open: []transactionJSON{}, Hidden: found.Hidden}
	for _, t := range found.Open {
		l.Open = append(l.Open, newTransactionJSON(t))
	}
	for _, u := range found.Unseen {
		l.Unseen = append(l.Unseen, u.Err.Error())
	}
	return l
}

func newTransactionJSON(t txn.OpenTransaction) transactionJSON {
	j := transactionJSON{
		Topic: t.Topic, Partition: t.Partition, ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, FirstOffset: t.FirstOffset,
		LastStable: t.LastStable, HighWatermark: t.HighWatermark, Hanging: t.Hanging, Decided: t.Decided, LastTimestamp: moment(t.LastTimestamp),
	}
	if t.HoldsBack() {
		j.HoldsBack = t.HighWatermark - t.LastStable
	}
	if s := t.Coordinator; s != nil {
		j.TransactionalID, j.State = s.TransactionalID, s.State
		if t.Hanging == txn.HangingNo {
			j.OpenSince = moment(s.Started)
		}
	}
	return j
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// description is all that describe knows.
type description struct {
	app, brokers string
	partition    *record.TopicPartition // asked for; nil = a transactional id
	id           *txn.TransactionState  // asked for
	found        txn.OpenTransactions
}

func describeTransactions(c *appCall) error {
	arg, err := c.oneArg("a transactional id, or topic/partition")
	if err != nil {
		return err
	}
	cluster, err := txn.Connect(c.ctx, c.kafka)
	if err != nil {
		return err
	}
	defer cluster.Close()
	d := description{app: c.app, brokers: c.brokers}
	if tp, ok := partitionArg(arg); ok {
		infos, err := cluster.Topics(c.ctx, tp.Topic)
		if err != nil {
			return err
		}
		if info, ok := infos[tp.Topic]; ok {
			if tp.Partition >= info.Partitions {
				return fmt.Errorf("describe %s: topic %s has %s", arg, tp.Topic, plural(int(info.Partitions), "partition"))
			}
			d.partition = &tp
		}
	}
	var topics []string
	if d.partition != nil {
		topics = []string{d.partition.Topic}
	} else {
		if d.id, err = cluster.DescribeTransaction(c.ctx, arg); err != nil {
			return err
		}
		if d.id == nil {
			return fmt.Errorf("describe %s: no topic/partition, and no coordinator knows it as a transactional id: it is wrong, was never used, or was forgotten after transactional.id.expiration.ms", arg)
		}
		// What hangs is not in the coordinator's list: look at all of the app's topics, too.
		if topics, err = cluster.AppTopics(c.ctx); err != nil && !errors.Is(err, txn.ErrNoApp) {
			return err
		}
		for _, tp := range d.id.Partitions {
			topics = append(topics, tp.Topic)
		}
		topics = append(topics, offsetsTopic)
		slices.Sort(topics)
		topics = slices.Compact(topics)
	}
	if d.found, err = cluster.OpenTransactions(c.ctx, topics); err != nil {
		return err
	}
	d.narrow()
	if c.json {
		err = c.writeJSON(d.json())
	} else {
		err = d.write(c.out, time.Now())
	}
	if err != nil {
		return err
	}
	return unseen(d.found)
}

// partitionArg reads topic/partition.
func partitionArg(arg string) (tp record.TopicPartition, ok bool) {
	i := strings.LastIndexByte(arg, '/')
	if i < 1 {
		return tp, false
	}
	n, err := strconv.ParseInt(arg[i+1:], 10, 32)
	return record.TopicPartition{Topic: arg[:i], Partition: int32(n)}, err == nil && n >= 0
}

// narrow leaves out what was not asked for.
func (d *description) narrow() {
	d.found.Open = slices.DeleteFunc(d.found.Open, func(t txn.OpenTransaction) bool {
		if d.partition != nil {
			return t.TopicPartition != *d.partition
		}
		return t.ProducerID != d.id.ProducerID
	})
	d.found.Unseen = slices.DeleteFunc(d.found.Unseen, func(u txn.UnseenPartitions) bool {
		return d.partition != nil && u.Partitions != nil && !slices.Contains(u.Partitions, d.partition.Partition)
	})
}

// write writes everything for people.
func (d *description) write(w io.Writer, now time.Time) error {
	var sb strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&sb, "%-18s %s\n", name, fmt.Sprintf(format, args...))
	}
	state := func(s *txn.TransactionState) {
		line("transactional id", "%s", s.TransactionalID)
		line("producer", "id %d, epoch %d", s.ProducerID, s.ProducerEpoch)
		line("state", "%s, as broker %d says, its coordinator", s.State, s.Coordinator)
		if !s.Started.IsZero() {
			line("open since", "%s (%v)", instant(s.Started), now.Sub(s.Started).Round(time.Second))
			line("time-out", "%v: the coordinator aborts it at %s", s.Timeout, instant(s.Started.Add(s.Timeout)))
		}
		if len(s.Partitions) > 0 {
			var tps []string
			for _, tp := range s.Partitions {
				tps = append(tps, tp.String())
			}
			line("partitions", "%s", strings.Join(tps, ", "))
		}
	}
	if d.id != nil {
		state(d.id)
		if len(d.found.Open) == 0 {
			line("open in", "none of %s looked at", plural(d.found.Looked, "partition"))
		}
	} else if len(d.found.Open) == 0 && len(d.found.Unseen) == 0 {
		line("partition", "%s", d.partition)
		line("open", "no transaction")
	}
	for i, t := range d.found.Open {
		if d.id == nil {
			if i > 0 {
				sb.WriteByte('\n')
			}
			if t.Coordinator != nil {
				state(t.Coordinator)
			} else {
				line("transactional id", "unknown")
				line("producer", "id %d, epoch %d", t.ProducerID, t.ProducerEpoch)
			}
		}
		line("open in", "%s from offset %d, written with epoch %d", t.TopicPartition, t.FirstOffset, t.ProducerEpoch)
		if !t.LastTimestamp.IsZero() {
			line("  last record", "has timestamp %s", instant(t.LastTimestamp))
		}
		if t.HoldsBack() {
			line("  holds back", "%s (last stable offset %d, high watermark %d)", plural(int(t.HighWatermark-t.LastStable), "offset"), t.LastStable, t.HighWatermark)
		} else {
			line("  holds back", "nothing by itself (last stable offset %d)", t.LastStable)
		}
		line("  hangs", "%s", d.hangs(t))
	}
	for _, u := range d.found.Unseen {
		line("not looked at", "%v", u.Err)
	}
	sb.WriteString("\nwhat to do\n")
	for _, s := range d.steps() {
		fmt.Fprintf(&sb, "  -> %s\n", s)
	}
	_, err := io.WriteString(w, sb.String())
	return err
}

// hangs says why a transaction hangs or not.
func (d *description) hangs(t txn.OpenTransaction) string {
	switch {
	case t.Hanging == txn.HangingUnknown:
		return "not known: no transactional id is seen for its producer id; " + d.found.Hidden
	case t.Hanging == txn.HangingNo:
		return "no"
	case t.Coordinator == nil:
		return "yes: no coordinator has a transactional id for its producer id"
	case t.Decided != "":
		return "yes: the coordinator had it " + t.Decided + ", but the partition has no marker"
	}
	return "yes: its coordinator knows of no open transaction in this partition, nor what became of this one"
}

// steps are all that can be done, each once.
func (d *description) steps() []string {
	var out []string
	for _, t := range d.found.Open {
		for _, s := range nextSteps(t, d.app, d.brokers) {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	switch {
	case len(out) > 0:
	case d.id != nil && len(d.id.Partitions) > 0:
		out = nextSteps(txn.OpenTransaction{Coordinator: d.id, Hanging: txn.HangingNo}, d.app, d.brokers)
	case len(d.found.Unseen) > 0:
		out = []string{"grant what is missing, or wait until the partition has a leader, and look again"}
	default:
		out = []string{"nothing: no transaction is open"}
	}
	return out
}

func (d *description) json() any {
	type stateJSON struct {
		TransactionalID string     `json:"transactional_id"`
		State           string     `json:"state"`
		ProducerID      int64      `json:"producer_id"`
		ProducerEpoch   int16      `json:"producer_epoch"`
		Coordinator     int32      `json:"coordinator"`
		TimeoutMs       int64      `json:"timeout_ms"`
		OpenSince       *time.Time `json:"open_since,omitempty"`
		Partitions      []string   `json:"partitions,omitempty"`
	}
	out := struct {
		transactionList
		Transaction *stateJSON `json:"transaction,omitempty"`
		Do          []string   `json:"do"`
	}{transactionList: newTransactionList(d.app, d.found), Do: d.steps()}
	for i, t := range d.found.Open {
		out.Open[i].Do = nextSteps(t, d.app, d.brokers)
	}
	if s := d.id; s != nil {
		out.Transaction = &stateJSON{s.TransactionalID, s.State, s.ProducerID, s.ProducerEpoch, s.Coordinator, s.Timeout.Milliseconds(), moment(s.Started), nil}
		for _, tp := range s.Partitions {
			out.Transaction.Partitions = append(out.Transaction.Partitions, tp.String())
		}
	}
	return out
}

// nextSteps says what can be done about an open transaction (pure), the mildest first.
func nextSteps(t txn.OpenTransaction, app, brokers string) []string {
	s := t.Coordinator
	ours := s != nil && strings.HasPrefix(s.TransactionalID, app+"-")
	tools := "kafka-transactions.sh --bootstrap-server " + brokers
	at := fmt.Sprintf("--topic %s --partition %d", t.Topic, t.Partition)
	switch t.Hanging {
	case txn.HangingUnknown:
		return []string{
			"look again as a principal that may describe all transactional ids",
			"or ask: " + tools + " find-hanging " + at,
		}
	case txn.HangingYes:
		var out []string
		if ours && s.TransactionalID != app+"-control" { // the control topic has no subtask that is taken over
			out = append(out, "start the app: the member that takes the subtask over ends the transaction as it had been decided, or says that it cannot know it")
		}
		abort := "end it by hand: " + tools + " abort " + at + " --start-offset " + strconv.FormatInt(t.FirstOffset, 10)
		switch t.Decided {
		case "aborted":
			return append(out, abort+" (it had been aborted, so nothing is lost)")
		case "committed":
			return append(out, abort+" (it had been committed: its records in this partition are lost to readers of committed records, and must be written again)")
		}
		return append(out, abort+" (its records in this partition are lost to readers of committed records, even if it had been committed: ask its producer's log first)")
	}
	if s == nil {
		return nil
	}
	if s.State != "Ongoing" {
		return []string{
			"wait: its coordinator is ending it (" + s.State + ")",
			"if it stays so, a partition without marker has no leader: kafka-topics.sh --bootstrap-server " + brokers + " --describe --unavailable-partitions",
		}
	}
	var out []string
	if ours {
		out = append(out, "nothing while the app runs: its members commit within commit.max-latency",
			"if no member runs, start the app: the takeover of the subtask ends it at once")
	} else {
		out = append(out, "nothing while its producer runs: it will commit or abort",
			"if its producer is gone, start it again: with the same transactional id it ends the old transaction")
	}
	if !s.Started.IsZero() {
		out = append(out, fmt.Sprintf("or wait: the coordinator aborts it at %s, after its time-out of %v", instant(s.Started.Add(s.Timeout)), s.Timeout))
	}
	return out
}
