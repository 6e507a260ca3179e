package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/test/bench/common"
)

func recs(times ...int64) (rs []common.Rec) {
	for i, at := range times {
		rs = append(rs, common.Rec{User: 7, Cents: 100 + i, TS: at})
	}
	return rs
}

// kinds are events 1 s apart: A, B, C, or anything else.
func kinds(s string) []common.Rec {
	var rs []common.Rec
	for i, k := range s {
		item := map[rune]int{'A': 103, 'B': 204, 'C': 318}[k]
		if item == 0 {
			item = 19
		}
		rs = append(rs, common.Rec{User: 7, Item: item, Cents: 1 << i, TS: int64(i) * 1000})
	}
	return rs
}

// expected are the rows that f asks for, as start, end, count, cents.
func expected(limit int64, f func(t *rows)) []string {
	t := &rows{limit: limit, left: map[row]int32{}}
	f(t)
	var out []string
	for r, n := range t.left {
		for range n {
			out = append(out, fmt.Sprint(r.start, r.end, r.count, r.cents))
		}
	}
	slices.Sort(out)
	return out
}

func TestTruthOfRows(t *testing.T) {
	same := func(name string, got []string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// A session takes what is exactly the gap apart, and nothing behind.
	same("session", expected(0, func(t *rows) { t.session(recs(1000, 6000, 11_001)) }), "1000 11000 2 201", "11001 16001 1 102")
	// A pair may be exactly 1 s earlier and 3 s later.
	same("join", expected(0, func(t *rows) { t.join(recs(5000), recs(3999, 4000, 8000, 8001)) }), "5000 4000 100 101", "5000 8000 100 102")
	// Each B behind an A ends a run, which goes with the first C behind it; a C that comes 10 s after the A does not belong to it.
	same("cep", expected(0, func(t *rows) { t.cep(kinds("CABxBCBC")) }),
		"1000 5000 1 4", "1000 5000 2 20", "1000 7000 3 84")
	same("cep, late C", expected(0, func(t *rows) { t.cep(kinds("ABAxxxxxxxC")) }))
	// An hour from each minute on; the window that ends behind the limit is not asked for.
	hop := expected(4*60_000, func(t *rows) { t.hop(recs(60_000, 119_999, 120_000)) })
	same("hop", hop, "-3480000 120000 2 201", "-3420000 180000 3 303", "-3360000 240000 3 303")
	hop = expected(3_720_000, func(t *rows) { t.hop(recs(60_000, 120_000)) })
	if len(hop) != 61 || !slices.Contains(hop, "60000 3660000 2 201") || !slices.Contains(hop, "120000 3720000 1 101") {
		t.Errorf("hop, one hour on: %d windows: %q", len(hop), hop)
	}
}

func TestVerdictOfRows(t *testing.T) {
	newOne := func() *rows {
		return newRows("session", common.NewGen(1, 50, false), common.NewGen(2, 50, false), 300)
	}
	var right []string
	for r := range newOne().left {
		right = append(right, fmt.Sprintf(`{"user":"%s","start":%d,"end":%d,"count":%d,"sum":%g}`, common.UserKey(r.user), r.start, r.end, r.count, float64(r.cents)/100))
	}
	verdict := func(rows ...string) (string, bool) {
		t := newOne()
		for _, r := range rows {
			t.add([]byte(r))
		}
		return t.verdict()
	}
	if text, ok := verdict(append(right, `{"user":"zz00001","start":1}`)...); !ok || !strings.Contains(text, "verify session OK: rows ") {
		t.Errorf("the right rows: %s", text)
	}
	for name, rows := range map[string][]string{
		"nothing came":          nil,
		"a row is missing":      right[1:],
		"a row came twice":      append(right[:1:1], right...),
		"a count is wrong":      append([]string{strings.Replace(right[0], `"count":`, `"count":1`, 1)}, right[1:]...),
		"a sum is not a number": append([]string{strings.Replace(right[0], `"sum":`, `"sum":x`, 1)}, right[1:]...),
		"a user is not one":     append([]string{strings.Replace(right[0], `"u`, `"q`, 1)}, right[1:]...),
	} {
		if text, ok := verdict(rows...); ok || !strings.Contains(text, "verify session WRONG: ") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
