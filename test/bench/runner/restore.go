package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"
)

// restore fills the state of a peer, kills it, and measures from the start of the process to the first new output: with
// the local state kept, removed with checkpoints to take it from, and removed with only the changelog left. One filled
// state serves all modes and repetitions.
func restore(args []string) {
	partitions := len(ends(*in, false))
	group, out := newRun("restore", partitions)
	state := stateDir(group)
	var checkpoints []string
	if *ckURL != "" {
		checkpoints = []string{"CHECKPOINT_URL=" + strings.TrimSuffix(*ckURL, "/") + "/" + group, "CHECKPOINT_INTERVAL_MS=" + strconv.Itoa(*ckms)}
	}
	t := team{startProc(args, group, out, state, 0, checkpoints...)}
	fill, ok := runToEnd(t, group, out)
	fill["name"], fill["kind"], fill["w"], fill["commit_ms"], fill["users"], fill["state_bytes"] = *name, *label+"-fill", *work, *cms, *users, *stBytes
	if ok {
		settle()
	}
	t.kill()
	if ok && *work != "w2" {
		fill["verify"] = verify(*work, out, *n, *users, *dist, 1)
		checked(fill, group, out)
	}
	if *ckFiles != "" {
		fill["checkpoints_mib"] = dirMiB(*ckFiles)
	}
	fill["local_mib"] = dirMiB(filepath.Join(state, "local"))
	emit(fill)
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: %v, log in %s\n", group, fill["error"], filepath.Join(*tmp, group+"-0.log"))
		cleanup(group, out)
		return
	}
	first := map[string][]float64{}
	for i := range *rep {
		for mode := range strings.SplitSeq(*modes, ",") {
			env := checkpoints
			if mode != "kept" {
				common.Must(os.RemoveAll(filepath.Join(state, "local")))
			}
			if mode == "wiped" {
				env = nil
			}
			r := m{"name": *name, "kind": *label, "w": *work, "rep": i, "mode": mode, "commit_ms": *cms, "session_ms": *sms,
				"users": *users, "state_bytes": *stBytes}
			waited, err := timedOut(group)
			r["wait_s"] = round(waited.Seconds(), 1)
			switch {
			case err != nil:
				r["error"] = err.Error()
			case mode == "checkpoint" && (checkpoints == nil || *ckFiles != "" && !hasFiles(*ckFiles)):
				r["error"] = "the peer has taken no checkpoint"
			default:
				restart(r, args, group, out, state, partitions, env)
				if s, ok := number(r["first_new_out_s"]); ok {
					first[mode] = append(first[mode], s)
				}
			}
			emit(r)
		}
	}
	for mode := range strings.SplitSeq(*modes, ",") {
		emit(m{"MEDIAN-RESTORE": *name, "of": *label, "mode": mode, "users": *users, "state_bytes": *stBytes, "first_new_out_s": round(median(first[mode]), 2), "runs": len(first[mode])})
	}
	cleanup(group, out)
}

// settle gives a peer the time for its last commit, and for a checkpoint with everything in it.
func settle() {
	time.Sleep(2500 * time.Millisecond)
	if *ckURL != "" {
		time.Sleep(3 * time.Duration(*ckms) * time.Millisecond)
	}
}

// timedOut waits until the session of the killed member and its transactions have timed out, so that
// neither is part of what is measured.
func timedOut(group string) (time.Duration, error) {
	t0 := time.Now()
	last := "nothing asked yet"
	for time.Since(t0) < 3*time.Minute {
		last = waiting(group)
		if last == "" {
			return time.Since(t0), nil
		}
		time.Sleep(250 * time.Millisecond)
	}
	return time.Since(t0), fmt.Errorf("wait for time-outs of %s: %s", group, last)
}

// waiting says what of a group has not timed out yet.
func waiting(group string) string {
	gs, err := adm.ListGroups(ctx)
	if err != nil {
		return err.Error()
	}
	if g, ok := gs[group]; ok && g.State != "Empty" && g.State != "Dead" {
		return "the group is " + g.State
	}
	open, err := adm.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
	if err != nil {
		return err.Error()
	}
	for id := range open {
		if strings.HasPrefix(id, group) {
			return "transaction " + id + " is " + open[id].State
		}
	}
	return ""
}

// restart starts the peer, with a trickle of input, and waits for new rows on all partitions of the output.
func restart(r m, args []string, group, out, state string, partitions int, env []string) {
	base := ends(out, false)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				common.Must(cl.ProduceSync(ctx, common.FlushRecords(*in, partitions, time.Now().UnixMilli())...).FirstErr())
			}
		}
	}()
	p := startProc(args, group, out, state, 0, env...)
	for time.Since(p.start) < *tmo && !p.dead.Load() {
		lso, err := common.Ends(adm, out, true)
		if err == nil {
			n, now := moved(base, lso), round(time.Since(p.start).Seconds(), 2)
			if n > 0 && r["first_new_out_s"] == nil {
				r["first_new_out_s"], r["cpu_s"] = now, round(p.cpu(), 2)
			}
			if n == partitions {
				r["all_partitions_s"] = now
				break
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r["all_partitions_s"] == nil {
		r["error"] = "no new output on some partitions; log in " + filepath.Join(*tmp, group+"-0.log")
	}
	r["rss_mib"], _ = p.memory()
	close(stop)
	<-stopped
	settle()
	p.kill()
}

// hasFiles reports whether there is a file below a folder.
func hasFiles(dir string) bool {
	found := false
	_ = filepath.Walk(dir, func(_ string, i os.FileInfo, err error) error {
		found = found || err == nil && i.Mode().IsRegular()
		return nil
	})
	return found
}

// dirMiB is the size of the files below a folder.
func dirMiB(dir string) int64 {
	var s int64
	_ = filepath.Walk(dir, func(_ string, i os.FileInfo, err error) error {
		if err == nil && i.Mode().IsRegular() {
			s += i.Size()
		}
		return nil
	})
	return s >> 20
}
