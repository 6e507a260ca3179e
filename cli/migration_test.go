package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n-- ([^\n]*)\n(.*?)```")

// TestMigrationPage plans the blocks of SQL in docs/coming-from-flink-sql.md: what the first line of each says must hold.
func TestMigrationPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "coming-from-flink-sql.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := sqlBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 10 || blocks[0][1] != "tables" {
		t.Fatalf("%d blocks, and the first one is %q", len(blocks), blocks[0][1])
	}
	for _, b := range blocks[1:] {
		name, body := b[1], b[2]
		_, errs := sql.Script("page", blocks[0][2]+body, sql.Options{Connectors: (&Options{}).connectors(nil, true), Env: environment(nil)})
		want, refused := strings.CutPrefix(name, "refused: ")
		switch {
		case !refused && name != "runs":
			t.Errorf("a block begins with %q, want runs or refused: ..", name)
		case !refused && errs.Err() != nil:
			t.Errorf("this should run:\n%s\n%s", body, errs.Text())
		case refused && (errs.Err() == nil || !strings.Contains(errs.Text(), want)):
			t.Errorf("this should be refused with %q:\n%s\n%s", want, body, errs.Text())
		}
	}
}
