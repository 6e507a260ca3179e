//go:build synctests && canary

package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/failpoint"
)

// TestCanaries plants one bug after the other and wants each found within the seeds of TestSim: a simulation that finds
// nothing proves nothing unless it finds these. The table in docs/simulation.md is its output.
func TestCanaries(t *testing.T) {
	defer failpoint.Plant("")
	for _, c := range []failpoint.Canary{failpoint.StateBeforeCommit, failpoint.UnknownIsCommitted, failpoint.OffsetsOutside, failpoint.SkipTail,
		failpoint.UnfencedZombie, failpoint.WatermarkForgotten, failpoint.StartOffset, failpoint.ReadUncommitted,
		failpoint.GoesOnAfterBarrier, failpoint.BaseOffset} {
		t.Run(string(c), func(t *testing.T) {
			failpoint.Plant(c)
			for seed := uint64(1); seed <= ciSeeds; seed++ {
				w := runSeed(t, seed)
				if !w.failed() {
					continue
				}
				var checks []string
				for _, s := range w.wrong {
					name, _, _ := strings.Cut(s, ":")
					if !slices.Contains(checks, name) {
						checks = append(checks, name)
					}
				}
				t.Logf("| `%s` | %d | %s |", c, seed, strings.Join(checks, ", "))
				t.Logf("first: %.300s", w.wrong[0])
				return
			}
			t.Errorf("canary %s was not found in %d seeds", c, ciSeeds)
		})
	}
}
