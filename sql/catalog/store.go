package catalog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-stream/millrace/sql/fn"
)

// Store holds all objects by name: catalogs, in them databases, in them tables, views and functions. Temporary and other
// objects share one name space: a session has only what its script declares, so both live as long as the session. It is for
// one goroutine.
type Store struct {
	catalogs map[string]map[string]*database
	system   map[string]*Function // by upper-case name: TEMPORARY SYSTEM FUNCTION
}

type database struct {
	tables    map[string]*Table
	views     map[string]*View
	functions map[string]*Function // by upper-case name
}

// Function is a declared function.
type Function struct {
	Path Path
	// As is the identifier that was given; Func is what was registered under it.
	As   string
	Func *fn.Func
}

// NewStore is a store with the default catalog and database.
func NewStore() *Store {
	s := &Store{catalogs: map[string]map[string]*database{}, system: map[string]*Function{}}
	s.catalogs[DefaultCatalog] = map[string]*database{DefaultDatabase: newDatabase()}
	return s
}

func newDatabase() *database {
	return &database{map[string]*Table{}, map[string]*View{}, map[string]*Function{}}
}

func (s *Store) database(p Path) *database { return s.catalogs[p.Catalog][p.Database] }

// HasCatalog says whether there is a catalog of that name.
func (s *Store) HasCatalog(name string) bool { return s.catalogs[name] != nil }

// HasDatabase says whether there is such a database; Path.Name is not used.
func (s *Store) HasDatabase(p Path) bool { return s.database(p) != nil }

// AddCatalog makes a catalog without databases but one of the name default; false if it is there already.
func (s *Store) AddCatalog(name string) bool {
	if s.catalogs[name] != nil {
		return false
	}
	s.catalogs[name] = map[string]*database{"default": newDatabase()}
	return true
}

// AddDatabase makes a database; false if it is there already. Its catalog must exist.
func (s *Store) AddDatabase(p Path) bool {
	if s.database(p) != nil {
		return false
	}
	s.catalogs[p.Catalog][p.Database] = newDatabase()
	return true
}

// DropCatalog removes a catalog; false if there is none.
func (s *Store) DropCatalog(name string) bool {
	ok := s.catalogs[name] != nil
	delete(s.catalogs, name)
	return ok
}

// DropDatabase removes a database; an error if it is not empty, unless cascade is set.
func (s *Store) DropDatabase(p Path, cascade bool) error {
	d := s.database(p)
	if n := len(d.tables) + len(d.views) + len(d.functions); n > 0 && !cascade {
		return fmt.Errorf("it has %d objects", n)
	}
	delete(s.catalogs[p.Catalog], p.Database)
	return nil
}

// Table finds a table; nil if there is none.
func (s *Store) Table(p Path) *Table {
	if d := s.database(p); d != nil {
		return d.tables[p.Name]
	}
	return nil
}

// View finds a view; nil if there is none.
func (s *Store) View(p Path) *View {
	if d := s.database(p); d != nil {
		return d.views[p.Name]
	}
	return nil
}

// PutTable stores a table under its Path, in place of what was there. Its database must exist.
func (s *Store) PutTable(t *Table) {
	d := s.database(t.Path)
	delete(d.views, t.Path.Name)
	d.tables[t.Path.Name] = t
}

// PutView stores a view under its Path, in place of what was there. Its database must exist.
func (s *Store) PutView(v *View) {
	d := s.database(v.Path)
	delete(d.tables, v.Path.Name)
	d.views[v.Path.Name] = v
}

// Drop removes a table or a view; false if there is none.
func (s *Store) Drop(p Path) bool {
	d := s.database(p)
	if d == nil || d.tables[p.Name] == nil && d.views[p.Name] == nil {
		return false
	}
	delete(d.tables, p.Name)
	delete(d.views, p.Name)
	return true
}

// Function finds a function that was declared in a database; key is its name in upper case.
func (s *Store) Function(p Path, key string) *Function {
	if d := s.database(p); d != nil {
		return d.functions[key]
	}
	return nil
}

// SystemFunction finds a function that is known by its bare name everywhere; key is its name in upper case.
func (s *Store) SystemFunction(key string) *Function { return s.system[key] }

// PutFunction stores a function; a nil one removes it. An empty Path.Catalog stands for all databases.
func (s *Store) PutFunction(p Path, key string, f *Function) {
	where := s.system
	if p.Catalog != "" {
		where = s.database(p).functions
	}
	if f == nil {
		delete(where, key)
		return
	}
	where[key] = f
}

// Catalogs are the names of all catalogs, sorted.
func (s *Store) Catalogs() []string { return slices.Sorted(maps.Keys(s.catalogs)) }

// Databases are the names of the databases of a catalog, sorted.
func (s *Store) Databases(catalog string) []string {
	return slices.Sorted(maps.Keys(s.catalogs[catalog]))
}

// Tables are the names of the tables and the views of a database, sorted, as SHOW TABLES lists them.
func (s *Store) Tables(p Path) []string {
	d := s.database(p)
	if d == nil {
		return nil
	}
	names := append(slices.Collect(maps.Keys(d.tables)), slices.Collect(maps.Keys(d.views))...)
	slices.Sort(names)
	return names
}

// Views are the names of the views of a database, sorted.
func (s *Store) Views(p Path) []string {
	d := s.database(p)
	if d == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(d.views))
}

// Functions are the names of declared functions that a database sees, sorted.
func (s *Store) Functions(p Path) []string {
	var names []string
	for _, f := range s.system {
		names = append(names, f.Path.Name)
	}
	if d := s.database(p); d != nil {
		for _, f := range d.functions {
			names = append(names, f.Path.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
