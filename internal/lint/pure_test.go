package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure are the packages whose results depend on their input alone: time is told to them, and chance and goroutines
// belong to the engine. That is what makes a run repeatable from a seed.
var pure = []string{"internal/record", "statestore", "internal/task", "internal/nfa", "processor", "processor/cep"}

// clock are the names of package time that look at a clock or wait for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// impure are imports that bring chance or the outside world.
var impure = []string{"math/rand", "math/rand/v2", "crypto/rand", "net", "net/http", "os", "os/exec", "io/ioutil"}

func TestPurePackages(t *testing.T) {
	for _, dir := range pure {
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			found = true
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			problems, err := impurities(dir+"/"+filepath.Base(file), src)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Error(p)
			}
		}
		if !found {
			t.Errorf("pure package %s has no files: has it moved?", dir)
		}
	}
}

// impurities of a file, each with its line.
func impurities(name string, src []byte) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	var problems []string
	report := func(pos token.Pos, what string) {
		problems = append(problems, fmt.Sprintf("%s: %s: this package must depend on its input alone", fset.Position(pos), what))
	}
	clockName := "" // what the file calls package time
	for _, imp := range file.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		if slices.Contains(impure, path) {
			report(imp.Pos(), "imports "+path)
		}
		if path == "time" {
			clockName = "time"
			if imp.Name != nil {
				clockName = imp.Name.Name
			}
		}
	}
	if clockName == "." {
		report(file.Pos(), "imports time with a dot")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n.Pos(), "starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && clockName != "" && x.Name == clockName && slices.Contains(clock, n.Sel.Name) {
				report(n.Pos(), "uses time."+n.Sel.Name)
			}
		}
		return true
	})
	return problems, nil
}

func TestPureRulesCanFail(t *testing.T) {
	for src, want := range map[string]string{
		"package p\nimport \"time\"\nvar d = time.Second\nfunc f(t time.Time) bool { return t.After(t) }": "",
		"package p\nimport \"time\"\nvar now = time.Now()":                                                "p.go:3:11: uses time.Now",
		"package p\nimport \"time\"\nvar clock = time.Since":                                              "uses time.Since",
		"package p\nimport wall \"time\"\nfunc f() { wall.Sleep(1) }":                                     "uses time.Sleep",
		"package p\nimport . \"time\"\nvar now = Now()":                                                   "with a dot",
		"package p\nimport \"math/rand/v2\"\nvar n = rand.Int()":                                          "imports math/rand/v2",
		"package p\nimport \"os\"\nvar n = os.Args":                                                       "imports os",
		"package p\nfunc f() { func() { go f() }() }":                                                     "starts a goroutine",
	} {
		problems, err := impurities("p.go", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(problems, "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\ngot %q, want %q", src, got, want)
		}
	}
}
