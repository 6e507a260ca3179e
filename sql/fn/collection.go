package fn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-stream/millrace/row"
)

// mapWriter packs MAP values; a key that is there already gets the new value.
type mapWriter struct {
	t          *row.Type
	key, value *row.Type
	build      *row.MapBuilder
	keys, vals []Const
}

func newMapWriter(t *row.Type) *mapWriter {
	k, v := mapTypes(t)
	return &mapWriter{t: t, key: k, value: v, build: row.NewMapBuilder(t)}
}

func (m *mapWriter) begin() { m.keys, m.vals = m.keys[:0], m.vals[:0] }

func (m *mapWriter) put(key, value Const) {
	for i, k := range m.keys {
		if equalValues(m.key, k, key, true) {
			m.vals[i] = value
			return
		}
	}
	m.keys, m.vals = append(m.keys, key), append(m.vals, value)
}

func (m *mapWriter) finish(env *Env) []byte {
	m.build.Reset()
	for i, k := range m.keys {
		addValue(&m.build.Keys, m.key, k)
		addValue(&m.build.Values, m.value, m.vals[i])
	}
	return env.Arena.Keep(m.build.Append(env.Arena.Begin()))
}

// elements is the elements of an array.
func elements(dst []Const, v row.ArrayView) []Const {
	for i := range v.Len() {
		dst = append(dst, element(v, i))
	}
	return dst
}

func has(t *row.Type, list []Const, v Const) bool {
	return slices.ContainsFunc(list, func(e Const) bool { return equalValues(t, e, v, true) })
}

// elemArgs resolves a function of an ARRAY and one value of its elements. res makes the result of the ARRAY type.
func elemArgs(res func(array *row.Type, null bool) *row.Type) func(args []Arg) (Resolved, error) {
	return func(args []Arg) (Resolved, error) {
		if len(args) != 2 || args[0].Type.Kind() != row.KindArray {
			return Resolved{}, mismatch(args, []sig{of(nil, wantArray, wantAny)})
		}
		t := args[0].Type
		e := LeastRestrictive(t.Elem(), args[1].Type)
		if e == nil {
			return Resolved{}, fmt.Errorf("%s is no element of %s", args[1].Type.Text(), t.Text())
		}
		a := row.Array(e).Nullable(t.IsNullable())
		return Resolved{[]*row.Type{a, like(e, args[1])}, res(a, t.IsNullable())}, nil
	}
}

// arrayArgs resolves a function of two or more ARRAYs.
func arrayArgs(least, most int) func(args []Arg) (Resolved, error) {
	return func(args []Arg) (Resolved, error) {
		for _, a := range args {
			if a.Type.Kind() != row.KindArray {
				return Resolved{}, mismatch(args, []sig{of(nil, wantArray, wantArray)})
			}
		}
		if len(args) < least || len(args) > most {
			return Resolved{}, mismatch(args, []sig{of(nil, wantArray, wantArray)})
		}
		t, types, err := oneType(args, least)
		if err != nil {
			return Resolved{}, err
		}
		return Resolved{types, t}, nil
	}
}

// arrayOp is a function of an array that gives an array; f appends the elements of the result to dst.
func arrayOp(f func(t *row.Type, dst, a, b []Const) []Const) func(*Env, []Code, *row.Type) (Code, error) {
	return func(env *Env, args []Code, t *row.Type) (Code, error) {
		w := newArrayWriter(t)
		elem := t.Elem()
		var a, b, out []Const
		one := args[0].Bytes
		types := []*row.Type{args[0].Type}
		two := constGet([]byte(nil))
		if len(args) > 1 {
			two = args[1].Bytes
			types = append(types, args[1].Type)
		}
		return BytesCode(t, lift2(one, two, func(x, y []byte) []byte {
			a, b = elements(a[:0], row.ViewArray(types[0], x)), b[:0]
			if len(types) > 1 {
				b = elements(b, row.ViewArray(types[1], y))
			}
			out = f(elem, out[:0], a, b)
			w.begin()
			for _, v := range out {
				w.add(v)
			}
			return w.finish(env)
		})), nil
	}
}

// arrayValue is a function of an array and one value of its elements; ok says whether the result is not NULL.
func arrayValue(f func(t *row.Type, dst, a []Const, v Const) []Const) func(*Env, []Code, *row.Type) (Code, error) {
	return func(env *Env, args []Code, t *row.Type) (Code, error) {
		w := newArrayWriter(t)
		from, elem := args[0].Type, t.Elem()
		value := args[1].Values()
		var a, out []Const
		return BytesCode(t, func(r *row.Row) ([]byte, bool) {
			x, ok := args[0].Bytes(r)
			if !ok {
				return nil, false
			}
			v := value(r)
			a = elements(a[:0], row.ViewArray(from, x))
			out = f(elem, out[:0], a, v)
			w.begin()
			for _, e := range out {
				w.add(e)
			}
			return w.finish(env), true
		}), nil
	}
}

func sameArray(a *row.Type, _ bool) *row.Type { return a }

func fixed(t *row.Type) func(a *row.Type, null bool) *row.Type {
	return func(_ *row.Type, null bool) *row.Type { return t.Nullable(null) }
}

func arrayExtreme(name string, sign int, doc string, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "collection", Syntax: name + "(array)", Doc: doc + " NULL elements do not count; NULL if there is no other.", Examples: examples,
		Resolve: sigs(of(func(args []Arg) *row.Type { return args[0].Type.Elem().Nullable(true) }, wantArray)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			order, err := orderOf(t)
			if err != nil {
				return Code{}, fmt.Errorf("values of type %s have no order", t.Text())
			}
			typ, get := args[0].Type, args[0].Bytes
			return CodeOf(t, func(r *row.Row) Const {
				b, ok := get(r)
				if !ok {
					return Const{Null: true}
				}
				v := row.ViewArray(typ, b)
				best := Const{Null: true}
				for i := range v.Len() {
					if e := element(v, i); !e.Null && (best.Null || order(e, best)*sign > 0) {
						best = e
					}
				}
				return best
			}), nil
		},
	}
}

func mapPart(name, doc string, res func(m *row.Type) *row.Type, part func(v row.MapView) []byte, example string) *Func {
	return &Func{
		Name: name, Group: "collection", Syntax: name + "(map)", Doc: doc,
		Resolve: sigs(of(func(args []Arg) *row.Type { return row.Array(res(args[0].Type)).Nullable(anyNullable(args)) }, wantMap)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			m := args[0].Type
			return BytesCode(t, lift1(args[0].Bytes, func(b []byte) []byte { return part(row.ViewMap(m, b)) })), nil
		},
		Examples: []Example{{name + "(MAP['k', 1])", "ARRAY<" + map[string]string{"MAP_KEYS": "CHAR(1) NOT NULL", "MAP_VALUES": "INT NOT NULL"}[name] + "> NOT NULL", example}},
	}
}

func rowOf(args []*row.Type) *row.Type {
	fields := make([]row.Field, len(args))
	for i, t := range args {
		fields[i] = row.Field{Name: fmt.Sprintf("EXPR$%d", i), Type: t.WithMark(row.NoMark)}
	}
	return row.RowOf(fields...).NotNull()
}

var constructionFuncs = []*Func{
	{
		Name: "ROW", Group: "construction", Nulls: Never, Syntax: "ROW(value, ..), (value, value, ..)", Doc: "A row of the values.",
		Resolve: func(args []Arg) (Resolved, error) {
			types := make([]*row.Type, len(args))
			for i, a := range args {
				if isNull(a) {
					return Resolved{}, errors.New("a bare NULL has no type: write CAST(NULL AS type)")
				}
				types[i] = a.Type
			}
			return Resolved{types, rowOf(types)}, nil
		},
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			gets := valuesOf(args)
			values := make([]Const, len(args))
			b := row.NewRowBuilder(t)
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				for i, get := range gets {
					values[i] = get(r)
				}
				return packRow(env, b, t, values), true
			}), nil
		},
		Examples: []Example{{"ROW(1, 'x')", "ROW<`EXPR$0` INT NOT NULL, `EXPR$1` CHAR(1) NOT NULL> NOT NULL", `[1, "x"]`}},
	},
	{
		Name: "ARRAY", Group: "construction", Nulls: Never, Syntax: "ARRAY[value, ..]", Doc: "An array of the values.",
		Resolve: func(args []Arg) (Resolved, error) {
			t, types, err := oneType(args, 1)
			if err != nil {
				return Resolved{}, err
			}
			return Resolved{types, row.Array(t).NotNull()}, nil
		},
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			gets := valuesOf(args)
			values := make([]Const, len(args))
			w := newArrayWriter(t)
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				for i, get := range gets {
					values[i] = get(r)
				}
				w.begin()
				for _, v := range values {
					w.add(v)
				}
				return w.finish(env), true
			}), nil
		},
		Examples: []Example{{"ARRAY[1, 2.5]", "ARRAY<DECIMAL(11, 1) NOT NULL> NOT NULL", `["1.0", "2.5"]`}},
	},
	{
		Name: "MAP", Group: "construction", Nulls: Never, Syntax: "MAP[key, value, ..]", Doc: "A map; of equal keys the last one counts.",
		Resolve: func(args []Arg) (Resolved, error) {
			if len(args) == 0 || len(args)%2 != 0 {
				return Resolved{}, fmt.Errorf("MAP takes keys and values in turn, not %d values", len(args))
			}
			var keys, values []Arg
			for i := 0; i < len(args); i += 2 {
				keys, values = append(keys, args[i]), append(values, args[i+1])
			}
			k, kt, err := oneType(keys, 1)
			if err != nil {
				return Resolved{}, err
			}
			v, vt, err := oneType(values, 1)
			if err != nil {
				return Resolved{}, err
			}
			types := make([]*row.Type, len(args))
			for i := range kt {
				types[2*i], types[2*i+1] = kt[i], vt[i]
			}
			return Resolved{types, row.Map(k, v).NotNull()}, nil
		},
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			gets := valuesOf(args)
			values := make([]Const, len(args))
			m := newMapWriter(t)
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				for i, get := range gets {
					values[i] = get(r)
				}
				m.begin()
				for i := 0; i < len(values); i += 2 {
					m.put(values[i], values[i+1])
				}
				return m.finish(env), true
			}), nil
		},
		Examples: []Example{{"MAP['a', 1, 'b', 2]", "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL", `[["a", 1], ["b", 2]]`}},
	},
}

var wantCollection = kindWant("ARRAY, MAP or MULTISET", row.Array(row.String()), func(k row.Kind) bool { return k.Nested() && k != row.KindRow })

var collectionFuncs = []*Func{
	{
		Name: "ITEM", Group: "collection", Nulls: Custom, Fails: true, Syntax: "array[index], map[key]", Doc: "The element at an index, counted from 1, or the value of a key; NULL if there is none.",
		Resolve: func(args []Arg) (Resolved, error) {
			if len(args) != 2 {
				return Resolved{}, mismatch(args, []sig{of(nil, wantArray, wantInteger), of(nil, wantMap, wantAny)})
			}
			t := args[0].Type
			switch t.Kind() {
			case row.KindArray:
				i := wantInteger.fit(args[1])
				if i == nil {
					break
				}
				if c := args[1].Const; c != nil && !c.Null && int64(c.X) < 1 {
					return Resolved{}, fmt.Errorf("the elements of an array are counted from 1, not from %d", int64(c.X))
				}
				return Resolved{[]*row.Type{t, i}, t.Elem().Nullable(true)}, nil
			case row.KindMap:
				l := LeastRestrictive(t.Key(), args[1].Type)
				if l == nil {
					break
				}
				return Resolved{[]*row.Type{t, like(t.Key().Nullable(true), args[1])}, t.Elem().Nullable(true)}, nil
			}
			return Resolved{}, mismatch(args, []sig{of(nil, wantArray, wantInteger), of(nil, wantMap, wantAny)})
		},
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			typ, get := args[0].Type, args[0].Bytes
			if typ.Kind() == row.KindArray {
				index := args[1].Int
				return CodeOf(t, func(r *row.Row) Const {
					b, ok1 := get(r)
					i, ok2 := index(r)
					if !ok1 || !ok2 {
						return Const{Null: true}
					}
					v := row.ViewArray(typ, b)
					if i < 1 || i > int64(v.Len()) {
						return Const{Null: true}
					}
					return element(v, int(i-1))
				}), nil
			}
			key := args[1].Values()
			return CodeOf(t, func(r *row.Row) Const {
				b, ok := get(r)
				if !ok {
					return Const{Null: true}
				}
				v := row.ViewMap(typ, b)
				i := findKey(v, key(r))
				if i < 0 {
					return Const{Null: true}
				}
				return element(v.Values(), i)
			}), nil
		},
		Examples: []Example{{"ARRAY[7, 8][2]", "INT", "8"}, {"MAP['a', 1]['b']", "INT", "null"}},
	},
	{
		Name: "CARDINALITY", Group: "collection", Syntax: "CARDINALITY(array or map)", Doc: "The number of elements or entries.",
		Resolve: sigs(of(strictly(row.Int()), wantCollection)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			typ := args[0].Type
			return IntCode(t, lift1(args[0].Bytes, func(b []byte) int64 {
				switch typ.Kind() {
				case row.KindArray:
					return int64(row.ViewArray(typ, b).Len())
				case row.KindMap:
					return int64(row.ViewMap(typ, b).Len())
				}
				v := row.ViewMap(typ, b)
				n := int64(0)
				for i := range v.Len() {
					n += int64(v.Values().Word(i))
				}
				return n
			})), nil
		},
		Examples: []Example{{"CARDINALITY(ARRAY[1, 2])", "INT NOT NULL", "2"}},
	},
	{
		Name: "ELEMENT", Group: "collection", Fails: true, Syntax: "ELEMENT(array)", Doc: "The one element of an array, NULL of an empty one. It fails if there are more.",
		Resolve: sigs(of(func(args []Arg) *row.Type {
			return args[0].Type.Elem().Nullable(args[0].Type.Elem().IsNullable() || anyNullable(args))
		}, wantArray)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at, typ, get := env.Place, args[0].Type, args[0].Bytes
			return CodeOf(t, func(r *row.Row) Const {
				b, ok := get(r)
				if !ok {
					return Const{Null: true}
				}
				v := row.ViewArray(typ, b)
				switch v.Len() {
				case 0:
					return Const{Null: true}
				case 1:
					return element(v, 0)
				}
				at.failf("ELEMENT: the array has %d elements, not one", v.Len())
				return Const{}
			}), nil
		},
		Examples: []Example{{"ELEMENT(ARRAY[7])", "INT NOT NULL", "7"}},
	},
	{
		Name: "ARRAY_CONTAINS", Group: "collection", Nulls: Custom, Syntax: "ARRAY_CONTAINS(array, value)", Doc: "Says whether the value, which may be NULL, is an element.",
		Resolve: elemArgs(fixed(row.Boolean())),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			typ, value := args[0].Type, args[1].Values()
			return BoolCode(t, func(r *row.Row) (bool, bool) {
				b, ok := args[0].Bytes(r)
				if !ok {
					return false, false
				}
				v, want := row.ViewArray(typ, b), value(r)
				for i := range v.Len() {
					if equalValues(typ.Elem(), element(v, i), want, true) {
						return true, true
					}
				}
				return false, true
			}), nil
		},
		Examples: []Example{{"ARRAY_CONTAINS(ARRAY[1, 2], 2)", "BOOLEAN NOT NULL", "true"}},
	},
	{
		Name: "ARRAY_POSITION", Group: "collection", Syntax: "ARRAY_POSITION(array, value)", Doc: "Where the value first is, counted from 1; 0 if it is no element, NULL if it is NULL.",
		Resolve: elemArgs(func(_ *row.Type, null bool) *row.Type { return row.Int().Nullable(null) }),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			typ, value := args[0].Type, args[1].Values()
			return IntCode(t, func(r *row.Row) (int64, bool) {
				b, ok := args[0].Bytes(r)
				want := value(r)
				if !ok || want.Null {
					return 0, false
				}
				v := row.ViewArray(typ, b)
				for i := range v.Len() {
					if equalValues(typ.Elem(), element(v, i), want, true) {
						return int64(i) + 1, true
					}
				}
				return 0, true
			}), nil
		},
		Examples: []Example{{"ARRAY_POSITION(ARRAY['a', 'b'], 'b')", "INT NOT NULL", "2"}},
	},
	{
		Name: "ARRAY_DISTINCT", Group: "collection", Syntax: "ARRAY_DISTINCT(array)", Doc: "The elements without those that came before.",
		Resolve: sigs(of(sameAs(0), wantArray)),
		Compile: arrayOp(func(t *row.Type, dst, a, _ []Const) []Const {
			for _, v := range a {
				if !has(t, dst, v) {
					dst = append(dst, v)
				}
			}
			return dst
		}),
		Examples: []Example{{"ARRAY_DISTINCT(ARRAY[1, 2, 1])", "ARRAY<INT NOT NULL> NOT NULL", "[1, 2]"}},
	},
	{
		Name: "ARRAY_REMOVE", Group: "collection", Nulls: Custom, Syntax: "ARRAY_REMOVE(array, value)", Doc: "The elements that are not the value.",
		Resolve: elemArgs(sameArray),
		Compile: arrayValue(func(t *row.Type, dst, a []Const, v Const) []Const {
			for _, e := range a {
				if !equalValues(t, e, v, true) {
					dst = append(dst, e)
				}
			}
			return dst
		}),
		Examples: []Example{{"ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", "ARRAY<INT NOT NULL> NOT NULL", "[2]"}},
	},
	{
		Name: "ARRAY_APPEND", Group: "collection", Nulls: Custom, Syntax: "ARRAY_APPEND(array, value)", Doc: "The array with the value at its end.",
		Resolve:  elemArgs(sameArray),
		Compile:  arrayValue(func(_ *row.Type, dst, a []Const, v Const) []Const { return append(append(dst, a...), v) }),
		Examples: []Example{{"ARRAY_APPEND(ARRAY[1], 2)", "ARRAY<INT NOT NULL> NOT NULL", "[1, 2]"}},
	},
	{
		Name: "ARRAY_PREPEND", Group: "collection", Nulls: Custom, Syntax: "ARRAY_PREPEND(array, value)", Doc: "The array with the value in front.",
		Resolve:  elemArgs(sameArray),
		Compile:  arrayValue(func(_ *row.Type, dst, a []Const, v Const) []Const { return append(append(dst, v), a...) }),
		Examples: []Example{{"ARRAY_PREPEND(ARRAY[1], 2)", "ARRAY<INT NOT NULL> NOT NULL", "[2, 1]"}},
	},
	{
		Name: "ARRAY_REVERSE", Group: "collection", Syntax: "ARRAY_REVERSE(array)", Doc: "The elements from the last to the first.",
		Resolve: sigs(of(sameAs(0), wantArray)),
		Compile: arrayOp(func(_ *row.Type, dst, a, _ []Const) []Const {
			dst = append(dst, a...)
			slices.Reverse(dst)
			return dst
		}),
		Examples: []Example{{"ARRAY_REVERSE(ARRAY[1, 2])", "ARRAY<INT NOT NULL> NOT NULL", "[2, 1]"}},
	},
	{
		Name: "ARRAY_SORT", Group: "collection", Syntax: "ARRAY_SORT(array [, ascending [, nulls first]])", Doc: "The elements in order; NULL comes first in ascending and last in descending order if not said otherwise.",
		Resolve: sigs(sig{args: []want{wantArray, wantBool, wantBool}, optional: 2, result: sameAs(0)}),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			order, err := orderOf(t.Elem())
			if err != nil {
				return Code{}, fmt.Errorf("values of type %s have no order", t.Elem().Text())
			}
			w := newArrayWriter(t)
			var list []Const
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				b, ok := args[0].Bytes(r)
				if !ok {
					return nil, false
				}
				up := true
				if len(args) > 1 {
					v := args[1].Cond(r)
					if v == Unknown {
						return nil, false
					}
					up = v == True
				}
				first := up
				if len(args) > 2 {
					v := args[2].Cond(r)
					if v == Unknown {
						return nil, false
					}
					first = v == True
				}
				list = elements(list[:0], row.ViewArray(args[0].Type, b))
				slices.SortStableFunc(list, func(x, y Const) int {
					switch {
					case x.Null && y.Null:
						return 0
					case x.Null == first && (x.Null || y.Null):
						return -1
					case x.Null || y.Null:
						return 1
					case up:
						return order(x, y)
					}
					return order(y, x)
				})
				w.begin()
				for _, v := range list {
					w.add(v)
				}
				return w.finish(env), true
			}), nil
		},
		Examples: []Example{{"ARRAY_SORT(ARRAY[3, 1, 2])", "ARRAY<INT NOT NULL> NOT NULL", "[1, 2, 3]"}},
	},
	{
		Name: "ARRAY_SLICE", Group: "collection", Syntax: "ARRAY_SLICE(array, start [, end])", Doc: "The elements from start to end, both included and counted from 1, from the end if negative.",
		Resolve: sigs(of(sameAs(0), wantArray, wantInt), of(sameAs(0), wantArray, wantInt, wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			w := newArrayWriter(t)
			end := constGet[int64](1 << 40)
			if len(args) > 2 {
				end = args[2].Int
			}
			typ := args[0].Type
			return BytesCode(t, lift3(args[0].Bytes, args[1].Int, end, func(b []byte, from, to int64) []byte {
				v := row.ViewArray(typ, b)
				n := int64(v.Len())
				place := func(i int64) int64 {
					switch {
					case i < 0:
						return i + n + 1
					case i == 0:
						return 1
					}
					return i
				}
				w.begin()
				for i := max(place(from), 1); i <= min(place(to), n); i++ {
					w.add(element(v, int(i-1)))
				}
				return w.finish(env)
			})), nil
		},
		Examples: []Example{{"ARRAY_SLICE(ARRAY[1, 2, 3], 2)", "ARRAY<INT NOT NULL> NOT NULL", "[2, 3]"}},
	},
	{
		Name: "ARRAY_UNION", Group: "collection", Syntax: "ARRAY_UNION(array1, array2)", Doc: "The elements of both, each once.", Resolve: arrayArgs(2, 2),
		Compile: arrayOp(func(t *row.Type, dst, a, b []Const) []Const {
			for _, list := range [][]Const{a, b} {
				for _, v := range list {
					if !has(t, dst, v) {
						dst = append(dst, v)
					}
				}
			}
			return dst
		}),
		Examples: []Example{{"ARRAY_UNION(ARRAY[1, 2], ARRAY[2, 3])", "ARRAY<INT NOT NULL> NOT NULL", "[1, 2, 3]"}},
	},
	{
		Name: "ARRAY_EXCEPT", Group: "collection", Syntax: "ARRAY_EXCEPT(array1, array2)", Doc: "The elements of the first that are not in the second, each once.", Resolve: arrayArgs(2, 2),
		Compile: arrayOp(func(t *row.Type, dst, a, b []Const) []Const {
			for _, v := range a {
				if !has(t, b, v) && !has(t, dst, v) {
					dst = append(dst, v)
				}
			}
			return dst
		}),
		Examples: []Example{{"ARRAY_EXCEPT(ARRAY[1, 2, 2], ARRAY[1])", "ARRAY<INT NOT NULL> NOT NULL", "[2]"}},
	},
	{
		Name: "ARRAY_INTERSECT", Group: "collection", Syntax: "ARRAY_INTERSECT(array1, array2)", Doc: "The elements that are in both, each once.", Resolve: arrayArgs(2, 2),
		Compile: arrayOp(func(t *row.Type, dst, a, b []Const) []Const {
			for _, v := range a {
				if has(t, b, v) && !has(t, dst, v) {
					dst = append(dst, v)
				}
			}
			return dst
		}),
		Examples: []Example{{"ARRAY_INTERSECT(ARRAY[1, 2, 2], ARRAY[2])", "ARRAY<INT NOT NULL> NOT NULL", "[2]"}},
	},
	{
		Name: "ARRAY_CONCAT", Group: "collection", Syntax: "ARRAY_CONCAT(array1, ..)", Doc: "The arrays behind each other.", Resolve: arrayArgs(1, 1<<20),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			w := newArrayWriter(t)
			var out []Const
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				out = out[:0]
				for _, a := range args {
					b, ok := a.Bytes(r)
					if !ok {
						return nil, false
					}
					out = elements(out, row.ViewArray(a.Type, b))
				}
				w.begin()
				for _, v := range out {
					w.add(v)
				}
				return w.finish(env), true
			}), nil
		},
		Examples: []Example{{"ARRAY_CONCAT(ARRAY[1], ARRAY[1])", "ARRAY<INT NOT NULL> NOT NULL", "[1, 1]"}},
	},
	arrayExtreme("ARRAY_MAX", 1, "The greatest element.", Example{"ARRAY_MAX(ARRAY[1, 3, 2])", "INT", "3"}),
	arrayExtreme("ARRAY_MIN", -1, "The least element.", Example{"ARRAY_MIN(ARRAY[1, 3, 2])", "INT", "1"}),
	{
		Name: "ARRAY_JOIN", Group: "collection", Syntax: "ARRAY_JOIN(array, separator [, text for NULL])", Doc: "The texts of an array with the separator between them, without the NULL ones if there is no text for them.",
		Resolve: sigs(of(strictly(row.String()), kindArrayOfText(), wantText), of(strictly(row.String()), kindArrayOfText(), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			other := constGet([]byte(nil))
			if len(args) > 2 {
				other = args[2].Bytes
			}
			typ := args[0].Type
			return BytesCode(t, lift3(args[0].Bytes, args[1].Bytes, other, func(b, sep, null []byte) []byte {
				v := row.ViewArray(typ, b)
				dst, first := env.Arena.Begin(), true
				for i := range v.Len() {
					if v.Null(i) && len(args) < 3 {
						continue
					}
					if !first {
						dst = append(dst, sep...)
					}
					first = false
					if v.Null(i) {
						dst = append(dst, null...)
					} else {
						dst = append(dst, v.Bytes(i)...)
					}
				}
				return env.Arena.Keep(dst)
			})), nil
		},
		Examples: []Example{{"ARRAY_JOIN(ARRAY['a', 'b'], ',')", "STRING NOT NULL", "a,b"}},
	},
	mapPart("MAP_KEYS", "The keys.", (*row.Type).Key, row.MapView.PackedKeys, `["k"]`),
	mapPart("MAP_VALUES", "The values, in the order of MAP_KEYS.", (*row.Type).Elem, row.MapView.PackedValues, "[1]"),
	{
		Name: "MAP_ENTRIES", Group: "collection", Syntax: "MAP_ENTRIES(map)", Doc: "The entries as rows of key and value.",
		Resolve: sigs(of(func(args []Arg) *row.Type {
			m := args[0].Type
			return row.Array(row.RowOf(row.Field{Name: "key", Type: m.Key()}, row.Field{Name: "value", Type: m.Elem()})).Nullable(anyNullable(args))
		}, wantMap)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			typ := args[0].Type
			w, b := newArrayWriter(t), row.NewRowBuilder(t.Elem())
			return BytesCode(t, lift1(args[0].Bytes, func(m []byte) []byte {
				v := row.ViewMap(typ, m)
				w.begin()
				for i := range v.Len() {
					w.add(Const{B: packRow(env, b, t.Elem(), []Const{element(v.Keys(), i), element(v.Values(), i)})})
				}
				return w.finish(env)
			})), nil
		},
		Examples: []Example{{"MAP_ENTRIES(MAP['k', 1])", "ARRAY<ROW<`key` CHAR(1) NOT NULL, `value` INT NOT NULL>> NOT NULL", `[["k", 1]]`}},
	},
	{
		Name: "MAP_FROM_ARRAYS", Group: "collection", Fails: true, Syntax: "MAP_FROM_ARRAYS(keys, values)", Doc: "The map of two arrays of one length; it fails if they are not.",
		Resolve: sigs(of(func(args []Arg) *row.Type {
			return row.Map(args[0].Type.Elem(), args[1].Type.Elem()).Nullable(anyNullable(args))
		}, wantArray, wantArray)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at, m := env.Place, newMapWriter(t)
			return BytesCode(t, lift2(args[0].Bytes, args[1].Bytes, func(k, v []byte) []byte {
				keys, values := row.ViewArray(args[0].Type, k), row.ViewArray(args[1].Type, v)
				if keys.Len() != values.Len() {
					at.failf("MAP_FROM_ARRAYS: %d keys and %d values", keys.Len(), values.Len())
				}
				m.begin()
				for i := range keys.Len() {
					m.put(element(keys, i), element(values, i))
				}
				return m.finish(env)
			})), nil
		},
		Examples: []Example{{"MAP_FROM_ARRAYS(ARRAY['a'], ARRAY[1])", "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL", `[["a", 1]]`}},
	},
	{
		Name: "MAP_UNION", Group: "collection", Syntax: "MAP_UNION(map1, ..)", Doc: "The entries of all; of equal keys the last one counts.",
		Resolve: func(args []Arg) (Resolved, error) {
			for _, a := range args {
				if a.Type.Kind() != row.KindMap {
					return Resolved{}, mismatch(args, []sig{of(nil, wantMap).many()})
				}
			}
			t, types, err := oneType(args, 1)
			if err != nil {
				return Resolved{}, err
			}
			return Resolved{types, t}, nil
		},
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			w := newMapWriter(t)
			return BytesCode(t, func(r *row.Row) ([]byte, bool) {
				w.begin()
				for _, a := range args {
					b, ok := a.Bytes(r)
					if !ok {
						return nil, false
					}
					v := row.ViewMap(a.Type, b)
					for i := range v.Len() {
						w.put(element(v.Keys(), i), element(v.Values(), i))
					}
				}
				return w.finish(env), true
			}), nil
		},
		Examples: []Example{{"MAP_UNION(MAP['a', 1], MAP['b', 2])", "MAP<CHAR(1) NOT NULL, INT NOT NULL> NOT NULL", `[["a", 1], ["b", 2]]`}},
	},
}

func kindArrayOfText() want {
	return want{"ARRAY of text", func(a Arg) *row.Type {
		if a.Type.Kind() != row.KindArray || !a.Type.Elem().Kind().Text() {
			return nil
		}
		return a.Type
	}}
}
