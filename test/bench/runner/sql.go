package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// uncompared are columns of a query that may be of any of several rows, so that runs may differ in them: those of equal
// prices in q19.
var uncompared = map[string][]string{"q19": {"bidder", "channel", "url", "dateTime", "extra"}}

// steadyFrom is the part of the input after which the steady figures begin: by then the JVM has compiled most of what runs.
const steadyFrom = 1.0 / 3

// quiet is how long nothing may come out of a peer that is done.
const quiet = 3 * time.Second

// script writes the SQL of a query to a file: the tables, the sink, and the query of the oracle.
func script(group string) string {
	var b bytes.Buffer
	for _, f := range []string{filepath.Join(*sqlDir, "tables.sql"), filepath.Join(*sqlDir, *work+".sql"), filepath.Join(*queries, *work+".sql")} {
		part, err := os.ReadFile(f)
		common.Must(err)
		if f == filepath.Join(*queries, *work+".sql") {
			b.WriteString("\nINSERT INTO results\n")
		}
		b.Write(part)
	}
	path := filepath.Join(*tmp, group+".sql")
	common.Must(os.WriteFile(path, b.Bytes(), 0o644))
	return path
}

// sql measures a peer that runs a query of the auction benchmark on an input that is there already. Its command gets
// the path of the script as its last argument.
func sql(args []string) {
	all := map[string][]float64{}
	oks := ""
	for i := range *rep {
		group, out := newRun(*label, len(ends(*in, false)))
		p := startProc(append(slices.Clone(args), script(group)), group, out, stateDir(group), 0)
		r, ok := runToQuiet(p, group, out)
		p.kill()
		r["name"], r["kind"], r["w"], r["rep"], r["commit_ms"], r["n"] = *name, *label, *work, i, *cms, *n
		if ok {
			var d string
			r["rows"], d = digest(out)
			r["verify"] = compare(d)
			if !strings.HasSuffix(r["verify"].(string), " OK") {
				emit(r)
				fmt.Fprintf(os.Stderr, "other result of %s: topic %s and what else group %s has are kept\n%s\n", group, out, group, r["verify"])
				os.Exit(1)
			}
			oks += "ok "
			for k, v := range r {
				if x, ok := number(v); ok {
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
	r := m{"MEDIAN": *name, "of": *label, "w": *work, "n": *n, "verify": strings.TrimSpace(oks)}
	for _, k := range []string{"rpcpu_total", "rpcpu_steady", "cpu_s", "total_s", "rss_mib", "rows"} {
		if len(all[k]) > 0 {
			r[k] = round(median(all[k]), 2)
		}
	}
	emit(r)
}

// runToQuiet waits until the group has committed the whole input, and then nothing has been written or committed for some
// time: neither to out nor to the topics of the group itself, and no transaction is open on them. What the process used is what it
// had used when the last of that came.
func runToQuiet(p *proc, group, out string) (r m, ok bool) {
	inEnd := inputEnd()
	topics := []string{out}
	var first, steady, last point
	var listed, looked time.Duration
	seen := int64(-1)
	anon := 0
	broker0 := cpuOfPid(*broker)
	brokerLast := broker0
	for time.Since(p.start) < *tmo {
		if p.dead.Load() {
			return m{"error": "process died"}, false
		}
		now := time.Since(p.start)
		if now-listed > time.Second {
			listed = now
			topics = topics[:1]
			if ts, err := adm.ListTopics(ctx); err == nil {
				for t := range ts {
					if strings.HasPrefix(t, group) {
						topics = append(topics, t)
					}
				}
			}
		}
		stable, err := adm.ListCommittedOffsets(ctx, topics...)
		if err != nil || stable.Error() != nil {
			continue
		}
		committed, everything := int64(0), int64(0)
		o, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			continue
		}
		for t, ps := range o {
			for _, x := range ps {
				everything += max(x.At, 0)
				if t == *in {
					committed += max(x.At, 0)
				}
			}
		}
		everything += sumOf(stable)
		at := point{now, committed, p.cpu()}
		if first.at == 0 && committed > 0 {
			first = at
		}
		if steady.at == 0 && float64(committed) >= steadyFrom*float64(inEnd) {
			steady = at
		}
		if everything != seen {
			seen, last, brokerLast = everything, at, cpuOfPid(*broker)
		}
		if committed >= inEnd && now-last.at > quiet {
			end, err := adm.ListEndOffsets(ctx, topics...)
			if err == nil && end.Error() == nil && sumOf(end) == sumOf(stable) {
				r = rates(steady, last, inEnd)
				r["first_commit_s"], r["first_commit_cpu_s"] = round(first.at.Seconds(), 2), round(first.cpu, 2)
				r["rss_mib"], _ = p.memory()
				r["rss_anon_mib"] = anon
				r["broker_cpu_s"] = round(brokerLast-broker0, 2)
				return r, true
			}
		}
		if now-looked > 100*time.Millisecond {
			looked = now
			_, a := p.memory()
			anon = max(anon, a)
		}
		time.Sleep(25 * time.Millisecond)
	}
	return m{"error": "timeout", "committed": committed(group), "end": inEnd}, false
}

func sumOf(l kadm.ListedOffsets) (s int64) {
	l.Each(func(o kadm.ListedOffset) { s += o.Offset })
	return s
}

// digest reads all that is committed on a topic. rows is how many records there are; what tells results apart is the bag
// of the values, or of the last value of each key where records have keys, written as JSON with sorted fields.
func digest(topic string) (rows int64, d string) {
	end := ends(topic, true)
	parts := map[int32]kgo.Offset{}
	left := 0
	for p, o := range end {
		if o > 0 {
			parts[p] = kgo.NewOffset().AtStart()
			left++
		}
	}
	var bag, sum uint64 // without keys
	keyed := map[string]uint64{}
	if left > 0 {
		c := common.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: parts}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
		defer c.Close()
		for left > 0 {
			fs := c.PollFetches(ctx)
			common.Must(fs.Err())
			fs.EachRecord(func(r *kgo.Record) {
				if r.Offset == end[r.Partition]-1 {
					left--
				}
				if r.Attrs.IsControl() {
					return
				}
				rows++
				switch {
				case r.Key == nil:
					bag, sum = bag+1, sum+hashOf(r.Value)
				case r.Value == nil:
					delete(keyed, string(r.Key))
				default:
					keyed[string(r.Key)] = hashOf(r.Value)
				}
			})
		}
	}
	for _, h := range keyed {
		bag, sum = bag+1, sum+h
	}
	return rows, fmt.Sprintf("%d rows %016x", bag, sum)
}

// hashOf is a hash of a JSON object that does not depend on the order of its fields or on how numbers are written.
func hashOf(value []byte) uint64 {
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(value))
	common.Must(dec.Decode(&fields))
	for _, c := range uncompared[*work] {
		delete(fields, c)
	}
	b, err := json.Marshal(fields)
	common.Must(err)
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// compare keeps the first result of a query under -tmp, and tells whether another is the same.
func compare(d string) string {
	path := filepath.Join(*tmp, "result-"+*in+"-"+*work)
	want, err := os.ReadFile(path)
	if err != nil {
		common.Must(os.WriteFile(path, []byte(d), 0o644))
		want = []byte(d)
	}
	if string(want) != d {
		return d + ", another peer had " + string(want)
	}
	return d + " OK"
}
