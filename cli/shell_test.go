package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/embedded"
	"github.com/millrace-stream/millrace/txn"
)

const ordersTable = `CREATE TABLE orders (id BIGINT, who STRING) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');`

func TestShellInsertsAndAsks(t *testing.T) {
	b, err := embedded.Start(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopics(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := []string{"sql", "--brokers", strings.Join(b.Addrs(), ","), "--format", "json", "--group.session-timeout", "3s",
		"-e", ordersTable,
		"-e", "INSERT INTO orders VALUES (1, 'ann'), (9007199254740993, NULL);",
		"-e", "INSERT INTO orders VALUES (3, 'ann');",
		"-e", "SET 'execution.runtime-mode' = 'batch'; SELECT who, COUNT(*) AS n, MAX(id) AS top FROM orders GROUP BY who;",
		"-e", `CREATE TABLE like_orders (id BIGINT) WITH ('connector' = 'kafka', 'topic-pattern' = 'ord.*', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
			SELECT COUNT(*) AS all_of_them FROM like_orders;`}
	if code := Run(t.Context(), Options{}, args, nil, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if !strings.Contains(errs.String(), "done: its inputs were read to their ends") || strings.Contains(errs.String(), "level=INFO") {
		t.Errorf("of INSERTs is said:\n%s", errs.String())
	}
	for _, want := range []string{`{"who":"ann","n":2,"top":3}`, `{"who":null,"n":1,"top":9007199254740993}`, `{"all_of_them":3}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the result has no %s:\n%s", want, out.String())
		}
	}
	// The apps of the INSERTs are gone, and the queries were none.
	cluster, err := txn.Connect(t.Context(), txn.Options{AppID: "x", Brokers: b.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	topics, err := cluster.AllTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range topics {
		if name != "orders" {
			t.Errorf("topic %s is left", name)
		}
	}
}

func TestShellTellsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"sql", "-e", "SELECT x;"}, exitFailed, "E2103"},
		{[]string{"sql", "-e", "CREATE TABLE t (a INT) WITH ('connector' = 'datagen');\n\\d"}, exitFailed, "commands of the interactive shell"},
		{[]string{"sql", "--format", "xml"}, exitUsage, "table, csv or json"},
		{[]string{"sql", "/no/such/file.sql"}, exitFailed, "no such file"},
		{[]string{"sql", "--brokers", "127.0.0.1:1", "--request.timeout", "1s", "-e", ordersTable + " SELECT * FROM orders;"}, exitFailed, "127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		if code := Run(t.Context(), Options{}, c.args, nil, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit code %d, %q, want %d and %q in it", c.args, code, errs.String(), c.code, c.want)
		}
	}
}

func TestShellReadsStandardInput(t *testing.T) {
	cmd := newShellCommand(&Options{}, nil)
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader("SELECT 1 + 1 AS two;"))
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--format", "csv"})
	cmd.SilenceUsage = true
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out.String() != "two\n2\n" {
		t.Errorf("it prints %q", out.String())
	}
}
