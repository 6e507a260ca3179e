// Package parse reads SQL text into the tree of package ast: a lexer by hand, recursive descent for statements and
// queries, a precedence parser for expressions. It knows how statements are built and nothing of tables and types.
//
// Codes of its errors: E1001 something else was expected, E1002 a reserved word stands as a name, E1003 a text, a name or a
// comment has no end, E1004 a character that means nothing, E1005 a literal that cannot be read, E1006 a ${NAME} without a
// value, E1007 nested too deep or too long, E1008 a statement and E1009 a clause that is not supported, E1010 a clause
// stands twice.
package parse

import (
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// Env gives the value of a variable for ${NAME}, and whether there is one. It must answer the same each time it is asked.
// A nil Env knows none.
type Env func(name string) (string, bool)

// Script reads a file of statements, each ended by a semicolon (the last may go without). A statement that cannot be read
// is left out and reading goes on behind its semicolon, so there may be statements and errors both. The errors are in
// order of their places.
func Script(src *diag.Source, env Env) (*ast.Script, diag.List) {
	p := newParser(src, env)
	script := p.script()
	p.errs.Sort()
	return script, p.errs
}

// Expr reads one expression alone. It is nil if there are errors.
func Expr(src *diag.Source, env Env) (ast.Expr, diag.List) {
	return alone(newParser(src, env), (*parser).expr)
}

// Type reads one type alone. It is nil if there are errors.
func Type(src *diag.Source, env Env) (ast.Type, diag.List) {
	return alone(newParser(src, env), (*parser).typ)
}

func newParser(src *diag.Source, env Env) *parser {
	l := lex(src, env)
	return &parser{src: src, env: env, toks: l.toks, exps: l.exps, end: len(l.toks) - 1, errs: l.errs, wantPos: -1, beforePos: -1}
}

// alone reads one thing that is the whole text.
func alone[T any](p *parser, read func(*parser) T) (T, diag.List) {
	var none T
	x := read(p)
	if !p.failed && p.pos < p.end {
		p.unexpected("the end of the text")
	}
	p.errs.Sort()
	if len(p.errs) > 0 {
		return none, p.errs
	}
	return x, nil
}
