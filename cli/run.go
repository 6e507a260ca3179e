package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/spf13/cobra"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/embedded"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
)

// embeddedPartitions is how many partitions topics on the embedded broker have: with one, no quiet partition holds event time back.
const embeddedPartitions = 1

// newRunCommand runs a script as an app.
func newRunCommand(o *Options, environ []string) *cobra.Command {
	return scriptCommand{
		use: "run", short: "Run a SQL script as an app, until it is stopped or all its inputs have ended",
		long: `Runs the INSERTs of a script as one app, as one member of its group: start it again elsewhere to share the work. The
app id is that of the configuration, else SET 'pipeline.name', else the name of the file. Status, metrics and health are
those of every app. It ends by SIGTERM or SIGINT, or when all inputs have an end and were read to it.

With --embedded it needs no Kafka: a broker in this process holds the topics as long as it runs, and the rows that the
script writes to topics are printed.

Exit codes: 0 a graceful end, 1 the app gave up or was refused, 2 the script, the configuration or the command line has
a mistake.`,
		flags: func(own *pflag.FlagSet) {
			own.Bool("embedded", false, "run on a broker in this process, and print what is written to topics")
			own.Duration("duration", 0, "stop after this time; 0 = run on")
			own.String("check-state", "", "print what this script makes of the app's state (latest), or of a savepoint (savepoint:<path>), and end: 0 if it can go on with it, 1 if not")
			own.Lookup("check-state").NoOptDefVal = "latest"
		},
		run: runScript,
	}.command(o, environ)
}

func runScript(c *scriptCall) error {
	inProcess, err := c.flags.GetBool("embedded")
	if err != nil {
		return err
	}
	duration, err := c.flags.GetDuration("duration")
	if err != nil {
		return err
	}
	if duration < 0 {
		return usageError{errors.New("--duration must not be below 0")}
	}
	check, err := c.flags.GetString("check-state")
	if err != nil {
		return err
	}
	if inProcess && check != "" {
		return usageError{errors.New("--check-state looks at the state on a cluster, and --embedded has none: leave one of them out")}
	}
	c.offline, c.runs = inProcess, true
	s, err := c.open()
	if err != nil {
		return err
	}
	stderr := c.cmd.ErrOrStderr()
	if err := s.warn(stderr); err != nil {
		return err
	}
	ctx := c.cmd.Context()
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	switch {
	case check != "":
		c.config.Start.Mode = check
		return asUsage(library.CheckTopologyState(ctx, c.config.App.ID, s.app.Topology, c.config, c.cmd.OutOrStdout(), stderr))
	case inProcess:
		return runEmbedded(ctx, c, s)
	}
	return asUsage(library.RunReplanned(ctx, c.config.App.ID, s.app.Topology, c.config, c.replan(s)))
}

// replan plans the script anew, where it has tables that look for topics which come later.
func (c *scriptCall) replan(s *script) library.Replan {
	return library.Replan{Every: s.app.Discover, Topology: func(ctx context.Context) (*processor.Topology, error) {
		o := c.options()
		o.Connectors = c.program.connectors(&clusterTopics{ctx, c.config}, false)
		now, err := readScript(c.path, c.text, o)
		if err == nil {
			err = now.plan()
		}
		if err != nil {
			return nil, err
		}
		return now.app.Topology, nil
	}}
}

// asUsage gives faults of a topology the exit code of a mistake.
func asUsage(err error) error {
	var bad *library.TopologyError
	if errors.As(err, &bad) {
		return usageError{err}
	}
	return err
}

// runEmbedded runs a script on a broker in this process and prints what is written to its topics.
func runEmbedded(ctx context.Context, c *scriptCall, s *script) (err error) {
	plan, err := s.app.Topology.Plan()
	if err != nil {
		return asUsage(&library.TopologyError{Err: err})
	}
	b, err := embedded.Start(embeddedPartitions)
	if err != nil {
		return err
	}
	defer b.Close()
	reads, writes := topicsOf(plan)
	all := slices.Concat(reads, writes)
	slices.Sort(all)
	if err := b.CreateTopics(ctx, slices.Compact(all)...); err != nil {
		return err
	}
	cfg := c.config
	if c.loaded.Origin("log.level") == "default" {
		cfg.Log.Level = "warn" // the rows are what is to be seen
	}
	cfg.Brokers, cfg.State.Store, cfg.Group.LeaveOnStop = b.Addrs(), "memory", true
	cfg.Security = configs.Security{}
	out := c.cmd.OutOrStdout()
	if _, err := fmt.Fprintf(c.cmd.ErrOrStderr(), "App %s on an embedded broker at %s.\n", cfg.App.ID, b.Addrs()[0]); err != nil {
		return err
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan error, 1)
	go func() { followed <- follow(run, b, writes, out) }()
	err = asUsage(library.RunTopology(run, cfg.App.ID, s.app.Topology, cfg))
	cancel()
	return errors.Join(err, <-followed)
}

// follow prints the committed records of topics.
func follow(ctx context.Context, b *embedded.Broker, topics []string, out io.Writer) error {
	if len(topics) == 0 {
		return nil
	}
	var failed error
	err := b.Follow(ctx, topics, func(r embedded.Record) {
		line := r.Topic + ": "
		if len(r.Key) > 0 {
			line += readable(r.Key) + " "
		}
		if _, err := fmt.Fprintln(out, line+readable(r.Value)); err != nil {
			failed = err
		}
	})
	return errors.Join(err, failed)
}

// readable is a message as it is if it is text, and quoted else.
func readable(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b) && !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' }):
		return string(b)
	}
	return strconv.Quote(string(b))
}

// topicsOf are the topics that are not the app's own, once each and sorted.
func topicsOf(plan *task.Plan) (reads, writes []string) {
	for _, sub := range plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal {
				reads = append(reads, in.Topic)
			}
		}
		for _, o := range sub.Outputs {
			if !o.Internal && !o.DeadLetter {
				writes = append(writes, o.Topic)
			}
		}
	}
	slices.Sort(reads)
	slices.Sort(writes)
	return slices.Compact(reads), slices.Compact(writes)
}
