package txn

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Phase is where the transactional producer of a subtask stands.
//
//	          owned              ok            seal            ok               owned
//	Asking ----------> Initing ------> Open ---------> Flushing ---> Confirming ----------> Offsets
//	 |  ^                 |             ^                  |           |  ^  ^               | | |
//	 |  | paused          | retriable   |                  |           |  |  |  new word     | | |
//	 |  +---- RetryInit <-+             |                  |           |  |  +-- Waiting <---+ | | generation moved
//	 |            |       |             | committed        |           |  |          |         | |
//	 |            |       |             |                  |           |  | paused   |         | |
//	 |            |       |             +--- Ending <------|-----------|--|----------|---------|-+ accepted
//	 |            |       |                    |           |           |  +-- RetryOffsets <---+ retriable
//	 |not owned   |       | refused            | any other | failed    | not owned    |
//	 |            |bound  |                    | answer    |           |              | bound, deadline
//	 v            v       v                    v           v           v              v
//	Closed  <-----------------------------------------------------------------------------------------------
//
// Closed is final: whatever the outcome, the running epoch is dropped, the producer closed, and a takeover starts
// with a new Machine, that is by asking the group again.
type Phase uint8

// The phases of a Machine.
const (
	PhaseAsking       Phase = iota + 1 // takeover: does the group session say that the subtask is ours?
	PhaseIniting                       // InitProducerID is on its way: it fences the former owner
	PhaseRetryInit                     // a pause, then the question again: the proof of ownership has aged
	PhaseOpen                          // the epoch runs, records are produced
	PhaseFlushing                      // sealed: every record must be acknowledged
	PhaseConfirming                    // does the session still say that the subtask is ours, and in which generation?
	PhaseOffsets                       // TxnOffsetCommit is on its way
	PhaseWaiting                       // the group rebalances: waiting for the session's next word
	PhaseRetryOffsets                  // a pause, then TxnOffsetCommit again in the same transaction
	PhaseEnding                        // EndTxn(commit) is on its way: from here on only its answer tells the outcome
	PhaseClosed
)

var phaseNames = [...]string{"", "asking", "initing", "retry-init", "open", "flushing", "confirming", "offsets", "waiting", "retry-offsets", "ending", "closed"}

func (p Phase) String() string { return phaseNames[p] }

// EventKind is what happened.
type EventKind uint8

// The events of a Machine.
const (
	EventOwned        EventKind = iota + 1 // the session says ours: Event.Own
	EventNotOwned                          // the session says not ours
	EventInitReply                         // InitProducerID ended: Event.Reply
	EventSeal                              // the epoch is sealed, its epoch record is produced
	EventFlushed                           // every record has its answer; Event.Reply is the first error
	EventOffsetsReply                      // AddOffsetsToTxn or TxnOffsetCommit ended: Event.Reply
	EventWord                              // the session has a newer word
	EventPaused                            // the pause is over
	EventEndReply                          // EndTxn(commit) ended: Event.Reply
	EventDeadline                          // the commit or takeover took too long, or its context ended
)

var eventNames = [...]string{"", "owned", "not-owned", "init-reply", "seal", "flushed", "offsets-reply", "word", "paused", "end-reply", "deadline"}

func (k EventKind) String() string { return eventNames[k] }

// Reply is a broker's answer.
type Reply struct {
	Code int16 // Kafka error code, 0 = success
	Lost bool  // no answer, or none that tells: transport error, timeout
}

// OK reports success.
func (r Reply) OK() bool { return r.Code == 0 && !r.Lost }

func (r Reply) String() string {
	switch {
	case r.Lost:
		return "lost"
	case r.Code == 0:
		return "ok"
	default:
		if e, ok := kerr.ErrorForCode(r.Code).(*kerr.Error); ok {
			return e.Message
		}
		return fmt.Sprint(r.Code)
	}
}

// Event is an input of a Machine.
type Event struct {
	Kind  EventKind
	Own   Ownership // EventOwned
	Reply Reply     // EventInitReply, EventFlushed, EventOffsetsReply, EventEndReply
}

// ActionKind is what to do next.
type ActionKind uint8

// The actions of a Machine; each names the events that answer it.
const (
	ActAsk           ActionKind = iota + 1 // look at the session's word: EventOwned, EventNotOwned
	ActInit                                // InitProducerID: EventInitReply
	ActProduce                             // run the epoch: EventSeal
	ActFlush                               // wait for all records: EventFlushed
	ActCommitOffsets                       // with Action.Own: EventOffsetsReply
	ActWait                                // for a newer word than Action.Own: EventWord, EventDeadline
	ActPause                               // Action.Try says how often in a row: EventPaused, EventDeadline
	ActEndTxn                              // EventEndReply
	ActClose                               // Machine.Outcome says how it ended; nothing answers
)

var actionNames = [...]string{"", "ask", "init", "produce", "flush", "commit-offsets", "wait", "pause", "end-txn", "close"}

func (k ActionKind) String() string { return actionNames[k] }

// Action is an output of a Machine.
type Action struct {
	Kind ActionKind
	Own  Ownership // ActCommitOffsets, ActWait
	Try  int       // ActPause: 1 for the first pause in a row
}

// Bounds of a Machine: no loop goes on for ever, whatever the brokers answer. The driver's deadline usually comes
// first.
const (
	maxInitTries   = 20
	maxOffsetTries = 25 // per commit
	maxWords       = 16 // generations waited for, per commit
)

// Machine is the protocol of takeover and commit of one subtask, as a pure state machine: the driver executes the
// Action that Step returns and feeds what came of it. What it guarantees, whatever comes in:
//
//   - InitProducerID only right after the session said "yours": it fences whoever is the owner.
//   - EndTxn(commit) only after the group coordinator accepted the epoch's offsets with a member id and a generation:
//     brokers accept an empty member with generation -1 from anyone, so it is never sent.
//   - Only EndTxn's success is Committed; after any other answer to it the outcome is not known by the answer alone.
//   - Every retry is bounded.
//
// A fence (INVALID_PRODUCER_EPOCH and its kin) is a question, not an answer: it comes from a successor, from the
// broker's own time-out and from a zombie's late InitProducerID alike. The Machine ends with Fenced and the driver's
// owner asks the group.
type Machine struct {
	phase   Phase
	outcome Outcome
	own     Ownership // the word with which the offsets were sent last
	inits   int       // InitProducerID tries
	offsets int       // TxnOffsetCommit retries of this commit
	words   int       // words waited for in this commit
}

// NewMachine starts a takeover; the first Action is ActAsk.
func NewMachine() *Machine { return &Machine{phase: PhaseAsking} }

// Phase tells where the machine stands.
func (m *Machine) Phase() Phase { return m.phase }

// Outcome is that of the last commit, 0 before the first ended.
func (m *Machine) Outcome() Outcome { return m.outcome }

// MachineError is a step that the protocol does not have: a fault of the driver.
type MachineError struct {
	Phase Phase
	Event Event
	Why   string
}

func (e *MachineError) Error() string {
	return fmt.Sprintf("commit protocol: event %s in phase %s: %s; this is a bug, please report it", e.Event.Kind, e.Phase, e.Why)
}

// Step takes an event to the next action. On a *MachineError the machine is closed and the action is ActClose.
func (m *Machine) Step(e Event) (Action, error) {
	switch m.phase {
	case PhaseAsking:
		switch e.Kind {
		case EventOwned:
			if err := m.checkOwn(e); err != nil {
				return m.fault(err)
			}
			m.inits++
			return m.to(PhaseIniting, Action{Kind: ActInit})
		case EventNotOwned:
			return m.close(Aborted)
		}
	case PhaseIniting:
		if e.Kind == EventInitReply {
			switch {
			case e.Reply.OK():
				return m.to(PhaseOpen, Action{Kind: ActProduce})
			case retriable(e.Reply) && m.inits < maxInitTries:
				return m.to(PhaseRetryInit, Action{Kind: ActPause, Try: m.inits})
			default:
				return m.close(Aborted)
			}
		}
	case PhaseRetryInit:
		switch e.Kind {
		case EventPaused:
			return m.to(PhaseAsking, Action{Kind: ActAsk})
		case EventDeadline:
			return m.close(Aborted)
		}
	case PhaseOpen:
		if e.Kind == EventSeal {
			m.outcome, m.offsets, m.words, m.own = 0, 0, 0, Ownership{}
			return m.to(PhaseFlushing, Action{Kind: ActFlush})
		}
	case PhaseFlushing:
		if e.Kind == EventFlushed {
			switch {
			case e.Reply.OK():
				return m.to(PhaseConfirming, Action{Kind: ActAsk})
			case fencing(e.Reply):
				return m.close(Fenced)
			default:
				return m.close(Aborted)
			}
		}
	case PhaseConfirming:
		switch e.Kind {
		case EventOwned:
			if err := m.checkOwn(e); err != nil {
				return m.fault(err)
			}
			m.own = e.Own
			return m.to(PhaseOffsets, Action{Kind: ActCommitOffsets, Own: m.own})
		case EventNotOwned:
			return m.close(Aborted)
		}
	case PhaseOffsets:
		if e.Kind == EventOffsetsReply {
			switch {
			case e.Reply.OK():
				return m.to(PhaseEnding, Action{Kind: ActEndTxn})
			case fencing(e.Reply):
				return m.close(Fenced)
			case generationMoved(e.Reply):
				if m.words++; m.words > maxWords {
					return m.close(Aborted)
				}
				return m.to(PhaseWaiting, Action{Kind: ActWait, Own: m.own})
			case retriable(e.Reply):
				if m.offsets++; m.offsets > maxOffsetTries {
					return m.close(Aborted)
				}
				return m.to(PhaseRetryOffsets, Action{Kind: ActPause, Try: m.offsets})
			default:
				// UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID are here: we are no member any more, so the subtask is not ours.
				return m.close(Aborted)
			}
		}
	case PhaseWaiting:
		switch e.Kind {
		case EventWord:
			return m.to(PhaseConfirming, Action{Kind: ActAsk})
		case EventDeadline:
			return m.close(Aborted)
		}
	case PhaseRetryOffsets:
		switch e.Kind {
		case EventPaused:
			// The word is asked again: a pause is long enough for a rebalance.
			return m.to(PhaseConfirming, Action{Kind: ActAsk})
		case EventDeadline:
			return m.close(Aborted)
		}
	case PhaseEnding:
		if e.Kind == EventEndReply {
			switch {
			case e.Reply.OK():
				m.outcome = Committed
				return m.to(PhaseOpen, Action{Kind: ActProduce})
			case fencing(e.Reply):
				return m.close(Fenced)
			case !e.Reply.Lost && (e.Reply.Code == kerr.OperationNotAttempted.Code || e.Reply.Code == kerr.TransactionAbortable.Code):
				return m.close(Aborted)
			default:
				// An answer that could not be had after retries says nothing of what an earlier try did.
				return m.close(Unknown)
			}
		}
	case PhaseClosed:
	}
	return m.fault(&MachineError{m.phase, e, "not expected here"})
}

func (m *Machine) to(p Phase, a Action) (Action, error) {
	m.phase = p
	return a, nil
}

func (m *Machine) close(o Outcome) (Action, error) {
	m.phase, m.outcome = PhaseClosed, o
	return Action{Kind: ActClose}, nil
}

// fault closes the machine on a step that does not exist. After EndTxn was sent nothing may be claimed about it.
func (m *Machine) fault(err *MachineError) (Action, error) {
	switch m.phase {
	case PhaseClosed:
	case PhaseEnding:
		m.outcome = Unknown
	default:
		m.outcome = Aborted
	}
	m.phase = PhaseClosed
	return Action{Kind: ActClose}, err
}

func (m *Machine) checkOwn(e Event) *MachineError {
	if e.Own.MemberID == "" || e.Own.Generation < 0 {
		return &MachineError{m.phase, e, fmt.Sprintf("the session's word has member id %q and generation %d", e.Own.MemberID, e.Own.Generation)}
	}
	return nil
}

// generationMoved: normal in a cooperative rebalance; the same transaction goes on with the next generation.
func generationMoved(r Reply) bool {
	switch r.Code {
	case kerr.IllegalGeneration.Code, kerr.RebalanceInProgress.Code, kerr.StaleMemberEpoch.Code:
		return !r.Lost
	}
	return false
}

// fencing: the transaction is not ours any more, or no more.
func fencing(r Reply) bool {
	switch r.Code {
	case kerr.InvalidProducerEpoch.Code, kerr.ProducerFenced.Code, kerr.InvalidTxnState.Code,
		kerr.InvalidProducerIDMapping.Code, kerr.TransactionalIDNotFound.Code, kerr.UnknownProducerID.Code,
		kerr.OutOfOrderSequenceNumber.Code:
		return !r.Lost
	}
	return false
}

// retriable: the same request may succeed later. A lost answer is: InitProducerID, AddOffsetsToTxn and TxnOffsetCommit
// may all be sent twice.
func retriable(r Reply) bool {
	if r.Lost {
		return true
	}
	switch r.Code {
	case kerr.ConcurrentTransactions.Code, kerr.UnstableOffsetCommit.Code:
		return true
	}
	return kerr.IsRetriable(kerr.ErrorForCode(r.Code))
}
