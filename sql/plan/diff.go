package plan

import (
	"fmt"
	"sort"
	"strings"

	"github.com/millrace-stream/millrace/sql/rel"
)

// Change is what becomes of the state of an operator when one script takes the place of another.
type Change struct {
	// Kind is kept, rebuilt, new or dropped.
	Kind string
	// Old and New are the operators' ids, "" where there is none; Text is the operator in EXPLAIN's words.
	Old, New, Text string
	// Why says what makes a rebuilt operator another one.
	Why string
}

// Diff compares the state of two plans: an operator of the same id keeps it. One without partner is set beside the one of
// its kind that is most like it, and the first difference is named.
func Diff(old, new *rel.Plan) []Change {
	was, now := stateful(old), stateful(new)
	var out []Change
	for _, id := range ids(now) {
		if _, ok := was[id]; ok {
			out = append(out, Change{Kind: "kept", Old: id, New: id, Text: now[id].String()})
			delete(was, id)
			delete(now, id)
		}
	}
	for _, id := range ids(now) {
		n := now[id]
		kind := id[:strings.IndexByte(id, '-')]
		best, score := "", -1
		for _, other := range ids(was) {
			if other[:strings.IndexByte(other, '-')] != kind {
				continue
			}
			if s := likeness(was[other].String(), n.String()); s > score {
				best, score = other, s
			}
		}
		if best == "" {
			out = append(out, Change{Kind: "new", New: id, Text: n.String()})
			continue
		}
		out = append(out, Change{Kind: "rebuilt", Old: best, New: id, Text: n.String(), Why: firstDifference(was[best], n)})
		delete(was, best)
	}
	for _, id := range ids(was) {
		out = append(out, Change{Kind: "dropped", Old: id, Text: was[id].String()})
	}
	return out
}

func ids(m map[string]rel.Physical) []string {
	out := make([]string, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	sort.Strings(out)
	return out
}

// stateful are the operators with state.
func stateful(p *rel.Plan) map[string]rel.Physical {
	out := map[string]rel.Physical{}
	var walk func(n rel.Physical)
	walk = func(n rel.Physical) {
		switch n.(type) {
		case *rel.PSink, *rel.PScan, *rel.PExchange, *rel.PLookupJoin:
		default:
			if id := n.Common().Id; id != "" {
				out[id] = n
			}
		}
		for _, in := range n.Common().In {
			walk(in)
		}
	}
	for _, s := range p.Sinks {
		walk(s)
	}
	return out
}

func likeness(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// firstDifference names the first operator from n downwards that reads differently.
func firstDifference(was, now rel.Physical) string {
	if a, b := was.String(), now.String(); a != b {
		return fmt.Sprintf("%s became %s", a, b)
	}
	x, y := was.Common().In, now.Common().In
	for i := range min(len(x), len(y)) {
		if d := firstDifference(x[i], y[i]); d != "" {
			return d
		}
	}
	if len(x) != len(y) {
		return fmt.Sprintf("%d inputs became %d", len(x), len(y))
	}
	return ""
}
