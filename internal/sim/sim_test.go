//go:build synctests

package sim

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Seeds of a run: MILLRACE_SIM_SEED=n runs that one and tells its history; MILLRACE_SIM_SEEDS=n runs seeds 1 to n;
// MILLRACE_SIM_FROM=n starts at another one.
const (
	envSeed  = "MILLRACE_SIM_SEED"
	envSeeds = "MILLRACE_SIM_SEEDS"
	envFrom  = "MILLRACE_SIM_FROM"
	envLog   = "MILLRACE_SIM_LOG" // 1 = with the engine's log, 2 = with that of its Kafka client too

	ciSeeds    = 300
	shortSeeds = 40
)

func envInt(t *testing.T, name string, def uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// runSeed runs one seed in a bubble of its own.
func runSeed(t *testing.T, seed uint64) *world {
	w := newWorld(seed)
	w.prof = newProfile(w.rnd)
	if w.calm {
		w.prof.loss, w.prof.errors = 0, 0
	}
	if w.incarnations() != "" {
		w.prof.parallelism = 0 // the largest, at first
		if w.prof.partitions == 1 {
			w.prof.partitions = 2
		}
	}
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

type lockedWriter struct{ w *world }

func (l lockedWriter) Write(p []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.engine.Write(p)
}

// TestSim runs the seeds.
func TestSim(t *testing.T) {
	if one := envInt(t, envSeed, 0); one > 0 {
		w := runSeed(t, one)
		t.Log(w.report())
		for _, k := range slices.Sorted(maps.Keys(w.hits)) {
			t.Logf("%6d  %s", w.hits[k], k)
		}
		if w.failed() {
			t.Fail()
		}
		return
	}
	def := uint64(ciSeeds)
	if testing.Short() {
		def = shortSeeds
	}
	n, from := envInt(t, envSeeds, def), envInt(t, envFrom, 1)
	var mu sync.Mutex
	hits := map[string]int{}
	start := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for seed := from; seed < from+n; seed++ {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				w := runSeed(t, seed)
				mu.Lock()
				for k, v := range w.hits {
					hits[k] += v
				}
				mu.Unlock()
				if w.failed() {
					t.Errorf("replay with: %s=%d go test -tags synctests ./internal/sim -run TestSim\n%s", envSeed, seed, w.report())
				}
			})
		}
	})
	t.Logf("%d seeds from %d in %v", n, from, time.Since(start).Round(time.Millisecond))
	var lines []string
	for _, k := range slices.SortedFunc(maps.Keys(hits), func(a, b string) int { return cmp.Compare(a, b) }) {
		lines = append(lines, fmt.Sprintf("%7d  %s", hits[k], k))
	}
	for _, l := range lines {
		t.Log(l)
	}
	if hits[hitStuck] > 2+int(n/50) {
		t.Errorf("%s in %d of %d runs: is it the fake's fault?", hitStuck, hits[hitStuck], n)
	}
	if n >= ciSeeds {
		for _, want := range mustFire() {
			if hits[want] == 0 {
				t.Errorf("%q never happened in %d seeds", want, n)
			}
		}
	}
}

// mustFire is what has to happen at least once in a full run: an injection that does not fire proves nothing.
func mustFire() []string {
	all := []string{"kill at once", "kill with all others", "connections broken", "graceful stop", "pause", "coordinators moved", "leaders moved", "restart with disk", "restart without disk",
		"restore of records", "standby took over", "standby warms up", "checkpoint", "restore from checkpoint", "damaged blob", "file uploaded", "not file uploaded", "file downloaded", "not file downloaded", "savepoint completed", "savepoint completed with stop", "savepoint failed", "savepoint with state", "rescaled", "incarnation from a savepoint", "incarnation of another parallelism", "incarnation begun fresh", "incarnation with state", "command killed", "repartition records deleted", "slow completion met", "slow completion unstable",
		"outcome committed", "outcome aborted", "outcome fenced", "outcome unknown", "restart fenced", "restart retry"}
	for _, f := range faults {
		all = append(all, "error "+f.err.Message+" "+f.key.Name())
	}
	for _, k := range traps {
		all = append(all, "kill before "+k.Name(), "kill after "+k.Name())
	}
	for _, k := range pauses {
		all = append(all, "pause before "+k.Name())
	}
	for _, k := range []kmsg.Key{kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.InitProducerID, kmsg.Produce, kmsg.OffsetFetch, kmsg.AddOffsetsToTxn, kmsg.AddPartitionsToTxn, kmsg.JoinGroup} {
		all = append(all, "lost-reply "+k.Name(), "lost-request "+k.Name(), "late-reply "+k.Name(), "late-request "+k.Name())
	}
	return all
}
