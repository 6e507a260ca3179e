// Package docs holds the documentation; its tests check that what it shows is there.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// flat is a piece of code without its indentation.
func flat(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

var (
	goBlock   = regexp.MustCompile("(?s)```go\n(.*?)```")
	qualified = regexp.MustCompile("`(millrace|processor|window|cep|processortest|format)\\.([A-Z]\\w*)")
	member    = regexp.MustCompile("`\\.([A-Z]\\w*)`")
	// bare are names that operators.md uses without their package: `Name`, `Name(...)`.
	bare = regexp.MustCompile("`([A-Z]\\w*)(?:`|\\()")
)

// parse gives the Go files of a directory by name.
func parse(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, path := range paths {
		if files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestDocsShowCodeThatIsThere: what the pages show is in an example that is compiled, and what they name exists.
func TestDocsShowCodeThatIsThere(t *testing.T) {
	var examples strings.Builder
	names, err := filepath.Glob("../processor/example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		examples.WriteString(flat(string(b)) + "\n")
	}
	exported := map[string]bool{} // "package.Name"
	members := map[string]bool{}  // methods, fields, and names without their package
	for name, dir := range map[string]string{"millrace": "..", "processor": "../processor", "window": "../processor/window", "cep": "../processor/cep",
		"processortest": "../processor/processortest", "format": "../format"} {
		for path, file := range parse(t, dir) {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv != nil {
						members[d.Name.Name] = true
					} else {
						exported[name+"."+d.Name.Name] = true
						members[d.Name.Name] = true
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						switch s := s.(type) {
						case *ast.TypeSpec:
							exported[name+"."+s.Name.Name] = true
							members[s.Name.Name] = true
							if st, ok := s.Type.(*ast.StructType); ok {
								for _, f := range st.Fields.List {
									for _, n := range f.Names {
										members[n.Name] = true
									}
								}
							}
						case *ast.ValueSpec:
							for _, n := range s.Names {
								exported[name+"."+n.Name] = true
								members[n.Name] = true
							}
						}
					}
				}
			}
		}
	}
	for _, page := range []string{"coming-from-flink.md", "coming-from-kafka-streams.md", "operators.md"} {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		text := string(b)
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(examples.String(), flat(m[1])) {
				t.Errorf("%s: no example has this code:\n%s", page, m[1])
			}
		}
		found := 0
		for _, m := range qualified.FindAllStringSubmatch(text, -1) {
			found++
			if !exported[m[1]+"."+m[2]] {
				t.Errorf("%s: there is no %s.%s", page, m[1], m[2])
			}
		}
		for _, m := range member.FindAllStringSubmatch(text, -1) {
			if !members[m[1]] {
				t.Errorf("%s: no type has a method %s", page, m[1])
			}
		}
		if page == "operators.md" {
			for _, m := range bare.FindAllStringSubmatch(text, -1) {
				if !members[m[1]] && !strings.HasPrefix(m[1], "Example") {
					t.Errorf("%s: there is no %s", page, m[1])
				}
			}
		}
		if found == 0 {
			t.Errorf("%s: names nothing of the packages", page)
		}
	}
}
