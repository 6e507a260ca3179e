// Package txn is the Kafka border: the only package of the engine that speaks to brokers. It holds the group session
// with its balancer, the subtasks' transactions, the changelog reader, the topics and the control topic.
package txn

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
)

// Options say how to reach the cluster and who we are.
type Options struct {
	AppID   string
	Brokers []string
	// InstanceID is the static group member id (KIP-345); empty = dynamic membership.
	InstanceID string

	TLS  *tls.Config // nil = plaintext
	SASL SASL
	// Dialer replaces net.Dialer, for tests and simulations. With TLS it must return a plain connection.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	SessionTimeout     time.Duration // default 6 s
	HeartbeatInterval  time.Duration // default 500 ms
	RebalanceTimeout   time.Duration // default 60 s
	TransactionTimeout time.Duration // default 15 s
	RequestTimeout     time.Duration // deadline of one admin or transaction call with its retries, default 10 s
	FetchMaxPartBytes  int32         // default 512 KiB
	FetchMaxBytes      int32         // default 16 MiB
	FetchMinBytes      int32         // default 64 KiB
	FetchMaxWait       time.Duration // default 10 ms
	Linger             time.Duration // default 50 ms
	OutputCompression  string        // none (default), snappy, lz4, zstd, gzip
	Rack               string

	Logger *slog.Logger // nil = discard
}

// SASL credentials. Mechanism is empty (off), PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
type SASL struct {
	Mechanism string
	Username  string
	Password  string
}

// TopicInfo is what we know of an existing topic.
type TopicInfo struct {
	Name              string
	ID                [16]byte
	Partitions        int32
	ReplicationFactor int
	MaxMessageBytes   int
	CleanupPolicy     string
	RetentionMs       int64 // -1 = unlimited
	DeleteRetentionMs int64
	MinISR            int
	TimestampType     string
	// A producer's timestamp may be that much before or after the broker's clock (message.timestamp.before.max.ms and
	// .after.max.ms, with CreateTime); 0 = not known.
	TimestampBeforeMaxMs, TimestampAfterMaxMs int64
}

// TopicSpec is a topic to be created or verified.
type TopicSpec struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16 // -1 = the broker's default
	Configs           map[string]string
}

// Layout is the cut topology as the group needs it: which partitions make a subtask.
type Layout struct {
	Version     int // of the join metadata
	Fingerprint string
	Subs        []LayoutSub
	// Address is where this member can be asked by others, host:port: Owner.Address. Optional.
	Address string
	// Standbys is how many members besides the owner keep a copy of the state of each stateful subtask, at most. The word
	// of the group's leader counts; a member with 0 is given none.
	Standbys int
	// Keeper is this member's side of it. Optional.
	Keeper Keeper
}

// Keeper knows of the states that lie on a member's disk.
type Keeper interface {
	// Kept tells them, those of owned subtasks left out. It is asked at every join and must not block. With it a member that
	// comes back after its session is over gets its subtasks again, and a takeover goes where the state is.
	Kept() []Kept
	// Keep: these states are to be kept from now on, and no others. It is called from the goroutine that calls the
	// GroupHandler, not for each assignment if several follow each other, and must not block. An assignment that makes one of
	// them an owned subtask may be told before it.
	Keep(standbys []Standby)
}

// Kept is a state on a member's disk.
type Kept struct {
	Subtask record.SubtaskID
	Standby bool  // it follows the changelog
	Lag     int64 // how many changelog records it is behind; -1 = not known. Coarse: the leader hears its number of bits
}

// Standby is a state that a member keeps.
type Standby struct {
	Subtask record.SubtaskID
	// WarmUp: the member is to take the subtask over once its state is up to date, which it tells by joining again (Group.Rejoin).
	WarmUp bool
}

// LayoutSub is one sub-topology. Subtask k of Parallelism owns the partitions p with p mod Parallelism = k of every
// input.
type LayoutSub struct {
	ID          int
	Parallelism int
	Inputs      []LayoutInput
	Stateful    bool // it has state that a standby can keep
}

// LayoutInput is one input topic.
type LayoutInput struct {
	Topic      string
	Partitions int32
}

// Ownership is the group session's word "you own this subtask", as KIP-447 wants it in TxnOffsetCommit. It is never
// empty: brokers take an empty member id with generation -1 from anyone.
type Ownership struct {
	MemberID   string
	Generation int32
	InstanceID string
}

// GroupHandler is told what the group session decides. Calls come from one goroutine, in order.
type GroupHandler interface {
	// Assigned: these subtasks are now ours. The first call may name none: we are a member that stands by. It must not
	// block.
	Assigned(ids []record.SubtaskID)
	// Revoked: finish the running epoch of these subtasks, commit it and let go; it returns when that is done or ctx
	// ends. They are still ours until it returns.
	Revoked(ctx context.Context, ids []record.SubtaskID)
	// Lost: these subtasks are no longer ours; drop them without commit. It must not block long.
	Lost(ids []record.SubtaskID)
}

// Fetched is what one poll brought of one partition, in offset order, read_committed, transaction markers included as
// Control records (data records of aborted transactions are left out).
type Fetched struct {
	record.TopicPartition
	Records       []record.Record
	HighWatermark int64
	LastStable    int64
	Err           error // of this partition: *OffsetError, *TopicError, or retriable ones already handled
}

// Outcome of an epoch's commit.
type Outcome uint8

// For every outcome but Committed there is one path: drop the running epoch, close the subtask's producer, take over
// again.
const (
	Committed Outcome = iota + 1
	Aborted           // certainly not committed
	Fenced            // another producer took the transactional id, or the broker timed the transaction out
	Unknown           // EndTxn's answer was lost: the truth is in the group's stable offsets
)

// EpochCommit is what the transaction of an epoch commits besides its records.
type EpochCommit struct {
	Epoch   uint64
	Offsets map[record.TopicPartition]int64 // next offset to read
	// Record is the encoded epoch record; it goes last into each changelog topic named in Touched (at least one).
	Record  []byte
	Touched []bool // by changelog index
}

// CommitResult tells how a commit ended.
type CommitResult struct {
	Outcome Outcome
	Err     error // why, for all outcomes but Committed
	// Positions: for each changelog topic the next offset after the epoch record, -1 where none was written.
	Positions []int64
	Took      time.Duration
}
