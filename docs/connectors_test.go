package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/blackhole"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/filesystem"
	"github.com/millrace-stream/millrace/connector/http"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/connector/print"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/sql"
)

var update = flag.Bool("update", false, "write the options of connectors into their page")

// connectors are those of each page.
var connectors = map[string]connector.Registry{
	"sql-connectors.md":      {"kafka": kafka.New(kafka.Options{Formats: formats}), "upsert-kafka": kafka.NewUpsert(kafka.Options{Formats: formats})},
	"sql-connectors-more.md": {"datagen": datagen.New(), "print": print.New(), "filesystem": filesystem.New(formats), "http": http.New(formats), "blackhole": blackhole.New()},
}

var formats = format.RowFormats{"json": format.JSONRows()}

// TestConnectorOptions: the pages have all options of each connector, and its metadata, as the program knows them.
func TestConnectorOptions(t *testing.T) {
	for page, registry := range connectors {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for name, c := range registry {
			text = fill(t, page, text, "options of "+name, optionTable(c.Spec()))
			if name == "kafka" { // upsert-kafka has the same
				text = fill(t, page, text, "metadata of "+name, metadataTable(c.Spec()))
			}
		}
		if *update && text != string(b) {
			if err := os.WriteFile(page, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fill puts a table into its place on a page.
func fill(t *testing.T, page, text, what, table string) string {
	t.Helper()
	if table == "" {
		return text
	}
	begin, end := "<!-- "+what+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(text, begin)
	was, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Errorf("%s has no place for the %s", page, what)
		return text
	}
	if was != table {
		t.Logf("%s: the %s are not those of the program; run go test ./docs -run TestConnectorOptions -update", page, what)
		if !*update {
			t.Fail()
		}
	}
	return before + begin + table + end + after
}

// TestConnectorExamples plans the examples of the pages, as one script.
func TestConnectorExamples(t *testing.T) {
	var script strings.Builder
	all, blocks := connector.Registry{}, 0
	for _, page := range slices.Sorted(maps.Keys(connectors)) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
			if page == "sql-connectors.md" { // both have a table orders
				m[1] = strings.ReplaceAll(m[1], "orders", "kafka_orders")
			}
			script.WriteString(m[1])
			blocks++
		}
		maps.Copy(all, connectors[page])
	}
	script.WriteString("INSERT INTO nowhere SELECT seconds, file FROM visits;")
	app, errs := sql.Script("page.sql", script.String(), sql.Options{Env: func(name string) (string, bool) { return "secret", name == "CRM_TOKEN" }, Connectors: all})
	if errs.Err() != nil {
		t.Fatal(errs.Err())
	}
	if _, err := app.Topology.Plan(); err != nil {
		t.Error(err)
	}
	if blocks < 7 {
		t.Errorf("%d examples", blocks)
	}
}

func metadataTable(s connector.Spec) string {
	var b strings.Builder
	b.WriteString("| key | type | written | what it is |\n| --- | --- | --- | --- |\n")
	for _, m := range s.Metadata {
		written := ""
		if m.Writes {
			written = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", m.Key, m.Type, written, m.Doc)
	}
	return b.String()
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
