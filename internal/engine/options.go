package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// Options configure a Worker. Zero values take the defaults named here.
type Options struct {
	Version string // of the program, for status
	Kafka   txn.Options
	Plan    *task.Plan
	// Dir opens the local stores. The worker does not close it.
	Dir statestore.Dir

	// Parallelism is the wanted number of subtasks of every sub-topology that names none itself; 0 = the largest
	// common divisor of the partition counts of its inputs that is <= 16.
	Parallelism int

	CommitMaxLatency time.Duration // default 100 ms
	CommitQuiet      time.Duration // default 25 ms
	CommitMaxBytes   int64         // default 2 MiB

	WriteBehindInterval time.Duration // default 5 s
	WriteBehindBytes    int64         // default 16 MiB

	// CacheBytes is the room for typed caches of all subtasks together; default 256 MiB.
	CacheBytes int64
	// MaxCacheBytes is what they may take as long as all keys are in them, of the room for the caches of Dir
	// (statestore.Lender); default CacheBytes.
	MaxCacheBytes int64

	Checkpoints Checkpoints

	// Bulk says how a long changelog is read.
	Bulk Bulk

	// Advertise is where other members find this one's HTTP server, host:port; "" = nowhere. It is told to the group, so that a
	// question about a key can be sent to who owns it.
	Advertise string

	// Standbys is how many members besides the owner keep a copy of each state up to date; 0 = none.
	Standbys int
	// CleanupDelay is how long the state of a subtask stays on this disk after the subtask went to another member, and what older
	// incarnations have left after all subtasks of this one have begun; 0 = for ever.
	CleanupDelay time.Duration

	ReplicationFactor   int16  // of internal topics; 0 and -1 = the broker's default
	InternalCompression string // compression.type of internal topics; default "producer"

	// LeaveOnStop: a graceful stop leaves the group, so that others take over at once. Off for rolling restarts of
	// static members.
	LeaveOnStop     bool
	ShutdownTimeout time.Duration // default 10 s

	BackoffMin  time.Duration // default 200 ms
	BackoffMax  time.Duration // default 10 s
	MaxAttempts int           // restarts of a subtask without a commit between them, before the worker gives up; default 10

	// StartOffsets decides when the group's offsets and the state disagree (someone reset the group by hand):
	// "" refuses to start, "state" goes on where the state is, "group" where the group is.
	StartOffsets string
	// OutOfRange decides when records of an input were deleted before they were read: "" and "fail" stop, "earliest" goes on
	// with the first that is there, and counts the offsets that were skipped.
	OutOfRange string
	// Start says what the worker begins with; the zero value is the app's newest state.
	Start Start
	// OpenBlobs opens the store of a savepoint that is not in that of the checkpoints; nil = there is only that one.
	OpenBlobs func(ctx context.Context, url string) (blob.Store, error)
	// Replan looks for another plan while the worker runs; the zero value does not.
	Replan Replan
	// AllowDroppedState lets a topology start that no longer has a store that the old one had.
	AllowDroppedState bool

	// HouseKeeping is the pace at which consumed repartition records are deleted and topics are checked; a topic that
	// was replaced is noticed within two of it. Default 15 s.
	HouseKeeping time.Duration

	Observer Observer     // nil = none
	Logger   *slog.Logger // nil = discard
}

func (o *Options) ensureDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	size := func(n *int64, v int64) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&o.CommitMaxLatency, 100*time.Millisecond)
	def(&o.CommitQuiet, 25*time.Millisecond)
	size(&o.CommitMaxBytes, 2<<20)
	def(&o.WriteBehindInterval, 5*time.Second)
	size(&o.WriteBehindBytes, 16<<20)
	size(&o.CacheBytes, 256<<20)
	def(&o.ShutdownTimeout, 10*time.Second)
	def(&o.BackoffMin, 200*time.Millisecond)
	def(&o.BackoffMax, 10*time.Second)
	def(&o.HouseKeeping, 15*time.Second)
	o.Checkpoints.ensureDefaults()
	size(&o.Bulk.Records, 50_000)
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 10
	}
	if o.ReplicationFactor == 0 {
		o.ReplicationFactor = -1
	}
	if o.InternalCompression == "" {
		o.InternalCompression = "producer"
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Kafka.Logger == nil {
		o.Kafka.Logger = o.Logger
	}
}
