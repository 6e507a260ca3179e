package fn

import "github.com/millrace-stream/millrace/row"

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
