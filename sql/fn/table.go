package fn

import (
	"slices"
	"strings"
)

// Lookup finds a built-in function or operator by its name or an alias, in any case.
func Lookup(name string) (*Func, bool) {
	f, ok := byName[strings.ToUpper(name)]
	return f, ok
}

// All is the whole table, in the order of the reference. It is not to be changed.
func All() []*Func { return all }

// Names is the names and aliases of all functions that are called by a name, sorted: for completion and near misses.
func Names() []string {
	var names []string
	for _, f := range all {
		for _, n := range append([]string{f.Name}, f.Aliases...) {
			if c := n[0]; c >= 'A' && c <= 'Z' && !strings.Contains(n, " ") {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return names
}

var all = slices.Concat(comparisonFuncs, logicalFuncs, arithmeticFuncs, conditionalFuncs, stringFuncs, hashFuncs,
	regexpFuncs, temporalFuncs, constructionFuncs, collectionFuncs, jsonFuncs, aggregateFuncs(), jsonAggs)

var byName = func() map[string]*Func {
	m := map[string]*Func{}
	for _, f := range all {
		for _, n := range append([]string{f.Name}, f.Aliases...) {
			if _, ok := m[n]; ok {
				panic("two functions are named " + n)
			}
			m[n] = f
		}
	}
	return m
}()
