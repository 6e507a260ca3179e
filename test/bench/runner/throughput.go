package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"
)

// inputEnd is how many records the input has, in both topics where there are two.
func inputEnd() int64 {
	n := sum(ends(*in, false))
	if *in2 != "" {
		n += sum(ends(*in2, false))
	}
	return n
}

// runToEnd waits until the group has committed the whole input and no transaction is open on out.
func runToEnd(t team, group, out string) (r m, ok bool) {
	inEnd := inputEnd()
	begin := t[0].start
	var firstOut time.Duration
	var first, last point
	anon := 0
	for time.Since(begin) < *tmo && last.at == 0 {
		if t.dead() {
			return m{"error": "process died"}, false
		}
		lso, err := common.Ends(adm, out, true)
		now := time.Since(begin)
		if err != nil {
			continue
		}
		if firstOut == 0 && sum(lso) > 0 {
			firstOut = now
		}
		c := committed(group)
		if first.at == 0 && c > 0 && float64(c) >= *from*float64(inEnd) {
			first = point{now, c, t.cpu()}
		}
		if c >= inEnd {
			hw, err := common.Ends(adm, out, false)
			lso, err2 := common.Ends(adm, out, true)
			if err == nil && err2 == nil && sum(hw) == sum(lso) {
				last = point{time.Since(begin), c, t.cpu()}
				break
			}
		}
		_, a := t.memory()
		anon = max(anon, a)
		time.Sleep(25 * time.Millisecond)
	}
	if last.at == 0 {
		return m{"error": "timeout", "committed": committed(group), "end": inEnd}, false
	}
	if firstOut == 0 { // all of it came between two looks
		firstOut = last.at
	}
	r = rates(first, last, inEnd)
	if n, ok := t.commits(); ok {
		r["commits"], r["commits_ps"] = n, round(n/last.at.Seconds(), 1)
	}
	r["first_out_s"] = round(firstOut.Seconds(), 2)
	r["rss_mib"], _ = t.memory()
	r["rss_anon_mib"] = anon
	return r, true
}

func startTeam(args []string, group, out string) team {
	if *members == 1 {
		return team{startProc(args, group, out, stateDir(group), 0)}
	}
	var t team
	for k := range *members {
		t = append(t, startProc(args, group, out, filepath.Join(stateDir(group), strconv.Itoa(k)), k))
	}
	return t
}

// tput measures how fast a peer reads an input that is there already.
func tput(args []string) {
	keys := []string{"rps_total", "rps_steady", "rpcpu_total", "rpcpu_steady", "cpu_s", "rss_mib", "first_out_s", "total_s", "commits_ps"}
	all := map[string][]float64{}
	partitions := len(ends(*in, false))
	oks := ""
	for i := range *rep {
		group, out := newRun(*label, partitions)
		t := startTeam(args, group, out)
		r, ok := runToEnd(t, group, out)
		if ok && slices.Contains([]string{"w2", "hop", "session", "cep"}, *work) {
			// A peer may emit final windows only when the next record comes.
			time.Sleep(1500 * time.Millisecond)
			// Later than the one of the run before, and as little as that of hop needs.
			pace := common.PaceOf(*work)
			end := pace.End(*n) + pace.Flush + 10*(inputEnd()-*n)
			common.Must(cl.ProduceSync(ctx, common.FlushRecords(*in, partitions, end)...).FirstErr())
			time.Sleep(3 * time.Second)
		}
		t.kill()
		r["name"], r["kind"], r["w"], r["rep"], r["commit_ms"] = *name, *label, *work, i, *cms
		r["n"], r["users"], r["size"], r["partitions"], r["members"] = *n, *users, *size, partitions, *members
		if *in2 != "" {
			r["n"] = 2 * *n
		}
		if ok {
			r["verify"] = verify(*work, out, *n, *users, *dist, 1)
			checked(r, group, out)
			oks += "ok "
			for _, k := range keys {
				if x, ok := number(r[k]); ok {
					all[k] = append(all[k], x)
				}
			}
		} else {
			fmt.Fprintf(os.Stderr, "%s: %v, log in %s\n", group, r["error"], filepath.Join(*tmp, group+"-0.log"))
		}
		emit(r)
		cleanup(group, out)
		time.Sleep(time.Second)
	}
	r := m{"MEDIAN": *name, "of": *label, "w": *work, "commit_ms": *cms, "n": *n, "verify": strings.TrimSpace(oks)}
	for _, k := range keys {
		if len(all[k]) > 0 {
			r[k] = round(median(all[k]), 2)
		}
	}
	emit(r)
}

// start measures from the start of the process to the first committed output, with an input that is there already.
func start(args []string) {
	var first []float64
	for i := range *rep {
		group, out := newRun("start", len(ends(*in, false)))
		p := startProc(args, group, out, stateDir(group), 0)
		r := m{"name": *name, "kind": *label, "w": *work, "rep": i, "commit_ms": *cms}
		for time.Since(p.start) < *tmo && !p.dead.Load() {
			if lso, err := common.Ends(adm, out, true); err == nil && sum(lso) > 0 {
				r["first_out_s"], r["cpu_s"] = round(time.Since(p.start).Seconds(), 2), round(p.cpu(), 2)
				first = append(first, time.Since(p.start).Seconds())
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if r["first_out_s"] == nil {
			r["error"] = "no output"
		}
		p.kill()
		emit(r)
		cleanup(group, out)
		time.Sleep(time.Second)
	}
	emit(m{"MEDIAN-START": *name, "w": *work, "commit_ms": *cms, "first_out_s": round(median(first), 2), "runs": len(first)})
}
