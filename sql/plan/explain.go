package plan

import (
	"fmt"
	"strings"

	"github.com/millrace-stream/millrace/sql/rel"
)

// Explain is the text of EXPLAIN: Text and the warnings.
func Explain(p *rel.Plan) string {
	var b strings.Builder
	b.WriteString(Text(p))
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "warning %s: %s\n", w.Code, w.Message)
	}
	return b.String()
}

// Text is the operators of each sink, inputs below and indented, with what they give. A node that is read twice is written
// once.
func Text(p *rel.Plan) string {
	var b strings.Builder
	e := explainer{b: &b, numbers: map[rel.Physical]int{}, readers: map[rel.Physical]int{}}
	for _, s := range p.Sinks {
		e.count(s)
	}
	for i, s := range p.Sinks {
		if i > 0 {
			b.WriteByte('\n')
		}
		e.node(s, 0)
	}
	return b.String()
}

type explainer struct {
	b       *strings.Builder
	numbers map[rel.Physical]int
	readers map[rel.Physical]int
}

func (e *explainer) count(n rel.Physical) {
	if e.readers[n]++; e.readers[n] > 1 {
		return
	}
	for _, in := range n.Common().In {
		e.count(in)
	}
}

func (e *explainer) node(n rel.Physical, depth int) {
	indent := strings.Repeat("  ", depth)
	if k, ok := e.numbers[n]; ok {
		fmt.Fprintf(e.b, "%s(see %d)\n", indent, k)
		return
	}
	mark := ""
	if e.readers[n] > 1 {
		e.numbers[n] = len(e.numbers) + 1
		mark = fmt.Sprintf("%d: ", e.numbers[n])
	}
	c := n.Common()
	line := indent + mark + n.String()
	for _, s := range []string{c.Id, Kinds(c.Kinds, c.Form), keysText(c), dist(n)} {
		if s != "" {
			line += "   " + s
		}
	}
	e.b.WriteString(line + "\n")
	for _, in := range c.In {
		e.node(in, depth+1)
	}
}

// Kinds is what rows a node gives: I, U, D, and the form of updates.
func Kinds(k rel.Kinds, f rel.Form) string {
	var parts []string
	for i, s := range []string{"I", "U", "D"} {
		if k&(1<<i) != 0 {
			parts = append(parts, s)
		}
	}
	s := strings.Join(parts, ",")
	if k&rel.Updates != 0 && f == rel.After {
		s += " after"
	}
	return s
}

func keysText(c *rel.Phys) string {
	if len(c.UpsertKeys) == 0 || c.Kinds == rel.Inserts {
		return ""
	}
	var parts []string
	for _, k := range c.UpsertKeys {
		var names []string
		for _, col := range k {
			names = append(names, c.Out.Names[col])
		}
		parts = append(parts, "uk("+strings.Join(names, ", ")+")")
	}
	return strings.Join(parts, " ")
}

func dist(n rel.Physical) string {
	d := n.Common().Dist
	switch d.Kind {
	case rel.SingleDist:
		return "single"
	case rel.KeyedDist:
		var names []string
		for _, c := range d.Keys {
			names = append(names, n.Schema().Names[c])
		}
		by := ""
		if d.Topic != "" {
			by = " by the topic"
		}
		return "keyed(" + strings.Join(names, ", ") + ")" + by
	}
	return ""
}

// Operator is an operator of a plan for programs. One that is read twice stands twice.
type Operator struct {
	// ID names its state, "" if it has none.
	ID   string `json:"id,omitempty"`
	Text string `json:"text"`
	// Changes are the kinds of rows that it gives, as "I,U after"; Keys the columns that identify a row.
	Changes string     `json:"changes"`
	Keys    [][]string `json:"keys,omitempty"`
	// Distribution is how its rows lie on subtasks: "single", "keyed(a, b)" or "".
	Distribution string     `json:"distribution,omitempty"`
	Inputs       []Operator `json:"inputs,omitempty"`
}

// Operators are the sinks of a plan with what is below them.
func Operators(p *rel.Plan) []Operator {
	var out []Operator
	for _, s := range p.Sinks {
		out = append(out, operatorOf(s))
	}
	return out
}

func operatorOf(n rel.Physical) Operator {
	c := n.Common()
	o := Operator{ID: c.Id, Text: n.String(), Changes: Kinds(c.Kinds, c.Form), Distribution: dist(n)}
	if c.Kinds != rel.Inserts {
		for _, k := range c.UpsertKeys {
			var names []string
			for _, col := range k {
				names = append(names, c.Out.Names[col])
			}
			o.Keys = append(o.Keys, names)
		}
	}
	for _, in := range c.In {
		o.Inputs = append(o.Inputs, operatorOf(in))
	}
	return o
}
