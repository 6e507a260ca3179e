package naive_test

import (
	"reflect"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/sqltest/naive"
)

// kindOf is what shrinking keeps of a fault: its first two words.
func kindOf(fault string) string {
	words := strings.Fields(fault)
	return strings.Join(words[:min(2, len(words))], " ")
}

// shrink makes a pair smaller as long as it has a fault of the same kind: rows, then clauses of the query, then columns.
func shrink(p *pair, v verdict) (*pair, verdict) {
	kind := kindOf(v.fault)
	tries := 0
	take := func(c *pair) bool {
		if tries++; tries > 3000 {
			return false
		}
		if !c.printable() {
			return false
		}
		w := c.check()
		if w.fault == "" || kindOf(w.fault) != kind {
			return false
		}
		p, v = c, w
		return true
	}
	for again := true; again; {
		again = shrinkRows(&p, take)
		again = shrinkQuery(&p, take) || again
		again = shrinkTables(&p, take) || again
	}
	return p, v
}

// printable says that the query still is one.
func (p *pair) printable() (yes bool) {
	defer func() { yes = recover() == nil }()
	p.text()
	return
}

// with is a copy of the pair with other tables.
func (p *pair) with(tables []*table) *pair {
	c := *p
	c.tables = tables
	return &c
}

// only is a pair with the lines that keep says, numbered anew.
func (p *pair) only(keep func(line int) bool) *pair {
	tables := make([]*table, len(p.tables))
	var lines []int
	for i, t := range p.tables {
		c := *t
		c.events = slices.DeleteFunc(slices.Clone(t.events), func(ev naive.Event) bool { return !keep(ev.Line) })
		for _, ev := range c.events {
			lines = append(lines, ev.Line)
		}
		tables[i] = &c
	}
	slices.Sort(lines)
	for _, t := range tables {
		for i := range t.events {
			n, _ := slices.BinarySearch(lines, t.events[i].Line)
			t.events[i].Line = n + 1
		}
	}
	return p.with(tables)
}

// sound says that only rows are withdrawn that are there.
func (p *pair) sound() bool {
	for _, t := range p.tables {
		if t.mode != "all" {
			continue
		}
		live := bag{}
		for _, ev := range t.events {
			k := jsonRow(t, ev)
			if !ev.Kind.Adds() && live[k] == 0 {
				return false
			} else if ev.Kind.Adds() {
				live.add(k, 1)
			} else {
				live.add(k, -1)
			}
		}
	}
	return true
}

func jsonRow(t *table, ev naive.Event) string {
	var b strings.Builder
	for i, c := range t.columns {
		b.WriteString(jsonOf(c, ev.Values[i]) + ",")
	}
	return b.String()
}

func shrinkRows(p **pair, take func(*pair) bool) (some bool) {
	n := 0
	for _, t := range (*p).tables {
		n += len(t.events)
	}
	for size := max(1, n/2); size >= 1; size /= 2 {
		for at := 1; at <= n; {
			c := (*p).only(func(line int) bool { return line < at || line >= at+size })
			if c.sound() && take(c) {
				some = true
				n -= size
				continue
			}
			at++
		}
	}
	// A row and its withdrawal.
	for a := 1; a <= n; a++ {
		for b := a + 1; b <= n; b++ {
			c := (*p).only(func(line int) bool { return line != a && line != b })
			if c.sound() && take(c) {
				some = true
				n -= 2
			}
		}
	}
	return some
}

// shrinkQuery tries smaller trees: each part is left out, or replaced by a part of it of the same kind.
func shrinkQuery(p **pair, take func(*pair) bool) (some bool) {
	for again := true; again; {
		again = false
		for _, q := range smaller((*p).query) {
			c := *(*p)
			c.query = q
			if take(&c) {
				again, some = true, true
				break
			}
		}
	}
	return some
}

var (
	exprType  = reflect.TypeFor[ast.Expr]()
	queryType = reflect.TypeFor[ast.Query]()
	refType   = reflect.TypeFor[ast.TableRef]()
)

// smaller lists the trees that lack one part of q, or have it replaced by one of its parts. The trees share what is equal.
func smaller(q ast.Query) (out []ast.Query) {
	for _, v := range variants(reflect.ValueOf(&q).Elem()) {
		out = append(out, v.Interface().(ast.Query))
	}
	return out
}

// variants lists values that may stand in the place of v.
func variants(v reflect.Value) (out []reflect.Value) {
	t := v.Type()
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		if t == exprType || t == queryType || t == refType {
			out = append(out, parts(v.Elem().Elem(), t)...)
		}
		if t == exprType || v.Kind() == reflect.Pointer {
			out = append(out, reflect.Zero(t))
		}
		inner := v.Elem()
		if v.Kind() == reflect.Interface {
			inner = v.Elem().Elem()
		}
		for _, x := range variants(inner) {
			ptr := reflect.New(x.Type())
			ptr.Elem().Set(x)
			out = append(out, ptr)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if v.Len() > 1 || t.Elem() == exprType {
				without := reflect.MakeSlice(t, 0, v.Len())
				without = reflect.AppendSlice(without, v.Slice(0, i))
				out = append(out, reflect.AppendSlice(without, v.Slice(i+1, v.Len())))
			}
		}
		for i := range v.Len() {
			for _, x := range variants(v.Index(i)) {
				c := reflect.MakeSlice(t, v.Len(), v.Len())
				reflect.Copy(c, v)
				c.Index(i).Set(x)
				out = append(out, c)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := t.Field(i).Name
			if name == "Span" || name == "OpSpan" || name == "Name" || name == "Alias" || !t.Field(i).IsExported() {
				continue
			}
			for _, x := range variants(v.Field(i)) {
				c := reflect.New(t).Elem()
				c.Set(v)
				c.Field(i).Set(x)
				out = append(out, c)
			}
		}
	case reflect.Bool:
		if v.Bool() {
			out = append(out, reflect.ValueOf(false).Convert(t))
		}
	}
	return out
}

// parts are the values of an interface type right below a struct, also behind one other interface.
func parts(v reflect.Value, t reflect.Type) (out []reflect.Value) {
	var visit func(f reflect.Value, deep int)
	visit = func(f reflect.Value, deep int) {
		switch f.Kind() {
		case reflect.Interface:
			if f.IsNil() {
				return
			}
			if f.Type() == t {
				out = append(out, f)
			} else if deep > 0 {
				visit(f.Elem().Elem(), deep-1)
			}
		case reflect.Slice:
			for i := range f.Len() {
				visit(f.Index(i), deep)
			}
		case reflect.Struct:
			for i := range f.NumField() {
				visit(f.Field(i), deep)
			}
		}
	}
	visit(v, 1)
	return out
}

// shrinkTables drops tables and columns that the query does not need.
func shrinkTables(p **pair, take func(*pair) bool) (some bool) {
	for i := 0; i < len((*p).tables); i++ {
		c := (*p).with(slices.Delete(slices.Clone((*p).tables), i, i+1))
		if c = c.only(func(int) bool { return true }); take(c) {
			some = true
			i--
		}
	}
	for i := range (*p).tables {
		for k := (*p).tables[i].key; k < len((*p).tables[i].columns); k++ {
			t := *(*p).tables[i]
			if k == t.time {
				continue
			}
			t.columns = slices.Delete(slices.Clone(t.columns), k, k+1)
			if t.time > k {
				t.time--
			}
			t.events = slices.Clone(t.events)
			for n := range t.events {
				t.events[n].Values = slices.Delete(slices.Clone(t.events[n].Values), k, k+1)
			}
			tables := slices.Clone((*p).tables)
			tables[i] = &t
			if c := (*p).with(tables); c.sound() && take(c) {
				some = true
				k--
			}
		}
	}
	return some
}
