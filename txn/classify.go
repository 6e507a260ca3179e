package txn

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// IsFatal reports whether trying again cannot help: something outside of this process has to be put right first
// (an ACL, a topic that was deleted or created again, records that retention took away, two processes with one group
// instance id, a topology or format of another version).
func IsFatal(err error) bool {
	var topic *TopicError
	var offset *OffsetError
	if errors.As(err, &topic) || errors.As(err, &offset) {
		return true
	}
	for _, fatal := range []error{ErrAuthorization, ErrCredentials, ErrTopicDiffers, ErrTopologyDiffers, ErrFencedInstance, ErrGroupProtocol,
		ErrStateAhead, ErrEpochRecord, ErrControlVersion, kerr.InvalidTransactionTimeout} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}

// IsFenced reports whether the transactional id was taken by another producer, or the group does not say that the
// subtask is ours: a question that only the group can answer.
func IsFenced(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrNotOwned)
}

// IsNotMember reports whether the group coordinator said that we are no member, or not the one with our instance id.
// The session's word is out of date then, whatever it says: InitProducerID on its strength would fence the rightful
// owner. Who meets this waits for the session's next word (Group.WaitChange) before it takes over again.
func IsNotMember(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID)
}
