package millrace

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/txn"
)

// admin does what is asked of the app by HTTP. It has connections of its own, as a command has: the worker may wait to be
// resumed, and what it leads to an end must not depend on the worker's.
type admin struct {
	kafka txn.Options
	blobs blob.Store // nil = none
	align time.Duration
	log   *slog.Logger
	by    string

	ctx    context.Context // of savepoints
	cancel context.CancelFunc
	wg     sync.WaitGroup // at most one savepoint

	mu   sync.Mutex
	busy bool
	done bool // closed: no other savepoint begins
}

// newAdmin makes one; a savepoint that it takes fails when ctx ends. Close it.
func newAdmin(ctx context.Context, kafka txn.Options, blobs blob.Store, align time.Duration, log *slog.Logger) *admin {
	a := &admin{kafka: kafka, blobs: blobs, align: align, log: log, by: "HTTP"}
	if kafka.InstanceID != "" {
		a.by += " at member " + kafka.InstanceID
	}
	a.ctx, a.cancel = context.WithCancel(ctx)
	return a
}

// adminPatience is how long Close lets a savepoint end: one that has stopped the app is at its end.
const adminPatience = 5 * time.Second

// Close gives up the savepoint that is being taken, if it does not end soon.
func (a *admin) Close() {
	a.mu.Lock()
	a.done = true
	a.mu.Unlock()
	t := time.AfterFunc(adminPatience, a.cancel)
	a.wg.Wait()
	t.Stop()
	a.cancel()
}

// open connects. Close both.
func (a *admin) open(ctx context.Context) (*txn.Cluster, *txn.Control, error) {
	cluster, err := txn.Connect(ctx, a.kafka)
	if err != nil {
		return nil, nil, err
	}
	control, err := cluster.OpenControl(ctx)
	if err != nil {
		cluster.Close()
		return nil, nil, err
	}
	return cluster, control, nil
}

// claim keeps a second savepoint from being begun by this process; at the brokers the first one is asked, too.
func (a *admin) claim() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.done:
		return fmt.Errorf("take savepoint: %w: this one ends", engine.ErrNotRunning)
	case a.busy:
		return fmt.Errorf("take savepoint: %w, asked for by HTTP at this member", engine.ErrSavepointRuns)
	}
	a.busy = true
	a.wg.Add(1)
	return nil
}

// release lets the next one begin.
func (a *admin) release() {
	a.mu.Lock()
	a.busy = false
	a.mu.Unlock()
}

// CreateSavepoint implements api.Admin.
func (a *admin) CreateSavepoint(ctx context.Context, name string, stop bool, timeout time.Duration) (string, error) {
	if a.blobs == nil {
		return "", api.ErrNoStore
	}
	if name == "" {
		name = SavepointName(a.kafka.AppID, time.Now())
	}
	if err := a.claim(); err != nil {
		return "", err
	}
	begun, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer a.wg.Done()
		err := a.take(name, stop, timeout, sync.OnceFunc(func() { close(begun) }))
		a.release()
		if err != nil {
			failed <- err
		}
	}()
	select {
	case <-begun:
		return name, nil
	case err := <-failed:
		return "", err
	case <-ctx.Done():
		return "", fmt.Errorf("take savepoint %s: whether it has begun is not known: %w", name, ctx.Err())
	}
}

// savepointTries is how often a savepoint is taken if subtasks move meanwhile.
const savepointTries = 5

// take takes a savepoint; begun is called when the members are asked.
func (a *admin) take(name string, stop bool, timeout time.Duration, begun func()) error {
	cluster, control, err := a.open(a.ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	defer control.Close()
	asked := false
	sp, err := engine.TakeSavepoint(a.ctx, cluster, control, a.blobs, engine.SavepointOptions{Name: name, Stop: stop, Timeout: timeout, AlignTimeout: a.align, By: a.by, Version: Version(),
		Progress: func(int, int, int) {
			asked = true
			begun()
		},
		Tries: savepointTries,
		Again: func(err error) { a.log.Warn("savepoint is tried again", "savepoint", name, "error", err) }})
	switch {
	case err == nil:
		begun()
		a.log.Info("savepoint completed", "savepoint", name, "bytes", sp.Bytes(), "stop", stop)
	case asked: // else who asked is told
		a.log.Error("savepoint failed", "savepoint", name, "error", err)
	}
	return err
}

func (a *admin) savepoints() (*checkpoint.Savepoints, error) {
	if a.blobs == nil {
		return nil, api.ErrNoStore
	}
	return checkpoint.NewSavepoints(a.blobs, a.kafka.AppID, nil, nil), nil
}

// Savepoints implements api.Admin.
func (a *admin) Savepoints(ctx context.Context) ([]api.Savepoint, error) {
	saved, err := a.savepoints()
	if err != nil {
		return nil, err
	}
	return api.ListSavepoints(ctx, saved)
}

// Savepoint implements api.Admin.
func (a *admin) Savepoint(ctx context.Context, name string) (api.Savepoint, error) {
	saved, err := a.savepoints()
	if err != nil {
		return api.Savepoint{}, err
	}
	return api.ShowSavepoint(ctx, saved, name)
}

// DeleteSavepoint implements api.Admin.
func (a *admin) DeleteSavepoint(ctx context.Context, name string) error {
	saved, err := a.savepoints()
	if err != nil {
		return err
	}
	if sp, err := saved.Show(ctx, name); err == nil && sp.Status == checkpoint.StatusCompleted {
		cluster, err := txn.Connect(ctx, a.kafka)
		if err == nil {
			err = engine.CheckUnneeded(ctx, cluster, a.kafka.AppID, sp.ID)
			cluster.Close()
		}
		if err != nil {
			return fmt.Errorf("delete savepoint %s: %w", name, err)
		}
	}
	u, err := saved.Delete(ctx, name)
	if err == nil {
		a.log.Info("savepoint deleted by HTTP", "savepoint", name, "bytes", u.Bytes)
	}
	return err
}

// Stop implements api.Admin.
func (a *admin) Stop(ctx context.Context) error {
	return a.update(ctx, func(control *txn.Control) error { return engine.Stop(ctx, control, a.by) })
}

// Resume implements api.Admin.
func (a *admin) Resume(ctx context.Context) error {
	return a.update(ctx, func(control *txn.Control) error { return engine.Resume(ctx, control) })
}

func (a *admin) update(ctx context.Context, fn func(*txn.Control) error) error {
	cluster, control, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	defer control.Close()
	return fn(control)
}

// SavepointName is the name that a savepoint gets if none is given: from app and time.
func SavepointName(app string, now time.Time) string {
	stamp := now.UTC().Format("20060102-150405")
	for app != "" && (app[0] == '.' || len(app)+1+len(stamp) > 100) { // see checkpoint.CheckName
		app = app[1:]
	}
	return app + "-" + stamp
}
