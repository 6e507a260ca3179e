// Command job runs the workloads of the benchmark on the public Go API. It takes its settings from the
// environment that the benchmark's runner gives to every peer:
//
//	BROKERS, IN, OUT, GROUP   addresses, input topic, output topic, app id
//	IN2                       join: second input topic
//	WORKLOAD                  w0, w1, w2, hop, session, join or cep
//	COMMIT_MS                 commit.max-latency
//	SESSION_MS, TXN_MS        group.session-timeout, transaction.timeout
//	STATE_DIR, INSTANCE       the state is in STATE_DIR/local/INSTANCE, which may be removed while the job is down
//	CHECKPOINT_URL            checkpoint.url: where checkpoints go, file:///... or s3://...
//	CHECKPOINT_INTERVAL_MS    checkpoint.interval
//	METRICS                   host:port of the HTTP server with /metrics; without it there is none
//	STATE_BYTES               w1: bytes of a key's state, 16 (two numbers) or more
//	CPUPROFILE                file for a CPU profile
//
// MILLRACE_* variables come on top.
package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
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

// payment is an order with a payment near to it.
type payment struct {
	User    string    `json:"user"`
	Ordered time.Time `json:"ordered,unixmilli"`
	Paid    time.Time `json:"paid,unixmilli"`
	Amount  float64   `json:"amount"`
	Payment float64   `json:"payment"`
}

type action struct {
	User   string    `json:"user"`
	Item   string    `json:"item"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type total struct{ n, cents int64 }

func (a *total) add(e event)    { a.n++; a.cents += int64(math.Round(e.Amount * 100)) }
func (a *total) merge(b *total) { a.n += b.n; a.cents += b.cents }
func (a *total) sum() float64   { return float64(a.cents) / 100 }

// wide is a total with as much beside it as the state of a key shall have. What that is differs from key to key and
// cannot be compressed.
type wide struct {
	total
	pad string
}

// addWide makes the function that adds an event to a state with that many bytes of padding.
func addWide(pad int) func(a *wide, e event) {
	return func(a *wide, e event) {
		a.add(e)
		if a.pad == "" {
			a.pad = noise(e.User, pad)
		}
	}
}

// noise is n bytes that follow from seed.
func noise(seed string, n int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed)) // never an error
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return string(b[:n])
}

func at(e event) time.Time { return e.At }

// numberBytes is the size of a total.
const numberBytes = 16

// workload builds w0 (copy), w1 (running total for each record, with stateBytes of state for each key) or w2
// (ten-second windows), or one of eventTime.
func workload(name, in, in2, out string, stateBytes int) func(*processor.Topology) {
	return func(t *processor.Topology) {
		switch name {
		case "w0":
			orders := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: in})
			processor.ToTopic(orders.Filter(func(o order) bool { return o.Amount >= 1 }), out)
		case "w1":
			events := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: in})
			if stateBytes > numberBytes {
				processor.ToTopic(processor.RunningAggregate(events, "total", processor.Fold(addWide(stateBytes-numberBytes)),
					func(user string, a wide, e event) runningTotal { return runningTotal{user, a.n, a.sum(), e.At} }), out)
				return
			}
			processor.ToTopic(processor.RunningAggregate(events, "total", processor.Fold((*total).add),
				func(user string, a total, e event) runningTotal { return runningTotal{user, a.n, a.sum(), e.At} }), out)
		case "w2":
			events := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: in, EventTime: at, MaxOutOfOrder: 2 * time.Second})
			processor.ToTopic(processor.Aggregate(events.Window(window.Tumbling(10*time.Second)), "count", processor.Fold((*total).add),
				func(w processor.Window[string], a total) windowTotal {
					return windowTotal{w.Key, w.Start, w.End, a.n, a.sum()}
				}), out)
		default:
			eventTime(t, name, in, in2, out)
		}
	}
}

// eventTime builds hop (windows of an hour every minute), session (gap 5 s), join (payments from 1 s before to 3 s
// after the order, from a second topic) or cep (A B+ C within 10 s).
func eventTime(t *processor.Topology, name, in, in2, out string) {
	if name == "cep" {
		events := processor.FromKeyed(t, format.String(), processor.Topic[action]{Name: in, EventTime: func(a action) time.Time { return a.At }, MaxOutOfOrder: 2 * time.Second})
		p := cep.Begin("a", isKind(0, 4)).FollowedBy("b", isKind(4, 14)).OneOrMore().FollowedBy("c", isKind(14, 19)).Within(10 * time.Second)
		processor.ToTopic(cep.Detect(events, "abc", p, func(user string, m cep.Match[action]) windowTotal {
			w := windowTotal{User: user, Start: m.One("a").At, End: m.One("c").At}
			for _, b := range m.All("b") {
				w.Count++
				w.Sum += b.Amount
			}
			return w
		}), out)
		return
	}
	events := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: in, EventTime: at, MaxOutOfOrder: 2 * time.Second})
	if name == "join" {
		payments := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: in2, EventTime: at, MaxOutOfOrder: 2 * time.Second})
		processor.ToTopic(processor.IntervalJoin(events, payments, "join", processor.Interval{Before: time.Second, After: 3 * time.Second},
			func(o, p event) payment { return payment{o.User, o.At, p.At, o.Amount, p.Amount} }), out)
		return
	}
	windows := events.Window(window.Session(5 * time.Second))
	if name == "hop" {
		windows = events.Window(window.Sliding(time.Hour, time.Minute))
	}
	processor.ToTopic(processor.Aggregate(windows, "count", processor.Fold((*total).add).Merging((*total).merge),
		func(w processor.Window[string], a total) windowTotal {
			return windowTotal{w.Key, w.Start, w.End, a.n, a.sum()}
		}), out)
}

// isKind says whether the last two digits of an action's item are from from to below to.
func isKind(from, to byte) func(action) bool {
	return func(a action) bool {
		k := 10*(a.Item[3]-'0') + a.Item[4] - '0'
		return from <= k && k < to
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
		"MILLRACE_STATE_DIR="+filepath.Join(cmp.Or(os.Getenv("STATE_DIR"), "state"), "local", instance),
		"MILLRACE_LISTEN="+cmp.Or(os.Getenv("METRICS"), configs.ListenOff))
	for ours, theirs := range map[string]string{"COMMIT_MAX_LATENCY": "COMMIT_MS", "GROUP_SESSION_TIMEOUT": "SESSION_MS",
		"TRANSACTION_TIMEOUT": "TXN_MS", "CHECKPOINT_INTERVAL": "CHECKPOINT_INTERVAL_MS"} {
		if ms := os.Getenv(theirs); ms != "" {
			env = append(env, "MILLRACE_"+ours+"="+ms+"ms")
		}
	}
	if os.Getenv("CHECKPOINT_INTERVAL_MS") != "" {
		env = append(env, "MILLRACE_CHECKPOINT_MIN_PAUSE=0s") // the interval alone says when
	}
	if url := os.Getenv("CHECKPOINT_URL"); url != "" {
		env = append(env, "MILLRACE_CHECKPOINT_URL="+url)
	}
	stateBytes, err := strconv.Atoi(cmp.Or(os.Getenv("STATE_BYTES"), "0"))
	if err != nil {
		return fmt.Errorf("read STATE_BYTES: %w", err)
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
	return millrace.Run(ctx, app, workload(cmp.Or(os.Getenv("WORKLOAD"), "w1"), cmp.Or(os.Getenv("IN"), "events"), os.Getenv("IN2"), cmp.Or(os.Getenv("OUT"), "out"), stateBytes), loaded.Config)
}
