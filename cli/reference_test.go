package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/sql/fn"
)

// chapters are the groups of functions in the order of the reference.
var chapters = []struct{ group, title string }{
	{"comparison", "Comparison"}, {"logical", "Logic"}, {"arithmetic", "Arithmetic"}, {"string", "Text"}, {"regexp", "Regular expressions"},
	{"temporal", "Time"}, {"conditional", "Conditions"}, {"conversion", "Conversion"}, {"collection", "Collections"}, {"construction", "Construction of values"},
	{"json", "JSON"}, {"hash", "Hashes"}, {"aggregate", "Aggregates"}, {"window", "Functions of OVER"},
}

// TestReferenceIsCurrent compares docs/sql-reference.md with what the code says of its functions, connectors and formats;
// go test ./cli -run TestReference -update writes it.
func TestReferenceIsCurrent(t *testing.T) {
	path := filepath.Join("..", "docs", "sql-reference.md")
	want := reference(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is not what the code says; go test ./cli -run TestReference -update writes it", path)
	}
}

func reference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# SQL reference: functions, connectors, formats\n\n" +
		"This page is made of the code (`go test ./cli -run TestReference -update`), so it says what this version does. How a script is\n" +
		"written and run is in [sql.md](sql.md), how tables lie in Kafka in [sql-connectors.md](sql-connectors.md).\n\n" +
		"- [Functions](#functions)\n- [Connectors](#connectors)\n- [Formats](#formats)\n\n## Functions\n\n" +
		"Names of functions may be written in any case. Where nothing else is said, NULL as an argument gives NULL. The value of an example is written as JSON has\n" +
		"it, DECIMAL and times as text.\n")
	seen := map[string]bool{}
	for _, c := range chapters {
		var fs []*fn.Func
		for _, f := range fn.All() {
			if f.Group == c.group && f.Doc != "" {
				fs = append(fs, f)
			}
		}
		seen[c.group] = true
		if len(fs) == 0 {
			continue
		}
		slices.SortStableFunc(fs, func(x, y *fn.Func) int { return cmp.Compare(x.Name, y.Name) })
		p("\n### %s\n\n| function | what it gives | example |\n| --- | --- | --- |\n", c.title)
		for _, f := range fs {
			doc := f.Doc
			others := slices.DeleteFunc(slices.Clone(f.Aliases), func(a string) bool { return strings.Contains(f.Syntax, a) })
			if len(others) > 0 {
				doc += " Also " + code(strings.Join(others, ", ")) + "."
			}
			if f.Purity == fn.Volatile {
				doc += " It is not the same each time."
			}
			example := ""
			if len(f.Examples) > 0 {
				e := f.Examples[0]
				example = code(e.SQL) + " = " + code(e.Result)
			}
			p("| %s | %s | %s |\n", code(cmp.Or(f.Syntax, f.Name)), cell(doc), example)
		}
	}
	for _, f := range fn.All() {
		if f.Doc != "" && !seen[f.Group] {
			t.Errorf("function %s is of group %q, which is no chapter of the reference", f.Name, f.Group)
		}
	}
	p("\n## Connectors\n\nA table names its connector in `'connector' = '...'`.\n")
	all := (&Options{}).connectors(nil, true)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		spec := all[name].Spec()
		p("\n### Connector %s\n\n%s\n", name, spec.Doc)
		options(&b, "", spec.Options)
		if len(spec.Metadata) > 0 {
			p("\n| metadata | type | written | what it is |\n| --- | --- | --- | --- |\n")
			for _, m := range spec.Metadata {
				p("| %s | %s | %s | %s |\n", code(m.Key), code(m.Type.String()), map[bool]string{true: "yes", false: ""}[m.Writes], cell(m.Doc))
			}
		}
	}
	p("\n## Formats\n\nA table names its format in `'format' = '...'`, or in `'key.format'` and `'value.format'`; options of a format then have `key.` or `value.` in front.\n")
	fs := formats()
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		spec := fs[name]
		p("\n### Format %s\n\n%s\n", name, spec.Doc)
		if spec.Changes {
			p("\nMessages tell the kind of a row: a table of it has updates and deletions.\n")
		}
		options(&b, name+".", spec.Options)
	}
	return b.String()
}

// options is a table of options.
func options(b *strings.Builder, prefix string, list []format.Option) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n| option | value | default | what it does |\n| --- | --- | --- | --- |\n")
	kinds := map[format.OptionKind]string{format.Text: "text", format.Boolean: "true or false", format.Integer: "a whole number", format.Duration: "a duration, as 10 s", format.List: "texts with ; between them",
		format.Map: "key:value pairs with , between them"}
	for _, o := range list {
		value := kinds[o.Kind]
		if o.Kind == format.Enum {
			value = code(strings.Join(o.Values, ", "))
		}
		def := ""
		switch {
		case o.Required:
			def = "required"
		case o.Default != "":
			def = code(o.Default)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", code(prefix+o.Name), value, def, cell(o.Doc))
	}
}

func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(s)
}

// code is a text in the type of code, in a cell.
func code(s string) string {
	s = strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}

func TestEveryFunctionIsDocumented(t *testing.T) {
	for _, f := range fn.All() {
		if f.Doc == "" || f.Syntax == "" {
			t.Errorf("function %s has no doc or no syntax", f.Name)
		}
	}
	for name, c := range (&Options{}).connectors(nil, true) {
		for _, o := range c.Spec().Options {
			if o.Doc == "" {
				t.Errorf("option %s of connector %s has no doc", o.Name, name)
			}
		}
	}
	for name, f := range formats() {
		if f.Doc == "" {
			t.Errorf("format %s has no doc", name)
		}
		for _, o := range f.Options {
			if o.Doc == "" {
				t.Errorf("option %s of format %s has no doc", o.Name, name)
			}
		}
	}
}
