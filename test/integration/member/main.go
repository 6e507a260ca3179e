// Command member is the example running-total with two settings that only tests want, from the environment: MEMBER_PREFER=1
// restores from a checkpoint wherever one is usable, however small the state is, MEMBER_GRACE is how long what checkpoints
// need no more is kept, which has no place in a configuration, and MEMBER_STANDBYS the number of standbys.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/telemetry"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

type event struct {
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type sum struct {
	User  string    `json:"user"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
	At    time.Time `json:"ts,unixmilli"`
}

type total struct{ Count, Cents int64 }

func topology(t *processor.Topology) {
	events := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: os.Getenv("IN")})
	totals := processor.Process(events, "total", func(ctx *processor.KeyedContext[string, event, sum]) {
		state := processor.Value[total](ctx, "total")
		ctx.OnRecord(func(e event) error {
			a := state.Get()
			a.Count++
			a.Cents += int64(math.Round(e.Amount * 100))
			state.Set(a)
			ctx.Emit(sum{ctx.Key(), a.Count, float64(a.Cents) / 100, e.At})
			return nil
		})
	})
	processor.ToTopic(totals, os.Getenv("OUT"))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	loaded, err := configs.Load(configs.LoadOptions{Environ: os.Environ()})
	if err != nil {
		return err
	}
	if err := failpoint.ArmSpec(os.Getenv(failpoint.Env)); err != nil {
		return err
	}
	grace, err := time.ParseDuration(os.Getenv("MEMBER_GRACE"))
	if err != nil {
		return fmt.Errorf("MEMBER_GRACE: %w", err)
	}
	standbys, err := strconv.Atoi(cmp.Or(os.Getenv("MEMBER_STANDBYS"), "0"))
	if err != nil {
		return fmt.Errorf("MEMBER_STANDBYS: %w", err)
	}
	cfg := loaded.Config
	log := telemetry.NewLogger(os.Stderr, cfg.Log.Level, cfg.Log.Format)
	t := processor.New()
	topology(t)
	plan, err := t.Plan()
	if err != nil {
		return err
	}
	dir, err := pebblestore.OpenDir(cfg.State.Dir, cfg.App.ID, pebblestore.Options{Logger: log})
	if err != nil {
		return err
	}
	defer dir.Close()
	kafka, err := millrace.KafkaOptions(cfg, dir, log)
	if err != nil {
		return err
	}
	blobs, err := millrace.OpenBlobs(ctx, cfg, log)
	if err != nil {
		return err
	}
	if blobs == nil {
		return errors.New("checkpoint.url is not set")
	}
	defer blobs.Close()
	return engine.New(engine.Options{
		Version: "test", Kafka: kafka, Plan: plan, Dir: dir, Parallelism: cfg.Parallelism,
		CommitMaxLatency: cfg.Commit.MaxLatency, CommitQuiet: cfg.Commit.Quiet,
		WriteBehindInterval: cfg.State.WriteBehind.Interval, WriteBehindBytes: cfg.State.WriteBehind.Bytes, CacheBytes: 16 << 20,
		Checkpoints: engine.Checkpoints{Blobs: blobs, Interval: cfg.Checkpoint.Interval, MinPause: cfg.Checkpoint.MinPause, Timeout: cfg.Checkpoint.Timeout,
			Retain: cfg.Checkpoint.Retain, Upload: cfg.Checkpoint.Concurrency, Download: cfg.State.Restore.Concurrency,
			Grace: grace, Prefer: os.Getenv("MEMBER_PREFER") == "1"},
		Standbys:          standbys,
		ReplicationFactor: int16(cfg.Internal.ReplicationFactor), LeaveOnStop: cfg.Group.LeaveOnStop, ShutdownTimeout: cfg.Shutdown.Timeout,
		BackoffMin: cfg.Restart.BackoffMin, BackoffMax: cfg.Restart.BackoffMax, MaxAttempts: cfg.Restart.MaxAttempts, Logger: log,
	}).Run(ctx)
}
