package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"
)

// liveParts is the number of partitions of the topics that probe fills.
const liveParts = 4

// firstOutput produces a record for each partition until out moves.
func firstOutput(out string) {
	if *work == "w2" {
		time.Sleep(12 * time.Second)
		return
	}
	t0 := time.Now()
	base := sum(ends(out, true))
	for i := 0; time.Since(t0) < time.Minute; i++ {
		if i%40 == 0 {
			rs := common.FlushRecords(*in, liveParts, time.Now().UnixMilli())
			for _, r := range rs {
				r.Value = bytes.Replace(r.Value, []byte("0.00"), []byte("5.00"), 1)
			}
			common.Must(cl.ProduceSync(ctx, rs...).FirstErr())
		}
		if sum(ends(out, true)) > base {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// probe produces at the rate and watches the output.
func probe(out, drain string, more ...string) m {
	res := tool("probe", append([]string{"-in", *in, "-out", out, "-warm", warm.String(), "-dur", dur.String(), "-rate", fmt.Sprint(*rate),
		fmt.Sprintf("-expect-all=%v", *work == "w1"), "-drain", drain}, more...)...)
	var r m
	if json.Unmarshal([]byte(res), &r) != nil {
		r = m{"error": res}
	}
	return r
}

// lat measures the time from producer to read_committed consumer at a steady rate, and what the peer needs for it.
func lat(args []string) {
	var p50, p99, mx []float64
	for i := range *rep {
		group, out := newRun("lat", liveParts)
		*in = "in-" + group
		mkTopic(*in, liveParts)
		p := startProc(args, group, out, stateDir(group), 0)
		firstOutput(out)
		c0, t0 := p.cpu(), time.Now()
		r := probe(out, map[bool]string{true: "15s", false: "3s"}[*work == "w1"], fmt.Sprintf("-window=%v", *work == "w2"))
		cpu := (p.cpu() - c0) / time.Since(t0).Seconds()
		rss, anon := p.memory()
		p.kill()
		if r["error"] == nil {
			p50, p99, mx = append(p50, r["p50_ms"].(float64)), append(p99, r["p99_ms"].(float64)), append(mx, r["max_ms"].(float64))
		}
		r["name"], r["kind"], r["w"], r["rep"], r["commit_ms"] = *name, *label, *work, i, *cms
		r["cpu_share"], r["rss_mib"], r["rss_anon_mib"] = round(cpu, 2), rss, anon
		delete(r, "gaps")
		if *work == "w1" {
			r["verify"] = verify(*work, out, int64(float64(*rate)*(*warm+*dur).Seconds()), 10_000, false, 7)
			checked(r, group, out)
		}
		emit(r)
		cleanup(group, out, *in)
	}
	emit(m{"MEDIAN-LAT": *name, "w": *work, "commit_ms": *cms, "p50": median(p50), "p99": median(p99), "max": median(mx), "rate": *rate})
}

// failover kills a process with SIGKILL at a steady rate and measures how long a partition is silent. With two
// processes the other one goes on; with one it is started again at once, with its state unless that is removed.
func failover(args []string) {
	var gaps []float64
	for i := range *rep {
		group, out := newRun("fo", liveParts)
		*in = "in-" + group
		mkTopic(*in, liveParts)
		state := stateDir(group)
		dir := func(i int) string {
			if *procs == 1 {
				return state
			}
			return filepath.Join(state, strconv.Itoa(i))
		}
		var ps team
		for k := range *procs {
			ps = append(ps, startProc(args, group, out, dir(k), k))
			firstOutput(out)
		}
		time.Sleep(5 * time.Second) // let a rebalance end
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(*warm + *kill)
			ps[0].kill()
			if *procs == 1 {
				if !*keep {
					_ = os.RemoveAll(filepath.Join(state, "local"))
				}
				ps[0] = startProc(args, group, out, state, 0)
			}
		}()
		r := probe(out, "60s")
		<-killed
		time.Sleep(1500 * time.Millisecond)
		ps.kill()
		r["verify"] = verify(*work, out, int64(float64(*rate)*(*warm+*dur).Seconds()), 10_000, false, 7)
		r["name"], r["kind"], r["w"], r["rep"], r["session_ms"], r["txn_ms"], r["kill_at_s"], r["commit_ms"] = *name, *label, *work, i, *sms, *tms, (*warm + *kill).Seconds(), *cms
		r["procs"], r["keep_local"] = *procs, *keep
		checked(r, group, out)
		if g, ok := number(r["worst_gap_ms"]); ok {
			gaps = append(gaps, g)
		}
		emit(r)
		cleanup(group, out, *in)
	}
	emit(m{"MEDIAN-FAILOVER": *name, "of": *label, "w": *work, "procs": *procs, "session_ms": *sms, "worst_gap_ms": median(gaps)})
}
