package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/millrace-stream/millrace"

// pkg is what go list says of a package. Paths of our own packages have lost the module prefix; the root is ".".
type pkg struct {
	ImportPath   string
	Imports      []string // of the package itself
	TestImports  []string // of its tests in the package
	XTestImports []string // of its tests outside
}

// level gives every package a place; an import goes to a lower level only, so nothing can call back.
var level = map[string]int{
	// Values and leaves that everything may use.
	"internal/record":    0,
	"internal/failpoint": 0,
	"internal/near":      0,
	// What data and state look like.
	"format":                1,
	"format/internal/cells": 1,
	"format/formattest":     2,
	"format/registry":       2,
	"format/avro":           3,
	"format/protobuf":       3,
	"format/jsonschema":     3,
	"statestore":            1,
	// Where checkpoints are kept.
	"checkpoint/blob":          1,
	"checkpoint/blob/blobtest": 2,
	// Implementations and pure cores over these; the Kafka border.
	"statestore/memstore":    2,
	"statestore/pebblestore": 2,
	"statestore/storetest":   2,
	"internal/nfa":           2,
	"internal/task":          2,
	"processor/window":       2,
	"txn":                    2,
	"checkpoint":             2,
	// What users build programs with; what runs them. The two meet in the root package only.
	"processor":       3,
	"internal/engine": 3,
	// Around the engine.
	"processor/cep":           4,
	"internal/drive":          4,
	"internal/onbroker":       4,
	"internal/adhoc":          4,
	"internal/embedded":       1,
	"processor/processortest": 5,
	"internal/telemetry":      4,
	"configs":                 4,
	"internal/api":            4,
	"doctor":                  5,
	// Streaming SQL: values; text to tree; its meaning; the plan; what runs it.
	"row":               0,
	"sql/ast":           0,
	"sql/diag":          1,
	"sql/fn":            1,
	"sql/catalog":       2,
	"sql/parse":         2,
	"sql/rel":           3,
	"sql/bind":          4,
	"sql/plan":          4,
	"sql/expr":          4,
	"sql/exec":          5,
	"connector":         4,
	"sql/compile":       6,
	"sql":               7,
	"sql/sqltest":       8,
	"sql/sqltest/naive": 9,
	"sql/shell":         8,
	// The front doors.
	".":             6,
	"internal/demo": 7,
	"cli":           9,
	"cmd":           10,
	"examples":      10,
	// Helpers of tests and programs around them.
	"internal/testutil": 0,
	"internal/lint":     0,
	"docs":              9,
	"internal/sim":      9,
	"test":              10,
}

// families are the levels that hold for all packages below a path, too.
var families = []string{"cmd", "examples", "test", "internal/task", "connector"}

// home of an outside module: the packages that may import it, so that a change of it stays in one place.
type home struct {
	module   string
	packages []string
	tests    bool // the tests of every package may use it
	reason   string
}

var homes = []home{
	{"github.com/twmb/franz-go/pkg/kfake", []string{"internal/demo", "internal/embedded", "internal/onbroker", "examples", "test"}, true,
		"the fake broker serves the demo, run --embedded, examples and tests"},
	{"github.com/twmb/franz-go/pkg/sr", []string{"format/registry"}, true,
		"one client of schema registries, with one way to try again"},
	{"software.sslmate.com/src/go-pkcs12", []string{"format/registry"}, true,
		"stores of certificates are read where a table names them"},
	{"github.com/twmb/avro", []string{"format/avro"}, true,
		"one codec of Avro"},
	{"github.com/bufbuild/protocompile", []string{"format/protobuf"}, true,
		"one codec of Protobuf"},
	{"google.golang.org/protobuf", []string{"format/protobuf"}, true,
		"one codec of Protobuf"},
	{"github.com/twmb/franz-go", []string{"txn", "doctor", "internal/demo", "internal/embedded", "internal/onbroker", "examples", "test"}, true,
		"only the Kafka border speaks to brokers: the engine must stay free of a client's types"},
	{"github.com/klauspost/compress", []string{"checkpoint"}, true,
		"one format of savepoints knows how it is compressed"},
	{"github.com/cockroachdb/pebble", []string{"statestore/pebblestore"}, true,
		"the store is behind statestore's contract and can be exchanged"},
	{"github.com/aws/aws-sdk-go-v2", []string{"checkpoint/blob"}, false,
		"object storage is behind one interface: nothing else may depend on one vendor's client"},
	{"github.com/aws/smithy-go", []string{"checkpoint/blob"}, false,
		"object storage is behind one interface: nothing else may depend on one vendor's client"},
	{"golang.org/x/text", []string{"format"}, false,
		"one format knows character sets"},
	{"golang.org/x/time", []string{"checkpoint/blob"}, false,
		"one place bounds bandwidth"},
	{"github.com/spf13/viper", []string{"configs"}, false,
		"configuration comes in as one typed value"},
	{"github.com/spf13/cobra", []string{"cli", "."}, false,
		"commands are for programs, not for libraries"},
	{"github.com/spf13/pflag", []string{"cli", ".", "configs"}, true,
		"flags end where configuration begins"},
	{"go.yaml.in/yaml", []string{"configs"}, true,
		"configuration comes in as one typed value"},
	{"go.opentelemetry.io", []string{"internal/telemetry"}, false,
		"the engine counts, telemetry exports: no instrument is on the hot path"},
	{"github.com/prometheus", []string{"internal/telemetry"}, true,
		"the engine counts, telemetry exports"},
	{"github.com/go-json-experiment/json", []string{"format"}, true,
		"one JSON codec for messages"},
	{"github.com/reeflective/readline", []string{"sql/shell"}, false,
		"only the shell edits lines"},
	{"github.com/rivo/uniseg", []string{"sql/shell"}, false,
		"only the shell measures text on a terminal"},
	{"golang.org/x/term", []string{"cli"}, false,
		"only a program has a terminal"},
	{"golang.org/x/sys", []string{"statestore/pebblestore", "internal/engine", "cli"}, true,
		"system calls stay where resources are held"},
	{"go.uber.org/goleak", []string{"internal/testutil", "test"}, true,
		"a check of tests"},
	{"github.com/cockroachdb/datadriven", nil, true,
		"a script format of tests"},
}

// ban is an import between our own packages that the levels alone would allow.
type ban struct {
	from   []string // and all packages below
	to     []string // and all packages below
	reason string
}

var bans = []ban{
	{[]string{"internal/task", "processor", "statestore", "format"}, []string{"txn", "internal/engine"},
		"operators and state know no broker and no worker: that is why they can be simulated"},
	{[]string{"internal/engine", "txn"}, []string{"processor"},
		"the engine runs plans, whoever made them"},
	{[]string{"internal/engine"}, []string{"statestore/pebblestore", "statestore/memstore"},
		"the engine gets its store by option"},
	{[]string{"statestore"}, []string{"internal/task"},
		"state does not know who keeps it"},
}

func TestImports(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages only", len(pkgs))
	}
	for _, p := range check(pkgs) {
		t.Error(p)
	}
}

// list asks the go command for all packages of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the module's packages: %v", err)
	}
	var pkgs []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("read go list's answer: %v", err)
		}
		p.ImportPath = ours(p.ImportPath)
		for _, imports := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for i := range imports {
				imports[i] = ours(imports[i])
			}
		}
		pkgs = append(pkgs, p)
	}
}

// ours turns an import path of this module into a path from its root.
func ours(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// check returns what breaks a rule, one sentence each.
func check(pkgs []pkg) []string {
	own := map[string]bool{}
	for _, p := range pkgs {
		own[p.ImportPath] = true
	}
	problems := map[string]bool{} // a test package may repeat an import
	for _, p := range pkgs {
		mine, ok := levelOf(p.ImportPath)
		if !ok {
			problems[fmt.Sprintf("%s has no level: give it one in internal/lint", p.ImportPath)] = true
			continue
		}
		for _, imp := range p.Imports {
			if !own[imp] {
				if problem := checkHome(p.ImportPath, imp, false); problem != "" {
					problems[problem] = true
				}
				continue
			}
			if theirs, ok := levelOf(imp); ok && theirs >= mine && !sameFamily(p.ImportPath, imp) {
				problems[fmt.Sprintf("%s (level %d) imports %s (level %d): imports go to a lower level only", p.ImportPath, mine, imp, theirs)] = true
			}
			for _, b := range bans {
				if under(p.ImportPath, b.from...) && under(imp, b.to...) && !under(p.ImportPath, b.to...) {
					problems[fmt.Sprintf("%s imports %s: %s", p.ImportPath, imp, b.reason)] = true
				}
			}
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			if !own[imp] {
				if problem := checkHome(p.ImportPath, imp, true); problem != "" {
					problems[problem] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(problems))
}

// checkHome returns what is wrong with an import from outside the module, or "".
func checkHome(from, imp string, test bool) string {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return "" // the standard library, or C
	}
	for _, h := range homes {
		if !under(imp, h.module) {
			continue
		}
		if test && h.tests || under(from, h.packages...) {
			return ""
		}
		return fmt.Sprintf("%s imports %s, which belongs to %s: %s", from, imp, strings.Join(h.packages, ", "), h.reason)
	}
	return fmt.Sprintf("%s imports %s, a dependency without a home: name who may import it, and why, in internal/lint", from, imp)
}

// levelOf a package: its own, or that of its family.
func levelOf(path string) (int, bool) {
	if l, ok := level[path]; ok {
		return l, true
	}
	for _, f := range families {
		if under(path, f) {
			return level[f], true
		}
	}
	return 0, false
}

// sameFamily: commands share packages below cmd, tests below test.
func sameFamily(a, b string) bool {
	return slices.ContainsFunc(families, func(f string) bool { return under(a, f) && under(b, f) })
}

// under says whether path is one of the given paths or below one. The root package stands for itself.
func under(path string, paths ...string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

// TestImportRulesCanFail feeds each rule something that breaks it.
func TestImportRulesCanFail(t *testing.T) {
	for _, c := range []struct {
		pkgs []pkg
		want string // "" = fine
	}{
		{[]pkg{{ImportPath: "processor", Imports: []string{"internal/task", "time"}}, {ImportPath: "internal/task"}}, ""},
		{[]pkg{{ImportPath: "internal/task", Imports: []string{"processor"}}, {ImportPath: "processor"}}, "imports go to a lower level only"},
		{[]pkg{{ImportPath: "statestore", Imports: []string{"format"}}, {ImportPath: "format"}}, "imports go to a lower level only"},
		{[]pkg{{ImportPath: "processor", Imports: []string{"txn"}}, {ImportPath: "txn"}}, "know no broker"},
		{[]pkg{{ImportPath: "processor/processortest", Imports: []string{"internal/engine"}}, {ImportPath: "internal/engine"}}, "know no broker"},
		{[]pkg{{ImportPath: "internal/engine", Imports: []string{"statestore/pebblestore"}}, {ImportPath: "statestore/pebblestore"}}, "by option"},
		{[]pkg{{ImportPath: "newcomer"}}, "has no level"},
		{[]pkg{{ImportPath: "cmd/millrace", Imports: []string{"cmd/millrace/internal/x"}}, {ImportPath: "cmd/millrace/internal/x"}}, ""},
		{[]pkg{{ImportPath: "internal/engine", Imports: []string{"github.com/twmb/franz-go/pkg/kgo"}}}, "only the Kafka border"},
		{[]pkg{{ImportPath: "internal/engine", TestImports: []string{"github.com/twmb/franz-go/pkg/kgo"}}}, ""},
		{[]pkg{{ImportPath: "txn", Imports: []string{"github.com/twmb/franz-go/pkg/kfake"}}}, "fake broker"},
		{[]pkg{{ImportPath: "statestore", Imports: []string{"github.com/cockroachdb/pebble/v2"}}}, "can be exchanged"},
		{[]pkg{{ImportPath: "internal/engine", XTestImports: []string{"github.com/spf13/viper"}}}, "one typed value"},
		{[]pkg{{ImportPath: "txn", Imports: []string{"go.opentelemetry.io/otel/metric"}}}, "telemetry exports"},
		{[]pkg{{ImportPath: "txn", Imports: []string{"example.com/x"}}}, "without a home"},
		{[]pkg{{ImportPath: "txn", TestImports: []string{"example.com/x"}}}, "without a home"},
	} {
		got := strings.Join(check(c.pkgs), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: got %q, want %q", c.pkgs, got, c.want)
		}
	}
}
