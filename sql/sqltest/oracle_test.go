package sqltest_test

import (
	"bufio"
	"bytes"
	_ "embed"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// notYet lists the cases that do not pass yet, as "mode folder/name". It only shrinks: a case that is on it and passes
// fails the test.
//
//go:embed notyet.txt
var notYet []byte

const casesDir = "../../test/oracle/cases"

func TestOracle(t *testing.T) {
	list := listed(sqltest.Modes...)
	paths, err := sqltest.Find(casesDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 279 {
		t.Fatalf("%d cases, want 279", len(paths))
	}
	for m, mode := range sqltest.Modes {
		t.Run(mode, func(t *testing.T) {
			passed, failed, left := 0, 0, 0
			for _, p := range paths {
				name := mode + " " + strings.TrimSuffix(filepath.ToSlash(must(filepath.Rel(casesDir, p))), ".case")
				seeds := []uint64{1}
				if sqltest.Mode(m) == sqltest.Parallel {
					seeds = []uint64{1, 2, 3}
				}
				diff, any := "", false
				for _, seed := range seeds {
					d, ran := sqltest.CheckFile(p, sqltest.RunOptions{Mode: sqltest.Mode(m), Seed: seed})
					any = any || ran
					if d != "" && diff == "" {
						diff = d
					}
				}
				switch {
				case diff == "" && list[name]:
					t.Errorf("%s passes: take it off the list in notyet.txt", name)
				case !any:
					left++
				case diff == "":
					passed++
				case list[name]:
					failed++
				default:
					t.Errorf("%s:\n%s", name, diff)
				}
				delete(list, name)
			}
			t.Logf("%d passed, %d not yet, %d left out", passed, failed, left)
		})
	}
	for name := range list {
		t.Errorf("notyet.txt has %s, and there is no such case", name)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestNexmark(t *testing.T) {
	list := listed("nexmark")
	cases, err := sqltest.Nexmark("../../test/oracle/nexmark")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			diff := sqltest.CheckQuery(c, sqltest.RunOptions{Mode: sqltest.Batch})
			switch name := "nexmark " + c.Name; {
			case diff == "" && list[name]:
				t.Errorf("%s passes: take it off the list in notyet.txt", name)
			case diff != "" && !list[name]:
				t.Error(diff)
			case diff != "":
				t.Logf("not yet: %s", diff)
			}
		})
	}
}

// listed is the part of the list whose first word is one of those given.
func listed(words ...string) map[string]bool {
	list := map[string]bool{}
	for s := bufio.NewScanner(bytes.NewReader(notYet)); s.Scan(); {
		l := strings.TrimSpace(s.Text())
		if word, _, ok := strings.Cut(l, " "); ok && slices.Contains(words, word) {
			list[l] = true
		}
	}
	return list
}
