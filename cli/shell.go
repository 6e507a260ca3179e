package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/adhoc"
	"github.com/millrace-stream/millrace/internal/embedded"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/shell"
	"github.com/millrace-stream/millrace/txn"
)

// newShellCommand is the interactive shell.
func newShellCommand(o *Options, environ []string) *cobra.Command {
	return &cobra.Command{
		Use: "sql [file ...] [flags]", Short: "Ask queries in the interactive shell, or carry out files of SQL one statement at a time",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &shellCall{program: o, cmd: cmd, args: args, environ: environ}
			return c.run()
		},
	}
}

const shellLong = `Carries out SQL statement by statement. A query shows its result as it changes: it reads committed records of its topics
and changes nothing in the cluster - no group, no transaction, no internal topic - and its state is in memory. An INSERT
runs as an app until it ends or is interrupted: with the app.id of the configuration or SET 'pipeline.name', or with a new
one each time, of which nothing is left behind.

Without a file, and with a terminal, it is a shell with history and completion; \? lists its own commands. Files, -e and
a standard input that is no terminal are carried out to their end or the first error.

  SET 'execution.runtime-mode' = 'batch'                   a query ends where its topics end now
  SET 'sql-client.execution.result-mode' = 'changelog'     the changes instead of the table

Exit codes: 0 done, 1 a statement failed, 2 the configuration or the command line has a mistake.`

// shellCall is one call of the command.
type shellCall struct {
	program *Options
	cmd     *cobra.Command
	args    []string
	environ []string
	own     *pflag.FlagSet
	config  configs.Config
	broker  *embedded.Broker
	topics  map[string]bool // made on broker
	// nameless is the app.id that nobody has chosen.
	nameless string

	clusters map[string]*txn.Cluster // by the settings of tables
}

// load reads the configuration; defaults are what tables say.
func (c *shellCall) load(defaults map[string]any) (*configs.Loaded, error) {
	c.own = pflag.NewFlagSet("sql", pflag.ContinueOnError)
	c.own.StringArrayP("execute", "e", nil, "carry out these statements; may be given several times")
	c.own.String("format", "table", "how results are printed: table, csv or json")
	c.own.Bool("embedded", false, "use a broker in this process instead of a cluster; topics are made as statements name them")
	c.own.String("init", "", "a file of statements to begin with, such as CREATE TABLE")
	c.nameless = appName("sql-" + by())
	all := map[string]any{"app.id": c.nameless, "log.level": "warn"} // results are what is to be seen
	maps.Copy(all, defaults)
	return configs.Load(configs.LoadOptions{Args: c.args, Environ: c.environ, Flags: c.own, Defaults: all})
}

func (c *shellCall) run() (err error) {
	loaded, err := c.load(nil)
	if errors.Is(err, pflag.ErrHelp) {
		_, err := fmt.Fprintf(c.cmd.OutOrStdout(), "%s\n\n%s", shellLong, configs.Usage("millrace sql [file ...]", c.own))
		return err
	}
	if err != nil {
		return err
	}
	c.config = loaded.Config
	statements, e1 := c.own.GetStringArray("execute")
	form, e2 := c.own.GetString("format")
	inProcess, e3 := c.own.GetBool("embedded")
	first, e4 := c.own.GetString("init")
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return err
	}
	if !slices.Contains([]string{"table", "csv", "json"}, form) {
		return usageError{fmt.Errorf("unknown format %q: table, csv or json is wanted", form)}
	}
	if inProcess {
		if c.broker, err = embedded.Start(embeddedPartitions); err != nil {
			return err
		}
		defer c.broker.Close()
		c.topics = map[string]bool{}
		c.config.Brokers, c.config.State.Store, c.config.Group.LeaveOnStop, c.config.Security = c.broker.Addrs(), "memory", true, configs.Security{}
	}
	c.clusters = map[string]*txn.Cluster{}
	defer func() {
		for _, k := range c.clusters {
			k.Close()
		}
	}()
	files := loaded.Args
	interactive := len(files) == 0 && len(statements) == 0 && term.IsTerminal(int(os.Stdin.Fd()))
	o := shell.Options{
		SQL: sql.Options{Env: environment(c.environ), Functions: c.program.Functions, Connectors: c.program.connectors(c, false), BadInput: library.DecodePolicy(c.config)},
		Out: c.cmd.OutOrStdout(), Err: c.cmd.ErrOrStderr(), Form: form,
		Query: c.query, Insert: c.insert,
		Interruptible: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt)
		},
	}
	if f, ok := o.Out.(*os.File); ok && interactive && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		o.Terminal = newTerminal(os.Stdin, f)
	}
	s := shell.New(o)
	ctx := c.cmd.Context()
	if interactive {
		// Ctrl-C stops a statement and not the shell.
		ctx = context.WithoutCancel(ctx)
	}
	if first != "" {
		files = append([]string{first}, files...)
	}
	for _, f := range files {
		if err := told(s.File(ctx, f)); err != nil {
			return err
		}
	}
	for _, text := range statements {
		if err := told(s.Script(ctx, "-e", text)); err != nil {
			return err
		}
	}
	switch {
	case interactive:
		if _, err := fmt.Fprintf(o.Err, "Millrace %s. Statements end with ; and \\? is help.\n", library.Version()); err != nil {
			return err
		}
		return s.Interactive(ctx, c.history())
	case len(files) == 0 && len(statements) == 0 || first != "" && len(files) == 1 && len(statements) == 0:
		text, err := io.ReadAll(c.cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("read statements: %w", err)
		}
		return told(s.Script(ctx, "stdin", string(text)))
	}
	return nil
}

// errTold is why sql exits with 1; what is wrong was said.
var errTold = errors.New("not all statements were carried out")

func told(err error) error {
	if errors.Is(err, shell.ErrStatement) {
		return errTold
	}
	return err
}

// history is the file of the shell's history; "" if there is no place for it.
func (c *shellCall) history() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		h, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(h, ".local", "state")
	}
	dir = filepath.Join(dir, "millrace")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	return filepath.Join(dir, "sql_history")
}

// settled is the configuration with what tables say of their cluster.
func (c *shellCall) settled(settings map[string]string) (configs.Config, error) {
	if len(settings) == 0 || c.broker != nil {
		return c.config, nil
	}
	defaults := map[string]any{}
	for k, v := range settings {
		defaults[k] = v
	}
	loaded, err := c.load(defaults)
	if err != nil {
		return configs.Config{}, err
	}
	return loaded.Config, nil
}

// cluster connects to the cluster that tables name, once.
func (c *shellCall) cluster(ctx context.Context, settings map[string]string) (*txn.Cluster, error) {
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&key, "%s=%s\n", k, settings[k])
	}
	if k := c.clusters[key.String()]; k != nil {
		return k, nil
	}
	cfg, err := c.settled(settings)
	if err != nil {
		return nil, err
	}
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no brokers are known: set 'properties.bootstrap.servers' in the table, --brokers or MILLRACE_BROKERS; --embedded needs none")
	}
	k, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c.clusters[key.String()] = k
	return k, nil
}

// Topics is of connector.Cluster: which topics there are, for patterns.
func (c *shellCall) Topics(settings map[string]string) (map[string]int, error) {
	k, err := c.cluster(c.cmd.Context(), settings)
	if err != nil {
		return nil, err
	}
	all, err := k.AllTopics(c.cmd.Context())
	return othersTopics(all, c.config.App.ID), err
}

// prepare makes the topics of an app on the embedded broker.
func (c *shellCall) prepare(ctx context.Context, app *sql.App) error {
	if c.broker == nil {
		return nil
	}
	plan, err := app.Topology.Plan()
	if err != nil {
		return err
	}
	reads, writes := topicsOf(plan)
	var missing []string
	for _, t := range append(reads, writes...) {
		if !c.topics[t] && t != shell.Topic {
			c.topics[t] = true
			missing = append(missing, t)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return c.broker.CreateTopics(ctx, missing...)
}

// query runs a SELECT.
func (c *shellCall) query(ctx context.Context, q shell.Query) error {
	if err := c.prepare(ctx, q.App); err != nil {
		return err
	}
	plan, err := q.App.Topology.Plan()
	if err != nil {
		return err
	}
	sub, err := adhoc.Main(plan)
	if err != nil {
		return err
	}
	o := adhoc.Options{Plan: plan, Bounded: q.Bounded}
	var values [][]byte
	o.Output = func(records []record.Output) error {
		values = values[:0]
		for _, r := range records {
			if sub.Outputs[r.Topic].Topic == shell.Topic {
				values = append(values, r.Value)
			}
		}
		return q.Rows(values)
	}
	o.Progress = func(p adhoc.Progress) {
		var parts []string
		add := func(format string, n int64) {
			if n > 0 {
				parts = append(parts, fmt.Sprintf(format, n))
			}
		}
		add("%d records read", p.Records)
		add("%d to go", p.Behind)
		add("%d late", p.Late)
		if p.Watermark > 0 && p.Watermark < 1<<50 {
			parts = append(parts, "watermark "+time.UnixMilli(p.Watermark).UTC().Format("2006-01-02 15:04:05.000"))
		}
		q.Progress(strings.Join(parts, ", "))
	}
	if adhoc.Reads(sub) {
		if o.Cluster, err = c.cluster(ctx, q.App.Settings); err != nil {
			return err
		}
	}
	return adhoc.Run(ctx, o)
}

// insert runs INSERTs as an app.
func (c *shellCall) insert(ctx context.Context, app *sql.App, config map[string]string) error {
	if err := c.prepare(ctx, app); err != nil {
		return err
	}
	cfg, err := c.settled(app.Settings)
	if err != nil {
		return err
	}
	name := config["pipeline.name"]
	nameless := name == "" && cfg.App.ID == c.nameless
	switch {
	case name != "":
		cfg.App.ID = appName(name)
	case nameless:
		// Each is an app of its own, as a job is in Flink, and leaves nothing behind.
		cfg.App.ID += "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
		cfg.State.Store, cfg.Group.LeaveOnStop, cfg.Listen = "memory", true, configs.ListenOff
	}
	_, _ = fmt.Fprintf(c.cmd.ErrOrStderr(), "running as app %s; Ctrl-C stops it\n", cfg.App.ID)
	err = library.RunTopology(ctx, cfg.App.ID, app.Topology, cfg)
	if err == nil && ctx.Err() == nil {
		_, _ = fmt.Fprintln(c.cmd.ErrOrStderr(), "done: its inputs were read to their ends, and what it wrote is committed")
	}
	if nameless && c.broker == nil {
		err = errors.Join(err, c.remove(context.WithoutCancel(ctx), cfg))
	}
	return err
}

// remove removes what an app without a name has made for itself, but for its dead letters.
func (c *shellCall) remove(ctx context.Context, cfg configs.Config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cluster, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer cluster.Close()
	remains, err := engine.LookAt(ctx, cluster, nil, cfg.App.ID)
	if err != nil {
		return err
	}
	empty, err := c.deadLettersEmpty(ctx, cluster, remains.DeadLetter)
	if err != nil {
		return err
	}
	if !empty {
		_, _ = fmt.Fprintf(c.cmd.ErrOrStderr(), "bad records are in topic %s, which stays: millrace dead-letter list --app.id %s\n", remains.DeadLetter.Name, cfg.App.ID)
	}
	return remains.Remove(ctx, cluster, nil, engine.RemoveOptions{Delete: true, DeadLetters: empty, By: by() + " (millrace sql)"})
}

func (c *shellCall) deadLettersEmpty(ctx context.Context, cluster *txn.Cluster, topic *engine.OwnTopic) (bool, error) {
	if topic == nil {
		return true, nil
	}
	var tps []record.TopicPartition
	for p := range topic.Partitions {
		tps = append(tps, record.TopicPartition{Topic: topic.Name, Partition: p})
	}
	ends, err := cluster.EndOffsets(ctx, tps)
	for _, end := range ends {
		if end > 0 {
			return false, err
		}
	}
	return true, err
}
