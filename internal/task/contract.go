// Package task is the pure runtime of one subtask: the compiled operator chain, its watermarks, timers and state,
// driven by calls. It has no clock, no goroutine and no I/O but the reads of its store: the engine feeds records,
// tells the time, takes the effects and executes them in order. Package processor builds Plans of it.
package task

import (
	"context"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Plan is a validated topology, cut into sub-topologies wherever records change partition.
type Plan struct {
	Subs []*SubTopology // index = SubTopology.ID, upstream before downstream
	// Fingerprint changes when the graph changes: members with different ones never share work.
	Fingerprint string
}

// SubTopology is a connected part of the graph that runs in one subtask per index.
type SubTopology struct {
	ID      int
	Inputs  []Input
	Outputs []OutputTopic // sinks, repartition topics, and the dead-letter topic if any operator can use it
	Stores  []statestore.Spec
	// Parallelism is the wanted number of subtasks, 0 = the default: the largest common divisor of the partition
	// counts of all inputs that is <= 16. The engine resolves it.
	Parallelism int
	// Feeds: it keeps no state and writes no internal topic but broadcasts, so that any number of subtasks will do: the
	// app's wanted number is a bound for it, and no more.
	Feeds    bool
	Describe string
	New      func(Env) (*Task, error)
	// KeyGroup is the key group of a key of a store, as its KeyCodec writes it: what routes a query to a subtask. The error
	// is that of a key that is none of the store's, or that the program cannot write.
	KeyGroup func(store statestore.ID, key []byte) (statestore.Group, error)
}

// Input is a topic that a sub-topology reads.
type Input struct {
	Topic    string // for an internal one the operator id; the topic is <app.id>-<id>-repartition
	Internal bool   // a repartition topic of this app
	Upstream int    // Internal: the sub-topology that writes it
	// KeySchema and ValueSchema say how an internal topic is written, in the words of package statestore.
	KeySchema, ValueSchema string
	// Partitions of an internal topic; 0 = the engine takes the largest count among the inputs of Upstream.
	Partitions int
	Start      Start
	End        End // of an external topic
	// Pattern is what the names of external topics were found by; a topic of it that comes later begins at its first record.
	Pattern string
	Idle    time.Duration // 0: never idle
	// Broadcast: an internal topic with one partition for each subtask, whatever the other inputs have; the upstream writes
	// every record to all of them.
	Broadcast bool
	// Load: what an external topic holds when the subtask takes over is to be known (EnvInput.Ends), since a broadcast waits
	// for it, or it is First.
	Load bool
	// First: at the first start of an incarnation an external topic is read to the end that it had then, before a record of
	// inputs that are not First is processed.
	First bool
	// Value and Key are the format.Serde of values and keys of an external topic, for drivers of tests; nil = none.
	Value, Key any
}

// Start is where a source begins when the group has no offset for a partition.
type Start struct {
	Kind StartKind
	At   time.Time // StartTimestamp
	// Offsets of StartOffsets by partition; the others begin as Else says.
	Offsets map[int32]int64
	// Group of StartGroup; "" = that of the app. Partitions for which it has no offset begin as Else says.
	Group string
	Else  StartKind // StartEarliest, StartLatest or StartNone
}

// StartKind: see Start.
type StartKind uint8

// The kinds of Start.
const (
	StartEarliest StartKind = iota
	StartLatest
	StartTimestamp
	StartOffsets
	StartGroup
	StartNone // of Start.Else alone: the app does not start
)

// End is where reading of a partition ends. It is found at the first takeover and kept with the state: records from there
// on are left out, and time is over for the partition when the last one before it was processed.
type End struct {
	Kind EndKind
	At   time.Time // EndTimestamp
	// Offsets of EndOffsets by partition, each that of the first record that is not read; of others nothing is read.
	Offsets map[int32]int64
	Group   string // EndGroup; "" = that of the app
}

// EndKind: see End.
type EndKind uint8

// The kinds of End.
const (
	EndNever EndKind = iota
	EndLatest
	EndTimestamp
	EndOffsets
	EndGroup
)

// OutputTopic is a topic that a sub-topology writes.
type OutputTopic struct {
	Topic      string // for an internal one the operator id
	Internal   bool   // a repartition topic
	DeadLetter bool   // <app.id>-dead-letter
	// Value is the format.Serde of values, for drivers of tests; nil for an internal topic.
	Value any
}

// Env is what the engine gives a new Task.
type Env struct {
	Subtask     record.SubtaskID
	Parallelism int
	State       *statestore.State // of this subtask, restored
	Inputs      []EnvInput        // as SubTopology.Inputs
	Outputs     []EnvOutput       // as SubTopology.Outputs
	Restored    *Progress         // from the last epoch record; nil on a first start
	Now         int64             // processing time, ms since the epoch
	// Go runs f on a goroutine of its own, and calls Step or Tick of the task soon after it has returned. Its context ends
	// with the task, or after timeout. nil: f is run at once.
	Go      func(timeout time.Duration, f func(ctx context.Context, wait Wait))
	Testing Testing
}

// Wait lets d pass, or returns the cause for which the context has ended.
type Wait func(ctx context.Context, d time.Duration) error

// EnvInput tells a task what it owns of an input.
type EnvInput struct {
	Topic            string // the physical name, for errors and dead letters
	Partitions       []int32
	TotalPartitions  int32
	UpstreamSubtasks int // internal inputs: parallelism of the upstream sub-topology
	// Ends are the offsets behind the last committed record of each partition at takeover, for Input.Load; else nil.
	Ends map[int32]int64
	// Until are the offsets at which reading of partitions ends, see End; nil = never. Records from there on are left out.
	Until map[int32]int64
}

// EnvOutput tells a task about a topic that it writes.
type EnvOutput struct {
	Topic          string
	Partitions     int32
	MaxRecordBytes int // of one record: the topic's max.message.bytes less the batch overhead
	// A record's timestamp may be that many ms before or after the processing time, or the broker refuses the whole
	// batch (message.timestamp.before.max.ms and .after.max.ms); 0 = no bound.
	TimestampBefore, TimestampAfter int64
}

// Progress is how far a task is: all that an epoch record must keep besides the state itself.
type Progress struct {
	Partitions []PartitionProgress // sorted by input, partition
	// Horizons: for each store of windows, the window end up to which (inclusive) all windows are gone. Restore
	// applies them as range deletes, so that closed windows need no tombstones in the changelog.
	Horizons []Horizon
	// Watermarks of operators, by operator id: what has fired must not fire again. Extra holds other small values of
	// operators (for example the last watermark sent to a repartition topic).
	Watermarks map[string]int64
}

// Horizon belongs to one store of windows.
type Horizon struct {
	Store statestore.ID
	End   int64 // ms
}

// PartitionProgress belongs to one partition of one input.
type PartitionProgress struct {
	Input     int
	Partition int32
	Offset    int64 // next offset to read: past the last processed record or marker; -1 if nothing was read yet
	MaxTime   int64 // generator state: highest event time seen, math.MinInt64 before the first
	Watermark int64 // math.MinInt64 before the first
	Idle      bool
	// Upstream watermarks of an internal input, by upstream subtask index; nil otherwise.
	Upstream []UpstreamMark
}

// UpstreamMark is the last watermark record of one upstream subtask.
type UpstreamMark struct {
	Watermark int64
	Idle      bool
}

// Sealed is one epoch's result, ready to be committed. All of it stays valid until the Task's Committed.
type Sealed struct {
	Epoch     uint64
	Outputs   []record.Output // what was not yet taken by TakeOutputs, watermark records included
	Changelog []statestore.Change
	Progress  Progress
	Empty     bool // nothing was processed, written or moved since the last epoch
}

// Stats are counters of one task since it was made; the engine turns differences into metrics.
type Stats struct {
	RecordsIn, BytesIn   int64
	RecordsOut, BytesOut int64
	Late                 int64 // late records dropped or sent to a late output
	DeadLetters, Skipped int64
	Expired              int64 // entries of state that were removed because they had expired
	Watermark            int64 // of the sub-topology: the minimum over active inputs, ms; math.MinInt64 if none
	Buffered             int   // records enqueued and not yet processed
	BufferedBytes        int64
	OldestUncommittedIn  int64 // processing time at which the first record of the running epoch was processed, 0 = none
	EpochBytes           int64 // outputs and dirty state of the running epoch, approximate
	Blocked              bool  // no record is processed until a call that Env.Go runs has ended
	// Ended: nothing will come any more: the watermark of every operator is at the end of time.
	Ended     bool
	NextTimer int64 // processing time at which Tick has something to do, math.MaxInt64 = nothing
}

// The methods of Task, in the order the engine uses them (all on one goroutine):
//
//	Begin(ctx, from Begun, handles map[string][][]byte) error
//	        makes Externals ready; once, first
//	Enqueue(input int, partition int32, recs []record.Record)
//	        hands over fetched records of a partition, in offset order; the task owns the slice until they are processed
//	Step(max int, now int64) (n int, err error)
//	        processes up to max records, of the partitions with something buffered the one whose head has the lowest
//	        event time first (I6); after each record the watermark moves and what is due fires. Each record is atomic.
//	        A bad record goes by its operator's policy; err means the subtask cannot go on (*Error says why).
//	Tick(now int64) error
//	        processing-time timers and idleness
//	TakeOutputs() []record.Output
//	        outputs of finished records since the last call, for the engine to produce at once; the slice is valid until
//	        the next call of Step, Tick or Seal, the bytes until Committed; what is for an External is handed to it
//	Seal(epoch uint64, now int64) (*Sealed, error)
//	        ends the running epoch: dirty state is encoded once, watermark records for repartition topics are written
//	Prepare(ctx, epoch uint64, last bool) (handles map[string][]byte, err error)
//	        after Seal: what the epoch wrote to Externals is durable; the handles go into the epoch record
//	Committed(m statestore.Meta) error
//	        the sealed epoch is committed; its arenas are recycled, its state becomes a candidate for write-behind
//	Finish(ctx) error
//	        after Committed: what the epoch wrote to Externals shows
//	Positions() []PartitionProgress
//	        how far each partition is, sorted by input and partition, without Upstream; cheap: the slice is the task's own
//	        and valid until the next call
//	Stats() Stats
//	Awaits() bool
//	        inputs that are Broadcast or First have not brought yet what they held at the first start; records of all other
//	        inputs wait until then
//	Close() error
//
// There is no Abort: when an epoch does not commit, the task is dropped and made anew from committed state.
