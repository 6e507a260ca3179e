// Package failpoint makes a process fail at named points, so that tests can prove what a crash there leaves behind. A
// point that is not armed costs one atomic load. Points are armed for a whole process: by Arm in tests, by ArmSpec
// from the environment variable MILLRACE_FAILPOINT in a binary, for example
//
//	MILLRACE_FAILPOINT=after-end-txn:exit
//	MILLRACE_FAILPOINT=before-flush:sleep(3s),before-end-txn:error
package failpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Env is the environment variable that a binary passes to ArmSpec.
const Env = "MILLRACE_FAILPOINT"

// The names of all points, in the order an epoch passes them. Points says what has and has not happened at each.
const (
	AfterInitProducerID  = "after-init-producer-id"
	BeforeFlush          = "before-flush"
	AfterFlush           = "after-flush"
	AfterTxnOffsetCommit = "after-txn-offset-commit"
	BeforeEndTxn         = "before-end-txn"
	AfterEndTxn          = "after-end-txn"
)

// The names of the points of what goes to other systems than Kafka, in the order in which an epoch and a takeover pass them.
const (
	AfterPrepare = "after-prepare"
	MidFinish    = "mid-finish"
	MidBegin     = "mid-begin"
	AfterBegin   = "after-begin"
)

// The names of the points of checkpoints, savepoints and restores, in the order in which each passes them.
const (
	AfterUploadBlob         = "after-upload-blob"
	BeforeManifest          = "before-manifest"
	AfterManifest           = "after-manifest"
	MidCollect              = "mid-collect"
	MidDelete               = "mid-delete"
	MidRestore              = "mid-restore"
	MidBulk                 = "mid-bulk"
	BeforeIngest            = "before-ingest"
	AfterIngest             = "after-ingest"
	BeforeAdopt             = "before-adopt"
	AfterAligned            = "after-aligned"
	MidSavepoint            = "mid-savepoint"
	BeforeSavepointManifest = "before-savepoint-manifest"
	AfterSavepointManifest  = "after-savepoint-manifest"
	MidLoad                 = "mid-load"
)

// The names of the points of the first takeover of a subtask in an incarnation that begins from a savepoint.
const (
	MidBaseLoad      = "mid-base-load"
	MidBaseChangelog = "mid-base-changelog"
	AfterBase        = "after-base"
)

// points documents what a crash at each point leaves behind.
var points = map[string]string{
	AfterInitProducerID:  "the former owner is fenced and its transaction aborted; nothing is restored yet",
	BeforeFlush:          "records of the epoch may be at the brokers, all uncommitted; the epoch record is produced",
	AfterFlush:           "all records of the epoch are at the brokers, uncommitted; the offsets are not in the transaction",
	AfterTxnOffsetCommit: "the group coordinator accepted the offsets; they are pending, the transaction is open",
	BeforeEndTxn:         "as after-txn-offset-commit; the last point at which a crash aborts the epoch",
	AfterEndTxn:          "the epoch is committed, and nobody of this process knows: the store is behind its changelog",

	AfterPrepare: "what the epoch wrote to other systems is durable there and does not show; nothing is committed",
	MidFinish:    "the epoch is committed, and a part of what it prepared in another system shows",
	MidBegin:     "the former owner is fenced, and a part of what it left in another system is dealt with",
	AfterBegin:   "what the former owner left in other systems is dealt with; the subtask is not claimed",

	AfterUploadBlob:         "a file of a checkpoint is uploaded that no manifest names yet",
	BeforeManifest:          "all files of a checkpoint are uploaded, there is no manifest",
	AfterManifest:           "the checkpoint is published, and nobody of this process knows",
	MidCollect:              "some of the checkpoints, or of the blobs, that are not needed are removed",
	MidDelete:               "some of an incarnation's checkpoints, or of a savepoint, are removed, manifests first",
	MidRestore:              "some files of a checkpoint are downloaded, beside the store",
	MidBulk:                 "a sorted part of a changelog lies beside the store",
	BeforeIngest:            "a changelog, or a part of it, lies beside the store as files for it",
	AfterIngest:             "those files are the store's, together with the position that they are good for",
	BeforeAdopt:             "all files are downloaded, beside the store",
	AfterAligned:            "a subtask has said that it has the state of a savepoint in hand; nothing of it is uploaded",
	MidSavepoint:            "a part of a subtask's state is uploaded to a savepoint that is running",
	BeforeSavepointManifest: "all subtasks have written their part, the savepoint is running",
	AfterSavepointManifest:  "the savepoint is completed or failed, and nobody of this process knows",
	MidLoad:                 "a part of a savepoint is in a store beside the subtask's",

	MidBaseLoad:      "a part of the savepoint that an incarnation begins from is in a store beside the subtask's",
	MidBaseChangelog: "a part of it is in the changelog of the incarnation, committed, without an epoch record",
	AfterBase:        "all of it is in the changelog, committed, without an epoch record: nothing counts yet",
}

// Points returns the name of each point and what a crash there leaves behind.
func Points() map[string]string { return maps.Clone(points) }

// ErrInjected is returned by Hit at a point armed with the action error.
var ErrInjected = errors.New("injected by failpoint")

// exit ends the process; tests replace it.
var exit = os.Exit

// exitCode is what a shell reports of a process killed by SIGKILL: no deferred function runs, as in a real kill.
const exitCode = 137

// Point is an armed point.
type Point struct {
	name   string
	action func() error
	hits   atomic.Int64
}

// Hits says how often the point was passed since it was armed: a test that injects must see that it did.
func (p *Point) Hits() int { return int(p.hits.Load()) }

// Disarm makes the point do nothing again.
func (p *Point) Disarm() {
	change(func(m map[string]*Point) {
		if m[p.name] == p {
			delete(m, p.name)
		}
	})
}

var (
	mu    sync.Mutex // serializes changes of armed
	armed atomic.Pointer[map[string]*Point]
)

func change(fn func(map[string]*Point)) {
	mu.Lock()
	defer mu.Unlock()
	m := map[string]*Point{}
	if old := armed.Load(); old != nil {
		m = maps.Clone(*old)
	}
	fn(m)
	if len(m) == 0 {
		armed.Store(nil)
		return
	}
	armed.Store(&m)
}

// Hit passes the point name. It returns ErrInjected if the point is armed with error, sleeps or ends the process with
// the other actions, and does nothing if the point is not armed.
func Hit(name string) error {
	m := armed.Load()
	if m == nil {
		return nil
	}
	p := (*m)[name]
	if p == nil {
		return nil
	}
	p.hits.Add(1)
	if err := p.action(); err != nil {
		return fmt.Errorf("failpoint %s: %w", name, err)
	}
	return nil
}

// Arm makes the point run fn each time it is passed; an error of fn is returned by Hit. An armed point is replaced.
func Arm(name string, fn func() error) (*Point, error) {
	if _, ok := points[name]; !ok {
		return nil, fmt.Errorf("failpoint %q: unknown name; there are %s", name,
			strings.Join(slices.Sorted(maps.Keys(points)), ", "))
	}
	p := &Point{name: name, action: fn}
	change(func(m map[string]*Point) { m[name] = p })
	return p, nil
}

// ArmSpec arms the points of a list "name:action[@n][,name:action[@n]]". Actions: exit (the process ends at once with
// status 137, as if it were killed), sleep(<duration>), error (Hit returns ErrInjected). With @n nothing happens before
// the n-th time the point is passed. An empty spec arms nothing.
func ArmSpec(spec string) error {
	if spec == "" {
		return nil
	}
	for one := range strings.SplitSeq(spec, ",") {
		name, action, _ := strings.Cut(strings.TrimSpace(one), ":")
		action, count, counted := strings.Cut(action, "@")
		fn, err := parseAction(action)
		if err != nil {
			return fmt.Errorf("failpoint %q: %w", one, err)
		}
		if counted {
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil || n < 1 {
				return fmt.Errorf("failpoint %q: %q is no count, want a number from 1 on, as in exit@20", one, count)
			}
			act, passed := fn, new(atomic.Int64)
			fn = func() error {
				if passed.Add(1) < n {
					return nil
				}
				return act()
			}
		}
		if _, err := Arm(name, fn); err != nil {
			return err
		}
	}
	return nil
}

func parseAction(s string) (func() error, error) {
	switch {
	case s == "exit":
		return func() error { exit(exitCode); return nil }, nil
	case s == "error":
		return func() error { return ErrInjected }, nil
	case strings.HasPrefix(s, "sleep(") && strings.HasSuffix(s, ")"):
		d, err := time.ParseDuration(s[len("sleep(") : len(s)-1])
		if err != nil || d < 0 {
			return nil, fmt.Errorf("action %q: want a duration, as in sleep(500ms)", s)
		}
		return func() error { time.Sleep(d); return nil }, nil
	default:
		return nil, fmt.Errorf("action %q: want exit, error or sleep(<duration>)", s)
	}
}
