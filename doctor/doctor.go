// Package doctor checks, before or beside a running app, whether everything around it is as it must be: brokers,
// topics, permissions, partition counts, the state directory. Each check says what it found and what to do.
//
// It changes nothing, with one exception: to find out whether the app may write transactions it takes the
// transactional id "<app id>-doctor", which the brokers forget after transactional.id.expiration.ms.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// Input is what is to be checked. Zero values of numbers take the defaults named here.
type Input struct {
	Kafka txn.Options // brokers, credentials, app id, transaction time-out

	// Subs are the sub-topologies of the app. Without them, checks of topics and partitions are skipped.
	Subs []SubTopology
	// Internal are the names of the app's own topics (changelogs, repartition topics, control topic), as far as known;
	// those that exist are checked.
	Internal []string

	Parallelism       int           // wanted by the configuration; 0 = the default
	ReplicationFactor int           // of internal topics; 0 and -1 = the brokers' default
	CommitLatency     time.Duration // commit.max-latency, default 100 ms
	StateDir          string        // "" = skip
	MinFreeBytes      int64         // in StateDir, default 1 GiB
	Sample            int           // newest records to look at in each partition, default 50

	// Look gets the sampled records of the inputs and the partition counts of the topics that are there, and adds checks
	// of its own; nil = none.
	Look func(records map[record.TopicPartition][]record.Record, partitions map[string]int) []Check
}

// SubTopology is what one sub-topology reads and writes. Internal topics are left out.
type SubTopology struct {
	Parallelism int // its own wish; 0 = Input.Parallelism
	Inputs      []Topic
	Outputs     []string
}

// Topic is one input.
type Topic struct {
	Name string
	// Keyed: the program relies on records with the same key being in the same partition of this topic.
	Keyed bool
}

// Status of a check.
type Status string

// The statuses. Only Fail makes a Report fail.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Skipped Status = "skipped"
)

// Check is the result of one check.
type Check struct {
	Name   string   `json:"name"`
	Status Status   `json:"status"`
	Found  string   `json:"found"`
	Do     []string `json:"do,omitempty"` // what to do, one step or command each
}

// Report is the result of all checks, in a fixed order.
type Report struct {
	App    string  `json:"app"`
	Checks []Check `json:"checks"`
}

// Failed reports whether a check failed.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Fail })
}

// ExitCode is 1 if a check failed, else 0.
func (r Report) ExitCode() int {
	if r.Failed() {
		return 1
	}
	return 0
}

// Names of the checks.
const (
	checkConnection  = "connection"
	checkVersions    = "versions"
	checkTransaction = "transaction time-out"
	checkReplication = "replication"
	checkTopics      = "topics"
	checkPartitions  = "partitions"
	checkPermissions = "permissions"
	checkKeys        = "keys"
	checkMarkers     = "transaction markers"
	checkClock       = "clock"
	checkState       = "state directory"
)

// run is the state of one Run.
type run struct {
	in      Input
	cluster *txn.Cluster
	brokers int
	topics  map[string]txn.TopicInfo                  // those that exist and may be seen
	samples map[string][]sampled                      // by input topic
	records map[record.TopicPartition][]record.Record // the same, for Input.Look
	report  Report
}

// Run checks everything. It takes a few seconds, and with brokers that do not answer a small multiple of the request
// time-out.
func Run(ctx context.Context, in Input) Report {
	if in.CommitLatency <= 0 {
		in.CommitLatency = 100 * time.Millisecond
	}
	if in.MinFreeBytes <= 0 {
		in.MinFreeBytes = 1 << 30
	}
	if in.Sample <= 0 {
		in.Sample = 50
	}
	if in.Kafka.TransactionTimeout <= 0 {
		in.Kafka.TransactionTimeout = 15 * time.Second
	}
	r := &run{in: in, report: Report{App: in.Kafka.AppID}}
	if r.connect(ctx) {
		defer r.cluster.Close()
		r.versions()
		r.transactionTimeout(ctx)
		r.replication(ctx)
		r.checkTopics(ctx)
		r.partitions()
		r.permissions(ctx)
		r.sample(ctx)
		r.keys()
		r.markers()
		r.clock(time.Now())
		r.look()
	} else {
		for _, name := range []string{
			checkVersions, checkTransaction, checkReplication, checkTopics, checkPartitions, checkPermissions, checkKeys,
			checkMarkers, checkClock,
		} {
			r.add(name, Skipped, "no connection")
		}
	}
	r.stateDir()
	return r.report
}

// look makes the checks of the caller.
func (r *run) look() {
	if r.in.Look == nil {
		return
	}
	partitions := map[string]int{}
	for name, t := range r.topics {
		partitions[name] = int(t.Partitions)
	}
	r.report.Checks = append(r.report.Checks, r.in.Look(r.records, partitions)...)
}

func (r *run) add(name string, s Status, found string, do ...string) {
	r.report.Checks = append(r.report.Checks, Check{Name: name, Status: s, Found: found, Do: do})
}

// failed adds a check that could not be made because of err: a warning, since the app may do all the same.
func (r *run) failed(name string, err error) {
	do := "see the error"
	if errors.Is(err, txn.ErrAuthorization) {
		do = "grant what the error names, or go on without this check"
	}
	r.add(name, Warn, err.Error(), do)
}

func (r *run) connect(ctx context.Context) bool {
	c, err := txn.Connect(ctx, r.in.Kafka)
	if err != nil {
		// The error of Connect ends with what to do.
		r.add(checkConnection, Fail, err.Error(), "see the end of the message; the app cannot start before this is put right")
		return false
	}
	r.cluster = c
	if r.brokers, err = brokerCount(ctx, c); err != nil {
		r.failed(checkConnection, err)
		return true
	}
	r.add(checkConnection, OK, fmt.Sprintf("%s, cluster id %s", count(r.brokers, "broker"), c.ID()))
	return true
}

func (r *run) versions() {
	f := r.cluster.Features()
	found := fmt.Sprintf("Kafka %s, transaction.version %d", f.Kafka, f.TransactionVersion)
	switch {
	case f.TxnOffsetCommit < 3:
		r.add(checkVersions, Fail, found+fmt.Sprintf("; TxnOffsetCommit version %d of needed 3 (KIP-447)", f.TxnOffsetCommit),
			"upgrade the brokers to Kafka 2.5 or later")
	case f.OffsetFetch < 7:
		r.add(checkVersions, Fail, found+fmt.Sprintf("; OffsetFetch version %d of needed 7 (KIP-447)", f.OffsetFetch),
			"upgrade the brokers to Kafka 2.5 or later")
	case f.TransactionVersion < 2:
		r.add(checkVersions, Warn, found+": the brokers do not defend transactions against late requests (KIP-890)",
			"upgrade to Kafka 4.0 or later and run: kafka-features.sh upgrade --feature transaction.version=2")
	default:
		r.add(checkVersions, OK, found)
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// inputs are all inputs once, sorted; Keyed if any sub-topology reads it so.
func (r *run) inputs() []Topic {
	keyed := make(map[string]bool)
	for _, s := range r.in.Subs {
		for _, t := range s.Inputs {
			keyed[t.Name] = keyed[t.Name] || t.Keyed
		}
	}
	var out []Topic
	for n, k := range keyed {
		out = append(out, Topic{n, k})
	}
	slices.SortFunc(out, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// outputs are all outputs once, sorted.
func (r *run) outputs() []string {
	var out []string
	for _, s := range r.in.Subs {
		out = append(out, s.Outputs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
