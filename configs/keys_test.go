package configs

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

// TestTable checks what the rest of the package takes for granted.
func TestTable(t *testing.T) {
	names, envs := map[string]bool{}, map[string]string{}
	fields := map[uintptr]string{}
	var c Config
	for _, k := range keys() {
		if names[k.name] {
			t.Errorf("%s is in the table twice", k.name)
		}
		names[k.name] = true
		if !regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z]+)*(\.[a-z][a-z0-9]*(-[a-z]+)*)*$`).MatchString(k.name) {
			t.Errorf("%s: viper wants small letters", k.name)
		}
		for _, env := range []string{k.env(), k.env() + fileSuffix} {
			if was, taken := envs[env]; taken || env == envConfig || notOurs(env, "") {
				t.Errorf("%s and %q share the variable %s", k.name, was, env)
			}
			if env == k.env() || k.secret() {
				envs[env] = k.name
			}
		}
		at := reflect.ValueOf(k.at(&c)).Pointer()
		if was, taken := fields[at]; taken {
			t.Errorf("%s and %s write the same field", k.name, was)
		}
		fields[at] = k.name
		var fresh Config
		if err := set(k.at(&fresh), k.def); err != nil {
			t.Errorf("%s: default %q: %v", k.name, k.def, err)
		}
		if got := text(k.at(&fresh)); got != k.def {
			t.Errorf("%s: default %q is printed as %q", k.name, k.def, got)
		}
		if kind := k.kind(); (kind == "int" || kind == "size" || kind == "duration") && k.max == 0 && k.check == nil {
			t.Errorf("%s: a number without limits", k.name)
		}
		if !strings.HasSuffix(k.doc, ".") || len(k.doc) < 10 {
			t.Errorf("%s: doc %q is no sentence", k.name, k.doc)
		}
	}
	for _, section := range sections() {
		if names[section] {
			t.Errorf("%s is a key and a section", section)
		}
	}
	for from, to := range hints {
		if _, ok := find(to); !ok || names[from] {
			t.Errorf("hint %s: %s", from, to)
		}
	}
	// Every field of Config is in the table.
	if n := leaves(reflect.TypeOf(c)); n != len(fields) {
		t.Errorf("Config has %d fields, the table %d", n, len(fields))
	}
}

func leaves(t reflect.Type) int {
	if t.Kind() != reflect.Struct {
		return 1
	}
	n := 0
	for i := range t.NumField() {
		n += leaves(t.Field(i).Type)
	}
	return n
}

// TestDocs compares docs/configuration.md with the table: go test ./configs -run TestDocs -update writes it.
func TestDocs(t *testing.T) {
	path := filepath.Join("..", "docs", "configuration.md")
	want := markdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the table: go test ./configs -run TestDocs -update writes it", path)
	}
}

const docsHead = `# Configuration

<!-- Written from the table in configs/keys.go: go test ./configs -run TestDocs -update -->

A program reads four layers, each stronger than the one before:

1. defaults: those below, and those of the program itself (usually ` + "`app.id`" + `);
2. a YAML file, named by ` + "`--config`" + ` or ` + "`MILLRACE_CONFIG`" + `;
3. environment variables: ` + "`MILLRACE_`" + ` and the key in capitals, so ` + "`commit.max-latency`" + ` is ` + "`MILLRACE_COMMIT_MAX_LATENCY`" + `;
4. flags: ` + "`--commit.max-latency=200ms`" + `.

` + "`millrace config`" + ` (or ` + "`--help`" + ` of a program for the list of keys) checks all of them and prints every value with its origin:

    millrace config --config production.yaml --commit.max-latency=200ms
    millrace config -o yaml

A wrong configuration stops the start with exit code 2, and the message names every fault at once, with its origin. Unknown keys,
variables and flags are faults too. Left alone are ` + "`MILLRACE_FAILPOINT`" + `, ` + "`MILLRACE_SKIP_KAFKA`" + `, ` + "`MILLRACE_KAFKA_LOG`" + ` and ` + "`MILLRACE_TEST_*`" + ` (switches of
tests), and the variables that Kubernetes adds for services (` + "`*_SERVICE_HOST`" + `, ` + "`*_SERVICE_PORT`" + `, ` + "`*_PORT=tcp://...`" + `).

Examples: [minimal.yaml](../configs/examples/minimal.yaml), [tls-scram.yaml](../configs/examples/tls-scram.yaml),
[production.yaml](../configs/examples/production.yaml).

## Forms

| Form | Written as |
|---|---|
| duration | ` + "`250ms`, `1m30s`, `7d12h`" + `: Go's units and whole days |
| size | ` + "`65536`, `64KiB` (1024), `1GB` (1000)" + `: whole bytes |
| list | commas between the items, or a YAML list |
| bool | ` + "`true` or `false`; a flag alone is `true`" + ` |
| string | taken literally: in YAML ` + "`007`, `1e3` and `off`" + ` stay what they are |
| secret | as string, and masked wherever it is printed |

An empty variable or flag is an empty value, not a missing one.

## Secrets

A secret is kept byte for byte. It can come from a file, for example a mounted one, by the variable with ` + "`_FILE`" + ` behind its name:
` + "`MILLRACE_SECURITY_SASL_PASSWORD_FILE=/run/secrets/kafka`" + `. One line end at the end of the file is not part of the secret. Setting both
variables is a fault. In the YAML file single quotes keep everything but the single quote, which is doubled: ` + "`'##%''#a\"$@'`" + `. Nothing is
expanded in the file: ` + "`${NAME}`" + ` is plain text, in values and in comments. Flags can be seen by other users of the machine.
`

// markdown is docs/configuration.md.
func markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, g := range table {
		fmt.Fprintf(&b, "\n## %s\n\n| Key | Default | Form | Meaning |\n|---|---|---|---|\n", g.title)
		for _, k := range g.keys {
			def, form := "", k.kind()
			if k.def != "" {
				def = "`" + k.def + "`"
			}
			if k.oneOf != nil {
				form = "`" + strings.Join(k.oneOf, "`, `") + "`"
				form = strings.ReplaceAll(form, "``", "empty")
			}
			if k.zero {
				form += fmt.Sprintf(", 0 or at least %s", limit(k, k.min))
			} else if k.max != 0 && k.max != maxOf(k.at(new(Config))) && k.max != maxWireTime {
				form += fmt.Sprintf(", %s to %s", limit(k, k.min), limit(k, k.max))
			} else if k.min != 0 {
				form += fmt.Sprintf(", at least %s", limit(k, k.min))
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, def, form, k.doc)
		}
	}
	return b.String()
}

func limit(k key, n int64) string {
	switch k.kind() {
	case "duration":
		return FormatDuration(time.Duration(n))
	case "size":
		return FormatSize(n)
	}
	return fmt.Sprint(n)
}

// TestExamples loads every example file.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, path := range files {
		l := load(t, LoadOptions{File: path})
		if l.Config.App.ID != "order-counts" {
			t.Errorf("%s: app.id %q", path, l.Config.App.ID)
		}
	}
	scram := load(t, LoadOptions{File: "examples/tls-scram.yaml"}).Config
	if s := scram.Security; s.SASL.Password.Reveal() != evil || s.SASL.Mechanism != "SCRAM-SHA-512" || !s.TLS.Enabled || len(scram.Brokers) != 3 {
		t.Errorf("tls-scram.yaml: %+v, password %q", s, s.SASL.Password.Reveal())
	}
	production := load(t, LoadOptions{File: "examples/production.yaml"}).Config
	if !slices.Equal(production.Brokers, []string{"kafka-1:9092", "kafka-2:9092", "kafka-3:9092"}) || production.Memory.Limit != 0 ||
		production.Internal.ReplicationFactor != 3 || production.State.WriteBehind.Bytes != 32<<20 || production.Group.LeaveOnStop {
		t.Errorf("production.yaml: %+v", production)
	}
}

// TestLimitsOfTheWire: the wire has milliseconds as int32.
func TestLimitsOfTheWire(t *testing.T) {
	if got := time.Duration(maxWireTime).Milliseconds(); got != math.MaxInt32 {
		t.Errorf("%d ms", got)
	}
	for _, k := range keys() {
		if k.kind() == "duration" && k.max > maxWireTime {
			t.Errorf("%s may be %s", k.name, limit(k, k.max))
		}
	}
}
