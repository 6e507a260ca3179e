package failpoint

// Canary names a bug that can be planted, to prove that the simulation would find it if it were made. A binary built
// without the tag canary holds none of them.
type Canary string

// The canaries. internal/sim plants each and must find it.
const (
	StateBeforeCommit  Canary = "state-before-commit"   // an epoch is in the store before its transaction ends
	UnknownIsCommitted Canary = "unknown-is-committed"  // an answer to EndTxn that does not tell counts as a commit
	OffsetsOutside     Canary = "offsets-outside"       // offsets are committed beside the transaction
	SkipTail           Canary = "skip-tail"             // a restore from disk leaves out what came after
	UnfencedZombie     Canary = "unfenced-zombie"       // transactional ids of processes, and offsets without a member
	WatermarkForgotten Canary = "watermark-forgotten"   // a restore begins without watermarks
	StartOffset        Canary = "start-offset"          // a takeover begins one record late
	ReadUncommitted    Canary = "read-uncommitted"      // inputs of aborted transactions are processed
	GoesOnAfterBarrier Canary = "goes-on-after-barrier" // a subtask does not hold when its part of a savepoint is taken
	BaseOffset         Canary = "base-offset"           // an incarnation begins one record behind its savepoint
)
