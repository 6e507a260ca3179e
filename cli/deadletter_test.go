package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/txn"
)

// testLetter is a dead letter as the engine writes it; topic "" = of a timer.
func testLetter(topic string, partition int32, offset int64, key, value string, headers ...record.Header) record.Record {
	h := func(name, value string) record.Header {
		return record.Header{Key: "millrace-" + name, Value: []byte(value)}
	}
	if topic != "" {
		headers = append(headers, h("topic", topic), h("partition", fmt.Sprint(partition)), h("offset", fmt.Sprint(offset)))
	}
	headers = append(headers, h("timestamp", "1772366400000"), h("operator", "parse"), h("error", "decode value: line 1\nis not JSON"))
	return record.Record{Key: []byte(key), Value: []byte(value), Headers: headers}
}

func TestDeadLetterTexts(t *testing.T) {
	var letters []letter
	for i, r := range []record.Record{
		testLetter("orders", 2, 40, "k", `{"name":`, record.Header{Key: "trace", Value: []byte("abc")}, record.Header{Key: "flags", Value: []byte{0, 255}}),
		testLetter("", 0, 0, "k", ""),
		{Key: nil, Value: []byte{1, 2, 255}},
	} {
		r.Offset, r.Timestamp = int64(2*i), 1772366460000+int64(i)*1000
		l := letter{partition: 0, record: r}
		l.DeadLetter, l.err = task.ReadDeadLetter(r.Headers)
		letters = append(letters, l)
	}
	letters[1].record.Value = nil
	var sb strings.Builder
	if err := writeLetters(&sb, "order-counts-dead-letter", letters, 5); err != nil {
		t.Fatal(err)
	}
	golden(t, "dead-letter-list", sb.String())
	sb.Reset()
	for _, l := range letters {
		if err := writeLetter(&sb, l, "auto"); err != nil {
			t.Fatal(err)
		}
		sb.WriteString("\n")
	}
	if err := writeLetter(&sb, letters[0], "hex"); err != nil {
		t.Fatal(err)
	}
	golden(t, "dead-letter-show", sb.String())
	sb.Reset()
	r := replay{box: &letterbox{call: &appCall{app: "order-counts"}}, tp: record.TopicPartition{Topic: "order-counts-dead-letter"}, skipped: 1, foreign: 2,
		targets: map[string]*target{
			"orders": {name: "orders", records: 3, partitions: map[int32]bool{2: true, 0: true}, elsewhere: 1},
			"users":  {name: "users", records: 1, partitions: map[int32]bool{1: true}},
		}}
	if err := r.writePlan(&sb); err != nil {
		t.Fatal(err)
	}
	sb.WriteString("\n")
	r.targets, r.skipped, r.foreign, r.from = nil, 0, 0, 9
	if err := r.writePlan(&sb); err != nil {
		t.Fatal(err)
	}
	golden(t, "dead-letter-replay", sb.String())
}

func TestNewestLettersAreKept(t *testing.T) {
	var letters []letter
	for i, at := range []int64{5, 1, 9, 5, 7} {
		letters = append(letters, letter{record: record.Record{Offset: int64(i), Timestamp: at}})
	}
	var got []int64
	for _, l := range newest(letters, 3) {
		got = append(got, l.record.Offset)
	}
	if !slices.Equal(got, []int64{3, 4, 2}) {
		t.Errorf("%v", got)
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{"": {}, "2h": now.Add(-2 * time.Hour), "1d12h": now.Add(-36 * time.Hour), "2026-01-31T15:04:05Z": time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)} {
		if got, err := readSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestDeadLetter(t *testing.T) { testDeadLetter(t, fakeKafka(t)) }

func TestDeadLetterOnKafka(t *testing.T) { testDeadLetter(t, kafka.Shared(t).Brokers()) }

func testDeadLetter(t *testing.T, brokers []string) {
	app, src, other := kafka.RandomName("app"), kafka.RandomName("src"), kafka.RandomName("other")
	c, err := txn.Connect(t.Context(), txn.Options{AppID: app, Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	common := []string{"--brokers=" + strings.Join(brokers, ","), "--app.id=" + app}
	call := func(args ...string) (int, string, string) {
		return millrace(t, nil, append(args, common...)...)
	}
	if code, _, stderr := call("dead-letter", "list"); code != exitFailed || !strings.Contains(stderr, "app.id is wrong") {
		t.Errorf("no topic: code %d, %s", code, stderr)
	}
	if _, err := c.EnsureTopics(t.Context(), []txn.TopicSpec{{Name: app + "-dead-letter", Partitions: 1, ReplicationFactor: 1}, {Name: src, Partitions: 3, ReplicationFactor: 1}, {Name: other, Partitions: 3, ReplicationFactor: 1}}); err != nil {
		t.Fatal(err)
	}
	// Offsets 0 to 3, then a marker; a transaction that was aborted; one that is open behind.
	elsewhere := (format.Partition([]byte("k0"), 3) + 1) % 3
	letters := []record.Record{
		testLetter(src, elsewhere, 40, "k0", "v0", record.Header{Key: "trace", Value: []byte("abc")}),
		testLetter("", 0, 0, "timer", ""),
		testLetter(src, 1, 41, "", "v2"),
		testLetter(src, 2, 42, "k3", "v3"),
	}
	letters[2].Key = nil
	write := func(id string, end kgo.TransactionEndTry, rs ...record.Record) *kgo.Client {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.TransactionalID(app+id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			kr := &kgo.Record{Topic: app + "-dead-letter", Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				kr.Headers = append(kr.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
			}
			if err := cl.ProduceSync(t.Context(), kr).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		return cl
	}
	if err := write("-0-0", kgo.TryCommit, letters...).EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if err := write("-0-1", kgo.TryAbort, testLetter(src, 0, 50, "no", "no")).EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	write("-0-2", kgo.TryCommit, testLetter(src, 0, 51, "not yet", "not yet"))
	waitStable(t, c, record.TopicPartition{Topic: app + "-dead-letter"}, 7)

	code, stdout, stderr := call("dead-letter", "list", "-o", "json")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var l letterJSON
	if code != exitOK || len(lines) != 4 || json.Unmarshal([]byte(lines[3]), &l) != nil || l.Offset != 3 || l.Source == nil || *l.Source != (sourceJSON{src, 2, 42, 1772366400000}) || l.Operator != "parse" {
		t.Errorf("code %d, %+v, %s\n%s", code, l, stderr, stdout)
	}
	if code, stdout, stderr = call("dead-letter", "list", "--limit=2"); code != exitOK || !strings.Contains(stdout, "4 dead letters in "+app+"-dead-letter, the newest 2 are shown") || strings.Contains(stdout, "k0") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = call("dead-letter", "list", "--since=2100-01-01T00:00:00Z"); code != exitOK || !strings.HasPrefix(stdout, "0 dead letters") {
		t.Errorf("since the future: code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = call("dead-letter", "list", "--since=1h"); code != exitOK || !strings.Contains(stdout, "4 dead letters") {
		t.Errorf("since an hour: code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = call("dead-letter", "show", "0"); code != exitOK || !strings.Contains(stdout, fmt.Sprintf("source     %s/%d at offset 40", src, elsewhere)) || !strings.Contains(stdout, "header     trace = abc") || !strings.Contains(stdout, "value      v0") {
		t.Errorf("show: code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = call("dead-letter", "show", "0", "-o", "json"); code != exitOK || !strings.Contains(stdout, `"text": "v0"`) {
		t.Errorf("show: code %d, %s%s", code, stdout, stderr)
	}
	for _, offset := range []string{"4", "5", "99"} { // a marker, aborted, beyond the end
		if code, _, stderr = call("dead-letter", "show", offset); code != exitFailed || !strings.Contains(stderr, "there is none; the partition holds offsets 0 to 6") {
			t.Errorf("show %s: code %d, %s", offset, code, stderr)
		}
	}

	read := func(topic string) (out []string) {
		t.Helper()
		for p := range int32(3) {
			tp := record.TopicPartition{Topic: topic, Partition: p}
			ends, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
			if err == nil {
				err = c.ReadCommitted(t.Context(), tp, 0, ends[tp], func(r record.Record) error {
					out = append(out, fmt.Sprintf("%d %q %t %q %v %d", p, r.Key, r.Key == nil, r.Value, r.Headers, r.Timestamp))
					return nil
				})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(out)
		return out
	}
	// Without an answer nothing happens; standard input is empty here.
	if code, stdout, stderr = call("dead-letter", "replay", "--from=0"); code != exitFailed || !strings.Contains(stdout, "Replay 3 dead letters") || !strings.Contains(stdout, "left out: 1 dead letter of a timer") || !strings.Contains(stderr, "nothing was written") || len(read(src)) != 0 {
		t.Errorf("no answer: code %d, %s%s", code, stdout, stderr)
	}
	answer := func(text string, args ...string) (string, error) {
		root := newRootCommand(&Options{}, nil)
		var out bytes.Buffer
		root.SetArgs(append(args, common...))
		root.SetIn(strings.NewReader(text))
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := answer("no\n", "dead-letter", "replay", "0"); err == nil || len(read(src)) != 0 {
		t.Errorf("answered no: %v, %s", err, out)
	}
	out, err := answer("y\n", "dead-letter", "replay", "--from=0", "--to=2")
	want := []string{
		fmt.Sprintf(`%d "k0" false "v0" [{trace [97 98 99]}] 1772366400000`, elsewhere),
		`1 "" true "v2" [] 1772366400000`,
	}
	slices.Sort(want)
	if got := read(src); err != nil || !slices.Equal(got, want) || !strings.Contains(out, "2 records written.") || !strings.Contains(out, "1 of them would be in another partition by their key") {
		t.Errorf("%v\n%s\ngot %q\nwant %q", err, out, got, want)
	}
	if code, stdout, stderr = call("dead-letter", "replay", "3", "0", "--topic="+other, "--yes"); code != exitOK || !strings.Contains(stdout, "2 records written.") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	want = []string{
		fmt.Sprintf(`%d "k0" false "v0" [{trace [97 98 99]}] 1772366400000`, format.Partition([]byte("k0"), 3)),
		fmt.Sprintf(`%d "k3" false "v3" [] 1772366400000`, format.Partition([]byte("k3"), 3)),
	}
	slices.Sort(want)
	if got := read(other); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for args, says := range map[string]string{"4 --yes": "there is none", "0 --yes --topic=nowhere": "topic nowhere does not exist", "0 --partition=1": "has 1 partition"} {
		if code, _, stderr := call(append([]string{"dead-letter", "replay"}, strings.Fields(args)...)...); code == exitOK || !strings.Contains(stderr, says) {
			t.Errorf("replay %s: code %d, %s", args, code, stderr)
		}
	}
	if code, stdout, _ = call("dead-letter", "replay", "1", "--yes"); code != exitOK || !strings.Contains(stdout, "No dead letter to replay") {
		t.Errorf("a timer's: code %d, %s", code, stdout)
	}
}

// waitStable waits for the markers of transactions that have ended.
func waitStable(t *testing.T, c *txn.Cluster, tp record.TopicPartition, want int64) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		got, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
		if err == nil && got[tp] != want {
			err = fmt.Errorf("the last stable offset of %s is %d, not %d", tp, got[tp], want)
		}
		return err
	})
}
