package txn

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Sentinel errors, matched with errors.Is. The messages around them say what was met, where, and what to do.
var (
	// ErrUnreachable: no broker of the given ones answered.
	ErrUnreachable = errors.New("no broker answered")
	// ErrCredentials: the brokers refused our SASL credentials.
	ErrCredentials = errors.New("the brokers refused the credentials")
	// ErrAuthorization: the principal lacks an ACL; the message names it.
	ErrAuthorization = errors.New("not authorized")
	// ErrTopicDiffers: an existing topic is not as it must be (partitions, cleanup.policy).
	ErrTopicDiffers = errors.New("topic differs from what is needed")
	// ErrTopologyDiffers: the group's leader runs another topology than this member.
	ErrTopologyDiffers = errors.New("the group runs another topology")
	// ErrFencedInstance: another process joined the group with our static member id.
	ErrFencedInstance = errors.New("another process took over the group instance id")
	// ErrGroupProtocol: the group is used by clients that are not members of this app.
	ErrGroupProtocol = errors.New("the consumer group is used by another kind of consumer")
	// ErrClosed: the Group, Consumer or Cluster is closed.
	ErrClosed = errors.New("closed")
)

// OffsetError says that a partition has no record at the offset that we want to read next: retention or DeleteRecords
// removed it (Wanted < Start), or the log was truncated (Wanted > End).
type OffsetError struct {
	Topic     string
	Partition int32
	Wanted    int64
	Start     int64 // log start offset, -1 if it could not be asked
	End       int64 // high watermark, -1 if it could not be asked
}

func (e *OffsetError) Error() string {
	at := fmt.Sprintf("read %s/%d at offset %d: out of range, the partition holds offsets %d to %d", e.Topic, e.Partition,
		e.Wanted, e.Start, e.End)
	switch {
	case e.Start < 0:
		return fmt.Sprintf("read %s/%d at offset %d: out of range", e.Topic, e.Partition, e.Wanted)
	case e.Wanted < e.Start:
		return at + fmt.Sprintf("; %d offsets were deleted by retention or DeleteRecords before they were read: raise the topic's "+
			"retention. To go on without them, start with errors.out-of-range=earliest; or stop all members, set the group's offset of this partition to %d "+
			"(kafka-consumer-groups.sh --reset-offsets), and start once with start.offsets=group", e.Start-e.Wanted, e.Start)
	default:
		return at + "; the log was truncated (unclean leader election or a recreated topic)"
	}
}

// TopicError says that a topic is gone, was recreated, or changed its partitions.
type TopicError struct {
	Topic string
	// OldID and NewID differ when the topic was deleted and created again; NewID is zero when it is gone.
	OldID, NewID [16]byte
	// OldPartitions and NewPartitions are 0 when unknown.
	OldPartitions, NewPartitions int32
	Err                          error // what the broker said, may be nil
}

func (e *TopicError) Error() string {
	switch {
	case e.NewID != e.OldID && e.NewID != [16]byte{}:
		return fmt.Sprintf("topic %s: was deleted and created again (topic id was %s, is %s); offsets and state of the old "+
			"topic mean nothing in the new one: start afresh or from a savepoint", e.Topic, TopicIDString(e.OldID),
			TopicIDString(e.NewID))
	case e.NewPartitions != e.OldPartitions && e.NewPartitions != 0:
		return fmt.Sprintf("topic %s: the number of partitions changed from %d to %d; restart the app, with a parallelism "+
			"that divides the new count", e.Topic, e.OldPartitions, e.NewPartitions)
	case e.Err != nil:
		return fmt.Sprintf("topic %s: %v (topic id was %s); the topic was deleted or cannot be described", e.Topic, e.Err,
			TopicIDString(e.OldID))
	default:
		return fmt.Sprintf("topic %s: does not exist any more (topic id was %s)", e.Topic, TopicIDString(e.OldID))
	}
}

func (e *TopicError) Unwrap() error { return e.Err }

// isAuthErr reports whether err is one of the broker's authorization errors.
func isAuthErr(err error) bool {
	for _, k := range []error{
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

// authErr names the ACL that would help. Operations are Kafka's words (Read, Write, Describe, ...), resource is for
// example "topic orders" or "group app".
func authErr(verb, resource, operations string, err error) error {
	return fmt.Errorf("%s: %w: grant %s on %s to the principal of this app (%w)", verb, ErrAuthorization, operations,
		resource, err)
}
