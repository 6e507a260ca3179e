package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/test/bench/common"
)

const records = 5000

// output is what a right program makes of the first records of seed 1.
func output(w string) (rows []string) {
	g := common.NewGen(1, 50, false)
	at := map[slot]*sums{}
	var order []slot
	for range records {
		r := g.Next()
		k := slot{user: r.User}
		name := common.UserKey(r.User)
		if w == "w2" {
			k.win = r.TS / 10_000 * 10_000
		}
		if at[k] == nil {
			at[k] = &sums{}
			order = append(order, k)
		}
		a := at[k]
		a.n, a.cents = a.n+1, a.cents+int64(r.Cents)
		switch {
		case w == "w0" && r.Cents >= 100:
			rows = append(rows, string(r.JSON(0, 0)))
		case w == "w1":
			rows = append(rows, fmt.Sprintf(`{"user":"%s","count":%d,"sum":%g,"ts":1}`, name, a.n, float64(a.cents)/100))
		}
	}
	if w == "w2" {
		for _, k := range order {
			rows = append(rows, fmt.Sprintf(`{"user":"%s","start":%d,"end":%d,"count":%d,"sum":%g}`, common.UserKey(k.user), k.win, k.win+10_000, at[k].n, float64(at[k].cents)/100))
		}
	}
	return rows
}

func verdictOf(w string, rows []string) (string, bool) {
	t := newTruth(w, common.NewGen(1, 50, false), records)
	for _, r := range rows {
		t.add([]byte(r))
	}
	return t.verdict()
}

func TestVerdictAcceptsTheRightOutput(t *testing.T) {
	for _, w := range []string{"w0", "w1", "w2"} {
		rows := append(output(w), `{"user":"zz00001","item":"i0000","amount":5.00,"count":1,"start":0,"sum":5}`)
		text, ok := verdictOf(w, rows)
		if !ok || !strings.Contains(text, "verify "+w+" OK: rows ") {
			t.Errorf("%s: %s", w, text)
		}
	}
}

func TestVerdictRefusesEveryKindOfWrongOutput(t *testing.T) {
	for _, w := range []string{"w0", "w1", "w2"} {
		right := output(w)
		at := len(right) / 2
		change := func(old, with string) []string {
			rows := append([]string{}, right...)
			for i := at; ; i++ {
				if strings.Contains(rows[i], old) {
					rows[i] = strings.Replace(rows[i], old, with, 1)
					return rows
				}
			}
		}
		amount := map[bool]string{true: "amount", false: "sum"}[w == "w0"]
		cases := map[string][]string{
			"a row is missing":        append(append([]string{}, right[:at]...), right[at+1:]...),
			"the last row is missing": right[:len(right)-1],
			"nothing came":            nil,
			"a row came twice":        append(append([]string{}, right[:at+1]...), right[at:]...),
			"a sum is wrong":          change(`"`+amount+`":`, `"`+amount+`":1`),
			"a sum is not a number":   change(`"`+amount+`":`, `"`+amount+`":x`),
			"a user is not one":       change(`"user":"u0`, `"user":"q0`),
			"a user is not there":     change(`"user":"u0`, `"user":"u9`),
		}
		if w == "w1" { // the sums of rows before a user's last are not looked at; the counts are
			cases["a sum is wrong"] = change(`"count":`, `"count":1`)
		}
		if w == "w2" {
			cases["a window is not one"] = change(`"start":1`, `"start":2`)
		}
		for name, rows := range cases {
			if text, ok := verdictOf(w, rows); ok || !strings.Contains(text, "verify "+w+" WRONG: ") {
				t.Errorf("%s, %s: %s", w, name, text)
			}
		}
	}
}

func TestVerdictCountsMissingWindowsByTheirStart(t *testing.T) {
	rows := output("w2")
	text, _ := verdictOf("w2", rows[:len(rows)-2])
	if !strings.Contains(text, "missing 2, extra 0") || !strings.Contains(text, "  missing of window 1700000000000: 2") {
		t.Errorf("without two rows of the only window: %s", text)
	}
}
