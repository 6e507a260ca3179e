package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/txn"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// fake starts a kfake cluster of three brokers with topics, and an Input that fits it.
func fake(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, Input) {
	t.Helper()
	k, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.ClusterID("cluster-x"),
		kfake.SeedTopics(6, "orders"), kfake.SeedTopics(4, "users"), kfake.SeedTopics(6, "out")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k, Input{
		Kafka:    txn.Options{AppID: "app", Brokers: k.ListenAddrs(), RequestTimeout: 5 * time.Second},
		Subs:     []SubTopology{{Inputs: []Topic{{"orders", true}, {"users", true}}, Outputs: []string{"out"}}},
		StateDir: t.TempDir(),
		Internal: []string{"app-control"},
	}
}

func produce(t *testing.T, k *kfake.Cluster, recs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// keyed makes n records on the partition that Kafka's default partitioner chooses.
func keyed(topic string, partitions int32, n int, at time.Time) []*kgo.Record {
	var out []*kgo.Record
	for i := range n {
		key := fmt.Appendf(nil, "key-%d", i)
		out = append(out, &kgo.Record{Topic: topic, Partition: format.Partition(key, partitions), Key: key, Timestamp: at})
	}
	return out
}

// expect runs the doctor and compares statuses; what is not named must be ok.
func expect(t *testing.T, in Input, want map[string]Status) Report {
	t.Helper()
	r := Run(t.Context(), in)
	seen := make(map[string]bool)
	for _, c := range r.Checks {
		if seen[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		seen[c.Name] = true
		w := want[c.Name]
		if w == "" {
			w = OK
		}
		if c.Status != w {
			t.Errorf("%s: %s (%s), want %s", c.Name, c.Status, c.Found, w)
		}
		if c.Found == "" || (c.Status == Warn || c.Status == Fail) && len(c.Do) == 0 {
			t.Errorf("%s: %+v does not help", c.Name, c)
		}
	}
	if len(r.Checks) != 11 {
		t.Errorf("%d checks, want 11", len(r.Checks))
	}
	return r
}

func find(t *testing.T, r Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s", name)
	return Check{}
}

func says(t *testing.T, r Report, name string, words ...string) {
	t.Helper()
	c := find(t, r, name)
	all := c.Found + "\n" + strings.Join(c.Do, "\n")
	for _, w := range words {
		if !strings.Contains(all, w) {
			t.Errorf("%s does not say %q: %s", name, w, all)
		}
	}
}

func TestHealthy(t *testing.T) {
	k, in := fake(t)
	now := time.Now()
	produce(t, k, append(keyed("orders", 6, 300, now), keyed("users", 4, 300, now)...)...)
	r := expect(t, in, nil)
	if r.Failed() || r.ExitCode() != 0 {
		t.Error("a healthy cluster fails")
	}
	says(t, r, checkConnection, "3 brokers", "cluster-x")
	says(t, r, checkPartitions, "orders 6, users 4", "parallelism 2")
	// 2 subtasks, each commit touches 6 output partitions, changelog and offsets, ten times a second.
	says(t, r, checkMarkers, "at most 160 a second")

	var text, js bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "11 ok, 0 warn, 0 fail, 0 skipped") || strings.Count(text.String(), "\n") != 13 {
		t.Errorf("text:\n%s", text.String())
	}
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.App != "app" || len(back.Checks) != 11 || back.Checks[0].Status != OK {
		t.Errorf("json: %v\n%s", err, js.String())
	}
}

func TestNoConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]Status{checkConnection: Fail}
	for _, n := range []string{checkVersions, checkTransaction, checkReplication, checkTopics, checkPartitions, checkPermissions,
		checkKeys, checkMarkers, checkClock} {
		want[n] = Skipped
	}
	r := expect(t, Input{Kafka: txn.Options{AppID: "app", Brokers: []string{addr}, RequestTimeout: time.Second}, StateDir: t.TempDir()}, want)
	if r.ExitCode() != 1 {
		t.Error("exit code 0")
	}
	says(t, r, checkConnection, addr, "check that the brokers run")
}

func TestMissingTopicsAndNoRecords(t *testing.T) {
	_, in := fake(t)
	in.Subs[0].Inputs = append(in.Subs[0].Inputs, Topic{"nothere", false})
	in.Subs[0].Outputs = append(in.Subs[0].Outputs, "neither")
	r := expect(t, in, map[string]Status{checkTopics: Fail, checkPartitions: Skipped, checkKeys: Skipped, checkClock: Skipped})
	says(t, r, checkTopics, "input nothere", "output neither", "--create --topic nothere")
	// Without a topology there is little to look at.
	in.Subs = nil
	expect(t, in, map[string]Status{checkTopics: Skipped, checkPartitions: Skipped, checkKeys: Skipped, checkClock: Skipped,
		checkMarkers: Skipped})
}

func TestParallelism(t *testing.T) {
	_, in := fake(t)
	in.Subs[0].Parallelism = 4
	r := expect(t, in, map[string]Status{checkPartitions: Fail, checkKeys: Skipped, checkClock: Skipped})
	says(t, r, checkPartitions, "cannot have parallelism 4", "one of [1 2]")

	_, in = fake(t, kfake.SeedTopics(5, "odd"))
	in.Subs[0].Inputs[1].Name = "odd"
	r = expect(t, in, map[string]Status{checkPartitions: Warn, checkKeys: Skipped, checkClock: Skipped})
	says(t, r, checkPartitions, "orders 6, odd 5", "parallelism 1")

	_, in = fake(t, kfake.SeedTopics(48, "wide"))
	in.Subs[0].Inputs = []Topic{{"wide", true}}
	r = expect(t, in, map[string]Status{checkKeys: Skipped, checkClock: Skipped})
	says(t, r, checkPartitions, "parallelism 16")
	in.CommitLatency = time.Millisecond
	r = expect(t, in, map[string]Status{checkKeys: Skipped, checkClock: Skipped, checkMarkers: Warn})
	says(t, r, checkMarkers, "16 subtasks", "commit.max-latency")
}

func TestForeignPartitioner(t *testing.T) {
	k, in := fake(t)
	now := time.Now()
	recs := keyed("orders", 6, 100, now)
	recs[7].Partition = (recs[7].Partition + 1) % 6
	produce(t, k, append(recs, keyed("users", 4, 10, now)...)...)
	r := expect(t, in, map[string]Status{checkKeys: Warn})
	says(t, r, checkKeys, "orders: 1 of 100", fmt.Sprintf("orders/%d", recs[7].Partition), fmt.Sprintf("belongs to partition %d", format.Partition(recs[7].Key, 6)), "KeyBy")
	// What is not declared as keyed may lie where it likes.
	in.Subs[0].Inputs[0].Keyed = false
	expect(t, in, nil)
	produce(t, k, &kgo.Record{Topic: "users", Partition: 1, Value: []byte("no key"), Timestamp: now})
	r = expect(t, in, map[string]Status{checkKeys: Warn})
	says(t, r, checkKeys, "users: 1 of 11 records have no key")
}

func TestSampleLooksAtTheNewest(t *testing.T) {
	k, in := fake(t)
	in.Subs[0].Inputs = []Topic{{"orders", true}}
	in.Sample = 10
	now := time.Now()
	var recs []*kgo.Record
	for i := range 100 {
		key := []byte("wrong")
		if i >= 90 {
			key = []byte("right")
		}
		recs = append(recs, &kgo.Record{Topic: "orders", Partition: format.Partition([]byte("right"), 6), Key: key, Timestamp: now})
	}
	if format.Partition([]byte("right"), 6) == format.Partition([]byte("wrong"), 6) {
		t.Fatal("the keys of this test belong to the same partition")
	}
	produce(t, k, recs...)
	r := expect(t, in, nil)
	says(t, r, checkKeys, "orders: 10 records")
}

func TestClock(t *testing.T) {
	k, in := fake(t)
	now := time.Now()
	produce(t, k, append(keyed("orders", 6, 20, now.Add(time.Hour)), keyed("users", 4, 20, now)...)...)
	r := expect(t, in, map[string]Status{checkClock: Warn})
	says(t, r, checkClock, "orders", "producers of orders")
	if strings.Contains(find(t, r, checkClock).Found, "users") {
		t.Error("users is fine")
	}
}

func TestTransactionTimeout(t *testing.T) {
	_, in := fake(t, kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "60000"}))
	in.Kafka.TransactionTimeout = 2 * time.Minute
	r := expect(t, in, map[string]Status{checkTransaction: Fail, checkKeys: Skipped, checkClock: Skipped})
	says(t, r, checkTransaction, "2m0s", "1m0s", "lower transaction.timeout")
}

func TestReplication(t *testing.T) {
	k, in := fake(t)
	in.Internal = []string{"app-a", "app-b"}
	adm := func(f func(*kadm.Client)) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		f(kadm.NewClient(cl))
	}
	create := func(name string, rf int16, isr string) {
		adm(func(c *kadm.Client) {
			if _, err := c.CreateTopic(t.Context(), 1, rf, map[string]*string{"min.insync.replicas": &isr}, name); err != nil {
				t.Fatal(err)
			}
		})
	}
	create("app-a", 1, "1")
	rest := map[string]Status{checkReplication: Warn, checkKeys: Skipped, checkClock: Skipped}
	r := expect(t, in, rest)
	says(t, r, checkReplication, "app-a has only 1 replica on 3 brokers")
	create("app-b", 2, "3")
	in.ReplicationFactor = 5
	rest[checkReplication] = Fail
	r = expect(t, in, rest)
	says(t, r, checkReplication, "app-b has min.insync.replicas 3 with 2 replicas", "internal.replication-factor is 5, but there is 3 brokers")
}

func TestStateDir(t *testing.T) {
	_, in := fake(t)
	in.Subs = nil
	rest := func(s Status) map[string]Status {
		return map[string]Status{checkTopics: Skipped, checkPartitions: Skipped, checkKeys: Skipped, checkClock: Skipped,
			checkMarkers: Skipped, checkState: s}
	}
	dir := in.StateDir
	in.StateDir = filepath.Join(dir, "nothere")
	says(t, expect(t, in, rest(Warn)), checkState, "mkdir -p")
	in.StateDir = filepath.Join(dir, "file")
	if err := os.WriteFile(in.StateDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, expect(t, in, rest(Fail)), checkState, "not a directory")
	in.StateDir, in.MinFreeBytes = dir, 1<<62
	says(t, expect(t, in, rest(Warn)), checkState, "only", "GiB are free")
	in.StateDir = ""
	expect(t, in, rest(Skipped))
	if left, err := filepath.Glob(filepath.Join(dir, ".doctor-*")); err != nil || len(left) > 0 {
		t.Errorf("probes are left: %v, %v", left, err)
	}
}

func TestMissingOperations(t *testing.T) {
	want := []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite}
	if got := missing(want, 1<<kmsg.ACLOperationRead); len(got) != 1 || got[0] != kmsg.ACLOperationWrite {
		t.Errorf("got %v", got)
	}
	if got := missing(want, -1<<31); got != nil {
		t.Errorf("unknown operations: %v", got)
	}
	if got := camel(kmsg.ACLOperationDescribeConfigs); got != "DescribeConfigs" {
		t.Errorf("got %s", got)
	}
}

func TestKafka(t *testing.T) {
	b := kafka.Shared(t)
	in := Input{Kafka: txn.Options{AppID: kafka.RandomName("app"), Brokers: b.Brokers()}, StateDir: t.TempDir()}
	topic := b.CreateTopic(t, 2, nil)
	b.Produce(t, &kgo.Record{Topic: topic, Key: []byte("k"), Partition: format.Partition([]byte("k"), 2), Timestamp: time.Now()})
	in.Subs = []SubTopology{{Inputs: []Topic{{topic, true}}}}
	// A new broker makes its own topics when it is first asked for a group or transactional id.
	testutil.Eventually(t, time.Minute, func() error {
		if c := find(t, Run(t.Context(), in), checkPermissions); c.Status != OK {
			return errors.New(c.Found)
		}
		return nil
	})
	r := expect(t, in, map[string]Status{checkReplication: Warn})
	says(t, r, checkVersions, "v4.", "transaction.version 2")
	says(t, r, checkReplication, "1 broker")
	says(t, r, checkTransaction, "15m0s")
}

func TestKafkaPermissions(t *testing.T) {
	b := kafka.Start(t, kafka.User("me", "secret"), kafka.ACLs())
	in := Input{
		Kafka: txn.Options{AppID: "app", Brokers: b.Brokers(), SASL: txn.SASL{Mechanism: "SCRAM-SHA-256", Username: "me", Password: "secret"}},
		Subs:  []SubTopology{{Inputs: []Topic{{b.CreateTopic(t, 1, nil), false}}, Outputs: []string{b.CreateTopic(t, 1, nil)}}},
	}
	input, output := in.Subs[0].Inputs[0].Name, in.Subs[0].Outputs[0]
	b.CreateTopicNamed(t, "app-control", 1, nil)
	in.Internal = []string{"app-control"}
	want := map[string]Status{checkTransaction: Warn, checkReplication: Warn, checkTopics: Fail, checkPartitions: Skipped,
		checkPermissions: Fail, checkKeys: Skipped, checkMarkers: Skipped, checkClock: Skipped, checkState: Skipped}
	r := expect(t, in, want)
	says(t, r, checkPermissions,
		"Read on group app;", "Write on transactional-id app-*;", "Read, Write, Create, Delete, DescribeConfigs on topic app-*;",
		"Read, DescribeConfigs on topic "+input+";", "Write, DescribeConfigs on topic "+output,
		"--add --allow-principal User:me --operation Read --group app",
		"--operation Write --transactional-id app- --resource-pattern-type prefixed",
		"--operation Create --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic app- --resource-pattern-type prefixed")

	// Granting just what the doctor says is enough.
	adm := b.Admin(t)
	for _, acl := range []*kadm.ACLBuilder{
		kadm.NewACLs().Allow("User:me").AllowHosts().Groups("app").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead),
		kadm.NewACLs().Allow("User:me").AllowHosts().TransactionalIDs("app-").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpWrite),
		kadm.NewACLs().Allow("User:me").AllowHosts().Topics("app-").ResourcePatternType(kadm.ACLPatternPrefixed).
			Operations(kadm.OpCreate, kadm.OpRead, kadm.OpWrite, kadm.OpDelete, kadm.OpDescribeConfigs),
		kadm.NewACLs().Allow("User:me").AllowHosts().Topics(input).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead, kadm.OpDescribeConfigs),
		kadm.NewACLs().Allow("User:me").AllowHosts().Topics(output).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite, kadm.OpDescribeConfigs),
	} {
		rs, err := adm.CreateACLs(t.Context(), acl)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	testutil.Eventually(t, time.Minute, func() error {
		r := Run(t.Context(), in)
		if c := find(t, r, checkPermissions); r.Failed() || c.Status != OK {
			return fmt.Errorf("%+v", r.Checks)
		}
		return nil
	})
}
