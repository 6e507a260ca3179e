// Command runner runs one peer under one measurement and prints a JSON line for each repetition.
//
//	runner tput|start|lat|failover|restore|sql [flags] -- command args...
//
// The command gets BROKERS, IN, IN2, OUT, GROUP, WORKLOAD, COMMIT_MS, STATE_DIR and INSTANCE in its environment, and
// SESSION_MS, TXN_MS, METRICS, STATE_BYTES, CHECKPOINT_URL and CHECKPOINT_INTERVAL_MS where they are set here.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx     = context.Background()
	adm     *kadm.Client
	cl      *kgo.Client
	fl      = flag.NewFlagSet("runner", flag.ExitOnError)
	name    = fl.String("name", "x", "label of the peer")
	label   = fl.String("label", "", "label of the measurement, default: its name")
	work    = fl.String("w", "w1", "workload")
	in      = fl.String("in", "events", "input topic that gen filled (tput, start, restore)")
	in2     = fl.String("in2", "", "tput: second input topic (join)")
	n       = fl.Int64("n", 2_000_000, "records that gen put into the input, of two topics: into each")
	users   = fl.Int("users", 10_000, "as gen")
	dist    = fl.Bool("distinct", false, "as gen")
	even    = fl.Bool("even", false, "as gen")
	from    = fl.Float64("steady-from", 0, "tput: part of the input after which the steady figures begin")
	size    = fl.Int("size", 0, "as gen, for the label only")
	rep     = fl.Int("repeat", 3, "repetitions")
	cms     = fl.Int("commit", 1000, "commit or checkpoint interval, ms")
	sms     = fl.Int("session", 0, "SESSION_MS, 0: the peer's default")
	tms     = fl.Int("txn", 0, "TXN_MS, 0: the peer's default")
	members = fl.Int("members", 1, "tput: processes that share the work")
	metrics = fl.Bool("metrics", false, "tput: count commits at the peer's metrics endpoint (Millrace)")
	procs   = fl.Int("procs", 2, "failover: processes; with 1 it is killed and started again at once")
	dur     = fl.Duration("dur", 30*time.Second, "lat, failover: measured time")
	warm    = fl.Duration("warm", 10*time.Second, "lat, failover: warm-up")
	kill    = fl.Duration("kill", 15*time.Second, "failover: kill after the warm-up")
	keep    = fl.Bool("keep-local", false, "failover with one process: do not remove the local state")
	modes   = fl.String("modes", "kept,wiped", "restore: what each repetition starts from, in this order: kept, checkpoint (wiped, with CHECKPOINT_URL), wiped")
	ckURL   = fl.String("checkpoints", "", "restore: base URL of checkpoints; the group's name comes behind it")
	ckFiles = fl.String("checkpoint-files", "", "restore: folder in which the files of -checkpoints can be seen")
	ckms    = fl.Int("checkpoint-interval", 3000, "restore: CHECKPOINT_INTERVAL_MS")
	stBytes = fl.Int("state-bytes", 0, "STATE_BYTES of w1, 0: the peer's default")
	tmo     = fl.Duration("timeout", 5*time.Minute, "give up")
	tmp     = fl.String("tmp", os.TempDir(), "where state and logs go")
	rate    = fl.Int("rate", 5000, "lat, failover: records a second")
	sqlDir  = fl.String("sql", "nexmark", "sql: folder with tables.sql and the sink of each query")
	queries = fl.String("queries", "../oracle/nexmark/queries", "sql: folder with the queries")
	broker  = fl.Int("broker", 0, "sql: process id of the broker, to tell its CPU time too")
	nover   = fl.Bool("noverify", false, "skip verify")
)

// m is a line of the output.
type m = map[string]any

func emit(r m) {
	b, err := json.Marshal(r)
	common.Must(err)
	fmt.Println(string(b))
}

// newRun names a group and its output topic, and makes that topic with as many partitions.
func newRun(kind string, partitions int) (group, out string) {
	group = fmt.Sprintf("%s-%s-%s-%d", *name, kind, *work, time.Now().UnixMilli()%1e7)
	out = "out-" + group
	mkTopic(out, partitions)
	return group, out
}

func mkTopic(t string, partitions int) {
	_, _ = adm.DeleteTopics(ctx, t)
	for i := 0; ; i++ {
		// Window results carry event times of 2023, and retention goes by them.
		_, err := adm.CreateTopic(ctx, int32(partitions), 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, t)
		if err == nil {
			return
		}
		if i > 100 {
			common.Must(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// cleanup removes all that a run left on the broker and on the disk; logs stay.
func cleanup(group, out string, extra ...string) {
	if ts, err := adm.ListTopics(ctx); err == nil {
		del := append([]string{out}, extra...)
		for t := range ts {
			if strings.HasPrefix(t, group) {
				del = append(del, t)
			}
		}
		_, _ = adm.DeleteTopics(ctx, del...)
	}
	_, _ = adm.DeleteGroups(ctx, group)
	_ = os.RemoveAll(stateDir(group))
}

func stateDir(group string) string { return filepath.Join(*tmp, "state-"+group) }

// ends are the end offsets of a topic, or with stable the last stable ones.
func ends(topic string, stable bool) map[int32]int64 {
	e, err := common.Ends(adm, topic, stable)
	common.Must(err)
	return e
}

// committed is the sum of the offsets of the input that the group has committed.
func committed(group string) int64 {
	o, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return 0
	}
	var s int64
	o.Each(func(r kadm.OffsetResponse) {
		if r.Err == nil && (r.Topic == *in || r.Topic == *in2) && r.At > 0 {
			s += r.At
		}
	})
	return s
}

// tool runs another tool of the benchmark and returns what it printed.
func tool(t string, args ...string) string {
	self, err := os.Executable()
	common.Must(err)
	c := exec.Command(filepath.Join(filepath.Dir(self), t), args...)
	c.Stderr = os.Stderr
	b, err := c.Output()
	if len(b) == 0 && err != nil {
		return t + ": " + err.Error()
	}
	return strings.TrimSpace(string(b))
}

func verify(w, out string, n int64, users int, distinct bool, seed int) string {
	if *nover {
		return "skipped"
	}
	return tool("verify", "-w", w, "-out", out, "-n", fmt.Sprint(n), "-users", fmt.Sprint(users), "-distinct="+fmt.Sprint(distinct), "-even="+fmt.Sprint(*even), "-seed", fmt.Sprint(seed))
}

// checked ends the program where the output of a run was wrong, and leaves everything for a look.
func checked(r m, group, out string) {
	v, _ := r["verify"].(string)
	if v == "skipped" || strings.Contains(v, " OK") {
		return
	}
	emit(r)
	fmt.Fprintf(os.Stderr, "wrong output of %s (%s): topic %s and what else group %s has are kept\n%s\n", group, r["kind"], out, group, v)
	os.Exit(1)
}

func main() {
	kinds := map[string]func([]string){"tput": tput, "start": start, "lat": lat, "failover": failover, "restore": restore, "sql": sql}
	if len(os.Args) < 2 || kinds[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: runner tput|start|lat|failover|restore|sql [flags] -- command")
		os.Exit(2)
	}
	common.Must(fl.Parse(os.Args[2:]))
	if fl.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "runner: no command behind --")
		os.Exit(2)
	}
	if *label == "" {
		*label = os.Args[1]
	}
	cl = common.Client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm = kadm.NewClient(cl)
	kinds[os.Args[1]](fl.Args())
}
