package docs

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/blackhole"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/filesystem"
	"github.com/millrace-stream/millrace/connector/http"
	"github.com/millrace-stream/millrace/connector/print"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/sql"
)

var update = flag.Bool("update", false, "write the options of connectors into their page")

// TestConnectorOptions: the page has all options of each connector, as the program knows them.
func TestConnectorOptions(t *testing.T) {
	const page = "sql-connectors-more.md"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, c := range map[string]connector.Connector{"datagen": datagen.New(), "print": print.New(), "filesystem": filesystem.New(nil), "http": http.New(nil), "blackhole": blackhole.New()} {
		table := optionTable(c.Spec())
		if table == "" {
			continue
		}
		begin, end := "<!-- options of "+name+" -->\n", "<!-- end -->"
		before, rest, ok := strings.Cut(text, begin)
		was, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Errorf("%s has no place for the options of %s", page, name)
			continue
		}
		if was != table {
			t.Logf("%s: the options of %s are not those of the program; run go test ./docs -run TestConnectorOptions -update", page, name)
			if !*update {
				t.Fail()
			}
		}
		text = before + begin + table + end + after
	}
	if *update && text != string(b) {
		if err := os.WriteFile(page, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConnectorExamples plans the examples of the page, as one script.
func TestConnectorExamples(t *testing.T) {
	b, err := os.ReadFile("sql-connectors-more.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	for _, m := range blocks {
		script.WriteString(m[1])
	}
	script.WriteString("INSERT INTO nowhere SELECT seconds, file FROM visits;")
	formats := format.RowFormats{"json": format.JSONRows()}
	app, errs := sql.Script("page.sql", script.String(), sql.Options{
		Env:        func(name string) (string, bool) { return "secret", name == "CRM_TOKEN" },
		Connectors: connector.Registry{"datagen": datagen.New(), "print": print.New(), "blackhole": blackhole.New(), "filesystem": filesystem.New(formats), "http": http.New(formats)},
	})
	if errs.Err() != nil {
		t.Fatal(errs.Err())
	}
	if _, err := app.Topology.Plan(); err != nil {
		t.Error(err)
	}
	if len(blocks) < 5 {
		t.Errorf("%d examples", len(blocks))
	}
}

func optionTable(s connector.Spec) string {
	if len(s.Options) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| option | default | what it does |\n| --- | --- | --- |\n")
	for _, o := range s.Options {
		def := o.Default
		switch {
		case o.Required:
			def = "required"
		case def != "":
			def = "`" + def + "`"
		}
		doc := o.Doc
		if len(o.Values) > 0 {
			doc += " One of `" + strings.Join(o.Values, "`, `") + "`."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Name, def, strings.ReplaceAll(doc, "|", "\\|"))
	}
	return b.String()
}
