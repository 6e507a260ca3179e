package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestSQLBoundedExactlyOnce runs a script over a topic with an end, on a broker to whom transactions mean something. A member is
// killed in the middle; two others finish the work and end by themselves. Each row is there once: those of VALUES, those that
// were copied, the counts, and the windows that only the end of the input fires.
func TestSQLBoundedExactlyOnce(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	const records, keys, parts = 60_000, 50, 4
	in, copied, counted, windows, wrote := b.CreateTopic(t, parts, nil), b.CreateTopic(t, parts, nil), b.CreateTopic(t, parts, nil), b.CreateTopic(t, 1, nil), b.CreateTopic(t, 2, nil)
	var rs []*kgo.Record
	for i := range records {
		rs = append(rs, &kgo.Record{Topic: in, Partition: int32(i % parts), Value: fmt.Appendf(nil, `{"id":%d,"k":%d,"ts":"2024-01-01 00:%02d:%02d"}`, i, i%keys, i/60%30, i%60)})
	}
	b.Produce(t, rs...)
	table := "CREATE TABLE %s WITH ('connector' = '%skafka', 'topic' = '%s', 'properties.bootstrap.servers' = '" + strings.Join(b.Brokers(), ",") + "', %s);\n"
	const json, bounded = "'format' = 'json'", ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
	script := filepath.Join(t.TempDir(), "pipeline.sql")
	text := fmt.Sprintf(table, "ev (id BIGINT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)", "", in, json+bounded) +
		fmt.Sprintf(table, "copied (id BIGINT, k INT)", "", copied, "'key.format' = 'json', 'key.fields' = 'k', 'value.format' = 'json'") +
		fmt.Sprintf(table, "counted (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)", "upsert-", counted, "'key.format' = 'json', 'value.format' = 'json'") +
		fmt.Sprintf(table, "windows (n BIGINT)", "", windows, json) +
		fmt.Sprintf(table, "wrote (id INT)", "", wrote, json) + `
		INSERT INTO wrote VALUES (1), (2), (3);
		INSERT INTO copied SELECT id, k FROM ev;
		INSERT INTO counted SELECT k, COUNT(*) FROM ev GROUP BY k;
		INSERT INTO windows SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTE)) GROUP BY window_start, window_end;`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bin, app := kafka.Build(t, "github.com/millrace-stream/millrace/cmd/millrace"), kafka.RandomName("sql")
	member := func() *kafka.Proc {
		return kafka.Run(t, bin, []string{"run", script}, "MILLRACE_APP_ID="+app, "MILLRACE_STATE_DIR="+t.TempDir(), "MILLRACE_LISTEN=off")
	}
	first := member()
	testutil.Eventually(t, patience, func() error {
		if len(b.Read(t, copied)) == 0 {
			return fmt.Errorf("nothing is copied yet:\n%s", first.Output())
		}
		return nil
	})
	first.Kill(t)
	t.Logf("killed when %d of %d rows were copied", len(b.Read(t, copied)), records)
	b.Produce(t, &kgo.Record{Topic: in, Value: []byte(`{"id":-1,"k":-1,"ts":"2024-01-01 00:00:00"}`)}) // behind the end
	for i, p := range []*kafka.Proc{member(), member()} {
		if code := p.Wait(t, 2*time.Minute); code != 0 {
			t.Fatalf("member %d ends with %d:\n%s", i, code, p.Output())
		}
	}
	seen := map[string]int{}
	for _, r := range b.Read(t, copied) {
		seen[string(r.Value)]++
	}
	for i := range records {
		if v := fmt.Sprintf(`{"id":%d,"k":%d}`, i, i%keys); seen[v] != 1 {
			t.Fatalf("%s is copied %d times", v, seen[v])
		}
	}
	if len(seen) != records {
		t.Errorf("%d rows are copied, want %d", len(seen), records)
	}
	last := map[string]string{}
	for _, r := range b.Read(t, counted) {
		last[string(r.Key)] = string(r.Value)
	}
	for k := range keys {
		if want := fmt.Sprintf(`{"k":%d,"n":%d}`, k, records/keys); last[fmt.Sprintf(`{"k":%d}`, k)] != want {
			t.Errorf("count %s, want %s", last[fmt.Sprintf(`{"k":%d}`, k)], want)
		}
	}
	n := 0
	for _, r := range b.Read(t, windows) {
		var c int
		if _, err := fmt.Sscanf(string(r.Value), `{"n":%d}`, &c); err != nil {
			t.Fatal(err)
		}
		n += c
	}
	if got := len(b.Read(t, windows)); got != 3 || n != records {
		t.Errorf("%d windows with %d records, want 3 with %d", got, n, records)
	}
	if got := len(b.Read(t, wrote)); got != 3 {
		t.Errorf("%d rows of VALUES, want 3", got)
	}
	again := member()
	if code := again.Wait(t, patience); code != 0 || !strings.Contains(again.Output(), "has ended before") {
		t.Errorf("another start ends with %d:\n%s", code, again.Output())
	}
}

// TestSQLStartsAndMetadata asks a real broker for start positions and ends, and for what a record tells beside its value.
func TestSQLStartsAndMetadata(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	adm := b.Admin(t)
	out := b.CreateTopic(t, 3, nil)
	var text strings.Builder
	for name, options := range map[string]string{
		"grp":    "'properties.group.id' = 'GROUP', 'properties.auto.offset.reset' = 'latest', 'scan.bounded.mode' = 'latest-offset'",
		"nobody": "'properties.group.id' = 'GROUP-nobody', 'properties.auto.offset.reset' = 'earliest', 'scan.bounded.mode' = 'group-offsets'",
		"ts":     "'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '2000', 'scan.bounded.mode' = 'timestamp', 'scan.bounded.timestamp-millis' = '3000'",
		"offs":   "'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:3', 'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = 'partition:0,offset:4'",
		"last":   "'scan.startup.mode' = 'latest-offset', 'scan.bounded.mode' = 'latest-offset'",
	} {
		in := b.CreateTopic(t, 1, nil)
		var rs []*kgo.Record
		for i := range 5 {
			rs = append(rs, &kgo.Record{Topic: in, Value: fmt.Appendf(nil, `{"v":"%s%d"}`, name, i), Timestamp: time.UnixMilli(int64(i) * 1000), Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(name)}}})
		}
		b.Produce(t, rs...)
		o := kadm.Offsets{}
		o.AddOffset(in, 0, 4, -1)
		if res, err := adm.CommitOffsets(t.Context(), in, o); err != nil || res.Error() != nil {
			t.Fatal(err, res.Error())
		}
		fmt.Fprintf(&text, "CREATE TABLE %s (v STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', h MAP<STRING, STRING> METADATA FROM 'headers', p INT METADATA FROM 'partition' VIRTUAL, e INT METADATA FROM 'leader-epoch' VIRTUAL, k STRING METADATA FROM 'timestamp-type' VIRTUAL) WITH ('connector' = 'kafka', 'topic' = '%s', 'format' = 'json', %s);\n",
			name, in, strings.ReplaceAll(options, "GROUP", in))
		fmt.Fprintf(&text, "INSERT INTO o SELECT v || h['n'] || CAST(p AS STRING) || k || CAST(e >= 0 AS STRING), ts, h FROM %s;\n", name)
	}
	sink := "CREATE TABLE o (v STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', h MAP<STRING, STRING> METADATA FROM 'headers') WITH ('connector' = 'kafka', 'topic' = '" + out + "', 'format' = 'raw', 'sink.partitioner' = 'round-robin');\n"
	script := filepath.Join(t.TempDir(), "starts.sql")
	if err := os.WriteFile(script, []byte(sink+text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := kafka.Run(t, kafka.Build(t, "github.com/millrace-stream/millrace/cmd/millrace"), []string{"run", script}, "MILLRACE_APP_ID="+kafka.RandomName("sql"),
		"MILLRACE_BROKERS="+strings.Join(b.Brokers(), ","), "MILLRACE_STATE_DIR="+t.TempDir(), "MILLRACE_LISTEN=off")
	if code := p.Wait(t, patience); code != 0 {
		t.Fatalf("it ends with %d:\n%s", code, p.Output())
	}
	var got []string
	for _, r := range b.Read(t, out) {
		got = append(got, fmt.Sprintf("%s %d %s", r.Value, r.Timestamp.UnixMilli(), header(r, "n")))
	}
	slices.Sort(got)
	want := []string{"grp4grp0CreateTimeTRUE 4000 grp", "offs3offs0CreateTimeTRUE 3000 offs", "ts2ts0CreateTimeTRUE 2000 ts"}
	if !slices.Equal(got, want) {
		t.Errorf("records %q, want %q\n%s", got, want, p.Output())
	}
}
