package engine

import (
	"time"

	"github.com/millrace-stream/millrace/internal/record"
)

// Status is a snapshot of a worker, as /api/v1/status shows it. Times are RFC 3339, durations and event times
// milliseconds.
type Status struct {
	App         string          `json:"app"`
	Instance    string          `json:"instance"`
	Version     string          `json:"version"`
	State       State           `json:"state"`
	Error       string          `json:"error,omitempty"` // why State is failed
	Started     time.Time       `json:"started"`
	ClusterID   string          `json:"cluster_id,omitempty"`
	Incarnation uint64          `json:"incarnation"`
	Fingerprint string          `json:"fingerprint"`
	Subtasks    []SubtaskStatus `json:"subtasks"` // those of this worker, sorted by id
	Standbys    []StandbyStatus `json:"standbys"` // those of this worker, sorted by id
	Owners      []OwnerStatus   `json:"owners"`   // of all subtasks of the app, as far as known
	// Savepoint is the one that is being taken, or was taken last; nil = none.
	Savepoint *SavepointStatus `json:"savepoint,omitempty"`
	// Savepoints counts those of which this process has heard the end.
	Savepoints SavepointTotals `json:"savepoints"`
}

// OwnerStatus says who owns a subtask. Members of other processes are as the group's coordinator named them when it was
// last asked, every Options.HouseKeeping; they are left out until then.
type OwnerStatus struct {
	Subtask string `json:"subtask"`
	Local   bool   `json:"local"`
	Member  string `json:"member,omitempty"` // instance id of a static member, else the member id
	Host    string `json:"host,omitempty"`   // as the coordinator sees it
}

// State is the life of a worker.
//
//	starting -> joining -> running -> stopping -> stopped
//	                 \________\___________\____-> failed
type State string

// The states of a worker.
const (
	StateStarting State = "starting" // connecting, verifying topics
	StateJoining  State = "joining"  // waiting for the group's first assignment
	StateRunning  State = "running"
	StateStopping State = "stopping"
	StateStopped  State = "stopped"
	StateFailed   State = "failed"
)

// SubtaskState is the life of a subtask.
//
//	fencing -> restoring -> running -> stopping
//	   ^___________________ backing-off <- any
type SubtaskState string

// The states of a subtask.
const (
	SubtaskFencing    SubtaskState = "fencing"   // InitProducerID: the former owner's transaction is aborted
	SubtaskRestoring  SubtaskState = "restoring" // local store + changelog tail
	SubtaskRunning    SubtaskState = "running"
	SubtaskStopping   SubtaskState = "stopping" // last commit before it is let go
	SubtaskBackingOff SubtaskState = "backing-off"
)

// OperatorMetric is a counter or gauge of an operator's own.
type OperatorMetric struct {
	Operator string  `json:"operator"`
	Name     string  `json:"name"`
	Gauge    bool    `json:"gauge,omitempty"`
	Value    float64 `json:"value"`
}

// SubtaskStatus is a snapshot of one subtask. Counters are totals of this process, over restarts of the subtask.
type SubtaskStatus struct {
	ID               string            `json:"id"`
	State            SubtaskState      `json:"state"`
	Error            string            `json:"error,omitempty"` // why it backs off
	Epoch            uint64            `json:"epoch"`
	LastCommit       time.Time         `json:"last_commit,omitzero"`
	CommitMs         float64           `json:"commit_ms"` // how long the last commit took
	WatermarkMs      *int64            `json:"watermark_ms,omitempty"`
	WatermarkDelayMs *int64            `json:"watermark_delay_ms,omitempty"` // wall clock less watermark
	Lag              int64             `json:"lag"`                          // records behind the last stable offsets
	Inputs           []PartitionStatus `json:"inputs"`
	RecordsIn        int64             `json:"records_in"`
	BytesIn          int64             `json:"bytes_in"`
	RecordsOut       int64             `json:"records_out"`
	BytesOut         int64             `json:"bytes_out"`
	Late             int64             `json:"late"`
	DeadLetters      int64             `json:"dead_letters"`
	Skipped          int64             `json:"skipped"`
	Expired          int64             `json:"expired"`                    // values of state that were removed by their TTL
	Metrics          []OperatorMetric  `json:"operator_metrics,omitempty"` // the operators' own, of this life of the subtask
	BackpressureMs   int64             `json:"backpressure_ms"`            // time in which inputs were paused because the subtask was behind
	StoreBytes       int64             `json:"store_bytes"`
	PendingBytes     int64             `json:"pending_bytes"` // committed, not yet in the store
	Restarts         int64             `json:"restarts"`
	Commits          int64             `json:"commits"`
	Restore          *RestoreStatus    `json:"restore,omitempty"` // while restoring
	Checkpoint       *CheckpointStatus `json:"checkpoint,omitempty"`
	// SavepointHoldMs is the time in which processing stood still for savepoints, LastSavepointHoldMs that for the last one.
	SavepointHoldMs     float64 `json:"savepoint_hold_ms"`
	LastSavepointHoldMs float64 `json:"last_savepoint_hold_ms"`
}

// PartitionStatus is one input partition of a subtask.
type PartitionStatus struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	Position   int64  `json:"position"`  // next offset to process
	Committed  int64  `json:"committed"` // next offset as committed, -1 = none
	LastStable int64  `json:"last_stable"`
	Lag        int64  `json:"lag"`
	Paused     bool   `json:"paused"`
}

// RestoreStatus is the progress of a restore.
type RestoreStatus struct {
	Way        string    `json:"way"`        // what it starts from: local store, checkpoint, savepoint, changelog
	Download   int64     `json:"download"`   // bytes of the checkpoint
	Downloaded int64     `json:"downloaded"` // bytes of it that are here
	Records    int64     `json:"records"`
	Bytes      int64     `json:"bytes"`
	Remaining  int64     `json:"remaining"` // offsets still to read; an upper bound, since compaction leaves holes
	Started    time.Time `json:"started"`
	EtaMs      int64     `json:"eta_ms"` // -1 = unknown
}

// Observer is told what happens in a worker, for histograms and counters that a snapshot cannot give. Calls come
// from many goroutines and must not block.
type Observer interface {
	// CommitDone: outcome is committed, aborted, fenced or unknown.
	CommitDone(id record.SubtaskID, outcome string, took time.Duration)
	// RestoreDone: a restore ended; way is what it started from, as in RestoreStatus.
	RestoreDone(id record.SubtaskID, way string, records, bytes int64, took time.Duration)
	// CheckpointDone: a checkpoint was published, or failed; uploaded are its new bytes.
	CheckpointDone(id record.SubtaskID, ok bool, uploaded int64, took time.Duration)
	// OffsetsSkipped: input was deleted before it was read, and errors.out-of-range let the subtask go on without it.
	OffsetsSkipped(tp record.TopicPartition, offsets int64)
	// SubtaskRestarted: reason is the recovery action's name: retry, fenced, corrupt, data.
	SubtaskRestarted(id record.SubtaskID, reason string)
}
