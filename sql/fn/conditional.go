package fn

import (
	"errors"
	"fmt"

	"github.com/millrace-stream/millrace/row"
)

// CaseOf makes the closure of a searched CASE: the value of the first condition that is TRUE, of the last of values if none
// is. The values have the type t.
func CaseOf(conds, values []Code, t *row.Type) Code {
	if len(conds) == 0 {
		c := values[0]
		c.Type = t
		return c
	}
	switch ClassOf(t) {
	case ClassBool:
		n := len(conds)
		return CondCode(t, func(r *row.Row) Tri {
			for i := range n {
				if conds[i].Cond(r) == True {
					return values[i].Cond(r)
				}
			}
			return values[n].Cond(r)
		})
	case ClassInt:
		return Code{Type: t, Int: caseOf(conds, values, func(c Code) Get[int64] { return c.Int })}
	case ClassFloat:
		return Code{Type: t, Float: caseOf(conds, values, func(c Code) Get[float64] { return c.Float })}
	case ClassDec:
		return Code{Type: t, Dec: caseOf(conds, values, func(c Code) Get[row.Dec] { return c.Dec })}
	case ClassStamp:
		return StampCode(t, caseOf(conds, values, Code.Stamps))
	}
	return BytesCode(t, caseOf(conds, values, func(c Code) Get[[]byte] { return c.Bytes }))
}

func caseOf[T any](conds, values []Code, get func(Code) Get[T]) Get[T] {
	type branch struct {
		cond  func(r *row.Row) Tri
		value Get[T]
	}
	if len(conds) == 1 {
		cond, then, other := conds[0].Cond, get(values[0]), get(values[1])
		return func(r *row.Row) (T, bool) {
			if cond(r) == True {
				return then(r)
			}
			return other(r)
		}
	}
	branches := make([]branch, len(conds))
	for i := range conds {
		branches[i] = branch{conds[i].Cond, get(values[i])}
	}
	other := get(values[len(conds)])
	return func(r *row.Row) (T, bool) {
		for i := range branches {
			if branches[i].cond(r) == True {
				return branches[i].value(r)
			}
		}
		return other(r)
	}
}

// FieldOf is field i, from 0, of a ROW.
func FieldOf(a Code, i int, t *row.Type) Code {
	f, typ := a.Bytes, a.Type
	return CodeOf(t, func(r *row.Row) Const {
		b, ok := f(r)
		if !ok {
			return Const{Null: true}
		}
		return field(typ, row.ViewRow(typ, b), i)
	})
}

var conditionalFuncs = []*Func{
	{
		Name: "COALESCE", Group: "conditional", Nulls: Custom, Syntax: "COALESCE(value, value [, ..])", Doc: "The first value that is not NULL.",
		Resolve: func(args []Arg) (Resolved, error) {
			t, types, err := oneType(args, 1)
			if err != nil {
				return Resolved{}, err
			}
			null := true
			for _, a := range args {
				null = null && (a.Type.IsNullable() || isNull(a))
			}
			return Resolved{types, t.Nullable(null)}, nil
		},
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			conds := make([]Code, len(args)-1)
			for i := range conds {
				valid := args[i].Valid()
				conds[i] = CondCode(row.Boolean(), func(r *row.Row) Tri { return truth(valid(r)) })
			}
			return CaseOf(conds, args, t), nil
		},
		Examples: []Example{{"COALESCE(CAST(NULL AS INT), 2.5)", "DECIMAL(11, 1) NOT NULL", "2.5"}},
	},
	{
		Name: "IF", Group: "conditional", Nulls: Custom, Syntax: "IF(condition, value1, value2)", Doc: "value1 if the condition is TRUE, else value2.",
		Resolve: func(args []Arg) (Resolved, error) {
			if len(args) != 3 || wantBool.fit(args[0]) == nil {
				return Resolved{}, mismatch(args, []sig{of(nil, wantBool, wantAny, wantAny)})
			}
			t, types, err := oneType(args[1:], 2)
			if err != nil {
				return Resolved{}, err
			}
			return Resolved{append([]*row.Type{wantBool.fit(args[0])}, types...), t.Nullable(t.IsNullable() || args[0].Type.IsNullable())}, nil
		},
		Compile:  func(_ *Env, args []Code, t *row.Type) (Code, error) { return CaseOf(args[:1], args[1:], t), nil },
		Examples: []Example{{"IF(1 > 2, 'a', 'bc')", "VARCHAR(2) NOT NULL", "bc"}},
	},
	{
		Name: "IFNULL", Group: "conditional", Nulls: Custom, Syntax: "IFNULL(value, other)", Doc: "The value, or the other one if it is NULL.",
		Resolve: func(args []Arg) (Resolved, error) {
			t, types, err := oneType(args, 2)
			if err != nil {
				return Resolved{}, err
			}
			return Resolved{types, t.Nullable(types[0].IsNullable() && types[1].IsNullable())}, nil
		},
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			valid := args[0].Valid()
			return CaseOf([]Code{CondCode(row.Boolean(), func(r *row.Row) Tri { return truth(valid(r)) })}, args, t), nil
		},
		Examples: []Example{{"IFNULL(CAST(NULL AS INT), -1)", "INT NOT NULL", "-1"}},
	},
	{
		Name: "NULLIF", Group: "conditional", Nulls: Custom, Syntax: "NULLIF(value1, value2)", Doc: "NULL if the values are equal, else value1.",
		Resolve: func(args []Arg) (Resolved, error) {
			if len(args) != 2 || isNull(args[0]) {
				return Resolved{}, mismatch(args, []sig{of(nil, wantAny, wantAny)})
			}
			if _, err := comparable2("=", args[0], args[1]); err != nil {
				return Resolved{}, err
			}
			return Resolved{[]*row.Type{args[0].Type, args[1].Type}, args[0].Type.WithMark(row.NoMark).Nullable(true)}, nil
		},
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			types, err := comparable2("=", Arg{Type: args[0].Type}, Arg{Type: args[1].Type})
			if err != nil {
				return Code{}, err
			}
			var sides [2]Code
			for i := range sides {
				if sides[i], err = Cast(env, args[i], types[i], false); err != nil {
					return Code{}, err
				}
			}
			eq := CondCode(row.Boolean(), compare("=", sides[0], sides[1]))
			return CaseOf([]Code{eq}, []Code{ConstCode(t, Const{Null: true}), args[0]}, t), nil
		},
		Examples: []Example{{"NULLIF(1, 1)", "INT", "null"}},
	},
	extreme("GREATEST", 1, "The greatest of the values, NULL if one is NULL.", Example{"GREATEST(1, 5, 3)", "INT NOT NULL", "5"}),
	extreme("LEAST", -1, "The least of the values, NULL if one is NULL.", Example{"LEAST('b', 'a')", "CHAR(1) NOT NULL", "a"}),
	{
		Name: "IN", Group: "comparison", Nulls: Custom, Syntax: "value IN (value1 [, ..])",
		Doc: "TRUE if the value is equal to one of the list; UNKNOWN if not and one of them, or the value, is NULL.",
		Resolve: func(args []Arg) (Resolved, error) {
			_, types, err := oneType(args, 2)
			if err != nil {
				return Resolved{}, err
			}
			return Resolved{types, row.Boolean().Nullable(anyNullable(args))}, nil
		},
		Compile:  compileIn,
		Examples: []Example{{"3 IN (1, 2)", "BOOLEAN NOT NULL", "false"}},
	},
	{
		Name: "TYPEOF", Group: "conversion", Nulls: Never, Syntax: "TYPEOF(value)", Doc: "The type of the value.",
		Resolve: sigs(of(nullable(row.String()), wantAny), of(nullable(row.String()), wantAny, wantBool)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return ConstCode(t, Const{B: []byte(args[0].Type.WithMark(row.NoMark).String())}), nil
		},
		Examples: []Example{{"TYPEOF(1 + 1.5)", "STRING", "DECIMAL(12, 1) NOT NULL"}},
	},
}

// oneType finds the type that all arguments are cast to.
func oneType(args []Arg, least int) (t *row.Type, types []*row.Type, err error) {
	if len(args) < least {
		return nil, nil, mismatch(args, []sig{of(nil, wantAny).many()})
	}
	list := make([]*row.Type, len(args))
	for i, a := range args {
		list[i] = a.Type
	}
	t = LeastRestrictive(list...)
	if t == nil || t.Kind() == row.KindNull {
		return nil, nil, mismatchOne(args)
	}
	types = make([]*row.Type, len(args))
	for i, a := range args {
		types[i] = like(t, a)
	}
	return t, types, nil
}

func mismatchOne(args []Arg) error {
	return fmt.Errorf("the types (%s) have no common type; write a CAST", typeList(args))
}

func extreme(name string, sign int, doc string, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "conditional", Syntax: name + "(value, value [, ..])", Doc: doc, Examples: examples,
		Resolve: func(args []Arg) (Resolved, error) {
			for _, a := range args {
				if isNull(a) {
					return Resolved{}, errors.New("a bare NULL has no type: write CAST(NULL AS type)")
				}
			}
			t, types, err := oneType(args, 1)
			if err != nil {
				return Resolved{}, err
			}
			if _, err := orderOf(t); err != nil {
				return Resolved{}, fmt.Errorf("values of type %s have no order", t.Text())
			}
			return Resolved{types, t}, nil
		},
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			order, err := orderOf(t)
			if err != nil {
				return Code{}, err
			}
			gets := valuesOf(args)
			return CodeOf(t, func(r *row.Row) Const {
				best := gets[0](r)
				for _, get := range gets[1:] {
					v := get(r)
					if v.Null || best.Null {
						return Const{Null: true}
					}
					if order(v, best)*sign > 0 {
						best = v
					}
				}
				return best
			}), nil
		},
	}
}

func valuesOf(args []Code) []func(r *row.Row) Const {
	gets := make([]func(r *row.Row) Const, len(args))
	for i, a := range args {
		gets[i] = a.Values()
	}
	return gets
}

// compileIn looks integers and text up in a set if the list is constant.
func compileIn(_ *Env, args []Code, t *row.Type) (Code, error) {
	null, constant := false, true
	for _, a := range args[1:] {
		constant = constant && a.Const
		null = null || a.Const && !isConst(a)
	}
	otherwise := False
	if null {
		otherwise = Unknown
	}
	switch {
	case constant && args[0].Int != nil && args[0].Type.Kind() != row.KindNull:
		set := map[int64]bool{}
		for _, a := range args[1:] {
			if v, ok := a.Int(nil); ok {
				set[v] = true
			}
		}
		f := args[0].Int
		return CondCode(t, func(r *row.Row) Tri {
			v, ok := f(r)
			switch {
			case !ok:
				return Unknown
			case set[v]:
				return True
			}
			return otherwise
		}), nil
	case constant && args[0].Bytes != nil && !args[0].Type.Kind().Nested():
		set := map[string]bool{}
		for _, a := range args[1:] {
			if v, ok := a.Bytes(nil); ok {
				set[string(v)] = true
			}
		}
		f := args[0].Bytes
		return CondCode(t, func(r *row.Row) Tri {
			v, ok := f(r)
			switch {
			case !ok:
				return Unknown
			case set[string(v)]:
				return True
			}
			return otherwise
		}), nil
	}
	equal := make([]Code, len(args)-1)
	for i, a := range args[1:] {
		equal[i] = CondCode(t, compare("=", args[0], a))
	}
	return CondCode(t, or(equal)), nil
}
