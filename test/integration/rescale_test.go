package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/test/kafka"
)

// TestRescaleUnderLoad goes from 4 subtasks to 2 and rolls back, while input arrives, with state on disk: two members go on
// by themselves in the new incarnation, each event counts once; after the roll back what came later is counted again, and
// no more than that.
func TestRescaleUnderLoad(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	j.env = []string{"MILLRACE_CHECKPOINT_URL=file://" + t.TempDir()}
	dirs := []string{t.TempDir(), t.TempDir()}
	members := []*kafka.Proc{j.worker(dirs[0]), j.worker(dirs[1])}
	stopFeed := j.feed(20)
	j.progress()
	j.rescale(2)
	j.progress()
	stopFeed()
	j.committed(members...)
	j.settled(j.out)
	checkRunningTotal(t, j.src.truth, b.Read(t, j.out))

	before := j.savepoint()
	stopFeed = j.feed(20)
	j.progress()
	stopFeed()
	j.committed(members...)
	stop(t, members...)
	j.settled(j.out)
	future := len(b.Read(t, j.out))
	if future != len(j.src.truth) {
		t.Fatalf("%d rows of %d events", future, len(j.src.truth))
	}
	seen := map[string]int64{} // by user, before the roll back
	for _, e := range j.src.truth {
		seen[e.user]++
	}

	j.env = append(j.env, "MILLRACE_START_MODE=savepoint:"+before)
	members = []*kafka.Proc{j.worker(dirs[0]), j.worker(dirs[1])}
	j.produce(1000)
	j.committed(members...)
	stop(t, members...)
	j.settled(j.out)
	j.checkRolledBack(seen)
}

// savepoint takes one and returns its name. It fails while the group still spreads the subtasks, and is tried again then.
func (j *job) savepoint() (name string) {
	j.t.Helper()
	for try := 1; ; try++ {
		name = fmt.Sprint("savepoint-", try)
		if j.millrace("is completed", "savepoint", "create", name) {
			return name
		}
	}
}

// millrace runs a command of that name on the app, in the environment of its members, and looks for a text in what it
// says. It returns false if the command was refused by a rebalance and can be tried again.
func (j *job) millrace(want string, args ...string) bool {
	j.t.Helper()
	bin := kafka.Build(j.t, "github.com/millrace-stream/millrace/cmd/millrace")
	p := kafka.Run(j.t, bin, append(args, "--app.id="+j.app, "--brokers="+strings.Join(j.b.Brokers(), ",")), j.env...)
	code := p.Wait(j.t, patience)
	if code != 0 && strings.Contains(p.Output(), "moved to member") {
		return false
	}
	if code != 0 || !strings.Contains(p.Output(), want) {
		j.t.Fatalf("millrace %s: exit code %d, want %q:\n%s", strings.Join(args, " "), code, want, p.Output())
	}
	return true
}

// rescale moves the state to another number of subtasks; see savepoint for the tries.
func (j *job) rescale(to int) {
	j.t.Helper()
	for try := 1; ; try++ {
		if j.millrace("goes on in incarnation", "rescale", fmt.Sprint("--subtasks=", to), "--yes", fmt.Sprintf("--savepoint=to-%d-%d", to, try)) {
			return
		}
	}
}

// checkRolledBack compares all rows with the events, of which some were counted twice: in the rows of each user the
// number goes up by one, but for one step back, and every sum is that of the events so far.
func (j *job) checkRolledBack(before map[string]int64) {
	j.t.Helper()
	sums := map[string][]int64{}
	for _, e := range j.src.truth {
		sum := e.cents
		if n := len(sums[e.user]); n > 0 {
			sum += sums[e.user][n-1]
		}
		sums[e.user] = append(sums[e.user], sum)
	}
	last, back := map[string]int64{}, map[string]bool{}
	for _, r := range j.b.Read(j.t, j.out) {
		var row struct {
			User  string
			Count int64
			Sum   float64
		}
		decode(j.t, r, &row)
		if row.Count != last[row.User]+1 {
			if back[row.User] || last[row.User] != before[row.User] || row.Count > last[row.User] {
				j.t.Fatalf("count %d of %s follows %d, and %d was reached before the roll back", row.Count, row.User, last[row.User], before[row.User])
			}
			back[row.User] = true
		}
		last[row.User] = row.Count
		if row.Count < 1 || row.Count > int64(len(sums[row.User])) || cents(row.Sum) != sums[row.User][row.Count-1] {
			j.t.Fatalf("row %+v: the sum of its first %d events is another", row, row.Count)
		}
	}
	for user, all := range sums {
		if last[user] != int64(len(all)) {
			j.t.Errorf("%s ends with %d, want %d", user, last[user], len(all))
		}
	}
	if len(back) == 0 {
		j.t.Error("nothing was counted again: there was no roll back")
	}
}
