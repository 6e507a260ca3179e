package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/doctor"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/sql/compile"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/sql/sqltest"
)

// errNotFit and errWarned are why check exits with 1; the report has said everything else.
var (
	errNotFit = errors.New("a check failed; the report says what to do")
	errWarned = errors.New("there are warnings, and --strict makes each a failure")
)

// newCheckCommand looks for mistakes in a script and in what it meets.
func newCheckCommand(o *Options, environ []string) *cobra.Command {
	return scriptCommand{
		use: "check", short: "Look for mistakes in a SQL script, and in the topics, rights and records that it meets",
		long: `Reads and plans a script, warns of classic mistakes, and then asks the cluster: are the topics there, may the app read,
write and commit, do partition counts fit, lie records where their key belongs, can a sample of records be decoded, do
their times look right, and are they in the order that the watermark expects. It changes nothing.

Exit codes: 0 nothing failed, 1 a check failed (with --strict also: a warning), 2 the script, the configuration or the
command line has a mistake.`,
		flags: func(own *pflag.FlagSet) {
			own.String("format", "text", "form of the report: text or json")
			own.Bool("offline", false, "look at the script alone; no broker is asked")
			own.Bool("strict", false, "exit with 1 if there are warnings")
			own.Int("members", 0, "how many members the app will have; 0 = not known")
		},
		run: checkScript,
	}.command(o, environ)
}

// checkReport is what check writes as JSON.
type checkReport struct {
	App      string         `json:"app"`
	Script   string         `json:"script"`
	Errors   diag.List      `json:"errors"`
	Warnings diag.List      `json:"warnings"`
	Checks   []doctor.Check `json:"checks"`
}

func checkScript(c *scriptCall) error {
	asJSON, err := form(c.flags)
	if err != nil {
		return err
	}
	c.offline, err = c.flags.GetBool("offline")
	if err != nil {
		return err
	}
	strict, err := c.flags.GetBool("strict")
	if err != nil {
		return err
	}
	members, err := c.flags.GetInt("members")
	if err != nil {
		return err
	}
	r := checkReport{App: c.config.App.ID, Script: c.path, Errors: diag.List{}, Warnings: diag.List{}, Checks: []doctor.Check{}}
	s, err := c.open()
	var bad scriptError
	if errors.As(err, &bad) && asJSON {
		r.Errors = bad.list
		return errors.Join(writeJSON(c.cmd.OutOrStdout(), r), err)
	}
	if err != nil {
		return err
	}
	r.Warnings = append(append(r.Warnings, s.warnings...), s.printed()...)
	top, err := s.app.Topology.Plan()
	if err != nil {
		return asUsage(&library.TopologyError{Err: err})
	}
	report := doctor.Report{Checks: []doctor.Check{c.commits()}}
	if !c.offline {
		in, err := c.doctorOf(s, top, members)
		if err != nil {
			return err
		}
		report.Checks = append(report.Checks, doctor.Run(c.cmd.Context(), in).Checks...)
		schemas, err := s.schemas(c.connectors())
		if err != nil {
			return err
		}
		report.Checks = append(report.Checks, schemas...)
	}
	r.Checks = report.Checks
	if asJSON {
		err = writeJSON(c.cmd.OutOrStdout(), r)
	} else {
		err = r.write(c.cmd.OutOrStdout(), report)
	}
	switch {
	case err != nil:
		return err
	case report.Failed():
		return errNotFit
	case strict && r.warned():
		return errWarned
	}
	return nil
}

// notInTransaction is the warning of a sink whose rows are no part of the transaction.
const notInTransaction = "W22"

// printed warns of tables that are printed: all others that are written take part in the commit.
func (s *script) printed() (list diag.List) {
	for _, sink := range s.app.Plan.Sinks {
		if sink.Table != nil && sink.Options["connector"] == "print" {
			at := sink.At()
			list.Add(diag.New(at.Source, at.Span, notInTransaction, "table %s is printed, which is no part of the transaction: a crash right after a commit loses the lines of that commit", sink.Table.Path))
		}
	}
	return list
}

// warned says that there is a warning.
func (r *checkReport) warned() bool {
	for _, c := range r.Checks {
		if c.Status == doctor.Warn {
			return true
		}
	}
	return len(r.Warnings) > 0
}

func (r *checkReport) write(w io.Writer, report doctor.Report) error {
	if _, err := io.WriteString(w, r.Warnings.Text()); err != nil {
		return err
	}
	if len(r.Warnings) > 0 {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	return report.WriteText(w)
}

// commits looks whether commits come in time.
func (c *scriptCall) commits() doctor.Check {
	latency, timeout := c.config.Commit.MaxLatency, c.config.Transaction.Timeout
	check := doctor.Check{Name: "commits", Status: doctor.OK, Found: fmt.Sprintf("every %v at most, transactions end after %v", latency, timeout)}
	// A commit that is retried, or waits for a rebalance, must end before the brokers abort it.
	if 3*latency > timeout {
		check.Status = doctor.Warn
		check.Found += ": a commit that is held up for a moment is aborted, and its records are processed again"
		check.Do = []string{fmt.Sprintf("set commit.max-latency to at most %v, or raise transaction.timeout to %v", timeout/3, 3*latency)}
	}
	return check
}

// doctorOf is what the doctor looks at for a script.
func (c *scriptCall) doctorOf(s *script, top *task.Plan, members int) (doctor.Input, error) {
	kafka, err := library.KafkaOptions(c.config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return doctor.Input{}, err
	}
	app := c.config.App.ID
	in := doctor.Input{Kafka: kafka, Internal: []string{app + "-control"},
		Parallelism: c.config.Parallelism, ReplicationFactor: c.config.Internal.ReplicationFactor, CommitLatency: c.config.Commit.MaxLatency}
	if c.config.State.Store == "pebble" {
		in.StateDir = c.config.State.Dir
	}
	keyed, err := s.keyedTopics(c.connectors())
	if err != nil {
		return in, err
	}
	for _, sub := range top.Subs {
		d := doctor.SubTopology{Parallelism: sub.Parallelism}
		for _, t := range sub.Inputs {
			if t.Internal {
				in.Internal = append(in.Internal, app+"-"+t.Topic+"-repartition")
				continue
			}
			d.Inputs = append(d.Inputs, doctor.Topic{Name: t.Topic, Keyed: keyed[t.Topic]})
		}
		for _, o := range sub.Outputs {
			if !o.Internal && !o.DeadLetter {
				d.Outputs = append(d.Outputs, o.Topic)
			}
		}
		in.Subs = append(in.Subs, d)
	}
	zone, err := s.session.Zone()
	if err != nil {
		return in, err
	}
	in.Look = func(records map[record.TopicPartition][]record.Record, partitions map[string]int) []doctor.Check {
		checks := membersCheck(in.Subs, partitions, members)
		samples, err := sqltest.Samples(s.app.Plan, compile.Options{Connectors: c.connectors(), Zone: zone, Idle: idleOf(s)}, partitions, records)
		if err != nil {
			return append(checks, doctor.Check{Name: "decoding", Status: doctor.Warn, Found: err.Error(), Do: []string{"see the error"}})
		}
		return append(checks, sampleChecks(samples, time.Now())...)
	}
	return in, nil
}

// idleOf is the idle time-out of tables that name none.
func idleOf(s *script) time.Duration {
	d, ok := asDuration(s.session.Config["table.exec.source.idle-timeout"])
	if !ok {
		return 0
	}
	return d.(time.Duration)
}

// keyedTopics are the topics whose partitioning by key the plan relies on.
func (s *script) keyedTopics(registry connector.Registry) (map[string]bool, error) {
	keyed := map[string]bool{}
	var failed error
	for _, sink := range s.app.Plan.Sinks {
		rel.Walk(sink, func(n rel.Node) bool {
			scan, ok := n.(*rel.PScan)
			if !ok || failed != nil {
				return failed == nil
			}
			conn := registry[scan.Options["connector"]]
			if conn == nil {
				return true
			}
			t := connector.Table{Table: scan.Table, Options: scan.Options}
			tr, err := conn.Traits(t)
			if err != nil || tr.Keyed == nil {
				failed = err
				return true
			}
			t.Columns, t.Layout = scan.Columns, rel.Layout(scan)
			source, err := conn.Source(t)
			if err != nil {
				failed = err
				return false
			}
			for _, topic := range source.Topics {
				keyed[topic] = true
			}
			return true
		})
	}
	return keyed, failed
}

// schemas asks the services that tables need which are written, such as schema registries, whether they take the rows.
func (s *script) schemas(registry connector.Registry) ([]doctor.Check, error) {
	zone, err := s.session.Zone()
	if err != nil {
		return nil, err
	}
	var found checkParts
	for _, n := range s.app.Plan.Sinks {
		conn := registry[n.Options["connector"]]
		if n.Table == nil || conn == nil {
			continue
		}
		sink, err := conn.Sink(connector.Table{Table: n.Table, Options: n.Options, Columns: n.Columns, Layout: rel.Layout(n), Key: n.Key, Zone: zone})
		if err != nil {
			return nil, err
		}
		if sink.Ask == nil {
			continue
		}
		said, err := sink.Ask()
		for _, text := range said {
			found.good(fmt.Sprintf("table %s: %s", n.Table.Path, text))
		}
		if err != nil {
			found.bad(fmt.Sprintf("table %s: %s", n.Table.Path, err), "without it the app stops when it writes the first row")
		}
	}
	if len(found.wrong)+len(found.right) == 0 {
		return nil, nil
	}
	check := found.check("schemas")
	if check.Status == doctor.Warn {
		check.Status = doctor.Fail
	}
	return []doctor.Check{check}, nil
}

// membersCheck looks whether all members will have work.
func membersCheck(subs []doctor.SubTopology, partitions map[string]int, members int) []doctor.Check {
	most := 0
	for _, s := range subs {
		for _, t := range s.Inputs {
			most = max(most, partitions[t.Name])
		}
	}
	if most == 0 {
		return nil
	}
	c := doctor.Check{Name: "members", Status: doctor.OK, Found: fmt.Sprintf("the topics have work for up to %s", plural(most, "member"))}
	if members > most {
		c.Status = doctor.Warn
		c.Found += fmt.Sprintf(": %d of %d are idle", members-most, members)
		c.Do = []string{fmt.Sprintf("start %d, or give the topics that are read more partitions", most)}
	}
	return []doctor.Check{c}
}

// sampleChecks judge what tables make of records.
func sampleChecks(samples []sqltest.Sample, now time.Time) []doctor.Check {
	var decoding, times, order, quiet checkParts
	for _, s := range samples {
		name := s.Table.Path.String()
		switch {
		case s.Bad > 0:
			decoding.bad(fmt.Sprintf("table %s: %s of the sample cannot be decoded, for example: %s", name, plural(s.Bad, "record"), s.Error),
				"compare columns and format of the table with the records; errors.decode says what becomes of such records")
		default:
			decoding.good("table " + name)
		}
		if s.Table.Watermark == nil {
			continue
		}
		if s.NoTime > 0 {
			times.bad(fmt.Sprintf("table %s: the time of %s is NULL", name, plural(s.NoTime, "record")), "drop such rows, or compute the time so that it is never NULL")
		}
		if s.Rows == 0 {
			continue
		}
		unit := oddUnit(s.First, s.Last, now)
		if unit != "" {
			times.bad(fmt.Sprintf("table %s: times from %s to %s %s", name, timeText(s.First), timeText(s.Last), unit), "say the unit: TO_TIMESTAMP_LTZ(column, 0) for seconds, 3 for milliseconds; divide micro- and nanoseconds first")
		} else if s.NoTime == 0 {
			times.good(fmt.Sprintf("table %s from %s to %s", name, timeText(s.First), timeText(s.Last)))
		}
		switch {
		case unit != "": // first the times
		case s.Behind > 0:
			order.bad(fmt.Sprintf("table %s: %d of %s are behind the watermark of their partition, by up to %v: they are late", name, s.Behind, plural(s.Rows, "record"), time.Duration(s.MostBehind)*time.Millisecond),
				fmt.Sprintf("make the delay of the watermark of %s longer by at least %v, or expect late records", name, time.Duration(s.MostBehind+1)*time.Millisecond))
		default:
			order.good(fmt.Sprintf("table %s: none of %s is late", name, plural(s.Rows, "record")))
		}
		if s.Quiet > 0 && !s.Idle {
			quiet.bad(fmt.Sprintf("table %s: %d of %s have no records: they hold back event time, and no window ends", name, s.Quiet, plural(s.Partitions, "partition")),
				"SET 'table.exec.source.idle-timeout' = '1 min', or write to all partitions")
		} else {
			quiet.good("table " + name)
		}
	}
	return []doctor.Check{decoding.check("decoding"), times.check("event time"), order.check("order"), quiet.check("quiet partitions")}
}

// checkParts are what was found for several tables.
type checkParts struct{ wrong, right, do []string }

func (p *checkParts) bad(found, do string) { p.wrong, p.do = append(p.wrong, found), append(p.do, do) }

func (p *checkParts) good(found string) { p.right = append(p.right, found) }

func (p *checkParts) check(name string) doctor.Check {
	switch {
	case len(p.wrong) > 0:
		return doctor.Check{Name: name, Status: doctor.Warn, Found: strings.Join(p.wrong, "; "), Do: p.do}
	case len(p.right) == 0:
		return doctor.Check{Name: name, Status: doctor.Skipped, Found: "no records to look at"}
	}
	return doctor.Check{Name: name, Status: doctor.OK, Found: strings.Join(p.right, ", ")}
}

func timeText(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05")
}

// oddUnit says what unit a time was perhaps read in wrongly, of the least and the greatest one; "" = they look right.
// Plausible are times from 2000 to a year from now.
func oddUnit(first, last int64, now time.Time) string {
	plausible := func(ms int64) bool {
		return ms >= time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() && ms <= now.AddDate(1, 0, 0).UnixMilli()
	}
	odd := first
	if plausible(first) {
		odd = last
	}
	switch {
	case plausible(odd):
		return ""
	case odd > 0 && odd < 1e11 && plausible(odd*1000):
		return "look as if seconds were read as milliseconds"
	case plausible(odd / 1000):
		return "look as if microseconds were read as milliseconds"
	case plausible(odd / 1e6):
		return "look as if nanoseconds were read as milliseconds"
	}
	return "are before 2000 or more than a year ahead"
}
