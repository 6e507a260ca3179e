//go:build canary

package naive_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// canary is a bug that can be planted: in a file of the module, the text old becomes new, in which planted says whether it
// is the one that is wanted. old is there once, so that a canary that no longer fits is told.
type canary struct{ name, file, old, new string }

var canaries = []canary{
	{"no-update-before", "sql/exec/groupagg.go",
		"if o.n.Form == rel.Both {",
		"if o.n.Form == rel.Both && !planted(`no-update-before`) {"},
	{"extreme-stays", "sql/exec/groupagg.go", // MIN does not fall back
		"o.extreme(g, k, i, a.part(*s))",
		"if !planted(`extreme-stays`) { o.extreme(g, k, i, a.part(*s)) }"},
	{"equal-result-told", "sql/exec/groupagg.go",
		"case o.n.TTL == 0 && equalRows(o.out, o.before, out):",
		"case o.n.TTL == 0 && !planted(`equal-result-told`) && equalRows(o.out, o.before, out):"},
	{"padding-stays", "sql/exec/join.go", // the padded row of an outer join is not withdrawn
		"if adds && v.matches == 0 {",
		"if adds && v.matches == 0 && !planted(`padding-stays`) {"},
	{"window-freed-early", "sql/exec/windowing.go",
		"		o.main.Drop(end)\n	}\n	o.arm()\n	return nil\n}\n\n// entries are",
		"		o.main.Drop(end)\n		if next, ok := o.main.Next(); ok && planted(`window-freed-early`) { o.main.Drop(next) }\n	}\n	o.arm()\n	return nil\n}\n\n// entries are"},
	{"filter-below-watermark", "sql/compile/scan.go", // a row that a filter drops does not move the watermark
		"if w, ok := d.watermark(r); ok {",
		"if w, ok := d.watermark(r); ok && !(planted(`filter-below-watermark`) && r.Null(0)) {"},
	{"cache-after-abort", "statestore/buckets.go",
		"func (b *buckets[V]) rollback() {\n",
		"func (b *buckets[V]) rollback() {\n	if planted(`cache-after-abort`) { b.undo = b.undo[:0]; return }\n"},
	{"wrong-key-group", "sql/compile/operator.go", // of an exchange
		"return w.keys.Append(dst, r) }",
		"if planted(`wrong-key-group`) { dst = append(dst, byte(r.Kind)) }; return w.keys.Append(dst, r) }"},
}

// TestCanaries builds the random queries once with all bugs in, by an overlay of sources, and wants each found within the
// seeds of TestRandomQueries: a comparison that finds nothing proves nothing unless it finds these.
func TestCanaries(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	texts := map[string]string{}
	for _, c := range canaries {
		path := filepath.Join(root, filepath.FromSlash(c.file))
		if _, ok := texts[path]; !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(b)
		}
		if n := strings.Count(texts[path], c.old); n != 1 {
			t.Fatalf("canary %s: its text is %d times in %s, want once:\n%s", c.name, n, c.file, c.old)
		}
		texts[path] = strings.Replace(texts[path], c.old, c.new, 1)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	add := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay["Replace"])))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][path] = file
	}
	for path, text := range texts {
		add(path, text)
		folder := filepath.Dir(path)
		if helper := filepath.Join(folder, "planted.go"); overlay["Replace"][helper] == "" {
			add(helper, "package "+filepath.Base(folder)+"\n\nimport \"os\"\n\nvar canary = os.Getenv(\"MILLRACE_CANARY\")\n\nfunc planted(name string) bool { return canary == name }\n")
		}
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "canaries.test")
	if err := os.WriteFile(list, b, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-overlay", list, "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	found := regexp.MustCompile(`seed (\d+): (.*)`)
	for _, c := range append([]canary{{name: "none"}}, canaries...) {
		t.Run(c.name, func(t *testing.T) {
			run := exec.Command(bin, "-test.run", "TestRandomQueries")
			run.Env = append(os.Environ(), "MILLRACE_CANARY="+c.name)
			out, err := run.CombinedOutput()
			m := found.FindStringSubmatch(string(out))
			switch {
			case c.name == "none" && err != nil:
				t.Errorf("without a canary: %v\n%s", err, out)
			case c.name == "none":
			case err == nil || m == nil:
				t.Errorf("canary %s was not found: %v\n%s", c.name, err, out)
			default:
				t.Logf("| `%s` | %s | %s |", c.name, m[1], m[2])
			}
		})
	}
}
