//go:build synctests

package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/engine"
)

// Scripts: what seeds have found, each as a run of its own in which nothing is left to chance.

// calm is a profile without any fault.
func calm() profile {
	return profile{partitions: 4, brokers: 1, duration: 5 * time.Second, keys: 5, latency: 300,
		latencyMax: 100 * time.Millisecond, quiet: 25 * time.Millisecond, behind: time.Second}
}

// script runs f in place of the faults of a seed; the checkers run after it.
func script(t *testing.T, p profile, f func(ctx context.Context, w *world)) *world {
	t.Helper()
	w := newWorld(1)
	w.prof = p
	w.script = f
	synctest.Test(t, func(*testing.T) { w.run() })
	if w.failed() {
		t.Error(w.report())
	}
	return w
}

func (w *world) join(name string) *member {
	m := w.launch(name, vfs.NewCrashableMem())
	w.members = append(w.members, m)
	return m
}

// owns waits until a member runs n subtasks.
func (w *world) owns(m *member, n int) {
	for range 600 {
		running := 0
		for _, s := range m.worker.Status().Subtasks {
			if s.State == engine.SubtaskRunning {
				running++
			}
		}
		if running >= n {
			return
		}
		pause(50 * time.Millisecond)
	}
	w.wrongf("script", "%s does not run %d subtasks", m.life, n)
}

// A member that the coordinator does not know any more, and that has not heard of it, took its subtasks over
// again and again, and fenced their owner each time.
func TestUnknownMemberDoesNotFence(t *testing.T) {
	p := calm()
	p.partitions = 1
	inits := 0
	w := script(t, p, func(_ context.Context, w *world) {
		a := w.join("A")
		w.owns(a, 3)
		w.send(w.src.next(topicIn))
		pause(time.Second)
		// A hears nothing of its group; all else works.
		deaf := time.Now().Add(8 * time.Second)
		a.net.edit(func(key int16, p *plan) {
			if k := kmsg.Key(key); (k == kmsg.Heartbeat || k == kmsg.JoinGroup) && time.Now().Before(deaf) {
				p.up = time.Until(deaf)
			}
		})
		b := w.join("B")
		w.owns(b, 3)
		for time.Now().Before(deaf) {
			w.send(w.src.next(topicIn))
			pause(100 * time.Millisecond)
		}
		w.send(w.src.closing()...)
		inits = a.net.requests(kmsg.InitProducerID)
	})
	// One for each subtask at the start, one when it was fenced and the session still said that all is well.
	if inits > 6 {
		t.Errorf("A took over %d times\n%s", inits, w.report())
	}
}

// Seed 1299: a member that was told to end while it went to another incarnation ended with an error.
func TestStopWhileTheAppIsBegunAnew(t *testing.T) {
	script(t, calm(), func(_ context.Context, w *world) {
		a := w.join("A")
		w.owns(a, 12)
		w.send(w.src.next(topicIn))
		pause(time.Second)
		w.deploy.start, w.rewinds = engine.Start{Mode: "fresh"}, true
		b := w.join("B")
		for i := 0; a.worker.Status().State != engine.StateStopping; i++ {
			if i > 100_000 {
				w.wrongf("script", "A does not hear of it")
				return
			}
			pause(100 * time.Microsecond)
		}
		a.stop("as it goes to another incarnation")
		a.await()
		w.owns(b, 12)
		w.send(w.src.closing()...)
	})
}
