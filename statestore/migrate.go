package statestore

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Migration turns the values that an older program kept into those of a newer type. Migrate makes one, Migrating puts
// them into the codec of a state; in a topology they are given where the state is declared.
type Migration struct {
	from, to reflect.Type
	schema   string // of from
	reader   func(schema string) (func(src []byte) (any, error), error)
	apply    func(any) (any, error)
	err      error
}

// Migrate makes a Migration of f, for changes that go beyond what CodecOf reads by itself (fields added, removed, or
// wider): values that were written as Old become New. New is the state's type, or the Old of another migration of the
// state: they form a chain.
//
// Old must have the form that the values were written in: keep the old type in the program, under a new name if need be.
// f is called when a value is read, and again if it is read again before it was written; the value is written in the new
// form when it changes, so values of both forms stay side by side and the migration is needed as long as the state
// lives. f must be deterministic and must not keep what it gets. Its error is that of the record that is processed, and
// goes by the operator's policy.
func Migrate[Old, New any](f func(Old) (New, error)) Migration {
	m := Migration{from: reflect.TypeFor[Old](), to: reflect.TypeFor[New]()}
	if f == nil {
		m.err = fmt.Errorf("migrate %s to %s: the function is nil", m.from, m.to)
		return m
	}
	codec, err := CodecOf[Old]()
	if err != nil {
		m.err = fmt.Errorf("migrate %s to %s: %w", m.from, m.to, err)
		return m
	}
	m.schema = codec.Schema()
	m.apply = func(v any) (any, error) { return f(v.(Old)) }
	m.reader = func(schema string) (func([]byte) (any, error), error) {
		c := codec
		if schema != m.schema {
			if c, err = codec.(Evolver[Old]).Reads(schema); err != nil {
				return nil, err
			}
		}
		return func(src []byte) (any, error) {
			var v Old
			err := c.Decode(src, &v)
			return v, err
		}, nil
	}
	return m
}

// Schema is the form that the values to be migrated have.
func (m Migration) Schema() string { return m.schema }

// Types are those of the values that it reads and makes.
func (m Migration) Types() (from, to reflect.Type) { return m.from, m.to }

// MigrationError is what a state panics with when a Migration failed: the record that is processed fails, and goes by
// its operator's policy.
type MigrationError struct {
	Store    string // name of the state
	Key      []byte // physical
	From, To string // types
	Err      error
}

func (e *MigrationError) Error() string {
	return fmt.Sprintf("read state store %q: key %x: migrate %s to %s: %v", e.Store, e.Key, e.From, e.To, e.Err)
}

// Unwrap returns the error of the migration's function.
func (e *MigrationError) Unwrap() error { return e.Err }

// Migrating gives a codec migrations, by which it reads older schemas: see Spec.CanRead for which one a schema is read by.
// The error says what is wrong with them: each must lead to V, and no two may begin with the same form.
func Migrating[V any](codec Codec[V], migrations ...Migration) (Codec[V], error) {
	if len(migrations) == 0 {
		return codec, nil
	}
	c := &migratingCodec[V]{Codec: codec}
	for _, m := range migrations {
		c.schemas = append(c.schemas, m.schema)
	}
	var err error
	if c.paths, err = pathsTo(reflect.TypeFor[V](), codec.Schema(), migrations); err != nil {
		return nil, err
	}
	return c, nil
}

// pathsTo are the chains of migrations from each of them to a type, whose values are written as schema.
func pathsTo(last reflect.Type, schema string, migrations []Migration) (paths [][]Migration, err error) {
	for i, m := range migrations {
		if m.err != nil {
			return nil, m.err
		}
		if m.schema == schema {
			return nil, fmt.Errorf("migrate %s to %s: %s and %s are written in the same form (%s), so that their values cannot be told apart", m.from, m.to, m.from, last, m.schema)
		}
		for _, other := range migrations[:i] {
			if other.schema == m.schema || other.from == m.from {
				return nil, fmt.Errorf("migrate %s to %s: there is a migration of this form already, of %s to %s", m.from, m.to, other.from, other.to)
			}
		}
	}
	for i := range migrations {
		var path []Migration
		for at := i; ; {
			if len(path) == len(migrations) {
				return nil, fmt.Errorf("migrate %s to %s: the migrations go in a circle and never lead to %s", migrations[i].from, migrations[i].to, last)
			}
			path = append(path, migrations[at])
			if migrations[at].to == last {
				break
			}
			next := slices.IndexFunc(migrations, func(o Migration) bool { return o.from == migrations[at].to })
			if next < 0 {
				return nil, fmt.Errorf("migrate %s to %s: %s is neither the state's type %s nor migrated further", migrations[i].from, migrations[i].to, migrations[at].to, last)
			}
			at = next
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Leading are those of migrations that lead to a type, by themselves or with others of them.
func Leading(to reflect.Type, migrations []Migration) (leading []Migration) {
	reached := []reflect.Type{to}
	for i := 0; i < len(reached); i++ {
		for _, m := range migrations {
			if m.to != reached[i] {
				continue
			}
			leading = append(leading, m)
			if !slices.Contains(reached, m.from) {
				reached = append(reached, m.from)
			}
		}
	}
	return leading
}

type migratingCodec[V any] struct {
	Codec[V]
	schemas []string
	paths   [][]Migration // from each to V
}

// Reads is of Evolver.
func (c *migratingCodec[V]) Reads(schema string) (Codec[V], error) {
	i, err := readBy(c.Schema(), c.schemas, schema)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		ev, ok := c.Codec.(Evolver[V])
		if !ok {
			return nil, fmt.Errorf("values were written as %s, now they are %s, and %T does not implement Evolver", schema, c.Schema(), c.Codec)
		}
		return ev.Reads(schema)
	}
	read, err := c.paths[i][0].reader(schema)
	if err != nil {
		return nil, err
	}
	return &migratedCodec[V]{c.Codec, read, c.paths[i]}, nil
}

// migratedCodec reads values of one older schema.
type migratedCodec[V any] struct {
	Codec[V]
	read func(src []byte) (any, error)
	path []Migration
}

// Decode is of Codec.
func (c *migratedCodec[V]) Decode(src []byte, v *V) error {
	x, err := c.read(src)
	if err != nil {
		return err
	}
	if x, err = migrate(c.path, x); err != nil {
		return err
	}
	*v = x.(V)
	return nil
}

// migrate takes a value along a path.
func migrate(path []Migration, x any) (any, error) {
	var err error
	for _, m := range path {
		if x, err = m.apply(x); err != nil {
			return nil, &MigrationError{From: m.from.String(), To: m.to.String(), Err: err}
		}
	}
	return x, nil
}

// partTag is the tag that names a part.
const partTag = "part"

// ways are, for parts, the migrations that they are read by.
type ways map[string][]Migration

// older is the type that a field had that is read by migrations; of others, the type that it has.
func (w ways) older(f reflect.StructField) reflect.Type {
	steps := w[f.Tag.Get(partTag)]
	switch {
	case steps == nil:
		return f.Type
	case f.Type != steps[len(steps)-1].to:
		return reflect.PointerTo(steps[0].from)
	}
	return steps[0].from
}

// compilePart is compile for a part, or a pointer to one, that is read by migrations.
func compilePart(w *wireType, t reflect.Type, off uintptr, path string, steps []Migration, ops *[]op) error {
	last := steps[len(steps)-1].to
	o := op{kind: kindMigrated, off: off, typ: steps[0].from, via: &steps}
	var err error
	if t == last {
		err = compile(w, o.typ, 0, path, nil, &o.elem)
	} else {
		if w.kind != kindPointer {
			return fmt.Errorf("state type %s: stored as %s, want a pointer", path, w)
		}
		o = op{kind: kindPointer, off: off, typ: t}
		err = compilePart(w.elem, last, 0, path, steps, &o.elem)
	}
	*ops = append(*ops, o)
	return err
}

// CodecOfParts is CodecOf for a V that has parts of types which may have migrations of their own. A part is a struct field
// of V, or of what V holds, with a tag `part:"name"`; its type, or what it points to, is that of the part. Of the
// migrations, a part has those that lead to its type. forms are the schemas that V had before them, in all combinations, for
// Spec.Migrations.
func CodecOfParts[V any](migrations []Migration) (c Codec[V], forms []string, err error) {
	codec, err := CodecOf[V]()
	if err != nil {
		return nil, nil, err
	}
	t := reflect.TypeFor[V]()
	p := &partsCodec[V]{Codec: codec}
	all := []ways{{}}
	for _, f := range partsOf(t, nil) {
		part := f.Type
		leading := Leading(part, migrations)
		if part.Kind() == reflect.Pointer && len(leading) == 0 {
			part = part.Elem()
			leading = Leading(part, migrations)
		}
		if len(leading) == 0 {
			continue
		}
		w, err := wireOf(part, part.String(), nil, nil)
		if err != nil {
			return nil, nil, err
		}
		paths, err := pathsTo(part, w.String(), leading)
		if err != nil {
			return nil, nil, err
		}
		for _, have := range slices.Clone(all) {
			for _, path := range paths {
				more := maps.Clone(have)
				more[f.Tag.Get(partTag)] = path
				all = append(all, more)
			}
		}
	}
	for _, way := range all[1:] {
		w, err := wireOf(t, t.String(), nil, way)
		if err != nil {
			return nil, nil, err
		}
		p.ways, p.forms = append(p.ways, way), append(p.forms, w.String())
	}
	if len(p.ways) == 0 {
		return codec, nil, nil
	}
	return p, p.forms, nil
}

// partsOf finds the fields that are parts.
func partsOf(t reflect.Type, found []reflect.StructField) []reflect.StructField {
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Pointer, reflect.Map:
		return partsOf(t.Elem(), found)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Tag.Get(partTag) != "" {
				found = append(found, f)
			} else {
				found = partsOf(f.Type, found)
			}
		}
	}
	return found
}

type partsCodec[V any] struct {
	Codec[V]
	forms []string
	ways  []ways // of each form
}

// Reads is of Evolver.
func (c *partsCodec[V]) Reads(schema string) (Codec[V], error) {
	i, err := readBy(c.Schema(), c.forms, schema)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return c.Codec.(Evolver[V]).Reads(schema)
	}
	w, err := parseSchema(schema)
	if err != nil {
		return nil, err
	}
	r, err := codecFor[V](w, schema, c.ways[i])
	if err != nil {
		return nil, err
	}
	return migratedParts[V]{r}, nil
}

// migratedParts reads values with parts of an older form.
type migratedParts[V any] struct{ *codec[V] }

func (migratedParts[V]) fails() bool { return true }

// CanRead says whether the state that s declares can read values of a schema, by itself or by its migrations; the error
// says what does not fit.
//
// A schema for which there is a migration is read by that. Without migrations it is read as CodecOf evolves types. With
// migrations any other schema must fit exactly one of the state's type and the types that are migrated without losing a
// field, since nobody could tell otherwise by which way its values are meant to go.
func (s Spec) CanRead(schema string) error {
	_, err := readBy(s.ValType, s.Migrations, schema)
	return err
}

// Migrates says that the state that s declares reads values of a schema by a migration.
func (s Spec) Migrates(schema string) bool {
	i, err := readBy(s.ValType, s.Migrations, schema)
	return err == nil && i >= 0
}

// readBy chooses the migration that values of a schema are read by; -1 = they are read directly.
func readBy(now string, migrations []string, was string) (int, error) {
	// A time to live does not change what a value means.
	now, _ = unstampedSchema(now)
	was, _ = unstampedSchema(was)
	if was == now {
		return -1, nil
	}
	if i := slices.Index(migrations, was); i >= 0 {
		return i, nil
	}
	if len(migrations) == 0 {
		if err := CanRead(now, was); err != nil {
			return 0, err
		}
		n, err1 := parseSchema(now)
		w, err2 := parseSchema(was)
		if err1 == nil && err2 == nil {
			if n, w := nothingLeft(n, w); n != nil {
				return 0, fmt.Errorf("stored as %s, they have no field that %s has, so nothing of them would be left: keep the names with tags state:\"name\", or add a migration", w, n)
			}
		}
		return -1, nil
	}
	var ways []int
	whole := func(now string) bool {
		n, err1 := parseSchema(now)
		w, err2 := parseSchema(was)
		return err1 == nil && err2 == nil && canRead(n, w, "") == nil && !loses(n, w)
	}
	if whole(now) {
		ways = append(ways, -1)
	}
	for i, m := range migrations {
		if whole(m) {
			ways = append(ways, i)
		}
	}
	if len(ways) == 1 {
		return ways[0], nil
	}
	forms := strings.Join(append(slices.Clone(migrations), now), ", ")
	if len(ways) == 0 {
		return 0, fmt.Errorf("stored as %s, they fit none of %s without losing a field: add a migration of exactly that form", was, forms)
	}
	return 0, fmt.Errorf("stored as %s, they fit more than one of %s: add a migration of exactly that form", was, forms)
}

// nothingLeft finds values, or parts of them, of which all fields would be lost if was is read as now, which canRead allows.
func nothingLeft(now, was *wireType) (n, w *wireType) {
	switch now.kind {
	case kindStruct:
		left := len(was.fields) == 0
		for _, wf := range was.fields {
			i := slices.IndexFunc(now.fields, func(nf wireField) bool { return nf.name == wf.name })
			if i < 0 {
				continue
			}
			left = true
			if n, w := nothingLeft(now.fields[i].typ, wf.typ); n != nil {
				return n, w
			}
		}
		if !left {
			return now, was
		}
	case kindSlice, kindPointer, kindArray, kindMap:
		return nothingLeft(now.elem, was.elem)
	}
	return nil, nil
}

// LostFields are the fields of values stored as was that reading them as now leaves out, as paths; CanRead allows it.
func LostFields(now, was string) []string {
	now, _ = unstampedSchema(now)
	was, _ = unstampedSchema(was)
	n, err1 := parseSchema(now)
	w, err2 := parseSchema(was)
	if err1 != nil || err2 != nil || canRead(n, w, "") != nil {
		return nil
	}
	return lost(nil, n, w, "")
}

// loses says that reading values of was as now, which canRead allows, leaves out a field.
func loses(now, was *wireType) bool { return len(lost(nil, now, was, "")) > 0 }

func lost(paths []string, now, was *wireType, path string) []string {
	switch now.kind {
	case kindStruct:
		for _, wf := range was.fields {
			at := strings.TrimPrefix(path+"."+wf.name, ".")
			if i := slices.IndexFunc(now.fields, func(nf wireField) bool { return nf.name == wf.name }); i < 0 {
				paths = append(paths, at)
			} else {
				paths = lost(paths, now.fields[i].typ, wf.typ, at)
			}
		}
	case kindSlice, kindPointer, kindArray:
		paths = lost(paths, now.elem, was.elem, path+"[]")
	case kindMap:
		paths = lost(lost(paths, now.key, was.key, path+"[key]"), now.elem, was.elem, path+"[]")
	}
	return paths
}

// mayFail says that a codec may fail on values that are not damaged.
func mayFail(codec any) bool {
	f, ok := codec.(interface{ fails() bool })
	return ok && f.fails()
}

func (*migratedCodec[V]) fails() bool { return true }

// check decodes a value that a migration could fail on, before anything is changed: it panics as decode does.
func (x *values[V]) check(prefix, key, src []byte) {
	if x.migrates && !x.current(src) {
		var v V
		x.decode(prefix, key, src, &v)
	}
}

// readable is check for values that nobody has asked for yet: the failure of a migration is left to who does. A Fault
// goes on.
func (x *values[V]) readable(prefix, key, src []byte) (ok bool) {
	if !x.migrates || x.current(src) {
		return true
	}
	defer func() {
		if r := recover(); r != nil {
			if f, fault := r.(*Fault); fault {
				panic(f)
			}
			ok = false
		}
	}()
	x.check(prefix, key, src)
	return true
}

// asMigrationError finds the failure of a migration.
func asMigrationError(err error) (*MigrationError, bool) {
	var m *MigrationError
	return m, errors.As(err, &m)
}
