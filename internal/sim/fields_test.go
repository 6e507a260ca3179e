//go:build synctests

package sim

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Faults that need the simulation's clock.

// Field report: a coordinator answered CONCURRENT_TRANSACTIONS for half a minute and was another one then; the producer
// asked the old one without end.
//
// The tries are bounded, the new coordinator is found, and each epoch is committed once.
func TestCoordinatorIsBusyThenElsewhere(t *testing.T) {
	p := calm()
	p.partitions = 1
	var busy, moved *kfake.FaultHandle
	restarts := int64(0)
	script(t, p, func(_ context.Context, w *world) {
		a := w.join("A")
		w.owns(a, 3)
		w.send(w.src.next(topicIn))
		pause(time.Second)
		until := time.Now().Add(30 * time.Second)
		keys := []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn}
		busy = w.kafka.Fault(kfake.Fault{Keys: keys, Err: kerr.ConcurrentTransactions, Count: -1, When: func(kmsg.Request) bool { return time.Now().Before(until) }})
		moved = w.kafka.Fault(kfake.Fault{Keys: keys, Err: kerr.NotCoordinator, Count: 6, When: func(kmsg.Request) bool { return !time.Now().Before(until) }})
		for time.Now().Before(until.Add(3 * time.Second)) {
			w.send(w.src.next(topicIn))
			pause(250 * time.Millisecond)
		}
		w.send(w.src.closing()...)
		for _, s := range a.worker.Status().Subtasks {
			restarts += s.Restarts
		}
	})
	if busy.Hits() == 0 || moved.Hits() != 6 {
		t.Errorf("%d answers were CONCURRENT_TRANSACTIONS, %d of 6 NOT_COORDINATOR", busy.Hits(), moved.Hits())
	}
	// A call ends after its deadline of five seconds and the subtask takes over again, three subtasks for 33 seconds.
	if restarts < 1 || restarts > 3*7 {
		t.Errorf("%d takeovers, want a few: each try is bounded", restarts)
	}
}

// A member gets its subtasks and its process stands still right before its first InitProducerID; others take over and
// work. When it wakes up, its InitProducerID comes after theirs and fences them, with no proof of ownership but that of
// before. They ask the group and go on; it is told that it is no member.
func TestZombieWakesBeforeItsFirstInit(t *testing.T) {
	p := calm()
	inits := 0
	w := script(t, p, func(_ context.Context, w *world) {
		b := w.join("B")
		w.owns(b, 12)
		a := w.join("A")
		a.net.trap(&trap{key: int16(kmsg.InitProducerID), left: 1, pause: 4500 * time.Millisecond})
		deadline := time.Now().Add(20 * time.Second)
		for time.Now().Before(deadline) {
			w.send(w.src.next(topicIn))
			pause(100 * time.Millisecond)
		}
		inits = a.net.requests(kmsg.InitProducerID)
		w.send(w.src.closing()...)
	})
	if w.hits["pause before InitProducerID"] != 1 || w.hits["outcome fenced"] == 0 {
		t.Errorf("the owner was not fenced by the late InitProducerID: the test tests nothing; %v", w.hits)
	}
	// One for each of its six subtasks, and one or two more for what it lost.
	if inits > 2*6 {
		t.Errorf("A took over %d times\n%s", inits, w.report())
	}
}
