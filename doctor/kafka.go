package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

func brokerCount(ctx context.Context, c *txn.Cluster) (int, error) {
	resp, err := c.Request(ctx, brokersRequest())
	if err != nil {
		return 0, fmt.Errorf("ask for the brokers: %w", err)
	}
	return len(resp.(*kmsg.MetadataResponse).Brokers), nil
}

func brokersRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req
}

// brokerConfigs are the named settings of one broker; those it does not tell are absent.
func (r *run) brokerConfigs(ctx context.Context, names ...string) (map[string]string, error) {
	resp, err := r.cluster.Request(ctx, brokersRequest())
	if err != nil {
		return nil, fmt.Errorf("ask for the brokers: %w", err)
	}
	brokers := resp.(*kmsg.MetadataResponse).Brokers
	if len(brokers) == 0 {
		return nil, errors.New("ask for the brokers: there are none")
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(brokers[0].NodeID))
	res.ConfigNames = names
	req.Resources = append(req.Resources, res)
	resp, err = r.cluster.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("describe the configuration of broker %s: %w", res.ResourceName, err)
	}
	out := make(map[string]string)
	for _, res := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			if errors.Is(err, kerr.ClusterAuthorizationFailed) {
				err = fmt.Errorf("%w: grant DescribeConfigs on cluster (%w)", txn.ErrAuthorization, err)
			}
			return nil, fmt.Errorf("describe the configuration of broker %s: %w", res.ResourceName, err)
		}
		for _, c := range res.Configs {
			if c.Value != nil {
				out[c.Name] = *c.Value
			}
		}
	}
	return out, nil
}

func (r *run) transactionTimeout(ctx context.Context) {
	const name = "transaction.max.timeout.ms"
	cfg, err := r.brokerConfigs(ctx, name)
	if err != nil {
		r.failed(checkTransaction, err)
		return
	}
	ms, err := strconv.ParseInt(cfg[name], 10, 64)
	if err != nil {
		r.add(checkTransaction, Skipped, "the broker does not tell "+name)
		return
	}
	ours, theirs := r.in.Kafka.TransactionTimeout, time.Duration(ms)*time.Millisecond
	found := fmt.Sprintf("transaction.timeout %v, %s %v", ours, name, theirs)
	if ours > theirs {
		r.add(checkTransaction, Fail, found+": the brokers refuse longer transactions than that",
			fmt.Sprintf("lower transaction.timeout to %v, or raise %s at the brokers", theirs, name))
		return
	}
	r.add(checkTransaction, OK, found)
}

// replication looks at Kafka's own topics and at those of the app.
func (r *run) replication(ctx context.Context) {
	own := []string{"__transaction_state", "__consumer_offsets"}
	infos, err := r.cluster.Topics(ctx, append(slices.Clone(own), r.in.Internal...)...)
	if err != nil {
		r.failed(checkReplication, err)
		return
	}
	want := min(3, r.brokers)
	var bad, weak, seen, do []string
	for _, n := range slices.Sorted(maps.Keys(infos)) {
		ti := infos[n]
		switch {
		case ti.MinISR > ti.ReplicationFactor:
			bad = append(bad, fmt.Sprintf("%s has min.insync.replicas %d with %s: nothing can be written", n, ti.MinISR,
				count(ti.ReplicationFactor, "replica")))
			do = append(do, fmt.Sprintf("lower min.insync.replicas of %s to at most %d, or add replicas with "+
				"kafka-reassign-partitions.sh", n, ti.ReplicationFactor))
		case ti.ReplicationFactor < want:
			weak = append(weak, fmt.Sprintf("%s has only %s on %s", n, count(ti.ReplicationFactor, "replica"), count(r.brokers, "broker")))
			do = append(do, fmt.Sprintf("raise the replication factor of %s to %d with kafka-reassign-partitions.sh", n, want))
		case want >= 3 && ti.MinISR < 2:
			weak = append(weak, fmt.Sprintf("%s has min.insync.replicas %d: one dead broker can lose acknowledged data", n, ti.MinISR))
			do = append(do, fmt.Sprintf("set min.insync.replicas of %s to 2", n))
		default:
			seen = append(seen, fmt.Sprintf("%s %d/%d", n, ti.ReplicationFactor, ti.MinISR))
		}
	}
	if rf := r.in.ReplicationFactor; rf > r.brokers {
		bad = append(bad, fmt.Sprintf("internal.replication-factor is %d, but there is %s", rf, count(r.brokers, "broker")))
		do = append(do, fmt.Sprintf("set internal.replication-factor to at most %d", r.brokers))
	}
	switch {
	case len(bad) > 0:
		r.add(checkReplication, Fail, strings.Join(append(bad, weak...), "; "), do...)
	case r.brokers < 3:
		r.add(checkReplication, Warn, fmt.Sprintf("the cluster has %s: data is lost with a disk", count(r.brokers, "broker")),
			"fine for development; for production use three brokers, replication factor 3 and min.insync.replicas 2")
	case len(weak) > 0:
		r.add(checkReplication, Warn, strings.Join(weak, "; "), do...)
	case len(seen) == 0:
		r.add(checkReplication, OK, "no topic to check is there yet; new ones take the brokers' defaults")
	default:
		r.add(checkReplication, OK, "replicas/min.insync.replicas: "+strings.Join(seen, ", "))
	}
}

func (r *run) checkTopics(ctx context.Context) {
	if len(r.in.Subs) == 0 {
		r.add(checkTopics, Skipped, "no topics given")
		return
	}
	var missing, hidden, do []string
	r.topics = make(map[string]txn.TopicInfo)
	look := func(n, role string) {
		infos, err := r.cluster.Topics(ctx, n)
		switch {
		case err != nil:
			hidden = append(hidden, err.Error())
		case infos[n].Name == "":
			missing = append(missing, role+" "+n)
			create := fmt.Sprintf("create it: kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions <n>", strings.Join(r.in.Kafka.Brokers, ","), n)
			if !slices.Contains(do, create) { // it may be read and written
				do = append(do, create)
			}
		default:
			r.topics[n] = infos[n]
		}
	}
	for _, t := range r.inputs() {
		look(t.Name, "input")
	}
	for _, n := range r.outputs() {
		if _, ok := r.topics[n]; !ok {
			look(n, "output")
		}
	}
	switch {
	case len(missing) > 0:
		r.add(checkTopics, Fail, strings.Join(missing, ", ")+map[bool]string{true: " does not exist", false: " do not exist"}[len(missing) == 1], do...)
	case len(hidden) > 0:
		r.add(checkTopics, Fail, strings.Join(hidden, "; "), "see permissions below")
	default:
		var seen []string
		for _, n := range slices.Sorted(maps.Keys(r.topics)) {
			seen = append(seen, fmt.Sprintf("%s (%s)", n, count(int(r.topics[n].Partitions), "partition")))
		}
		r.add(checkTopics, OK, strings.Join(seen, ", "))
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// divisors of n, smallest first.
func divisors(n int) []int {
	var out []int
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			out = append(out, d)
		}
	}
	return out
}

// parallelism is what the engine will take for a sub-topology: allowed are the common divisors of its inputs'
// partition counts; by default the largest of at most 16. common is 0 when nothing is known of the inputs.
func (r *run) parallelism(s SubTopology) (n, common int) {
	for _, t := range s.Inputs {
		common = gcd(common, int(r.topics[t.Name].Partitions))
	}
	n = s.Parallelism
	if n == 0 {
		n = r.in.Parallelism
	}
	if n == 0 {
		for _, d := range divisors(common) {
			if d <= 16 {
				n = d
			}
		}
	}
	return n, common
}

func (r *run) partitions() {
	if len(r.in.Subs) == 0 {
		r.add(checkPartitions, Skipped, "no topics given")
		return
	}
	var bad, weak, seen, do []string
	for i, s := range r.in.Subs {
		var counts []string
		known := len(s.Inputs) > 0
		for _, t := range s.Inputs {
			ti, ok := r.topics[t.Name]
			known = known && ok
			counts = append(counts, fmt.Sprintf("%s %d", t.Name, ti.Partitions))
		}
		if !known {
			continue // its inputs are internal, or missing
		}
		n, common := r.parallelism(s)
		what := fmt.Sprintf("sub-topology %d (%s partitions)", i, strings.Join(counts, ", "))
		switch {
		case common%n != 0:
			bad = append(bad, fmt.Sprintf("%s cannot have parallelism %d: it must divide every partition count", what, n))
			do = append(do, fmt.Sprintf("set the parallelism of sub-topology %d to one of %v", i, divisors(common)))
		case n == 1 && len(s.Inputs) > 1:
			weak = append(weak, what+" gets parallelism 1: the partition counts have no common divisor")
			do = append(do, fmt.Sprintf("give the inputs of sub-topology %d partition counts with a large common divisor", i))
		default:
			seen = append(seen, fmt.Sprintf("%s: parallelism %d", what, n))
		}
	}
	switch {
	case len(bad) > 0:
		r.add(checkPartitions, Fail, strings.Join(bad, "; "), do...)
	case len(weak) > 0:
		r.add(checkPartitions, Warn, strings.Join(weak, "; "), do...)
	case len(seen) == 0:
		r.add(checkPartitions, Skipped, "the partition counts are not known")
	default:
		r.add(checkPartitions, OK, strings.Join(seen, "; "))
	}
}

// sampled is what we look at of one record.
type sampled struct {
	partition int32
	offset    int64
	key       []byte
	time      int64
}

// sampleTime bounds the reading of samples: what has not come by then is not looked at.
const sampleTime = 5 * time.Second

// sample reads the newest records of all inputs.
func (r *run) sample(ctx context.Context) {
	r.samples, r.records = make(map[string][]sampled), make(map[record.TopicPartition][]record.Record)
	var tps []record.TopicPartition
	for _, t := range r.inputs() {
		for p := range r.topics[t.Name].Partitions {
			tps = append(tps, record.TopicPartition{Topic: t.Name, Partition: p})
		}
	}
	if len(tps) == 0 {
		return
	}
	// Without an answer the checks that need samples say that they have none; the error shows in permissions or topics.
	start, err := r.cluster.StartOffsets(ctx, tps)
	if err != nil {
		return
	}
	end, err := r.cluster.StableOffsets(ctx, tps)
	if err != nil {
		return
	}
	add := make(map[record.TopicPartition]int64)
	for _, tp := range tps {
		if from := max(start[tp], end[tp]-int64(r.in.Sample)); from < end[tp] {
			add[tp] = from
		}
	}
	if len(add) == 0 {
		return
	}
	k, err := r.cluster.NewConsumer()
	if err != nil {
		return
	}
	defer k.Close()
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	k.Add(add)
	for len(add) > 0 {
		fs, err := k.Poll(ctx)
		if err != nil {
			return
		}
		for _, f := range fs {
			for _, rec := range f.Records {
				if !rec.Control && rec.Offset < end[f.TopicPartition] {
					r.samples[f.Topic] = append(r.samples[f.Topic], sampled{f.Partition, rec.Offset, rec.Key, rec.Timestamp})
					if r.in.Look != nil {
						r.records[f.TopicPartition] = append(r.records[f.TopicPartition], rec)
					}
				}
				if rec.Offset >= end[f.TopicPartition]-1 {
					delete(add, f.TopicPartition)
				}
			}
			if f.Err != nil {
				delete(add, f.TopicPartition)
			}
		}
	}
}

// keys looks whether records lie where Kafka's default partitioner puts them: joins rely on inputs that are
// partitioned alike, and only that partitioner is the same everywhere.
func (r *run) keys() {
	var bad, seen []string
	for _, t := range r.inputs() {
		if !t.Keyed {
			continue
		}
		n := r.topics[t.Name].Partitions
		keyed, null, wrong := 0, 0, 0
		example := ""
		for _, s := range r.samples[t.Name] {
			if s.key == nil {
				null++
				continue
			}
			keyed++
			if want := format.Partition(s.key, n); want != s.partition {
				if wrong++; example == "" {
					example = fmt.Sprintf("%s/%d offset %d belongs to partition %d", t.Name, s.partition, s.offset, want)
				}
			}
		}
		switch {
		case wrong > 0:
			bad = append(bad, fmt.Sprintf("%s: %d of %d records are not where the default partitioner (murmur2) puts their key, "+
				"for example %s", t.Name, wrong, keyed, example))
		case null > 0:
			bad = append(bad, fmt.Sprintf("%s: %d of %d records have no key", t.Name, null, null+keyed))
		case keyed > 0:
			seen = append(seen, fmt.Sprintf("%s: %d records", t.Name, keyed))
		}
	}
	switch {
	case len(bad) > 0:
		r.add(checkKeys, Warn, strings.Join(bad, "; "),
			"use KeyBy, which partitions the records anew, or write them with the murmur2 partitioner (librdkafka: "+
				"partitioner=murmur2_random); partitions that were added to the topic later have the same effect")
	case len(seen) == 0:
		r.add(checkKeys, Skipped, "no records of keyed inputs to look at")
	default:
		r.add(checkKeys, OK, "partitioned by murmur2: "+strings.Join(seen, ", "))
	}
}

// manyMarkers is the rate of transaction markers per second and broker from which on we warn: each costs an append on
// the leader and on its replicas.
const manyMarkers = 2000

// markers estimates how many transaction markers the app causes at most: each commit writes one into every partition
// that it touched.
func (r *run) markers() {
	perCommit, subtasks := 0, 0
	for _, s := range r.in.Subs {
		n, _ := r.parallelism(s)
		touched := 2 // changelog and __consumer_offsets
		for _, o := range s.Outputs {
			touched += int(r.topics[o].Partitions)
		}
		subtasks += n
		perCommit += n * touched
	}
	if subtasks == 0 || len(r.topics) == 0 {
		r.add(checkMarkers, Skipped, "no topics given")
		return
	}
	rate := float64(perCommit) / r.in.CommitLatency.Seconds()
	found := fmt.Sprintf("at most %.0f a second: %s, %d partitions touched, a commit every %v", rate, count(subtasks, "subtask"),
		perCommit, r.in.CommitLatency)
	if rate > manyMarkers*float64(max(1, r.brokers)) {
		r.add(checkMarkers, Warn, found+": much for "+count(r.brokers, "broker"),
			"raise commit.max-latency, lower the parallelism, or key outputs like their inputs with the same partition count, "+
				"so that a subtask writes to one partition")
		return
	}
	r.add(checkMarkers, OK, found)
}

// clockSlack is how far a timestamp may lie ahead of our clock without a word.
const clockSlack = 5 * time.Second

// clock looks for records from the future: they push watermarks ahead, so that everything else is late.
func (r *run) clock(now time.Time) {
	var bad, do []string
	looked := 0
	for _, t := range r.inputs() {
		latest := int64(-1)
		for _, s := range r.samples[t.Name] {
			looked++
			latest = max(latest, s.time)
		}
		ahead := time.UnixMilli(latest).Sub(now)
		if ahead <= clockSlack {
			continue
		}
		if r.topics[t.Name].TimestampType == "LogAppendTime" {
			bad = append(bad, fmt.Sprintf("%s: the broker's clock is at least %v ahead of this one", t.Name, ahead.Round(time.Second)))
			do = append(do, "let the brokers and this machine take their time from NTP")
		} else {
			bad = append(bad, fmt.Sprintf("%s: newest timestamp is %s, ahead of this machine's clock", t.Name,
				time.UnixMilli(latest).UTC().Format(time.RFC3339)))
			do = append(do, fmt.Sprintf("check the clocks of the producers of %s, and that timestamps are in milliseconds", t.Name))
		}
	}
	switch {
	case len(bad) > 0:
		r.add(checkClock, Warn, strings.Join(bad, "; "), slices.Compact(do)...)
	case looked == 0:
		r.add(checkClock, Skipped, "no records to look at")
	default:
		r.add(checkClock, OK, fmt.Sprintf("no timestamp ahead of this machine's clock in %s", count(looked, "record")))
	}
}
