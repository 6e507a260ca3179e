package millrace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/telemetry"
	"github.com/millrace-stream/millrace/processor"
)

// errNotCompatible ends --check-state with exit code 1; the table has told why.
var errNotCompatible = errors.New("this program cannot take over the state: see the rows that say dropped or incompatible")

// CheckState prints what this program would make of the state of the running or stopped app, or of a savepoint
// (Config.Start.Mode), as a table. It changes nothing. The error says that a start would be refused.
func CheckState(ctx context.Context, app string, topology func(*processor.Topology), cfg Config, stdout, stderr io.Writer) error {
	t := processor.New(processor.Defaults{BadInput: DecodePolicy(cfg)})
	topology(t)
	return CheckTopologyState(ctx, app, t, cfg, stdout, stderr)
}

// CheckTopologyState is CheckState for a topology that is made already.
func CheckTopologyState(ctx context.Context, app string, t *processor.Topology, cfg Config, stdout, stderr io.Writer) error {
	cfg.App.ID = app
	if err := cfg.Validate(); err != nil {
		return err
	}
	plan, err := t.Plan()
	if err != nil {
		return &TopologyError{err}
	}
	log := telemetry.NewLogger(stderr, max(slog.LevelWarn, cfg.Log.SlogLevel()).String(), cfg.Log.Format) // stdout is the table's
	cfg.Group.Static = false                                                                              // it joins no group
	kafka, err := KafkaOptions(cfg, nil, log)
	if err != nil {
		return err
	}
	blobs, err := OpenBlobs(ctx, cfg, log)
	if err != nil {
		return err
	}
	if blobs != nil {
		defer blobs.Close()
	}
	table, err := engine.CheckState(ctx, engine.Options{
		Version: Version(), Kafka: kafka, Plan: plan, Parallelism: cfg.Parallelism, AllowDroppedState: cfg.Start.AllowDroppedState, Logger: log,
		ReplicationFactor: int16(cfg.Internal.ReplicationFactor), InternalCompression: cfg.Internal.Compression,
		Checkpoints: engine.Checkpoints{Blobs: blobs}, Start: engine.Start{Mode: cfg.Start.Mode, Nonce: cfg.Start.Nonce},
		OpenBlobs: func(ctx context.Context, url string) (blob.Store, error) { return openBlobsAt(ctx, cfg, url, log) },
	})
	if len(table) > 0 {
		fmt.Fprint(stdout, table)
	}
	switch {
	case err != nil:
		return err
	case table.Refused():
		return errNotCompatible
	case len(table) == 0:
		fmt.Fprintf(stdout, "App %s has no state that this start would go on with: it begins empty.\n", app)
	}
	return nil
}
