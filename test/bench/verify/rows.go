package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/test/bench/common"
)

// What the workloads do.
const (
	hopSize, hopSlide     = 3_600_000, 60_000 // ms
	sessionGap            = 5_000             // ms; events that far apart are still in one session
	joinBefore, joinAfter = 1_000, 3_000      // ms by which the right row may be earlier and later, both inclusive
	cepWithin             = 10_000            // ms from the first event, exclusive
	cepA, cepB, cepC      = 4, 14, 19         // the kind of an event is by item % 100: A below 4, B below 14, C below 19
)

// row is one row of an output. A window has start, end, count and cents; a match the times of its first and last
// event, and count and cents of the B; a pair the times of both sides, and in count and cents their amounts.
type row struct {
	user         int
	start, end   int64
	count, cents int64
}

// rows compares the rows of an output topic, in any order, with those that the generated records make.
type rows struct {
	w     string
	limit int64         // rows that end later are not compared
	left  map[row]int32 // how many are to come; below zero: too many came
	want  int64

	got, beyond, unreadable int64
}

// newRows computes what the workload w makes of the next n records of g, and of right where it has two inputs.
func newRows(w string, g, right *common.Gen, n int64) *rows {
	t := &rows{w: w, limit: math.MaxInt64, left: map[row]int32{}}
	of := byUser(g, n)
	switch w {
	case "hop":
		t.limit = common.PaceOf(w).End(n)
		for _, rs := range of {
			t.hop(rs)
		}
	case "session":
		for _, rs := range of {
			t.session(rs)
		}
	case "cep":
		for _, rs := range of {
			t.cep(rs)
		}
	case "join":
		others := byUser(right, n)
		for user, rs := range of {
			t.join(rs, others[user])
		}
	default:
		common.Must(fmt.Errorf("verify: no workload %q", w))
	}
	return t
}

// byUser are n records of each user, by event time and those of one time in the order in which they were made.
func byUser(g *common.Gen, n int64) map[int][]common.Rec {
	of := map[int][]common.Rec{}
	for range n {
		r := g.Next()
		of[r.User] = append(of[r.User], r)
	}
	for _, rs := range of {
		slices.SortStableFunc(rs, func(a, b common.Rec) int { return int(a.TS - b.TS) })
	}
	return of
}

func (t *rows) expect(r row) {
	t.left[r]++
	t.want++
}

// hop: for each window, the records in it.
func (t *rows) hop(rs []common.Rec) {
	from, to := 0, 0
	var a row
	for end := (rs[0].TS/hopSlide + 1) * hopSlide; end <= t.limit && from < len(rs); end += hopSlide {
		for ; to < len(rs) && rs[to].TS < end; to++ {
			a.count, a.cents = a.count+1, a.cents+int64(rs[to].Cents)
		}
		for ; from < to && rs[from].TS < end-hopSize; from++ {
			a.count, a.cents = a.count-1, a.cents-int64(rs[from].Cents)
		}
		if a.count > 0 {
			t.expect(row{rs[0].User, end - hopSize, end, a.count, a.cents})
		}
	}
}

// session: records that are at most the gap apart belong together.
func (t *rows) session(rs []common.Rec) {
	for i := 0; i < len(rs); {
		s := row{user: rs[i].User, start: rs[i].TS}
		for first := true; i < len(rs) && (first || rs[i].TS <= s.end); i, first = i+1, false {
			s.end, s.count, s.cents = rs[i].TS+sessionGap, s.count+1, s.cents+int64(rs[i].Cents)
		}
		t.expect(s)
	}
}

// join: all pairs that are near enough.
func (t *rows) join(left, right []common.Rec) {
	from := 0
	for _, l := range left {
		for from < len(right) && right[from].TS < l.TS-joinBefore {
			from++
		}
		for _, r := range right[from:] {
			if r.TS > l.TS+joinAfter {
				break
			}
			t.expect(row{l.User, l.TS, r.TS, int64(l.Cents), int64(r.Cents)})
		}
	}
}

func kind(r common.Rec) byte {
	switch k := r.Item % 100; {
	case k < cepA:
		return 'A'
	case k < cepB:
		return 'B'
	case k < cepC:
		return 'C'
	}
	return '-'
}

// cep: A followed by one or more B followed by C within the time, each relaxed, without a skip strategy. For each A, each
// B behind it ends a run of all B so far, and each run makes a match with the first C behind it.
func (t *rows) cep(rs []common.Rec) {
	for i, a := range rs {
		if kind(a) != 'A' {
			continue
		}
		run := row{user: a.User, start: a.TS}
		var waiting []row
		for _, r := range rs[i+1:] {
			if r.TS >= a.TS+cepWithin {
				break
			}
			switch kind(r) {
			case 'B':
				run.count, run.cents = run.count+1, run.cents+int64(r.Cents)
				waiting = append(waiting, run)
			case 'C':
				for _, m := range waiting {
					m.end = r.TS
					t.expect(m)
				}
				waiting = waiting[:0]
			}
		}
	}
}

// add takes the next row of the output. Rows of the records that close windows are no one's.
func (t *rows) add(value []byte) {
	name := common.Field(value, "user")
	if len(name) > 1 && name[0] == 'z' {
		return
	}
	user, ok := common.UserOf(name)
	if !ok {
		t.unreadable++
	}
	r := row{user: user}
	if t.w == "join" {
		r.start, r.end = t.number(value, "ordered"), t.number(value, "paid")
		r.count, r.cents = t.cents(value, "amount"), t.cents(value, "payment")
	} else {
		r.start, r.end = t.number(value, "start"), t.number(value, "end")
		r.count, r.cents = t.number(value, "count"), t.cents(value, "sum")
	}
	if r.end > t.limit {
		t.beyond++
		return
	}
	t.got++
	t.left[r]--
}

func (t *rows) number(value []byte, field string) int64 {
	n, err := strconv.ParseInt(string(common.Field(value, field)), 10, 64)
	if err != nil {
		t.unreadable++
	}
	return n
}

func (t *rows) cents(value []byte, field string) int64 {
	f, err := strconv.ParseFloat(string(common.Field(value, field)), 64)
	if err != nil {
		t.unreadable++
	}
	return int64(math.Round(f * 100))
}

// verdict says whether the rows so far are all rows, each as often as it should be, and how many are not.
func (t *rows) verdict() (string, bool) {
	var b strings.Builder
	var missing, extra, shown int64
	for r, n := range t.left {
		if n > 0 {
			missing += int64(n)
		} else {
			extra -= int64(n)
		}
		if n != 0 && shown < 6 {
			shown++
			fmt.Fprintf(&b, "  %s of %s %d to %d: %d, %d\n", map[bool]string{true: "missing", false: "extra"}[n > 0], common.UserKey(r.user), r.start, r.end, r.count, r.cents)
		}
	}
	ok := missing+extra+t.unreadable == 0
	fmt.Fprintf(&b, "verify %s %s: rows %d (truth %d): missing %d, extra, wrong or doubled %d", t.w, map[bool]string{true: "OK", false: "WRONG"}[ok], t.got, t.want, missing, extra)
	if t.beyond > 0 {
		fmt.Fprintf(&b, ", of windows that end later %d", t.beyond)
	}
	if t.unreadable > 0 {
		fmt.Fprintf(&b, ", fields not read %d", t.unreadable)
	}
	return b.String(), ok
}
