package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/txn"
)

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

func testTransactions() (open, oursHangs, foreignHangs, hidden, ending txn.OpenTransaction) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tp := func(topic string, p int32) record.TopicPartition {
		return record.TopicPartition{Topic: topic, Partition: p}
	}
	open = txn.OpenTransaction{TopicPartition: tp("orders", 0), ProducerID: 4000, ProducerEpoch: 2, FirstOffset: 17, LastTimestamp: at.Add(3 * time.Second),
		LastStable: 17, HighWatermark: 1017, Hanging: txn.HangingNo, Coordinator: &txn.TransactionState{TransactionalID: "import", State: "Ongoing",
			ProducerID: 4000, ProducerEpoch: 2, Coordinator: 1, Timeout: time.Minute, Started: at, Partitions: []record.TopicPartition{tp("orders", 0), tp("orders", 1)}}}
	oursHangs = txn.OpenTransaction{TopicPartition: tp("counts", 3), ProducerID: 4001, ProducerEpoch: 9, FirstOffset: 5, LastTimestamp: at,
		LastStable: 5, HighWatermark: 6, Hanging: txn.HangingYes, Decided: "committed", Coordinator: &txn.TransactionState{TransactionalID: "order-counts-0-3",
			State: "CompleteCommit", ProducerID: 4001, ProducerEpoch: 10, Coordinator: 2, Timeout: 15 * time.Second}}
	foreignHangs = txn.OpenTransaction{TopicPartition: tp("orders", 0), ProducerID: 4002, FirstOffset: 900, LastTimestamp: at,
		LastStable: 17, HighWatermark: 1017, Hanging: txn.HangingYes}
	hidden = txn.OpenTransaction{TopicPartition: tp("orders", 1), ProducerID: 4003, FirstOffset: 1, LastStable: 1, HighWatermark: 2, Hanging: txn.HangingUnknown}
	ending = open
	ending.Coordinator = &txn.TransactionState{TransactionalID: "order-counts-0-0", State: "PrepareCommit", ProducerID: 4000, ProducerEpoch: 3, Coordinator: 1, Timeout: 15 * time.Second,
		Partitions: open.Coordinator.Partitions}
	return open, oursHangs, foreignHangs, hidden, ending
}

func TestTransactionTexts(t *testing.T) {
	open, oursHangs, foreignHangs, hidden, ending := testTransactions()
	now := time.Date(2026, 3, 1, 12, 0, 20, 0, time.UTC)
	const why = "transactional ids may be hidden from this principal; grant Describe on transactional id * to see all"
	refused := txn.UnseenPartitions{Topic: offsetsTopic, Err: errors.New("look at topic __consumer_offsets: not authorized: grant Read on it")}
	text := func(name string, write func(sb *strings.Builder) error) {
		t.Helper()
		var sb strings.Builder
		if err := write(&sb); err != nil {
			t.Fatal(err)
		}
		golden(t, name, sb.String())
	}
	all := txn.OpenTransactions{Open: []txn.OpenTransaction{oursHangs, open, foreignHangs, hidden}, Looked: 12, Hidden: why, Unseen: []txn.UnseenPartitions{refused}}
	text("txn-list", func(sb *strings.Builder) error { return writeTransactions(sb, all) })
	text("txn-list-none", func(sb *strings.Builder) error { return writeTransactions(sb, txn.OpenTransactions{Looked: 1}) })
	text("txn-list-json", func(sb *strings.Builder) error {
		return (&appCall{out: sb}).writeJSON(newTransactionList("order-counts", all))
	})
	describe := func(d description) func(sb *strings.Builder) error {
		return func(sb *strings.Builder) error {
			d.app, d.brokers = "order-counts", "kafka:9092"
			d.found.Looked = 12
			return d.write(sb, now)
		}
	}
	found := func(open ...txn.OpenTransaction) txn.OpenTransactions {
		return txn.OpenTransactions{Open: open, Hidden: why}
	}
	part := &record.TopicPartition{Topic: "orders"}
	text("txn-describe-id", describe(description{id: open.Coordinator, found: found(open)}))
	text("txn-describe-id-ending", describe(description{id: ending.Coordinator, found: found(ending)}))
	text("txn-describe-id-hanging", describe(description{id: oursHangs.Coordinator, found: found(oursHangs)}))
	text("txn-describe-id-none", describe(description{id: oursHangs.Coordinator}))
	text("txn-describe-partition", describe(description{partition: part, found: found(open, foreignHangs)}))
	text("txn-describe-partition-hidden", describe(description{partition: part, found: found(hidden)}))
	text("txn-describe-partition-none", describe(description{partition: part}))
	text("txn-describe-json", func(sb *strings.Builder) error {
		d := description{app: "order-counts", brokers: "kafka:9092", id: open.Coordinator, found: found(open)}
		return (&appCall{out: sb}).writeJSON(d.json())
	})
}

func TestAppCommandUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"txn lst", `unknown command "lst"; millrace txn --help shows the usage`},
		{"txn list", "app.id is not set"},
		{"txn list --app.id a x", `unexpected argument "x"`},
		{"txn list --app.id a -o xml", `unknown output "xml": text or json is wanted`},
		{"txn describe --app.id a", "0 arguments, wanted is one: a transactional id, or topic/partition"},
		{"dead-letter list --app.id a --since yesterday", `read --since "yesterday": a duration (2h, 7d) or a time`},
		{"dead-letter list --app.id a --limit -1", "0 or more is wanted"},
		{"dead-letter show --app.id a x", `read offset "x": a number from 0 is wanted`},
		{"dead-letter show --app.id a --as html 1", `read --as "html": auto, text or hex is wanted`},
		{"dead-letter replay --app.id a", "which dead letters?"},
		{"dead-letter replay --app.id a --from 3 --to 2", "the second not below the first"},
		{"dead-letter replay --app.id a --from 3 5", "not both"},
	} {
		if code, _, stderr := millrace(t, nil, strings.Fields(c.args)...); code != exitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("millrace %s: code %d, %s", c.args, code, stderr)
		}
	}
	for _, args := range []string{"txn", "txn list --help", "dead-letter", "dead-letter replay --help"} {
		if code, stdout, stderr := millrace(t, nil, strings.Fields(args)...); code != exitOK || !strings.Contains(stdout, "Usage") {
			t.Errorf("millrace %s: code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

func fakeKafka(t *testing.T) []string {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k.ListenAddrs()
}

// makeApp writes a control topic, as an app that ran once does.
func makeApp(t *testing.T, brokers []string, app string, topics ...string) {
	t.Helper()
	editControl(t, brokers, app, func(s *txn.ControlState) {
		s.TopicIDs = map[string]string{}
		for _, n := range topics {
			s.TopicIDs[n] = "x"
		}
	})
}

func openForeign(t *testing.T, brokers []string, id, topic string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return cl
}

func TestTxn(t *testing.T) { testTxn(t, fakeKafka(t), "orders", nil) }

// TestTxnOnKafka adds what only a real broker has: a hanging transaction. A broker that does not verify takes records
// of a transaction that its coordinator never heard of.
func TestTxnOnKafka(t *testing.T) {
	b := kafka.Shared(t)
	adm := b.Admin(t)
	off := "false"
	rs, err := adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "transaction.partition.verification.enable", Value: &off}})
	if err != nil || len(rs) == 0 || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	topic := b.CreateTopic(t, 2, nil)
	testTxn(t, b.Brokers(), topic, func(app string) {
		hang(t, b, "lost", topic)
		testutil.Eventually(t, patience, func() error {
			code, stdout, stderr := millrace(t, nil, "txn", "list", "--app.id="+app, "--brokers="+strings.Join(b.Brokers(), ","), "-o", "json")
			var l transactionList
			if err := json.Unmarshal([]byte(stdout), &l); code != exitOK || err != nil {
				t.Fatal(code, err, stderr)
			}
			i := slices.IndexFunc(l.Open, func(o transactionJSON) bool { return o.Topic == topic })
			if i < 0 || l.Open[i].Partition != 0 || l.Open[i].Hanging != txn.HangingYes || l.Open[i].HoldsBack != 1 {
				return fmt.Errorf("%s", stdout)
			}
			return nil
		})
		code, stdout, stderr := millrace(t, nil, "txn", "describe", "--app.id="+app, "--brokers="+strings.Join(b.Brokers(), ","), topic+"/0")
		want := "abort --topic " + topic + " --partition 0 --start-offset 0"
		if code != exitOK || !strings.Contains(stdout, want) || !strings.Contains(stdout, "yes: ") {
			t.Errorf("code %d, want %q\n%s%s", code, want, stdout, stderr)
		}
		t.Log("\n" + stdout)
	})
}

// hang writes one transactional record that no coordinator knows of.
func hang(t *testing.T, b *kafka.Broker, id, topic string) {
	t.Helper()
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, 60_000
	var pid *kmsg.InitProducerIDResponse
	testutil.Eventually(t, patience, func() (err error) {
		if pid, err = init.RequestWith(t.Context(), b.Client(t)); err == nil {
			err = kerr.ErrorForCode(pid.ErrorCode)
		}
		return err
	})
	b.WriteHanging(t, topic, kafka.Batch{TransactionalID: id, ProducerID: pid.ProducerID, ProducerEpoch: pid.ProducerEpoch}, nil, []byte("lost"))
}

func testTxn(t *testing.T, brokers []string, topic string, then func(app string)) {
	app := kafka.RandomName("app")
	common := []string{"--brokers=" + strings.Join(brokers, ","), "--app.id=" + app}
	call := func(args ...string) (int, string, string) {
		return millrace(t, nil, append(args, common...)...)
	}
	if code, _, stderr := call("txn", "list"); code != exitFailed || !strings.Contains(stderr, "was the app started?") {
		t.Errorf("an app that never ran: code %d, %s", code, stderr)
	}
	makeApp(t, brokers, app, topic)
	id := kafka.RandomName("import")
	cl := openForeign(t, brokers, id, topic)
	testutil.Eventually(t, patience, func() error {
		code, stdout, stderr := call("txn", "list", "-o", "json")
		var l transactionList
		if err := json.Unmarshal([]byte(stdout), &l); code != exitOK || err != nil {
			t.Fatal(code, err, stderr)
		}
		// The control record's marker may still be on its way.
		if len(l.Open) != 1 || l.Open[0].TransactionalID != id || l.Open[0].State != "Ongoing" || l.Open[0].HoldsBack != 1 || l.Open[0].Hanging != txn.HangingNo {
			return errors.New(stdout)
		}
		return nil
	})
	code, stdout, stderr := call("txn", "list")
	if code != exitOK || !strings.Contains(stdout, "1 open transaction in ") || !strings.Contains(stdout, id) || stderr != "" {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	for _, what := range []string{id, topic + "/1"} {
		code, stdout, stderr = call("txn", "describe", what)
		if code != exitOK || !strings.Contains(stdout, "state              Ongoing") || !strings.Contains(stdout, "nothing while its producer runs") || !strings.Contains(stdout, "time-out of 1m0s") {
			t.Errorf("describe %s: code %d, %s%s", what, code, stdout, stderr)
		}
		t.Log("\n" + stdout)
	}
	if code, stdout, _ = call("txn", "describe", topic+"/0"); code != exitOK || !strings.Contains(stdout, "no transaction is open") {
		t.Errorf("an idle partition: code %d, %s", code, stdout)
	}
	for what, says := range map[string]string{id + "-nobody": "no coordinator knows it", topic + "/2": "has 2 partitions", "nowhere/0": "no coordinator knows it"} {
		if code, _, stderr := call("txn", "describe", what); code != exitFailed || !strings.Contains(stderr, says) {
			t.Errorf("describe %s: code %d, %s", what, code, stderr)
		}
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		if code, stdout, stderr := call("txn", "list"); code != exitOK || !strings.HasPrefix(stdout, "0 open transactions in ") {
			return errors.New(strconv.Itoa(code) + stdout + stderr)
		}
		return nil
	})
	if then != nil {
		then(app)
	}
}
