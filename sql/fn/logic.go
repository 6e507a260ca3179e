package fn

import "github.com/millrace-stream/millrace/row"

var logicalFuncs = []*Func{
	{
		Name: "AND", Group: "logical", Nulls: Custom, Syntax: "condition1 AND condition2", Resolve: sigs(of(strictly(row.Boolean()), wantBool).many()),
		Doc: "FALSE if one side is FALSE, else UNKNOWN if one is UNKNOWN. The right side is not evaluated if the left one is FALSE.",
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			return CondCode(result, and(args)), nil
		},
		Examples: []Example{{"FALSE AND UNKNOWN", "BOOLEAN", "false"}, {"TRUE AND UNKNOWN", "BOOLEAN", "null"}},
	},
	{
		Name: "OR", Group: "logical", Nulls: Custom, Syntax: "condition1 OR condition2", Resolve: sigs(of(strictly(row.Boolean()), wantBool).many()),
		Doc: "TRUE if one side is TRUE, else UNKNOWN if one is UNKNOWN. The right side is not evaluated if the left one is TRUE.",
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			return CondCode(result, or(args)), nil
		},
		Examples: []Example{{"TRUE OR UNKNOWN", "BOOLEAN", "true"}},
	},
	{
		Name: "NOT", Group: "logical", Syntax: "NOT condition", Resolve: sigs(of(strictly(row.Boolean()), wantBool)),
		Doc: "TRUE becomes FALSE and FALSE becomes TRUE; UNKNOWN stays.",
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			f := args[0].Cond
			return CondCode(result, func(r *row.Row) Tri { return [3]Tri{True, False, Unknown}[f(r)] }), nil
		},
		Examples: []Example{{"NOT FALSE", "BOOLEAN NOT NULL", "true"}},
	},
	truthTest("IS TRUE", [3]Tri{False, True, False}),
	truthTest("IS NOT TRUE", [3]Tri{True, False, True}),
	truthTest("IS FALSE", [3]Tri{True, False, False}),
	truthTest("IS NOT FALSE", [3]Tri{False, True, True}),
	truthTest("IS UNKNOWN", [3]Tri{False, False, True}),
	truthTest("IS NOT UNKNOWN", [3]Tri{True, True, False}),
}

func truthTest(op string, table [3]Tri) *Func {
	res := "false"
	if table[Unknown] == True {
		res = "true"
	}
	return &Func{
		Name: op, Group: "logical", Nulls: Never, Syntax: "condition " + op, Resolve: sigs(of(notNull(row.Boolean()), wantBool)),
		Doc: "Says whether the condition has that truth value; never UNKNOWN.",
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			f := args[0].Cond
			return CondCode(result, func(r *row.Row) Tri { return table[f(r)] }), nil
		},
		Examples: []Example{{"UNKNOWN " + op, "BOOLEAN NOT NULL", res}},
	}
}

func and(args []Code) func(r *row.Row) Tri {
	if len(args) == 1 {
		return args[0].Cond
	}
	a, b := args[0].Cond, and(args[1:])
	return func(r *row.Row) Tri {
		x := a(r)
		if x == False {
			return False
		}
		y := b(r)
		if y == False || x == True {
			return y
		}
		return Unknown
	}
}

func or(args []Code) func(r *row.Row) Tri {
	if len(args) == 1 {
		return args[0].Cond
	}
	a, b := args[0].Cond, or(args[1:])
	return func(r *row.Row) Tri {
		x := a(r)
		if x == True {
			return True
		}
		y := b(r)
		if y == True || x == False {
			return y
		}
		return Unknown
	}
}
