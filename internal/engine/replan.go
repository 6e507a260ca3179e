package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
)

// Replan makes the plan of a running app anew, since it depends on what the cluster has: topics that a pattern finds.
type Replan struct {
	// Every is how often that is done; 0 = never.
	Every time.Duration
	// Plan is the plan that a start would have now.
	Plan func(ctx context.Context) (*task.Plan, error)
}

// An onward error ends a run that another one follows in the same process.
type onward interface {
	error
	// next makes the worker ready for that run.
	next(w *Worker)
}

// grownError says that an input has more partitions, which the next run takes in.
type grownError struct {
	topic    string
	had, has int32
}

func (e *grownError) Error() string {
	return fmt.Sprintf("input topic %s had %d partitions, and has %d now", e.topic, e.had, e.has)
}

func (e *grownError) next(w *Worker) {
	w.log.Info("an input has more partitions; going on with them", "topic", e.topic, "had", e.had, "has", e.has)
	w.again(w.opts.Plan)
}

// replannedError says that the app goes on with another plan.
type replannedError struct{ plan *task.Plan }

func (e *replannedError) Error() string { return "the app goes on with another plan" }

func (e *replannedError) next(w *Worker) {
	w.log.Info("going on with the topics that were found", "topics", found(w.opts.Plan, e.plan))
	w.again(e.plan)
}

// found are the topics of a plan that another one has not (pure).
func found(old, now *task.Plan) []string {
	known := externalTopics(old)
	return slices.DeleteFunc(externalTopics(now), func(t string) bool { return slices.Contains(known, t) })
}

// otherPlanPause is how often a worker looks for another plan while the members have agreed upon one that is not its own.
const otherPlanPause = time.Second

// replan looks now and then, and when another member has found something, whether the app is to go on with another plan.
func (w *Worker) replan(ctx context.Context) {
	if w.opts.Replan.Every <= 0 {
		return
	}
	refused := "" // fingerprint of a plan that the app cannot go on with
	for {
		wait := w.opts.Replan.Every
		if w.control.State().Fingerprint != w.topo.fingerprint {
			wait = min(wait, otherPlanPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.otherPlan:
		case <-time.After(wait):
		}
		p, err := w.opts.Replan.Plan(ctx)
		if err == nil && (p.Fingerprint == w.topo.fingerprint || p.Fingerprint == refused) {
			continue
		}
		if err == nil {
			err = w.takes(ctx, p)
		}
		var fatal *fatalError
		switch {
		case err == nil:
			w.fail(&replannedError{p})
			return
		case ctx.Err() != nil:
			return
		case p != nil && errors.As(err, &fatal):
			refused = p.Fingerprint
			w.log.Error("topics were found that the app cannot take in; it goes on without them, and would not start again with them", "topics", found(w.opts.Plan, p), "error", err)
		default:
			w.log.Warn("look for topics that came later", "error", err)
		}
	}
}

// takes says whether the app could go on with a plan.
func (w *Worker) takes(ctx context.Context, p *task.Plan) error {
	o := w.opts
	o.Plan = p
	table, err := CheckState(ctx, o)
	if err == nil && table.Refused() {
		err = refusal(o.Kafka.AppID, table)
	}
	return err
}
