package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/txn"
)

// scriptError is what is wrong with a script: it is shown with the lines that it is about, and exits with 2.
type scriptError struct{ list diag.List }

func (e scriptError) Error() string { return e.list.Error() }

// Unwrap makes it a mistake of the user.
func (e scriptError) Unwrap() error { return usageError{e.list} }

// script is a file of SQL that a command works on.
type script struct {
	path, text string
	session    *sql.Session
	sinks      []*rel.Sink
	app        *sql.App
	// warnings are those of reading, and of planning once it is planned.
	warnings diag.List
}

// environment gives the values of ${NAME}.
func environment(environ []string) parse.Env {
	return func(name string) (string, bool) {
		for i := len(environ) - 1; i >= 0; i-- { // the last one counts
			if k, v, _ := strings.Cut(environ[i], "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

// readScript reads a script and gives its statements their meaning; it opens no connection.
func readScript(path, text string, o sql.Options) (*script, error) {
	s := &script{path: path, text: text, session: sql.NewSession(o)}
	sinks, list := s.session.Read(path, text)
	if list.Err() != nil {
		return nil, scriptError{list}
	}
	if len(sinks) == 0 {
		return nil, usageError{fmt.Errorf("%s writes nothing: add INSERT INTO a table, with a SELECT", path)}
	}
	s.sinks, s.warnings = sinks, list
	return s, nil
}

// plan plans it and makes its topology.
func (s *script) plan() error {
	app, list := s.session.App(s.sinks)
	if list.Err() != nil {
		return scriptError{list}
	}
	s.app, s.warnings = app, append(append(s.warnings, list...), app.Warnings()...)
	s.warnings.Sort()
	return nil
}

// patterns are what stands for the topics of tables whose topics are not known, by the name that plans have for them.
func (s *script) patterns() map[string]string {
	names := map[string]string{}
	for _, sink := range s.app.Plan.Sinks {
		rel.Walk(sink, func(n rel.Node) bool {
			if scan, ok := n.(*rel.PScan); ok && scan.Options["topic-pattern"] != "" {
				names[kafka.PatternTopic(scan.Options["topic-pattern"])] = "topics of the pattern " + scan.Options["topic-pattern"]
			}
			return true
		})
	}
	return names
}

// warn writes the warnings for people.
func (s *script) warn(w io.Writer) error {
	_, err := io.WriteString(w, s.warnings.Text())
	return err
}

// appName is the app id of a script that names none: that of its file.
func appName(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, name)
}

// scriptCommand is a command that works on a script with the configuration of a program.
type scriptCommand struct {
	use, short, long string
	flags            func(own *pflag.FlagSet)
	run              func(c *scriptCall) error
}

// scriptCall is one call of a scriptCommand.
type scriptCall struct {
	program *Options
	cmd     *cobra.Command
	flags   *pflag.FlagSet
	environ []string
	path    string
	text    string
	config  configs.Config
	// loaded has where each value of config came from.
	loaded *configs.Loaded
	// defaults are the keys of the configuration that the script sets; load reads the configuration with them and others.
	defaults map[string]any
	load     func(defaults map[string]any) (*configs.Loaded, error)
	// notes are what SET says that has no effect here.
	notes diag.List
	// offline says that no cluster is asked, runs that the script runs all the same.
	offline, runs bool
}

func (s scriptCommand) command(o *Options, environ []string) *cobra.Command {
	return &cobra.Command{
		Use: s.use + " pipeline.sql [flags]", Short: s.short,
		// The flags are those of every program, so configs parses them.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &scriptCall{program: o, cmd: cmd, environ: environ}
			c.load = func(defaults map[string]any) (*configs.Loaded, error) {
				c.flags = pflag.NewFlagSet(s.use, pflag.ContinueOnError)
				s.flags(c.flags)
				return configs.Load(configs.LoadOptions{Args: args, Environ: environ, Flags: c.flags, Defaults: defaults})
			}
			loaded, err := c.load(nil)
			if errors.Is(err, pflag.ErrHelp) {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", s.long, configs.Usage("millrace "+s.use+" pipeline.sql", c.flags))
				return err
			}
			if err != nil {
				return err
			}
			if len(loaded.Args) != 1 {
				return usageError{fmt.Errorf("%s takes one file of SQL, and there are %d; millrace %s --help shows the usage", s.use, len(loaded.Args), s.use)}
			}
			c.path = loaded.Args[0]
			text, err := os.ReadFile(c.path)
			if err != nil {
				return usageError{fmt.Errorf("read the script: %w", err)}
			}
			c.text = string(text)
			// What the script sets is the program's own default: file, environment and flags go before it.
			c.defaults, c.notes = settingsOf(c.path, c.text, environment(environ))
			if _, ok := c.defaults["app.id"]; !ok {
				c.defaults["app.id"] = appName(c.path)
			}
			if c.loaded, err = c.load(c.defaults); err != nil {
				return err
			}
			c.config = c.loaded.Config
			return s.run(c)
		},
	}
}

// settled is the configuration with what tables say of the cluster, which gives way to all else.
func (c *scriptCall) settled(settings map[string]string) (*configs.Loaded, error) {
	defaults := map[string]any{}
	for k, v := range settings {
		defaults[k] = v
	}
	maps.Copy(defaults, c.defaults)
	return c.load(defaults)
}

// Topics is of connector.Cluster.
func (c *scriptCall) Topics(settings map[string]string) (topics map[string]int, err error) {
	loaded, err := c.settled(settings)
	if err != nil {
		return nil, err
	}
	return (&clusterTopics{c.cmd.Context(), loaded.Config}).Topics(nil)
}

// clusterTopics are the topics of a cluster that is known.
type clusterTopics struct {
	ctx    context.Context
	config configs.Config
}

// Topics is of connector.Cluster.
func (c *clusterTopics) Topics(map[string]string) (map[string]int, error) {
	cluster, err := connect(c.ctx, c.config)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	all, err := cluster.AllTopics(c.ctx)
	if err != nil {
		return nil, err
	}
	return othersTopics(all, c.config.App.ID), nil
}

// connect connects to the cluster of a configuration, in silence.
func connect(ctx context.Context, cfg configs.Config) (*txn.Cluster, error) {
	options, err := library.KafkaOptions(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return txn.Connect(ctx, options)
}

// othersTopics are the topics, with their partitions, that are neither the cluster's own nor the app's.
func othersTopics(all map[string]txn.TopicInfo, app string) map[string]int {
	topics := map[string]int{}
	for name, t := range all {
		if !strings.HasPrefix(name, "__") && !ownTopic(app, name) {
			topics[name] = int(t.Partitions)
		}
	}
	return topics
}

// ownTopic says that a topic is one that the app makes for itself.
func ownTopic(app, name string) bool {
	rest, ok := strings.CutPrefix(name, app+"-")
	if !ok {
		return false
	}
	for _, kind := range []string{"control", "dead-letter", "repartition", "changelog", "changelog-expiring"} {
		if rest == kind || strings.HasSuffix(rest, "-"+kind) {
			return true
		}
	}
	return false
}

// options are those of a session of this call.
func (c *scriptCall) options() sql.Options {
	return sql.Options{Env: environment(c.environ), Functions: c.program.Functions, Connectors: c.connectors(), BadInput: library.DecodePolicy(c.config)}
}

// connectors are what tables may stand for.
func (c *scriptCall) connectors() connector.Registry {
	if c.offline {
		return c.program.connectors(nil, !c.runs)
	}
	return c.program.connectors(c, false)
}

// open reads and plans the script, and takes what its tables say of the cluster into the configuration.
func (c *scriptCall) open() (*script, error) {
	s, err := readScript(c.path, c.text, c.options())
	if err != nil {
		return nil, err
	}
	if err := s.plan(); err != nil {
		return nil, err
	}
	s.warnings = append(append(c.notes, s.warnings...), s.app.Unused(c.connectors())...)
	s.warnings.Sort()
	if c.loaded, err = c.settled(s.app.Settings); err != nil {
		return nil, fmt.Errorf("what tables say of the cluster: %w", err)
	}
	c.config = c.loaded.Config
	return s, nil
}

// form is the value of a flag --format: text or json.
func form(flags *pflag.FlagSet) (json bool, err error) {
	f, err := flags.GetString("format")
	if err == nil && f != "text" && f != "json" {
		err = usageError{fmt.Errorf("unknown format %q: text or json is wanted", f)}
	}
	return f == "json", err
}
