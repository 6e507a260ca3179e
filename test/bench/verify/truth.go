package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/test/bench/common"
)

// sums is what a key has: records and the sum of their amounts.
type sums struct{ n, cents int64 }

// slot is a key of the output: a user, and in w2 the start of the window.
type slot struct {
	user int
	win  int64
}

// truth compares the rows of an output topic, one after the other in the order of each key, with what the generated
// records make.
type truth struct {
	w     string // w0, w1 or w2
	at    map[slot]int32
	slots []slot
	want  []sums
	got   []sums
	rows  int64 // that there should be

	gotRows, stepsWrong, unreadable int64
	extra                           map[string]bool // keys that there should not be
}

// newTruth computes what the workload w makes of the next n records of g.
func newTruth(w string, g *common.Gen, n int64) *truth {
	t := &truth{w: w, at: map[slot]int32{}, extra: map[string]bool{}}
	for range n {
		r := g.Next()
		if w == "w0" && r.Cents < 100 {
			continue
		}
		k := slot{user: r.User}
		if w == "w2" {
			k.win = r.TS - r.TS%10_000
		}
		i, ok := t.at[k]
		if !ok {
			i = int32(len(t.slots))
			t.at[k] = i
			t.slots, t.want = append(t.slots, k), append(t.want, sums{})
		}
		t.want[i].n++
		t.want[i].cents += int64(r.Cents)
		t.rows++
	}
	if w == "w2" {
		t.rows = int64(len(t.slots))
	}
	t.got = make([]sums, len(t.slots))
	return t
}

// add takes the next row of the output. Rows of the records that close windows are no one's.
func (t *truth) add(value []byte) {
	name := common.Field(value, "user")
	if len(name) > 1 && name[0] == 'z' {
		return
	}
	t.gotRows++
	user, ok := common.UserOf(name)
	k := slot{user: user}
	var count, start int64 = 1, 0
	amount := "sum"
	if t.w == "w0" {
		amount = "amount"
	} else {
		count = t.number(value, "count")
	}
	if t.w == "w2" {
		start = t.number(value, "start")
		k.win = start
	}
	cents := t.cents(value, amount)
	i, known := t.at[k]
	if !ok || !known {
		t.extra[fmt.Sprintf("%s %d", name, start)] = true
		return
	}
	a := &t.got[i]
	switch t.w {
	case "w0":
		a.n++
		a.cents += cents
	case "w1":
		if count != a.n+1 {
			t.stepsWrong++
		}
		*a = sums{count, cents}
	case "w2":
		if a.n != 0 {
			t.stepsWrong++
		}
		*a = sums{count, cents}
	}
}

func (t *truth) number(value []byte, field string) int64 {
	n, err := strconv.ParseInt(string(common.Field(value, field)), 10, 64)
	if err != nil {
		t.unreadable++
	}
	return n
}

func (t *truth) cents(value []byte, field string) int64 {
	f, err := strconv.ParseFloat(string(common.Field(value, field)), 64)
	if err != nil {
		t.unreadable++
	}
	return int64(math.Round(f * 100))
}

// verdict says whether the rows so far are all rows, each once and right, and how many are not.
func (t *truth) verdict() (string, bool) {
	var b strings.Builder
	var wrong, missing, over, under, keys int64
	where := map[int64]int{}
	for i, want := range t.want {
		got := t.got[i]
		if got.n == 0 {
			missing++
			where[t.slots[i].win]++
			continue
		}
		keys++
		if got == want {
			continue
		}
		wrong++
		if got.n > want.n {
			over++
		} else if got.n < want.n {
			under++
		}
		if wrong <= 3 {
			fmt.Fprintf(&b, "  %s %d: got %d/%d, truth %d/%d\n", common.UserKey(t.slots[i].user), t.slots[i].win, got.n, got.cents, want.n, want.cents)
		}
	}
	if t.w == "w2" && len(where) > 0 && len(where) < 30 {
		for _, win := range slices.Sorted(maps.Keys(where)) {
			fmt.Fprintf(&b, "  missing of window %d: %d\n", win, where[win])
		}
	}
	ok := wrong+missing+int64(len(t.extra))+t.stepsWrong+t.unreadable == 0 && t.gotRows == t.rows
	fmt.Fprintf(&b, "verify %s %s: rows %d (truth %d), keys %d (truth %d): wrong %d (over %d, under %d), missing %d, extra %d, count steps not +1 or doubled %d",
		t.w, map[bool]string{true: "OK", false: "WRONG"}[ok], t.gotRows, t.rows, keys+int64(len(t.extra)), len(t.want), wrong, over, under, missing, len(t.extra), t.stepsWrong)
	if t.unreadable > 0 {
		fmt.Fprintf(&b, ", fields not read %d", t.unreadable)
	}
	return b.String(), ok
}
