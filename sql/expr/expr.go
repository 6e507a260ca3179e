// Package expr compiles bound expressions to closures over rows of one layout: a projection, a condition, or one value.
// Constant parts are evaluated once, here. What fails while running panics with a *fn.Failure that has the place of the
// expression.
package expr

import (
	"errors"
	"fmt"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Compile makes the closure of an expression over rows of a layout; layout may be nil for an expression without columns.
// The closure belongs to the subtask of env. An error is a *diag.Error with the place of what cannot be compiled.
func Compile(env *fn.Env, layout *row.Layout, e rel.Expr) (fn.Code, error) {
	c := compiler{env: env, layout: layout}
	code, err := c.compile(e)
	env.Place = fn.Place{}
	return code, err
}

// CompileAll compiles several expressions.
func CompileAll(env *fn.Env, layout *row.Layout, list []rel.Expr) ([]fn.Code, error) {
	codes := make([]fn.Code, len(list))
	for i, e := range list {
		var err error
		if codes[i], err = Compile(env, layout, e); err != nil {
			return nil, err
		}
	}
	return codes, nil
}

// Condition makes the closure of a BOOLEAN that says whether a row passes: TRUE does, FALSE and UNKNOWN do not.
func Condition(env *fn.Env, layout *row.Layout, e rel.Expr) (func(r *row.Row) bool, error) {
	code, err := Compile(env, layout, e)
	if err != nil {
		return nil, err
	}
	f := code.Cond
	if f == nil {
		return nil, failure(e.Where(), "E2301", fmt.Errorf("a condition must be BOOLEAN, not %s", e.Type()))
	}
	return func(r *row.Row) bool { return f(r) == fn.True }, nil
}

// Fold evaluates an expression without columns. ok is false if it depends on a row, on the time or on chance, and where it
// fails: then the failure is left to run time.
func Fold(env *fn.Env, e rel.Expr) (v fn.Const, ok bool, err error) {
	code, err := Compile(env, nil, e)
	if err != nil || !code.Const {
		return fn.Const{}, false, err
	}
	v, err = code.TryEval(nil)
	if err != nil {
		return fn.Const{}, false, nil
	}
	return v, true, nil
}

type compiler struct {
	env    *fn.Env
	layout *row.Layout
}

func failure(at rel.Place, code string, err error) error {
	var d *diag.Error
	if errors.As(err, &d) {
		return d
	}
	return diag.New(at.Source, at.Span, code, "%s", err)
}

func place(at rel.Place) fn.Place {
	p := fn.Place{Start: at.Span.Start, End: at.Span.End}
	if at.Source != nil {
		p.Source = at.Source
	}
	return p
}

func (c *compiler) compile(e rel.Expr) (fn.Code, error) {
	switch x := e.(type) {
	case *rel.Column:
		if x.Depth > 0 || c.layout == nil {
			return fn.Code{}, failure(x.Where(), "E3001", fmt.Errorf("column %q is not one of the rows at hand", x.Name))
		}
		p := c.layout.Place(x.Index)
		return fn.ColumnCode(x.Type(), x.Index, p.Index), nil
	case *rel.Literal:
		return fn.ConstCode(x.Type(), x.Const), nil
	case *rel.Call:
		return c.call(x)
	case *rel.Cast:
		a, err := c.compile(x.X)
		if err != nil {
			return a, err
		}
		c.env.Place = place(x.Where())
		code, err := fn.Cast(c.env, a, x.Type(), x.Try)
		return c.fold(x.Where(), code, err, a.Const)
	case *rel.Case:
		return c.cases(x)
	case *rel.Field:
		a, err := c.compile(x.X)
		if err != nil {
			return a, err
		}
		return c.fold(x.Where(), fn.FieldOf(a, x.Index, x.Type()), nil, a.Const)
	case *rel.Marker:
		return c.marker(x)
	}
	return fn.Code{}, failure(e.Where(), "E3002", fmt.Errorf("an expression of the kind %T cannot stand here", e))
}

func (c *compiler) marker(x *rel.Marker) (fn.Code, error) {
	env := c.env
	switch x.Kind {
	case rel.ProcTime:
		return fn.StampCode(x.Type(), func(*row.Row) (fn.Stamp, bool) { return fn.Stamp{Ms: env.Now}, true }), nil
	case rel.RowTimestamp:
		return fn.StampCode(x.Type(), func(r *row.Row) (fn.Stamp, bool) { return fn.Stamp{Ms: r.Time}, true }), nil
	}
	return fn.Code{}, failure(x.Where(), "E3003", errors.New("SOURCE_WATERMARK() can only be the watermark of a table"))
}

func (c *compiler) call(x *rel.Call) (fn.Code, error) {
	args := make([]fn.Code, len(x.Args))
	constant := x.Func.Purity == fn.Pure
	for i, a := range x.Args {
		var err error
		if args[i], err = c.compile(a); err != nil {
			return fn.Code{}, err
		}
		constant = constant && args[i].Const
	}
	if x.Func.Compile == nil {
		return fn.Code{}, failure(x.Where(), "E3004", fmt.Errorf("%s cannot be evaluated on one row", x.Func.Name))
	}
	c.env.Place = place(x.Where())
	code, err := x.Func.Compile(c.env, args, x.Type())
	return c.fold(x.Where(), code, err, constant)
}

// fold evaluates a constant; if that fails, the closure stays, to fail while running.
func (c *compiler) fold(at rel.Place, code fn.Code, err error, constant bool) (fn.Code, error) {
	if err != nil {
		return code, failure(at, "E3005", err)
	}
	if !constant || code.Const {
		return code, nil
	}
	if v, err := code.TryEval(nil); err == nil {
		folded := fn.ConstCode(code.Type, v)
		folded.JSON = code.JSON
		return folded, nil
	}
	return code, nil
}

func (c *compiler) cases(x *rel.Case) (fn.Code, error) {
	conds := make([]fn.Code, 0, len(x.Whens))
	thens := make([]fn.Code, 0, len(x.Whens)+1)
	for _, w := range x.Whens {
		cond, err := c.compile(w.Cond)
		if err != nil {
			return cond, err
		}
		if cond.Const && cond.Cond(nil) != fn.True {
			continue
		}
		then, err := c.compile(w.Then)
		if err != nil {
			return then, err
		}
		conds, thens = append(conds, cond), append(thens, then)
	}
	other, err := c.compile(x.Else)
	if err != nil {
		return other, err
	}
	for i, cond := range conds {
		if cond.Const { // TRUE: the branches behind it are never taken
			conds, thens, other = conds[:i], thens[:i], thens[i]
			break
		}
	}
	return fn.CaseOf(conds, append(thens, other), x.Type()), nil
}
