package statestore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// What three versions of a program keep of an account.
type (
	account1 struct{ Cents int32 }
	account2 struct {
		Cents int64
		Owner string
	}
	account3 struct {
		Amount string
		Tags   []string
	}
)

var errDebt = errors.New("the account is in debt")

func toAccount2(a account1) (account2, error) {
	if a.Cents < 0 {
		return account2{}, errDebt
	}
	return account2{int64(a.Cents), "unknown"}, nil
}

func toAccount3(a account2) (account3, error) {
	return account3{Amount: fmt.Sprintf("%d.%02d", a.Cents/100, a.Cents%100), Tags: []string{a.Owner}}, nil
}

func migrated[V any](t testing.TB, migrations ...statestore.Migration) statestore.Codec[V] {
	t.Helper()
	codec, err := statestore.CodecOf[V]()
	if err == nil {
		codec, err = statestore.Migrating(codec, migrations...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// openAll opens the accounts as a table, a map and a list, over a store that earlier versions have written.
func openAll[V any](t testing.TB, store statestore.Store, o statestore.StateOptions, codec statestore.Codec[V]) (*statestore.State, *statestore.Table[string, V], *statestore.Map[string, int64, V], *statestore.List[string, V]) {
	t.Helper()
	s := statestore.NewState(store, o)
	keys, ints := mustKeys[string](t), mustKeys[int64](t)
	table, err := statestore.NewTable(s, statestore.Spec{Name: "a/table", ID: 1, Kind: statestore.KindTable}, keys, codec)
	if err != nil {
		t.Fatal(err)
	}
	m, err := statestore.NewMap(s, statestore.Spec{Name: "a/map", ID: 2, Kind: statestore.KindMap}, keys, ints, codec)
	if err != nil {
		t.Fatal(err)
	}
	list, err := statestore.NewList(s, statestore.Spec{Name: "a/list", ID: 3, Kind: statestore.KindList}, keys, codec)
	if err != nil {
		t.Fatal(err)
	}
	return s, table, m, list
}

func mustKeys[K comparable](t testing.TB) statestore.KeyCodec[K] {
	t.Helper()
	c, err := statestore.KeyCodecOf[K]()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMigration reads values of three versions side by side, each written by its own program, from caches and from the
// store; what is changed is written in the newest form.
func TestMigration(t *testing.T) {
	for _, cacheBytes := range []int64{1, 64 << 20} { // nothing is loaded ahead; everything is
		store := memstore.New()
		opts := statestore.StateOptions{CacheBytes: cacheBytes}
		s, table, m, list := openAll(t, store, opts, migrated[account1](t))
		for i := range int32(3) {
			key := fmt.Sprint("v1-", i)
			table.Set(1, key, account1{100 + i})
			m.Put(1, key, 7, account1{200 + i})
			list.Add(1, key, account1{300 + i})
		}
		commitAll(t, s, 1)

		s, table2, m2, list2 := openAll(t, store, opts, migrated[account2](t, statestore.Migrate(toAccount2)))
		if v := table2.Get(1, "v1-0"); v == nil || *v != (account2{100, "unknown"}) {
			t.Fatalf("version 1 read by version 2: %+v", v)
		}
		table2.Set(1, "v2", account2{400, "eva"})
		v, existed := table2.Update(1, "v1-1") // changed by version 2
		if !existed || v.Owner != "unknown" {
			t.Fatalf("version 1 changed by version 2: %+v, %t", v, existed)
		}
		v.Owner = "bob"
		m2.Put(1, "v1-0", 8, account2{500, "eva"})
		list2.Add(1, "v1-0", account2{600, "eva"})
		commitAll(t, s, 2)

		// The migrations may be given in any order.
		s, table3, m3, list3 := openAll(t, store, opts, migrated[account3](t, statestore.Migrate(toAccount3), statestore.Migrate(toAccount2)))
		for key, want := range map[string]string{"v1-0": "{1.00 [unknown]}", "v1-1": "{1.01 [bob]}", "v2": "{4.00 [eva]}"} {
			if v := table3.Get(1, key); v == nil || fmt.Sprint(*v) != want {
				t.Fatalf("%s read by version 3: %+v, want %s", key, v, want)
			}
		}
		if v := m3.Get(1, "v1-0", 7); v == nil || v.Amount != "2.00" {
			t.Fatalf("map entry of version 1: %+v", v)
		}
		if v := m3.Get(1, "v1-0", 8); v == nil || v.Amount != "5.00" || v.Tags[0] != "eva" {
			t.Fatalf("map entry of version 2: %+v", v)
		}
		var amounts []string
		list3.All(1, "v1-0", func(v *account3) bool { amounts = append(amounts, v.Amount); return true })
		if !slices.Equal(amounts, []string{"3.00", "6.00"}) {
			t.Fatalf("list of both versions: %v", amounts)
		}
		// Only what changed is written; a step that fails gives the migrated value back.
		s.Begin()
		v3, _ := table3.Update(1, "v1-2")
		v3.Tags[0] = "lost"
		s.Rollback()
		if v := table3.Get(1, "v1-2"); v == nil || v.Tags[0] != "unknown" {
			t.Fatalf("after a step that failed: %+v", v)
		}
		table3.Set(1, "v1-0", account3{Amount: "9.00"})
		if changes := s.Seal(3); len(changes) != 2 { // with the schema
			t.Fatalf("%d changes, want the one value and its schema", len(changes))
		}
		s.Committed()
		if err := s.WriteBehind(statestore.Meta{Epoch: 3}); err != nil {
			t.Fatal(err)
		}
		_, table3, _, _ = openAll(t, store, opts, migrated[account3](t, statestore.Migrate(toAccount2), statestore.Migrate(toAccount3)))
		got := ""
		table3.All(func(_ statestore.Group, k string, v *account3) bool { got += k + "=" + v.Amount + " "; return true })
		if want := "v1-0=9.00 v1-1=1.01 v1-2=1.02 v2=4.00 "; got != want {
			t.Fatalf("all of it: %s, want %s", got, want)
		}
	}
}

// TestMigrationOfWindows reads windows of an older version when they fire.
func TestMigrationOfWindows(t *testing.T) {
	store := memstore.New()
	open := func(s *statestore.State, codec any) any {
		spec := statestore.Spec{Name: "w/windows", ID: 9, Kind: statestore.KindWindows, Expiring: true}
		var w any
		var err error
		switch c := codec.(type) {
		case statestore.Codec[account1]:
			w, err = statestore.NewWindows(s, spec, mustKeys[string](t), c)
		case statestore.Codec[account2]:
			w, err = statestore.NewWindows(s, spec, mustKeys[string](t), c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	s := statestore.NewState(store, statestore.StateOptions{})
	w1 := open(s, migrated[account1](t)).(*statestore.Windows[string, account1])
	for _, k := range []string{"a", "b"} {
		v, _ := w1.Update(1000, 1, k)
		v.Cents = 5
	}
	commitAll(t, s, 1)
	s = statestore.NewState(store, statestore.StateOptions{})
	w2 := open(s, migrated[account2](t, statestore.Migrate(toAccount2))).(*statestore.Windows[string, account2])
	v, existed := w2.Update(1000, 1, "b")
	if !existed || v.Cents != 5 {
		t.Fatalf("%+v, %t", v, existed)
	}
	v.Cents++
	got := map[string]account2{}
	if err := w2.Each(1000, func(_ statestore.Group, k string, v *account2) error { got[k] = *v; return nil }); err != nil {
		t.Fatal(err)
	}
	if got["a"] != (account2{5, "unknown"}) || got["b"] != (account2{6, "unknown"}) || len(got) != 2 {
		t.Fatalf("%+v", got)
	}
}

// migrationError runs f, which is to fail by a migration and not by a Fault.
func migrationError(t *testing.T, f func()) (m *statestore.MigrationError) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		var ok bool
		if m, ok = r.(*statestore.MigrationError); !ok {
			t.Fatalf("panicked with %v, want a MigrationError", r)
		}
	}()
	f()
	return nil
}

// TestMigrationFails: the value that cannot be migrated fails each time it is asked for, as the failure of who asks; it is
// never taken for absent, and the others are there.
func TestMigrationFails(t *testing.T) {
	for _, cacheBytes := range []int64{1, 64 << 20} {
		store := memstore.New()
		opts := statestore.StateOptions{CacheBytes: cacheBytes}
		s, table, m, list := openAll(t, store, opts, migrated[account1](t))
		for k, cents := range map[string]int32{"good": 1, "bad": -1} {
			table.Set(1, k, account1{cents})
			m.Put(1, k, 7, account1{1})
			m.Put(1, k, 8, account1{cents})
			list.Add(1, k, account1{cents})
		}
		commitAll(t, s, 1)
		s, table2, m2, list2 := openAll(t, store, opts, migrated[account2](t, statestore.Migrate(toAccount2)))
		const emptyBuckets = 500 // which stay of a map and a list, unless they are evicted
		for try := range 3 {
			for name, f := range map[string]func(){
				"get":    func() { table2.Get(1, "bad") },
				"update": func() { table2.Update(1, "bad") },
				"all":    func() { table2.All(func(statestore.Group, string, *account2) bool { return true }) },
				"map":    func() { m2.Get(1, "bad", 8) },
				"len":    func() { m2.Len(1, "bad") },
				"list":   func() { list2.Add(1, "bad", account2{}) },
			} {
				s.Begin()
				e := migrationError(t, f)
				s.Rollback()
				if !errors.Is(e, errDebt) || !strings.HasPrefix(e.Store, "a/") || !strings.Contains(e.Error(), "account1 to statestore_test.account2") || len(e.Key) == 0 {
					t.Fatalf("%s: %v", name, e)
				}
			}
			if now := s.CacheUsed(); now > emptyBuckets {
				t.Fatalf("try %d: the caches hold %d bytes", try, now)
			}
		}
		if v := table2.Get(1, "good"); v == nil || v.Cents != 1 {
			t.Fatalf("%+v", v)
		}
		if v := m2.Get(1, "bad", 7); v == nil || v.Cents != 1 {
			t.Fatalf("the entry beside the one that fails: %+v", v)
		}
		if changes := s.Seal(2); len(changes) > 0 {
			t.Fatalf("what failed left changes: %v", changes)
		}
	}
}

// TestMigrationsAreChecked refuses those that could never work.
func TestMigrationsAreChecked(t *testing.T) {
	type other struct{ X int }
	type sameForm struct {
		Amount string
		Tags   []string
	}
	codec, err := statestore.CodecOf[account3]()
	if err != nil {
		t.Fatal(err)
	}
	for want, ms := range map[string][]statestore.Migration{
		"the function is nil":                         {statestore.Migrate[account2, account3](nil)},
		"is neither the state's type":                 {statestore.Migrate(toAccount2)},
		"a migration of this form already":            {statestore.Migrate(toAccount3), statestore.Migrate(func(account2) (account3, error) { return account3{}, nil })},
		"cannot be told apart":                        {statestore.Migrate(func(sameForm) (account3, error) { return account3{}, nil })},
		"go in a circle":                              {statestore.Migrate(func(account1) (other, error) { return other{}, nil }), statestore.Migrate(func(other) (account1, error) { return account1{}, nil })},
		"cannot be kept in state":                     {statestore.Migrate(func(func()) (account3, error) { return account3{}, nil })},
		"migrate statestore_test.account1 to float64": {statestore.Migrate(toAccount3), statestore.Migrate(func(account1) (float64, error) { return 0, nil })},
	} {
		if _, err := statestore.Migrating(codec, ms...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSpecCanRead: which way values of an older form go, and where nobody can tell.
func TestSpecCanRead(t *testing.T) {
	const v1, v2, now = "struct{a int32}", "struct{a int64;d string}", "struct{b string}"
	for _, c := range []struct {
		name, was, now string
		migrations     []string
		migrates       bool
		want           string
	}{
		{"the form itself", now, now, []string{v2}, false, ""},
		{"the migrated form", v2, now, []string{v2}, true, ""},
		{"fits the migrated form alone", v1, now, []string{v2}, true, ""},
		{"fits the newest form alone", "struct{b string}", "struct{b string;c int64}", []string{v2}, false, ""},
		{"fits both", "struct{a int32}", "struct{a int64;b string}", []string{v2}, false, "more than one"},
		{"fits none without losing a field", "struct{a int32;x bool}", now, []string{v2}, false, "fit none"},
		{"the same without migrations", "struct{a int32;b string}", now, nil, false, ""},
		{"loses a field inside", "map[string]struct{a int32;x bool}", "map[string]struct{a int32}", []string{v2}, false, "fit none"},
		{"loses a field of a field", "struct{p struct{a int32;x bool}}", "struct{p struct{a int32}}", []string{v2}, false, "fit none"},
		{"all fields renamed", v1, now, nil, false, "nothing of them would be left"},
		{"all fields of a part renamed", "struct{n int64;v []struct{a int32}}", "struct{n int64;v []struct{b int32}}", nil, false, "stored as struct{a int32}, they have no field that struct{b int32} has"},
		{"wider inside", "[]struct{a int32}", "[]struct{a int64}", []string{v2}, false, ""},
		{"does not fit without migrations", "string", "int64", nil, false, "stored as string"},
	} {
		spec := statestore.Spec{ValType: c.now, Migrations: c.migrations}
		err := spec.CanRead(c.was)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if spec.Migrates(c.was) != c.migrates {
			t.Errorf("%s: migrates is %t", c.name, !c.migrates)
		}
	}
}

// TestPlacedStore: a store whose spec has another id in this State does not see what was there under its own.
func TestPlacedStore(t *testing.T) {
	store := memstore.New()
	s, table, _, _ := openAll(t, store, statestore.StateOptions{}, migrated[account1](t))
	table.Set(1, "k", account1{1})
	commitAll(t, s, 1)
	moved := statestore.StateOptions{IDs: map[string]statestore.ID{"a/table": 77}}
	s, table, _, _ = openAll(t, store, moved, migrated[account1](t))
	if v := table.Get(1, "k"); v != nil {
		t.Fatalf("the dropped entry is back: %+v", v)
	}
	table.Set(1, "k", account1{2})
	commitAll(t, s, 2)
	_, table, _, _ = openAll(t, store, moved, migrated[account1](t))
	if v := table.Get(1, "k"); v == nil || v.Cents != 2 {
		t.Fatalf("%+v", v)
	}
	_, table, _, _ = openAll(t, store, statestore.StateOptions{}, migrated[account1](t))
	if v := table.Get(1, "k"); v == nil || v.Cents != 1 {
		t.Fatalf("%+v", v)
	}
}

// TestMigrationOfParts: values of the user's that lie within another value have migrations of their own, each part at its
// version; the rest of the value stays.
func TestMigrationOfParts(t *testing.T) {
	type list[A, B any] struct {
		Entries []struct {
			N   int64
			Acc A `part:"acc"`
		}
		Last *B `part:"last"`
	}
	old, err := statestore.CodecOf[list[account1, account2]]()
	if err != nil {
		t.Fatal(err)
	}
	in := list[account1, account2]{Last: &account2{70, "eva"}}
	for i := range int32(3) {
		in.Entries = append(in.Entries, struct {
			N   int64
			Acc account1 `part:"acc"`
		}{int64(i), account1{100 + i}})
	}
	b := old.Append(nil, &in)
	c, forms, err := statestore.CodecOfParts[list[account3, account3]]([]statestore.Migration{statestore.Migrate(toAccount2), statestore.Migrate(toAccount3)})
	if err != nil {
		t.Fatal(err)
	}
	if len(forms) != 8 || !slices.Contains(forms, old.Schema()) {
		t.Fatalf("%d forms, want those of 3 by 3 versions but the newest, with %s:\n%s", len(forms), old.Schema(), strings.Join(forms, "\n"))
	}
	if err := (statestore.Spec{ValType: c.Schema(), Migrations: forms}).CanRead(old.Schema()); err != nil {
		t.Fatal(err)
	}
	r, err := c.(statestore.Evolver[list[account3, account3]]).Reads(old.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var out list[account3, account3]
	if err := r.Decode(b, &out); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v %v", out.Entries, *out.Last); got != "[{0 {1.00 [unknown]}} {1 {1.01 [unknown]}} {2 {1.02 [unknown]}}] {0.70 [eva]}" {
		t.Fatal(got)
	}
	in.Entries[1].Acc.Cents = -1
	if err := r.Decode(old.Append(nil, &in), &out); !errors.Is(err, errDebt) {
		t.Fatalf("a part that cannot be migrated: %v", err)
	}
	// Migrations that lead nowhere are left to others; without any it is the plain codec.
	plain, forms, err := statestore.CodecOfParts[list[account1, account1]]([]statestore.Migration{statestore.Migrate(toAccount3)})
	if err != nil || forms != nil {
		t.Fatal(forms, err)
	}
	if _, err := plain.(statestore.Evolver[list[account1, account1]]).Reads(old.Schema()); err == nil {
		t.Fatal("account2 was read as account1, whose Cents are narrower")
	}
}
