// bench runs one peer under one measurement and prints JSON lines.
//
//	bench tput|lat|failover|restore [flags] -- command args...
//
// The command gets BROKERS, IN, OUT, GROUP, WORKLOAD, COMMIT_MS, STATE_DIR and
// INSTANCE in its environment, and SESSION_MS and TXN_MS where set here.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx   = context.Background()
	adm   *kadm.Client
	cl    *kgo.Client
	fl    = flag.NewFlagSet("bench", flag.ExitOnError)
	name  = fl.String("name", "x", "label")
	work  = fl.String("w", "w1", "workload")
	in    = fl.String("in", "events", "input topic (tput, restore: filled by gen)")
	n     = fl.Int64("n", 2_000_000, "records that gen put into the input")
	users = fl.Int("users", 10_000, "as gen")
	dist  = fl.Bool("distinct", false, "as gen")
	rep   = fl.Int("repeat", 3, "repetitions")
	cms   = fl.Int("commit", 1000, "commit or checkpoint interval, ms")
	sms   = fl.Int("session", 0, "SESSION_MS, 0: the peer's default")
	tms   = fl.Int("txn", 0, "TXN_MS, 0: the peer's default")
	procs = fl.Int("procs", 2, "failover: processes; with 1 it is killed and started again")
	dur   = fl.Duration("dur", 30*time.Second, "lat, failover: measured time")
	warm  = fl.Duration("warm", 10*time.Second, "lat, failover: warm-up")
	kill  = fl.Duration("kill", 15*time.Second, "failover: kill after the warm-up")
	wait  = fl.Duration("wait", 0, "restore: wait between kill and restart")
	keep  = fl.Bool("keep-local", false, "restore: do not wipe the local state")
	tmo   = fl.Duration("timeout", 5*time.Minute, "give up")
	tmp   = fl.String("tmp", os.TempDir(), "where state and logs go")
	rate  = fl.Int("rate", 5000, "lat, failover: records a second")
	nover = fl.Bool("noverify", false, "skip verify")
)

type proc struct {
	cmd   *exec.Cmd
	start time.Time
	dead  atomic.Bool
}

func startProc(args []string, group, out, state string, inst int) *proc {
	lf, err := os.OpenFile(filepath.Join(*tmp, group+"-"+strconv.Itoa(inst)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	common.Must(err)
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = lf, lf
	c.Env = append(os.Environ(), "BROKERS="+strings.Join(common.Brokers(), ","), "IN="+*in, "OUT="+out, "GROUP="+group,
		"WORKLOAD="+*work, "COMMIT_MS="+strconv.Itoa(*cms), "STATE_DIR="+state, "INSTANCE="+strconv.Itoa(inst))
	if *sms > 0 {
		c.Env = append(c.Env, "SESSION_MS="+strconv.Itoa(*sms))
	}
	if *tms > 0 {
		c.Env = append(c.Env, "TXN_MS="+strconv.Itoa(*tms))
	}
	p := &proc{cmd: c, start: time.Now()}
	common.Must(c.Start())
	go func() {
		_ = c.Wait()
		p.dead.Store(true)
		lf.Close()
	}()
	return p
}

func (p *proc) kill() {
	if os.Getenv("CPUPROFILE") != "" { // a killed process writes no profile
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		for i := 0; i < 500 && !p.dead.Load(); i++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
	_ = p.cmd.Process.Kill()
	for !p.dead.Load() {
		time.Sleep(5 * time.Millisecond)
	}
}

// cpu is user+sys seconds of the process.
func (p *proc) cpu() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
	u, _ := strconv.ParseFloat(f[11], 64)
	s, _ := strconv.ParseFloat(f[12], 64)
	return (u + s) / 100
}

// hwm is the peak resident set in MiB.
func (p *proc) hwm() int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmHWM:") {
			k, _ := strconv.Atoi(strings.Fields(l)[1])
			return k / 1024
		}
	}
	return 0
}

func mkTopic(t string) {
	_, _ = adm.DeleteTopics(ctx, t)
	for i := 0; ; i++ {
		// Window results carry event times of 2023, and retention goes by them.
		_, err := adm.CreateTopic(ctx, 4, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, t)
		if err == nil {
			return
		}
		if i > 100 {
			common.Must(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func cleanup(group, out string, extra ...string) {
	ts, err := adm.ListTopics(ctx)
	if err == nil {
		var del []string
		for t := range ts {
			if strings.HasPrefix(t, group) {
				del = append(del, t)
			}
		}
		del = append(del, extra...)
		_, _ = adm.DeleteTopics(ctx, append(del, out)...)
	}
	_, _ = adm.DeleteGroups(ctx, group)
	_ = os.RemoveAll(filepath.Join(*tmp, "state-"+group))
}

func sum(m map[int32]int64) (s int64) {
	for _, v := range m {
		s += v
	}
	return
}

func committed(group string) int64 {
	o, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return 0
	}
	var s int64
	o.Each(func(r kadm.OffsetResponse) {
		if r.Err == nil && r.Topic == *in && r.At > 0 {
			s += r.At
		}
	})
	return s
}

func must2[T any](v T, err error) T { common.Must(err); return v }

func tool(t string, args ...string) string {
	self, _ := os.Executable()
	c := exec.Command(filepath.Join(filepath.Dir(self), t), args...)
	c.Stderr = os.Stderr
	b, _ := c.Output()
	return strings.TrimSpace(string(b))
}

type m = map[string]any

func emit(r m) {
	b, _ := json.Marshal(r)
	fmt.Println(string(b))
}

func med(v []float64) float64 {
	sort.Float64s(v)
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
}

func r1(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }

// runToEnd waits until the group has committed the whole input and no
// transaction is open on out.
func runToEnd(p *proc, group, out string) (r m, ok bool) {
	inEnd := sum(must2(common.Ends(adm, *in, false)))
	var first, firstOff, done time.Duration
	var firstCPU float64
	var firstSum int64
	for time.Since(p.start) < *tmo {
		if p.dead.Load() {
			return m{"error": "process died"}, false
		}
		lso, err := common.Ends(adm, out, true)
		now := time.Since(p.start)
		if err != nil {
			continue
		}
		if first == 0 && sum(lso) > 0 {
			first = now
		}
		c := committed(group)
		if firstOff == 0 && c > 0 {
			firstOff, firstCPU, firstSum = now, p.cpu(), c
		}
		if c >= inEnd {
			hw, err := common.Ends(adm, out, false)
			lso, err2 := common.Ends(adm, out, true)
			if err == nil && err2 == nil && sum(hw) == sum(lso) {
				done = time.Since(p.start)
				break
			}
		}
		time.Sleep(25 * time.Millisecond)
	}
	if done == 0 {
		return m{"error": "timeout", "committed": committed(group), "end": inEnd}, false
	}
	cpu := p.cpu()
	r = m{"first_out_s": r1(first.Seconds()*10) / 10, "total_s": r1(done.Seconds()), "cpu_s": r1(cpu), "rss_mib": p.hwm(),
		"rps_total": int64(float64(inEnd) / done.Seconds()), "rpcpu_total": int64(float64(inEnd) / cpu)}
	if done > firstOff && inEnd > firstSum {
		r["rps_steady"] = int64(float64(inEnd-firstSum) / (done - firstOff).Seconds())
		r["rpcpu_steady"] = int64(float64(inEnd-firstSum) / (cpu - firstCPU))
		r["steady_share"] = r1(100*float64(inEnd-firstSum)/float64(inEnd)) / 100
	}
	return r, true
}

func verify(w, out string, n int64, users int, distinct bool, seed int) string {
	if *nover {
		return "skipped"
	}
	return tool("verify", "-w", w, "-out", out, "-n", fmt.Sprint(n), "-users", fmt.Sprint(users), "-distinct="+fmt.Sprint(distinct), "-seed", fmt.Sprint(seed))
}

func tput(args []string) {
	keys := []string{"rps_total", "rps_steady", "rpcpu_total", "rpcpu_steady", "cpu_s", "rss_mib", "first_out_s", "total_s"}
	all := map[string][]float64{}
	oks := ""
	for i := 0; i < *rep; i++ {
		group := fmt.Sprintf("%s-%s-%d", *name, *work, time.Now().UnixMilli()%1e7)
		out := "out-" + group
		mkTopic(out)
		state := filepath.Join(*tmp, "state-"+group)
		p := startProc(args, group, out, state, 0)
		r, ok := runToEnd(p, group, out)
		if ok && *work == "w2" {
			// A peer may emit final windows only when the next record comes.
			time.Sleep(1500 * time.Millisecond)
			end := common.BaseTS + *n + 120_000 + int64(i)*10
			common.Must(cl.ProduceSync(ctx, common.FlushRecords(*in, 4, end)...).FirstErr())
			time.Sleep(3 * time.Second)
		}
		p.kill()
		r["name"], r["w"], r["rep"], r["commit_ms"] = *name, *work, i, *cms
		if ok {
			v := verify(*work, out, *n, *users, *dist, 1)
			r["verify"] = v
			if strings.Contains(v, " OK") {
				oks += "ok "
			} else {
				emit(r)
				fmt.Fprintf(os.Stderr, "wrong output: the topics of group %s, %s and the state in %s are kept\n", group, out, state)
				os.Exit(1)
			}
			for _, k := range keys {
				switch x := r[k].(type) {
				case int64:
					all[k] = append(all[k], float64(x))
				case int:
					all[k] = append(all[k], float64(x))
				case float64:
					all[k] = append(all[k], x)
				}
			}
		}
		emit(r)
		cleanup(group, out)
		time.Sleep(time.Second)
	}
	r := m{"MEDIAN": *name, "w": *work, "commit_ms": *cms, "n": *n, "verify": oks}
	for _, k := range keys {
		r[k] = med(all[k])
	}
	emit(r)
}

// firstOutput produces a record for each partition until out moves.
func firstOutput(out string) time.Duration {
	t0 := time.Now()
	if *work == "w2" {
		time.Sleep(12 * time.Second)
		return time.Since(t0)
	}
	base := sum(must2(common.Ends(adm, out, true)))
	for i := 0; time.Since(t0) < time.Minute; i++ {
		if i%40 == 0 {
			rs := common.FlushRecords(*in, 4, time.Now().UnixMilli())
			for _, r := range rs {
				r.Value = bytes.Replace(r.Value, []byte("0.00"), []byte("5.00"), 1)
			}
			common.Must(cl.ProduceSync(ctx, rs...).FirstErr())
		}
		if sum(must2(common.Ends(adm, out, true))) > base {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	return time.Since(t0)
}

func lat(args []string) {
	var p50, p99, mx []float64
	for i := 0; i < *rep; i++ {
		group := fmt.Sprintf("%s-lat-%s-%d", *name, *work, time.Now().UnixMilli()%1e7)
		*in = "in-" + group
		out := "out-" + group
		mkTopic(*in)
		mkTopic(out)
		p := startProc(args, group, out, filepath.Join(*tmp, "state-"+group), 0)
		firstOutput(out)
		c0 := p.cpu()
		t0 := time.Now()
		res := tool("probe", "-in", *in, "-out", out, "-warm", warm.String(), "-dur", dur.String(), "-rate", fmt.Sprint(*rate),
			fmt.Sprintf("-expect-all=%v", *work == "w1"), fmt.Sprintf("-window=%v", *work == "w2"), "-drain", map[bool]string{true: "15s", false: "3s"}[*work == "w1"])
		cpu := (p.cpu() - c0) / time.Since(t0).Seconds()
		rss := p.hwm()
		p.kill()
		var r m
		if json.Unmarshal([]byte(res), &r) != nil {
			r = m{"error": res}
		} else {
			p50, p99, mx = append(p50, r["p50_ms"].(float64)), append(p99, r["p99_ms"].(float64)), append(mx, r["max_ms"].(float64))
		}
		r["name"], r["w"], r["rep"], r["commit_ms"], r["cpu_share"], r["rss_mib"], r["kind"] = *name, *work, i, *cms, r1(cpu*100)/100, rss, "lat"
		delete(r, "gaps")
		emit(r)
		cleanup(group, out, *in)
	}
	emit(m{"MEDIAN-LAT": *name, "w": *work, "commit_ms": *cms, "p50": med(p50), "p99": med(p99), "max": med(mx), "rate": *rate})
}

func failover(args []string) {
	for i := 0; i < *rep; i++ {
		group := fmt.Sprintf("%s-fo-%s-%d", *name, *work, time.Now().UnixMilli()%1e7)
		*in = "in-" + group
		out := "out-" + group
		mkTopic(*in)
		mkTopic(out)
		state := filepath.Join(*tmp, "state-"+group)
		dir := func(i int) string {
			if *procs == 1 {
				return state
			}
			return filepath.Join(state, strconv.Itoa(i))
		}
		var ps []*proc
		for k := 0; k < *procs; k++ {
			ps = append(ps, startProc(args, group, out, dir(k), k))
			firstOutput(out)
		}
		time.Sleep(5 * time.Second) // let a rebalance end
		go func() {
			time.Sleep(*warm + *kill)
			ps[0].kill()
			if *procs == 1 {
				_ = os.RemoveAll(filepath.Join(state, "local"))
				ps[0] = startProc(args, group, out, state, 0)
			}
		}()
		res := tool("probe", "-in", *in, "-out", out, "-warm", warm.String(), "-dur", dur.String(), "-rate", fmt.Sprint(*rate),
			fmt.Sprintf("-expect-all=%v", *work == "w1"), "-drain", "60s")
		var r m
		if json.Unmarshal([]byte(res), &r) != nil {
			r = m{"error": res}
		}
		time.Sleep(1500 * time.Millisecond)
		for k := range ps {
			if !ps[k].dead.Load() {
				ps[k].kill()
			}
		}
		total := int64(float64(*rate) * (*warm + *dur).Seconds())
		r["verify"] = verify(*work, out, total, 10_000, false, 7)
		r["name"], r["w"], r["rep"], r["session_ms"], r["txn_ms"], r["kind"], r["kill_at_s"], r["commit_ms"] = *name, *work, i, *sms, *tms, "failover", (*warm + *kill).Seconds(), *cms
		emit(r)
		cleanup(group, out, *in)
	}
}

func restore(args []string) {
	var fs []float64
	for i := 0; i < *rep; i++ {
		group := fmt.Sprintf("%s-rs-%s-%d", *name, *work, time.Now().UnixMilli()%1e7)
		out := "out-" + group
		mkTopic(out)
		state := filepath.Join(*tmp, "state-"+group)
		p := startProc(args, group, out, state, 0)
		r, ok := runToEnd(p, group, out)
		if !ok {
			p.kill()
			r["name"], r["kind"] = *name, "restore"
			emit(r)
			cleanup(group, out)
			continue
		}
		time.Sleep(2500 * time.Millisecond) // one more checkpoint
		p.kill()
		if !*keep {
			_ = os.RemoveAll(filepath.Join(state, "local"))
		}
		time.Sleep(*wait)
		base := must2(common.Ends(adm, out, false))
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					rs := common.FlushRecords(*in, 4, time.Now().UnixMilli())
					cl.ProduceSync(ctx, rs...)
				}
			}
		}()
		p = startProc(args, group, out, state, 0)
		var first, every time.Duration
		for time.Since(p.start) < *tmo && every == 0 && !p.dead.Load() {
			lso, err := common.Ends(adm, out, true)
			if err != nil {
				continue
			}
			moved := 0
			for q, o := range lso {
				if o > base[q]+1 { // more than an abort marker
					moved++
				}
			}
			if moved > 0 && first == 0 {
				first = time.Since(p.start)
			}
			if moved == len(lso) {
				every = time.Since(p.start)
			}
			time.Sleep(25 * time.Millisecond)
		}
		cpu := p.cpu()
		rss := p.hwm()
		close(stop)
		time.Sleep(200 * time.Millisecond)
		p.kill()
		fs = append(fs, first.Seconds())
		emit(m{"name": *name, "w": *work, "kind": "restore", "rep": i, "commit_ms": *cms, "session_ms": *sms, "wait_s": wait.Seconds(), "keep_local": *keep,
			"first_new_out_s": r1(first.Seconds()*10) / 10, "all_partitions_s": r1(every.Seconds()*10) / 10, "cpu_s": r1(cpu), "rss_mib": rss, "fill_s": r["total_s"], "fill_rss": r["rss_mib"], "fill_rps": r["rps_total"], "fill_rpcpu": r["rpcpu_total"]})
		cleanup(group, out)
	}
	emit(m{"MEDIAN-RESTORE": *name, "session_ms": *sms, "wait_s": wait.Seconds(), "keep_local": *keep, "first_new_out_s": med(fs)})
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: bench tput|lat|failover|restore [flags] -- command")
		os.Exit(2)
	}
	common.Must(fl.Parse(os.Args[2:]))
	args := fl.Args()
	cl = common.Client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm = kadm.NewClient(cl)
	switch os.Args[1] {
	case "tput":
		tput(args)
	case "lat":
		lat(args)
	case "failover":
		failover(args)
	case "restore":
		restore(args)
	}
}
