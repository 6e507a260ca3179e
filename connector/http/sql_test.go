package http_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/filesystem"
	lookup "github.com/millrace-stream/millrace/connector/http"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/onbroker"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/sql"
)

// TestJoin enriches rows by a service that is busy now and then and does not know all keys.
func TestJoin(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		first := asked[r.URL.Path] == 1
		mu.Unlock()
		id := r.URL.Path[len("/names/"):]
		switch {
		case id == "3" && first:
			w.WriteHeader(503)
		case id == "4":
			w.WriteHeader(404)
		default:
			fmt.Fprintf(w, `{"name":"name %s"}`, id)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	dir := t.TempDir()
	plan := func() *task.Plan {
		formats := format.RowFormats{"json": format.JSONRows()}
		app, errs := sql.Script("join.sql", fmt.Sprintf(`
CREATE TABLE numbers (id BIGINT, proc AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '99');
CREATE TABLE names (id BIGINT, name STRING) WITH ('connector' = 'http', 'url' = '%s/names/{id}', 'retry.backoff' = '1 ms',
	'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '100');
CREATE TABLE files (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = '%s', 'format' = 'json');
INSERT INTO files SELECT n.id, m.name FROM numbers AS n LEFT JOIN names FOR SYSTEM_TIME AS OF n.proc AS m ON m.id = MOD(n.id, 10);`, s.URL, dir),
			sql.Options{Connectors: connector.Registry{"datagen": datagen.New(), "http": lookup.New(formats), "filesystem": filesystem.New(formats)}})
		if errs.Err() != nil {
			t.Fatal(errs.Err())
		}
		p, err := app.Topology.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var want []string
	for i := range 100 {
		if i%10 == 4 {
			want = append(want, fmt.Sprintf(`{"id":%d,"name":null}`, i))
		} else {
			want = append(want, fmt.Sprintf(`{"id":%d,"name":"name %d"}`, i, i%10))
		}
	}
	slices.Sort(want)
	r := onbroker.Run{Plan: plan, Members: 1, Compare: func(map[string][]record.Record) string {
		var got []string
		files, _ := filepath.Glob(filepath.Join(dir, "part-*"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err.Error()
			}
			got = append(got, strings.Split(strings.TrimSpace(string(b)), "\n")...)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Sprintf("%d rows: %.300q", len(got), got)
		}
		return ""
	}}
	if err := r.Do(); err != nil {
		t.Fatal(err)
	}
	if asked["/names/3"] < 2 {
		t.Error("the service was not busy")
	}
}
