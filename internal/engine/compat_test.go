package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// oldTopology is what the tests of compatibility begin from: orders -> key-by by-user -> windows and a table, beside users.
func oldTopology() topologyRecord {
	return topologyRecord{Subs: []topologySub{
		{ID: 0, Parallelism: 4, Inputs: []topologyInput{{Topic: "orders", Partitions: 4}}},
		{ID: 1, Parallelism: 4, Inputs: []topologyInput{
			{Topic: "by-user", Internal: true, Partitions: 4, Key: "string", Value: "struct{a int32}"}, {Topic: "users", Partitions: 4}},
			Stores: []topologyStore{
				{Spec: spec(statestore.Spec{Name: "count/windows", Kind: statestore.KindWindows, KeyType: "string", ValType: "int64", Expiring: true, Life: 60e9,
					Windows: "tumbling 1m0s", Aggregate: "count", Operator: "aggregate"})},
				{Spec: spec(statestore.Spec{Name: "last/value", Kind: statestore.KindTable, KeyType: "string", ValType: "struct{a int32;b string}", Operator: "reduce"})},
			}},
	}}
}

func spec(s statestore.Spec) statestore.Spec {
	s.ID = statestore.StoreID(s.Name)
	return s
}

// changed is oldTopology after f.
func changed(f func(*topologyRecord)) topologyRecord {
	t := oldTopology()
	f(&t)
	return t
}

func windowStore(t *topologyRecord) *topologyStore { return &t.Subs[1].Stores[0] }
func valueStore(t *topologyRecord) *topologyStore  { return &t.Subs[1].Stores[1] }

// TestCompatibility has a row for each change of a topology: the verdict, whether it stops the start, and what it says.
func TestCompatibility(t *testing.T) {
	allow := compatMode{AllowDropped: true}
	base := compatMode{Base: true}
	unread := compatMode{Unread: map[string]bool{"by-user": true}}
	for _, c := range []struct {
		name    string
		change  func(*topologyRecord)
		mode    compatMode
		at      string // operator and store of the row; "" = no row tells of a change
		verdict Verdict
		stops   bool
		why     string
	}{
		{"nothing changed", func(*topologyRecord) {}, compatMode{}, "", "", false, ""},

		{"state added", func(t *topologyRecord) {
			t.Subs[1].Stores = append(t.Subs[1].Stores, topologyStore{Spec: spec(statestore.Spec{Name: "more/value"})})
		}, compatMode{}, "more value", VerdictNew, false, "begins empty"},
		{"state removed", func(t *topologyRecord) { t.Subs[1].Stores = t.Subs[1].Stores[:1] }, compatMode{}, "last value", VerdictDropped, true, "--start.allow-dropped-state"},
		{"state removed and allowed", func(t *topologyRecord) { t.Subs[1].Stores = t.Subs[1].Stores[:1] }, allow, "last value", VerdictDropped, false, "given up"},
		{"operator renamed", func(t *topologyRecord) { valueStore(t).Name = "latest/value" }, compatMode{}, "last value", VerdictDropped, true, "renamed?"},
		{"state removed, from a savepoint", func(t *topologyRecord) { t.Subs[1].Stores = t.Subs[1].Stores[:1] }, base, "last value", VerdictDropped, true, "--start.allow-dropped-state"},

		{"kind of store", func(t *topologyRecord) { valueStore(t).Kind = statestore.KindList }, compatMode{}, "last value", VerdictIncompatible, true, "was a table, and is a list"},
		{"kind of store, allowed", func(t *topologyRecord) { valueStore(t).Kind = statestore.KindList }, allow, "last value", VerdictIncompatible, true, "another id"},
		{"key type", func(t *topologyRecord) { valueStore(t).KeyType = "int64" }, compatMode{}, "last value", VerdictIncompatible, true, "keys were string, and are int64 now"},
		{"key type, from a savepoint", func(t *topologyRecord) { valueStore(t).KeyType = "int64" }, base, "last value", VerdictIncompatible, true, "another id"},
		{"size of windows", func(t *topologyRecord) { windowStore(t).Windows = "tumbling 5m0s" }, compatMode{}, "count windows", VerdictIncompatible, true, "were tumbling 1m0s, and are tumbling 5m0s now"},
		{"windows, of a record that does not tell", func(t *topologyRecord) { windowStore(t).Windows = "" }, compatMode{}, "", "", false, ""},
		{"aggregate", func(t *topologyRecord) { windowStore(t).Aggregate = "sum" }, compatMode{}, "count windows", VerdictIncompatible, true, "made by count, and is taken for that of sum"},
		{"aggregate of the program's own", func(t *topologyRecord) { windowStore(t).Aggregate = "" }, compatMode{}, "", "", false, ""},
		{"operator of another kind", func(t *topologyRecord) { valueStore(t).Operator = "process" }, compatMode{}, "last value", VerdictKept, false, "was the state of a reduce, and is that of a process now"},
		{"allowed lateness", func(t *topologyRecord) { windowStore(t).Life = 90e9 }, compatMode{}, "count windows", VerdictKept, false, "live 1m30s, they did 1m0s"},
		{"from kept to expiring", func(t *topologyRecord) { valueStore(t).Expiring = true }, compatMode{}, "last value", VerdictIncompatible, true, "kept and expiring"},
		{"from kept to expiring, from a savepoint", func(t *topologyRecord) { valueStore(t).Expiring = true }, base, "", "", false, ""},

		{"field added", func(t *topologyRecord) { valueStore(t).ValType = "struct{a int32;b string;c bool}" }, compatMode{}, "last value", VerdictKept, false, "new fields are zero"},
		{"field removed", func(t *topologyRecord) { valueStore(t).ValType = "struct{a int32}" }, compatMode{}, "last value", VerdictKept, false, "what was in the fields b is gone"},
		{"all fields renamed", func(t *topologyRecord) { valueStore(t).ValType = "struct{x int32;y string}" }, compatMode{}, "last value", VerdictIncompatible, true, "nothing of them would be left"},
		{"integer wider", func(t *topologyRecord) { valueStore(t).ValType = "struct{a int64;b string}" }, compatMode{}, "last value", VerdictKept, false, "read as the new type"},
		{"integer narrower", func(t *topologyRecord) { valueStore(t).ValType = "struct{a int16;b string}" }, compatMode{}, "last value", VerdictIncompatible, true, "field a: stored as int32, and is now int16"},
		{"another type", func(t *topologyRecord) { valueStore(t).ValType = "string" }, compatMode{}, "last value", VerdictIncompatible, true, "stored as struct{"},
		{"another type with a migration", func(t *topologyRecord) {
			valueStore(t).ValType, valueStore(t).Migrations = "string", []string{"struct{a int32;b string}"}
		}, compatMode{}, "last value", VerdictKept, false, "migrated when they are read"},
		{"another type with a migration of another form", func(t *topologyRecord) {
			valueStore(t).ValType, valueStore(t).Migrations = "string", []string{"int64"}
		}, compatMode{}, "last value", VerdictIncompatible, true, "add a migration of exactly that form"},

		{"state moved", func(t *topologyRecord) {
			t.Subs[0].Stores, t.Subs[1].Stores = t.Subs[1].Stores[1:], t.Subs[1].Stores[:1]
		}, compatMode{}, "last value", VerdictIncompatible, true, "moved from sub-topology 1 to 0"},
		{"state moved, from a savepoint", func(t *topologyRecord) {
			t.Subs[0].Stores, t.Subs[1].Stores = t.Subs[1].Stores[1:], t.Subs[1].Stores[:1]
		}, base, "last value", VerdictKept, false, "moved from sub-topology 1 to 0"},

		{"input added", func(t *topologyRecord) {
			t.Subs[1].Inputs = append(t.Subs[1].Inputs, topologyInput{Topic: "more", Partitions: 4})
		}, compatMode{}, "input more", VerdictNew, false, "start position"},
		{"input removed", func(t *topologyRecord) { t.Subs[1].Inputs = t.Subs[1].Inputs[:1] }, compatMode{}, "input users", VerdictDropped, true, "--start.allow-dropped-state"},
		{"input removed and allowed", func(t *topologyRecord) { t.Subs[1].Inputs = t.Subs[1].Inputs[:1] }, allow, "input users", VerdictDropped, false, "committed offsets stay in the group"},
		{"input moved", func(t *topologyRecord) {
			t.Subs[0].Inputs, t.Subs[1].Inputs = append(t.Subs[0].Inputs, t.Subs[1].Inputs[1]), t.Subs[1].Inputs[:1]
		}, compatMode{}, "input users", VerdictKept, false, "was read by sub-topology 1, and is by 0 now"},
		{"partitions grew", func(t *topologyRecord) { t.Subs[1].Inputs[1].Partitions = 8 }, compatMode{}, "input users", VerdictKept, false, "had 4 partitions, and has 8 now"},
		{"partitions shrank", func(t *topologyRecord) { t.Subs[1].Inputs[1].Partitions = 2 }, compatMode{}, "input users", VerdictIncompatible, true, "had 4 partitions, and has 2 now"},
		{"partitions shrank, from a savepoint", func(t *topologyRecord) { t.Subs[1].Inputs[1].Partitions = 2 }, base, "input users", VerdictKept, false, "has 2 now"},

		{"key-by added", func(t *topologyRecord) {
			t.Subs = append(t.Subs, topologySub{ID: 2, Parallelism: 4, Inputs: []topologyInput{{Topic: "by-item", Internal: true, Partitions: 4}}})
		}, compatMode{}, "key-by by-item", VerdictNew, false, ""},
		{"key-by removed, all read", func(t *topologyRecord) { t.Subs[1].Inputs = t.Subs[1].Inputs[1:] }, compatMode{}, "key-by by-user", VerdictDropped, false, "all its records were processed"},
		{"key-by removed, unread", func(t *topologyRecord) { t.Subs[1].Inputs = t.Subs[1].Inputs[1:] }, unread, "key-by by-user", VerdictIncompatible, true, "stop it with a savepoint"},
		{"key-by renamed, unread", func(t *topologyRecord) { t.Subs[1].Inputs[0].Topic = "by-name" }, unread, "key-by by-user", VerdictIncompatible, true, "not processed yet"},
		{"key-by removed, from a savepoint", func(t *topologyRecord) { t.Subs[1].Inputs = t.Subs[1].Inputs[1:] }, compatMode{Base: true, Unread: unread.Unread}, "key-by by-user", VerdictDropped, false, ""},
		{"key-by with another key, unread", func(t *topologyRecord) { t.Subs[1].Inputs[0].Key = "int64" }, unread, "key-by by-user", VerdictIncompatible, true, "keys were string, and are int64"},
		{"partitions of a key-by", func(t *topologyRecord) { t.Subs[1].Inputs[0].Partitions = 8 }, compatMode{}, "key-by by-user", VerdictIncompatible, true, "begin from a savepoint"},

		{"fewer subtasks", func(t *topologyRecord) { t.Subs[1].Parallelism = 2 }, compatMode{}, "sub-topology 1", VerdictIncompatible, true, "had 4 subtasks, and has 2 now"},
		{"fewer subtasks, from a savepoint", func(t *topologyRecord) { t.Subs[1].Parallelism = 2 }, base, "sub-topology 1", VerdictKept, false, "has 2 now"},
		{"sub-topology without state removed", func(t *topologyRecord) { t.Subs = t.Subs[1:] }, allow, "sub-topology 0", VerdictDropped, false, ""},
	} {
		now := changed(c.change)
		table := compatibility(oldTopology(), now, c.mode)
		found := c.at == ""
		for _, r := range table.Changed() {
			if strings.TrimSpace(r.Operator+" "+r.Store) != c.at {
				continue
			}
			found = true
			if r.Verdict != c.verdict || r.Stops != c.stops || !strings.Contains(r.Why, c.why) {
				t.Errorf("%s: %+v; want %s, stops %t, %q", c.name, r, c.verdict, c.stops, c.why)
			}
		}
		if !found {
			t.Errorf("%s: no row of %q:\n%s", c.name, c.at, table)
		}
		if c.at == "" && len(table.Changed()) > 0 {
			t.Errorf("%s: told as a change:\n%s", c.name, table.Changed())
		}
		if table.Refused() != c.stops {
			t.Errorf("%s: refused is %t:\n%s", c.name, table.Refused(), table)
		}
	}
	if table := compatibility(topologyRecord{}, oldTopology(), compatMode{}); len(table) > 0 {
		t.Errorf("first start:\n%s", table)
	}
}

// succeed makes one topology the successor of another, by way of the control topic's JSON.
func succeed(t *testing.T, was, now topologyRecord, mode compatMode) topologyRecord {
	t.Helper()
	if table := compatibility(was, now, mode); table.Refused() {
		t.Fatalf("refused:\n%s", table)
	}
	b, err := json.Marshal(inherit(was, now, mode))
	if err != nil {
		t.Fatal(err)
	}
	next, err := parseTopology(b)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestValueFormsAreRemembered: what an older version wrote is there until it is written again, so every form that was
// ever written must be readable, not only the newest.
func TestValueFormsAreRemembered(t *testing.T) {
	of := func(val string, migrations ...string) topologyRecord {
		return changed(func(r *topologyRecord) { valueStore(r).ValType, valueStore(r).Migrations = val, migrations })
	}
	start := func(was, now topologyRecord) string {
		r := compatibility(was, now, compatMode{})
		for _, row := range r {
			if row.Store == "value" && row.Stops {
				return row.Why
			}
		}
		return ""
	}
	const a32, without, text = "struct{a int32;c bool}", "struct{b string;c bool}", "struct{a string;b string;c bool}"
	v1 := succeed(t, topologyRecord{}, of(a32), compatMode{})
	v2 := succeed(t, v1, of(without), compatMode{})
	// The newest form alone would fit.
	if why := start(v2, of(text)); !strings.Contains(why, "field a: stored as int32, and is now string") {
		t.Errorf("field a comes back as text over values of version 1: %q", why)
	}
	if why := start(v2, of(text, a32)); why != "" {
		t.Errorf("with a migration of version 1: %s", why)
	}
	if v3 := succeed(t, v2, of(a32), compatMode{}); len(valueStore(&v3).Past) != 1 || valueStore(&v3).Past[0] != without {
		t.Errorf("back to version 1: past forms %v", valueStore(&v3).Past)
	}
	if base := inherit(v2, of("struct{a int64;b string}"), compatMode{Base: true}); len(valueStore(&base).Past) != 2 {
		t.Errorf("from a savepoint: past forms %v", valueStore(&base).Past)
	}
}

// TestMigrationsAreRemembered: values that were migrated look readable to a program without the migration, old or new.
func TestMigrationsAreRemembered(t *testing.T) {
	of := func(val string, migrations ...string) topologyRecord {
		return changed(func(r *topologyRecord) { valueStore(r).ValType, valueStore(r).Migrations = val, migrations })
	}
	const cents, money, named = "struct{cents int64}", "struct{money string}", "struct{money string;name string}"
	v1 := succeed(t, topologyRecord{}, of(cents), compatMode{})
	v2 := succeed(t, v1, of(money, cents), compatMode{})
	for _, c := range []struct {
		name string
		was  topologyRecord
		now  topologyRecord
		mode compatMode
		want string
	}{
		{"again", v2, of(money, cents), compatMode{}, ""},
		{"migration removed too early", v2, of(money), compatMode{}, "for which an earlier version had a migration: keep it"},
		{"the same from a savepoint", v2, of(money), compatMode{Base: true}, "keep it"},
		{"roll-back over the migration", v2, of(cents), compatMode{}, "do not go back by themselves"},
		{"roll-back with a migration back", v2, of(cents, money), compatMode{}, ""},
		{"roll-back from a savepoint of before", v1, of(cents), compatMode{Base: true}, ""},
		{"field added behind it", v2, of(named, cents), compatMode{}, ""},
		{"a chain", v2, of("int64", cents, money), compatMode{}, ""},
	} {
		got := ""
		for _, r := range compatibility(c.was, c.now, c.mode) {
			if r.Stops {
				got += r.Why
			}
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDroppedStateStaysAway: entries of a dropped state are still in the changelog, and must not come back with its name.
func TestDroppedStateStaysAway(t *testing.T) {
	without := changed(func(r *topologyRecord) { r.Subs[1].Stores = r.Subs[1].Stores[:1] })
	allow := compatMode{AllowDropped: true}
	v1 := succeed(t, topologyRecord{}, oldTopology(), compatMode{})
	ids := map[statestore.ID]bool{valueStore(&v1).ID: true}
	was := v1
	for range 3 {
		was = succeed(t, was, without, allow)
		was = succeed(t, was, without, compatMode{}) // restarted
		if why := compatibility(was, oldTopology(), compatMode{}).Changed().String(); !strings.Contains(why, "was dropped, and does not come back") {
			t.Errorf("the state comes back: %s", why)
		}
		was = succeed(t, was, oldTopology(), compatMode{})
		id := valueStore(&was).ID
		if ids[id] || id == 0 {
			t.Fatalf("the state came back under the id %08x of dropped entries", id)
		}
		ids[id] = true
		if was = succeed(t, was, oldTopology(), compatMode{}); valueStore(&was).ID != id {
			t.Fatalf("a restart changed the id from %08x to %08x", id, valueStore(&was).ID)
		}
	}
	if base := succeed(t, was, oldTopology(), compatMode{Base: true}); valueStore(&base).ID != statestore.StoreID("last/value") || len(base.Dropped) > 0 {
		t.Errorf("from a savepoint the changelog is new: %+v", base)
	}
}

// TestMovedInputGoesOn: who reads an input that another sub-topology read has no epoch record of it.
func TestMovedInputGoesOn(t *testing.T) {
	now := changed(func(r *topologyRecord) {
		r.Subs[0].Inputs, r.Subs[1].Inputs = append(r.Subs[0].Inputs, r.Subs[1].Inputs[1]), r.Subs[1].Inputs[:1]
	})
	next := succeed(t, oldTopology(), now, compatMode{})
	again := succeed(t, next, now, compatMode{})
	for _, r := range []topologyRecord{next, again} {
		if in, _, _ := r.input(topologyInput{Topic: "users"}); !in.Moved {
			t.Errorf("users: %+v", in)
		}
		if in, _, _ := r.input(topologyInput{Topic: "orders"}); in.Moved {
			t.Errorf("orders: %+v", in)
		}
	}
}

// TestRetentionFollowsLife: the changelog of windows was made for the life that they had then.
func TestRetentionFollowsLife(t *testing.T) {
	const day = 24 * time.Hour
	p := plan()
	p.Subs[1].Stores[0].Life = 10 * day
	r, err := resolve("app", 1, p, 0, nil, topics(4, 4))
	if err != nil {
		t.Fatal(err)
	}
	name := r.subs[1].changelogs[1]
	for has, want := range map[time.Duration]int{9 * day: 1, 27 * day: 0, 30 * day: 0, -time.Millisecond: 0, 0: 0} {
		short := r.shortRetention(map[string]txn.TopicInfo{name: {RetentionMs: has.Milliseconds()}})
		if len(short) != want || want > 0 && !strings.Contains(short[0], "should be 2332800000") {
			t.Errorf("retention of %s: %q", has, short)
		}
	}
}
