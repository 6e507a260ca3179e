package cli_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/cli"
	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// squares is a connector: a table of one BIGINT column that has the squares of 1, 2 and so on.
type squares struct{}

var squaresOptions = []format.Option{{Name: "up-to", Kind: format.Integer, Default: "3", Doc: "The last number that is squared."}}

func (squares) Spec() connector.Spec {
	return connector.Spec{Doc: "The squares of whole numbers.", Options: squaresOptions}
}

func (squares) Traits(t connector.Table) (connector.Traits, error) {
	_, err := connector.Options(t.Options, squaresOptions)
	return connector.Traits{Reads: catalog.Append, CanRead: true}, err
}

func (squares) Source(t connector.Table) (*connector.Source, error) {
	o, err := connector.Options(t.Options, squaresOptions)
	if err != nil {
		return nil, err
	}
	return &connector.Source{Generate: &connector.Generate{Open: func(_ *processor.SubtaskContext, position []byte) (connector.Generator, error) {
		g := &squaring{t: t, last: o.Int("up-to")}
		if position != nil { // where the last commit was
			g.n = int64(binary.BigEndian.Uint64(position))
		}
		return g, nil
	}}}, nil
}

func (squares) Sink(connector.Table) (*connector.Sink, error) {
	return nil, errors.New("connector 'squares' can be read only")
}

func (squares) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("connector 'squares' can be read only")
}

type squaring struct {
	t       connector.Table
	n, last int64
}

func (g *squaring) Next(now int64, next func() *row.Row) (int64, error) {
	if g.n == g.last {
		return 0, io.EOF
	}
	g.n++
	r := next()
	for i := range g.t.Columns {
		g.t.Layout.Set(r, i, g.n*g.n)
	}
	return now, nil
}

func (g *squaring) Position(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(g.n))
}

func (g *squaring) Close() error { return nil }

// ExampleOptions_connectors is a program whose scripts may read a connector of its own. Its main would be
//
//	func main() { cli.Main(cli.Options{Connectors: connector.Registry{"squares": squares{}}}) }
func ExampleOptions_connectors() {
	code := cli.Run(context.Background(), cli.Options{Connectors: connector.Registry{"squares": squares{}}},
		[]string{"sql", "--format=csv", "-e", `
			CREATE TABLE squares (n BIGINT) WITH ('connector' = 'squares', 'up-to' = '4');
			SELECT n FROM squares WHERE n > 1;`}, nil, os.Stdout, io.Discard)
	fmt.Println("exit code", code)
	// Output:
	// n
	// 4
	// 9
	// 16
	// exit code 0
}

// TestConnectorsOfAProgram: all commands on scripts know the connectors of a program, which go before ours of the same name, and
// what is wrong with their options is told as of ours.
func TestConnectorsOfAProgram(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const sums = "CREATE TABLE sums (n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'sums', 'format' = 'raw');\nINSERT INTO sums SELECT n + 1 FROM squares;\n"
	good := file("good.sql", "CREATE TABLE squares (n BIGINT) WITH ('connector' = 'squares');\n"+sums)
	ours := file("ours.sql", "CREATE TABLE squares (n BIGINT) WITH ('connector' = 'datagen');\n"+sums)
	bad := file("bad.sql", "CREATE TABLE squares (n BIGINT) WITH ('connector' = 'squares', 'upto' = '4');\n"+sums)
	written := file("written.sql", "CREATE TABLE squares (n BIGINT) WITH ('connector' = 'squares');\nINSERT INTO squares VALUES (1);\n")
	tests := file("good.test", "test each is one more\ninsert squares\n  {\"n\": 16}\nexpect sums\n  {\"n\": 17}\n")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"explain " + good, 0, "Scan squares"},
		{"plan diff " + good + " " + good, 0, ""},
		{"check --offline " + good, 0, "commits"},
		{"test " + tests, 0, "1 passed"},
		{"run --embedded --listen=off " + good, 0, "sums: \"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\n\""},
		{"run --embedded --listen=off " + ours, 0, "sums: \"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\n\""},
		{"explain " + bad, 2, "did you mean 'up-to'?"},
		{"explain " + written, 2, "can be read only"},
	} {
		var out, errs bytes.Buffer
		o := cli.Options{Connectors: connector.Registry{"squares": squares{}, "datagen": squares{}}}
		code := cli.Run(t.Context(), o, strings.Fields(c.args), nil, &out, &errs)
		if got := out.String() + errs.String(); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, got)
		}
	}
}
