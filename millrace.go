// Package millrace is the front door of the library: it runs a topology of processor operators as one member of an
// app's group.
//
//	func main() { millrace.Main("order-counts", topology) }
//
// Main reads the configuration from flags, MILLRACE_* variables and a file, serves metrics and status, and stops
// gracefully on SIGTERM. Run does the same for programs that bring their own configuration and context.
package millrace

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/internal/telemetry"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// Config is the configuration of a worker; see package configs and docs/configuration.md.
type Config = configs.Config

// Exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1 // the worker gave up, or could not start
	exitUsage  = 2 // flags, environment, file or topology are wrong
)

// Main runs topology as the app until SIGTERM or SIGINT, and exits the process: 0 after a graceful stop, 1 if the
// worker gave up, 2 if configuration or topology are wrong. A second signal ends the process at once.
//
// app is the default of app.id. Flags that the program defined with the standard flag package are parsed together with
// Millrace's own.
func Main(app string, topology func(*processor.Topology)) {
	os.Exit(run(app, topology, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(app string, topology func(*processor.Topology), args, environ []string, stdout, stderr io.Writer) int {
	extra := pflag.NewFlagSet(app, pflag.ContinueOnError)
	extra.AddGoFlagSet(flag.CommandLine)
	describe := extra.Bool("describe", false, "print the topology and end")
	check := extra.String("check-state", "", "print what this program makes of the app's state (latest), or of a savepoint (savepoint:<path>), and end: 0 if it can go on with it, 1 if not")
	extra.Lookup("check-state").NoOptDefVal = "latest"
	loaded, err := configs.Load(configs.LoadOptions{Args: args, Environ: environ, Flags: extra, Defaults: map[string]any{"app.id": app}})
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, configs.Usage(app, extra))
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if len(loaded.Args) > 0 {
		fmt.Fprintf(stderr, "unexpected argument %q; options are written --name=value, see --help\n", loaded.Args[0])
		return exitUsage
	}
	if *describe {
		t := processor.New()
		topology(t)
		if err := t.Validate(); err != nil {
			fmt.Fprintln(stderr, err)
			return exitUsage
		}
		fmt.Fprintln(stdout, t.Describe())
		return exitOK
	}
	if err := failpoint.ArmSpec(os.Getenv(failpoint.Env)); err != nil {
		fmt.Fprintf(stderr, "arm %s: %v\n", failpoint.Env, err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal is the default one again
	if *check != "" {
		loaded.Config.Start.Mode = *check
		err = CheckState(ctx, loaded.Config.App.ID, topology, loaded.Config, stdout, stderr)
	} else {
		err = Run(ctx, loaded.Config.App.ID, topology, loaded.Config)
	}
	var bad *TopologyError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &bad), configs.IsFaults(err):
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	fmt.Fprintln(stderr, err)
	return exitFailed
}

// TopologyError says that the topology has faults; it wraps what processor's Validate found.
type TopologyError struct{ Err error }

func (e *TopologyError) Error() string { return e.Err.Error() }
func (e *TopologyError) Unwrap() error { return e.Err }

// Run runs topology as the app until ctx ends, then stops gracefully: what was processed is committed, and the group
// is left. It returns nil after that, a *TopologyError if the topology has faults, and otherwise what made the worker
// give up.
func Run(ctx context.Context, app string, topology func(*processor.Topology), cfg Config) error {
	t := processor.New(processor.Defaults{BadInput: DecodePolicy(cfg)})
	topology(t)
	return RunTopology(ctx, app, t, cfg)
}

// RunTopology is Run for a topology that is made already, with its own default for bad input.
func RunTopology(ctx context.Context, app string, t *processor.Topology, cfg Config) error {
	return RunReplanned(ctx, app, t, cfg, Replan{})
}

// Replan makes the topology of a running app anew: one that depends on what the cluster has, as where topics are found by a
// pattern.
type Replan struct {
	// Every is how often that is done; 0 = never.
	Every time.Duration
	// Topology is the topology that a start would have now.
	Topology func(ctx context.Context) (*processor.Topology, error)
}

// plan is Topology for the engine.
func (r Replan) plan(ctx context.Context) (*task.Plan, error) {
	t, err := r.Topology(ctx)
	if err != nil {
		return nil, err
	}
	return t.Plan()
}

// RunReplanned is RunTopology for a topology that is made anew now and then. When it is another one that can take over the
// state, all members commit, let go, and go on with it; of one that cannot the log tells, and the app goes on as it is.
func RunReplanned(ctx context.Context, app string, t *processor.Topology, cfg Config, again Replan) error {
	cfg.App.ID = app
	if app == "" {
		return errors.New("run: the app needs a name: give one to Run, or set app.id")
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	log := telemetry.NewLogger(os.Stderr, cfg.Log.Level, cfg.Log.Format)
	plan, err := t.Plan()
	if err != nil {
		return &TopologyError{err}
	}
	budget, lent := memoryBudget(cfg)
	dir, err := openState(cfg, budget, lent, log)
	if err != nil {
		return err
	}
	defer dir.Close()
	kafka, err := KafkaOptions(cfg, dir, log)
	if err != nil {
		return err
	}
	blobs, err := openBlobs(ctx, cfg, log)
	if err != nil {
		return err
	}
	if blobs != nil {
		defer blobs.Close()
	}
	worker, metrics, err := newWorker(cfg, engine.Options{
		Version: Version(), Kafka: kafka, Plan: plan, Dir: dir, Parallelism: cfg.Parallelism,
		CommitMaxLatency: cfg.Commit.MaxLatency, CommitQuiet: cfg.Commit.Quiet, CommitMaxBytes: cfg.Commit.MaxBytes,
		WriteBehindInterval: cfg.State.WriteBehind.Interval, WriteBehindBytes: cfg.State.WriteBehind.Bytes,
		CacheBytes: budget * 35 / 100, MaxCacheBytes: budget * 55 / 100,
		Checkpoints: engine.Checkpoints{Blobs: blobs, Interval: cfg.Checkpoint.Interval, MinPause: cfg.Checkpoint.MinPause, Timeout: cfg.Checkpoint.Timeout,
			Retain: cfg.Checkpoint.Retain, Upload: cfg.Checkpoint.Concurrency, Download: cfg.State.Restore.Concurrency},
		ReplicationFactor: int16(cfg.Internal.ReplicationFactor), InternalCompression: cfg.Internal.Compression,
		Standbys: cfg.Standby.Replicas, CleanupDelay: cfg.State.Cleanup.Delay,
		LeaveOnStop: cfg.Group.LeaveOnStop, ShutdownTimeout: cfg.Shutdown.Timeout,
		BackoffMin: cfg.Restart.BackoffMin, BackoffMax: cfg.Restart.BackoffMax, MaxAttempts: cfg.Restart.MaxAttempts,
		StartOffsets: cfg.Start.Offsets, OutOfRange: cfg.Errors.OutOfRange, Advertise: advertised(cfg), AllowDroppedState: cfg.Start.AllowDroppedState, Logger: log,
		Start:     engine.Start{Mode: cfg.Start.Mode, Nonce: cfg.Start.Nonce},
		Replan:    engine.Replan{Every: again.Every, Plan: again.plan},
		OpenBlobs: func(ctx context.Context, url string) (blob.Store, error) { return openBlobsAt(ctx, cfg, url, log) },
	})
	if err != nil {
		return err
	}
	if cfg.Listen != "" && cfg.Listen != "off" {
		admin := newAdmin(ctx, kafka, blobs, cfg.Savepoint.AlignTimeout, log)
		defer admin.Close()
		srv, err := api.Listen(cfg.Listen, api.Options{Status: worker.Status, Metrics: metrics.Handler(), Logger: log, State: worker, Admin: admin, Token: cfg.Admin.Token.Reveal()})
		if err != nil {
			return err
		}
		defer srv.Close()
	}
	defer metrics.Close()
	log.Info("worker starts", "app", app, "version", Version(), "brokers", cfg.Brokers, "listen", cfg.Listen, "state_dir", cfg.State.Dir)
	if err := worker.Run(ctx); err != nil {
		return err
	}
	log.Info("worker stopped", "app", app)
	return nil
}

func newWorker(cfg Config, opts engine.Options) (*engine.Worker, *telemetry.Metrics, error) {
	var worker *engine.Worker
	metrics, err := telemetry.NewMetrics(telemetry.Options{App: cfg.App.ID, Instance: opts.Kafka.InstanceID, Version: opts.Version, Status: func() engine.Status { return worker.Status() }})
	if err != nil {
		return nil, nil, err
	}
	opts.Observer = metrics
	worker = engine.New(opts)
	return worker, metrics, nil
}

// DecodePolicy is errors.decode as a policy.
func DecodePolicy(cfg Config) processor.Policy {
	switch cfg.Errors.Decode {
	case "fail":
		return processor.Fail
	case "skip":
		return processor.Skip
	}
	return processor.DeadLetter
}

// memoryBudget is what the process may use: memory.limit, else the cgroup's limit, else 1 GiB. It also tells the Go
// runtime: a soft limit at 0.8 of it, less the block cache where that is not of Go's heap (GOMEMLIMIT of the environment goes first). lent moves
// that limit with what the block cache lends to the typed caches, which are of Go's heap. GOGC stays at Go's 100: 130 would earn
// a thirtieth of the throughput, and cost a tenth of the memory at full speed.
func memoryBudget(cfg Config) (budget int64, lent func(bytes int64)) {
	budget = cfg.Memory.Limit
	if budget <= 0 {
		budget = engine.MemoryLimit()
	}
	if budget > 0 && os.Getenv("GOMEMLIMIT") == "" {
		limit := budget / 5 * 4
		if pebblestore.OffHeap && cfg.State.Store != "memory" {
			limit -= budget / 4 // the block cache
			lent = func(bytes int64) { debug.SetMemoryLimit(limit + bytes) }
		}
		debug.SetMemoryLimit(limit)
	}
	if budget <= 0 {
		budget = 1 << 30
	}
	return budget, lent
}

func openState(cfg Config, budget int64, lent func(bytes int64), log *slog.Logger) (statestore.Dir, error) {
	if cfg.State.Store == "memory" {
		return memstore.NewDir(cfg.App.ID), nil
	}
	return pebblestore.OpenDir(filepath.Clean(cfg.State.Dir), cfg.App.ID, pebblestore.Options{CacheBytes: budget / 4, Lent: lent, Logger: log})
}

// KafkaOptions turns a configuration into what the Kafka border needs; the group instance id comes from the state
// directory unless it is configured.
func KafkaOptions(cfg Config, dir statestore.Dir, log *slog.Logger) (txn.Options, error) {
	tlsConfig, err := configs.TLSConfig(cfg)
	if err != nil {
		return txn.Options{}, err
	}
	o := txn.Options{
		AppID: cfg.App.ID, Brokers: cfg.Brokers, TLS: tlsConfig, Rack: cfg.Rack, Logger: log,
		SASL:           txn.SASL{Mechanism: cfg.Security.SASL.Mechanism, Username: cfg.Security.SASL.Username, Password: cfg.Security.SASL.Password.Reveal()},
		SessionTimeout: cfg.Group.SessionTimeout, HeartbeatInterval: cfg.Group.HeartbeatInterval, RebalanceTimeout: cfg.Group.RebalanceTimeout,
		TransactionTimeout: cfg.Transaction.Timeout, RequestTimeout: cfg.Request.Timeout,
		FetchMaxBytes: int32(cfg.Fetch.MaxBytes), FetchMaxPartBytes: int32(cfg.Fetch.MaxPartitionBytes), FetchMinBytes: int32(cfg.Fetch.MinBytes), FetchMaxWait: cfg.Fetch.MaxWait,
		OutputCompression: cfg.Output.Compression,
	}
	if !cfg.Group.Static {
		return o, nil
	}
	if o.InstanceID = cfg.Group.InstanceID; o.InstanceID == "" && dir != nil {
		if o.InstanceID, err = dir.InstanceID(); err != nil {
			return o, fmt.Errorf("read the group instance id of the state directory: %w", err)
		}
	}
	return o, nil
}

// version is set by -ldflags "-X github.com/millrace-stream/millrace.version=..."; see Version.
var version string

// Version is the version of Millrace that the program was built with.
func Version() string {
	if version != "" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(bi.Deps, &bi.Main) {
			if m.Path == "github.com/millrace-stream/millrace" && m.Version != "" {
				return m.Version
			}
		}
	}
	return "(devel)"
}
