// Command job runs the three workloads of the benchmark on the public Go API. It takes its settings from the
// environment that the benchmark's runner gives to every peer: BROKERS, IN, OUT, GROUP, WORKLOAD (w0, w1, w2), COMMIT_MS,
// STATE_DIR, INSTANCE, SESSION_MS, TXN_MS; MILLRACE_* variables come on top. CPUPROFILE names a file for a profile.
package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"context"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type order struct {
	User   string    `json:"user"`
	Item   string    `json:"item"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
	Note   string    `json:"note"`
}

type event struct {
	User   string    `json:"user"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type runningTotal struct {
	User  string    `json:"user"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
	At    time.Time `json:"ts,unixmilli"`
}

type windowTotal struct {
	User  string    `json:"user"`
	Start time.Time `json:"start,unixmilli"`
	End   time.Time `json:"end,unixmilli"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
}

type total struct{ n, cents int64 }

func (a *total) add(e event)  { a.n++; a.cents += int64(math.Round(e.Amount * 100)) }
func (a *total) sum() float64 { return float64(a.cents) / 100 }

func at(e event) time.Time { return e.At }

// workload builds w0 (copy), w1 (running total for each record) or w2 (ten-second windows).
func workload(name, in, out string) func(*processor.Topology) {
	return func(t *processor.Topology) {
		switch name {
		case "w0":
			orders := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: in})
			processor.ToTopic(orders.Filter(func(o order) bool { return o.Amount >= 1 }), out)
		case "w1":
			events := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: in})
			processor.ToTopic(processor.RunningAggregate(events, "total", processor.Fold((*total).add),
				func(user string, a total, e event) runningTotal { return runningTotal{user, a.n, a.sum(), e.At} }), out)
		case "w2":
			events := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: in, EventTime: at, MaxOutOfOrder: 2 * time.Second})
			processor.ToTopic(processor.Aggregate(events.Window(window.Tumbling(10*time.Second)), "count", processor.Fold((*total).add),
				func(w processor.Window[string], a total) windowTotal {
					return windowTotal{w.Key, w.Start, w.End, a.n, a.sum()}
				}), out)
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	app, instance := cmp.Or(os.Getenv("GROUP"), "millrace-bench"), cmp.Or(os.Getenv("INSTANCE"), "0")
	env := append(os.Environ(),
		"MILLRACE_APP_ID="+app,
		"MILLRACE_BROKERS="+cmp.Or(os.Getenv("BROKERS"), "127.0.0.1:29092"),
		"MILLRACE_STATE_DIR="+filepath.Join(cmp.Or(os.Getenv("STATE_DIR"), "state"), instance),
		"MILLRACE_LISTEN=off")
	for ours, theirs := range map[string]string{"MILLRACE_COMMIT_MAX_LATENCY": "COMMIT_MS", "MILLRACE_GROUP_SESSION_TIMEOUT": "SESSION_MS", "MILLRACE_TRANSACTION_TIMEOUT": "TXN_MS"} {
		if ms := os.Getenv(theirs); ms != "" {
			env = append(env, ours+"="+ms+"ms")
		}
	}
	loaded, err := configs.Load(configs.LoadOptions{Environ: env})
	if err != nil {
		return err
	}
	if name := os.Getenv("CPUPROFILE"); name != "" {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return millrace.Run(ctx, app, workload(cmp.Or(os.Getenv("WORKLOAD"), "w1"), cmp.Or(os.Getenv("IN"), "events"), cmp.Or(os.Getenv("OUT"), "out")), loaded.Config)
}
