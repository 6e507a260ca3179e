package shell

import (
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
)

// A Candidate is what a word may become.
type Candidate struct{ Text, What string }

// Complete tells what the word at the end of a text may become, and how many bytes of the text that word is.
func (s *Shell) Complete(text string) (list []Candidate, word int) {
	add := func(what string, names ...string) {
		for _, n := range names {
			list = append(list, Candidate{n, what})
		}
	}
	if IsCommand(text) && !strings.ContainsAny(strings.TrimSpace(text), " ") {
		for _, c := range commands() {
			add(c.doc, c.names[0])
		}
		return matching(list, strings.TrimSpace(text))
	}
	toks := parse.Tokens(text)
	prefix := ""
	if n := len(toks); n > 0 && toks[n-1].End == len(text) {
		switch toks[n-1].Class {
		case parse.Word, parse.Keyword:
			prefix = text[toks[n-1].Start:]
			toks = toks[:n-1]
		case parse.String, parse.Bad, parse.Number:
			return nil, 0
		case parse.Quoted, parse.Sign:
		}
	}
	before := ""
	if n := len(toks); n > 0 {
		before = strings.ToUpper(text[toks[n-1].Start:toks[n-1].End])
	}
	tables := append(s.session.Store.Tables(s.here()), s.session.Store.Views(s.here())...)
	switch before {
	case "FROM", "JOIN", "INTO", "DESCRIBE", "DESC", "TABLE", "VIEW":
		add("table", tables...)
		return matching(list, prefix)
	case ".":
		if n := len(toks); n > 1 {
			add("column", s.columns(text[toks[n-2].Start:toks[n-2].End], text)...)
		}
		return matching(list, prefix)
	}
	if IsCommand(text) {
		add("table", tables...)
		return matching(list, prefix)
	}
	if prefix == "" {
		return nil, 0
	}
	for _, t := range tables {
		add("column of "+t, s.columns(t, "")...)
	}
	add("table", tables...)
	add("function", fn.Names()...)
	add("", parse.Keywords()...)
	return matching(list, prefix)
}

func (s *Shell) here() catalog.Path {
	return catalog.Path{Catalog: s.session.Catalog, Database: s.session.Database}
}

// columns are those of a table, or of the table that a name stands for in a query as FROM t AS name.
func (s *Shell) columns(name, query string) []string {
	p := s.here()
	p.Name = strings.Trim(name, "`")
	t := s.session.Store.Table(p)
	if t == nil && query != "" {
		toks := parse.Tokens(query)
		at := func(i int) string { return query[toks[i].Start:toks[i].End] }
		for i := 1; i < len(toks); i++ {
			if at(i) != name {
				continue
			}
			of := i - 1
			if strings.EqualFold(at(of), "AS") {
				of--
			}
			if of >= 0 {
				p.Name = strings.Trim(at(of), "`")
				if t = s.session.Store.Table(p); t != nil {
					break
				}
			}
		}
	}
	if t == nil {
		return nil
	}
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return names
}

// matching are the candidates that begin as the prefix does, in any case, each once; names of the user come in their
// order before words of the language.
func matching(list []Candidate, prefix string) ([]Candidate, int) {
	seen := map[string]bool{}
	list = slices.DeleteFunc(list, func(c Candidate) bool {
		drop := seen[c.Text] || len(c.Text) < len(prefix) || !strings.EqualFold(c.Text[:len(prefix)], prefix)
		seen[c.Text] = true
		return drop
	})
	return list, len(prefix)
}
