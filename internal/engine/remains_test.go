package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

func TestParseInternal(t *testing.T) {
	for name, want := range map[string]string{
		"a-0-changelog":                "1 changelog 0",
		"a-12-changelog-expiring":      "1 changelog-expiring 12",
		"a-i3-12-changelog":            "3 changelog 12",
		"a-by-user-repartition":        "1 repartition by-user",
		"a-i2-by-user-repartition":     "1 repartition i2-by-user, 2 repartition by-user",
		"a-i1-0-changelog":             "", // the first incarnation has no mark
		"a-i02-0-changelog":            "",
		"a-00-changelog":               "",
		"a-+1-changelog":               "",
		"a--1-changelog":               "",
		"a-eu-0-changelog":             "",
		"a--repartition":               "",
		"a-repartition":                "",
		"a-0-changelog-x":              "",
		"a-control":                    "",
		"a-dead-letter":                "",
		"ab-0-changelog":               "",
		"a-99999999999999999999-x":     "",
		"a-i99999999999999999999-0-ch": "",
	} {
		var got []string
		for _, w := range parseInternal("a", name) {
			what := w.id
			if w.kind != kindRepartition {
				what = fmt.Sprint(w.sub)
			}
			got = append(got, fmt.Sprintf("%d %s %s", w.incarnation, w.kind, what))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// topicsNamed are topics with ids that follow from their names.
func topicsNamed(names ...string) map[string]txn.TopicInfo {
	topics := map[string]txn.TopicInfo{}
	for _, n := range names {
		topics[n] = txn.TopicInfo{Name: n, ID: idNamed(n), Partitions: 4}
	}
	return topics
}

func idNamed(name string) (id [16]byte) {
	for i := range name {
		id[i%16] = id[i%16]*31 + name[i]
	}
	return id
}

// agreed is the state of an app with two sub-topologies and a repartition topic of operator op between them.
func agreed(t *testing.T, incarnation uint64, op, in string, topics ...string) txn.ControlState {
	t.Helper()
	top, err := json.Marshal(topologyRecord{Subs: []topologySub{
		{ID: 0, Parallelism: 4, Inputs: []topologyInput{{Topic: in, Partitions: 4}}},
		{ID: 1, Parallelism: 2, Inputs: []topologyInput{{Topic: op, Internal: true, Partitions: 4}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := txn.ControlState{Incarnation: incarnation, Topology: top, Parallelism: []int{4, 2}, TopicIDs: map[string]string{}}
	for _, n := range topics {
		s.TopicIDs[n] = txn.TopicIDString(idNamed(n))
	}
	return s
}

// TestOnlyOwnTopics: an app's topics are told from those of an app whose id begins alike, and from others that only look
// like them.
func TestOnlyOwnTopics(t *testing.T) {
	orders := agreed(t, 2, "by-user", "orders-in", "orders-in", "orders-out-repartition", "orders-i2-0-changelog", "orders-i2-1-changelog", "orders-i2-1-changelog-expiring", "orders-i2-by-user-repartition", "orders-i2-z-dead-letter")
	orders.Old = map[string]string{}
	for _, n := range []string{"orders-0-changelog", "orders-by-user-repartition", "orders-zone-repartition"} {
		orders.Old[n] = txn.TopicIDString(idNamed(n))
	}
	states := map[string]txn.ControlState{
		"orders":    orders,
		"orders-eu": agreed(t, 1, "by-user", "orders-in", "orders-in", "orders-eu-0-changelog", "orders-eu-1-changelog", "orders-eu-by-user-repartition"),
		"orders-i2": agreed(t, 1, "by-user", "orders-in", "orders-in", "orders-i2-7-changelog"),
	}
	i2 := states["orders-i2"]
	i2.Old = map[string]string{"orders-i2-7-changelog": txn.TopicIDString(idNamed("orders-i2-7-changelog"))}
	states["orders-i2"] = i2
	own := []string{
		"orders-0-changelog", "orders-7-changelog", "orders-by-user-repartition", "orders-i2-0-changelog", "orders-i2-1-changelog", "orders-i2-1-changelog-expiring",
		"orders-i2-by-user-repartition", "orders-i3-0-changelog", "orders-zone-repartition",
	}
	topics := topicsNamed(append(slices.Clone(own),
		"orders-control", "orders-dead-letter", "orders-in", "orders-out-repartition", "orders-x", "ordersx-0-changelog",
		"orders-eu-control", "orders-eu-0-changelog", "orders-eu-1-changelog", "orders-eu-by-user-repartition", "orders-eu-by-user-2-repartition",
		"orders-i2-control", "orders-i2-7-changelog", "orders-i2-8-changelog", "orders-zz-control", "orders-zz-zone-repartition", "orders-i9-0-changelog", "orders-KSTREAM-3-repartition", "-control")...)
	// One of the old incarnation was created again since.
	topics["orders-zone-repartition"] = txn.TopicInfo{Name: "orders-zone-repartition", ID: [16]byte{1}, Partitions: 4}
	var asked []string
	read := func(app string) (txn.ControlState, error) {
		asked = append(asked, app)
		s, ok := states[app]
		if !ok {
			return s, errors.New("not authorized")
		}
		return s, nil
	}
	for app, want := range map[string]struct {
		own     []string
		unclear map[string]string
	}{
		"orders": {own, map[string]string{
			"orders-eu-by-user-2-repartition": "app orders-eu, too",
			"orders-i2-8-changelog":           "app orders-i2, too",
			"orders-zz-zone-repartition":      "cannot be read (not authorized)",
			"orders-i9-0-changelog":           "incarnation 9, but the app is at 2",
			"orders-KSTREAM-3-repartition":    "no such operator",
		}},
		"orders-eu": {[]string{"orders-eu-0-changelog", "orders-eu-1-changelog", "orders-eu-by-user-repartition"}, map[string]string{"orders-eu-by-user-2-repartition": "app orders, too"}},
	} {
		asked = nil
		c := claims{app: app, state: states[app], topics: topics, read: read}
		got, unclear, err := c.find()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, x := range got {
			names = append(names, x.Name)
			if x.ID != topics[x.Name].ID || x.Partitions != 4 {
				t.Errorf("app %s: %+v", app, x)
			}
		}
		if !slices.Equal(names, want.own) {
			t.Errorf("app %s: own topics\n%v, want\n%v", app, names, want.own)
		}
		var doubts []string
		for _, u := range unclear {
			doubts = append(doubts, u.Name)
			if !strings.Contains(u.Why, want.unclear[u.Name]) || want.unclear[u.Name] == "" {
				t.Errorf("app %s: %s is unclear: %q, want %q", app, u.Name, u.Why, want.unclear[u.Name])
			}
		}
		if len(doubts) != len(want.unclear) {
			t.Errorf("app %s: unclear are %v, want %v", app, doubts, slices.Sorted(maps.Keys(want.unclear)))
		}
		slices.Sort(asked)
		if len(slices.Compact(slices.Clone(asked))) != len(asked) || slices.Contains(asked, app) {
			t.Errorf("app %s: control topics were read of %v", app, asked)
		}
	}

	// Nothing is known: only what the name alone decides.
	c := claims{app: "lost", topics: topicsNamed("lost-0-changelog", "lost-i7-0-changelog", "lost-by-user-repartition", "lost-eu-0-changelog"), read: read}
	got, unclear, err := c.find()
	if err != nil || len(got) != 2 || len(unclear) != 1 || unclear[0].Name != "lost-by-user-repartition" {
		t.Errorf("without a control topic: %v, unclear %v, %v", got, unclear, err)
	}
	ids := subtasksIn(txn.ControlState{Parallelism: []int{1, 3}}, got)
	if want := []record.SubtaskID{{}, {Index: 1}, {Index: 2}, {Index: 3}, {SubTopology: 1}, {SubTopology: 1, Index: 1}, {SubTopology: 1, Index: 2}}; !slices.Equal(ids, want) {
		t.Errorf("subtasks: %v, want %v", ids, want)
	}
}

// TestOldTopicsAreRemembered: a new incarnation remembers the topics of those before it, and nothing else's.
func TestOldTopicsAreRemembered(t *testing.T) {
	s := agreed(t, 1, "by-user", "in", "in", "out", "a-0-changelog", "a-by-user-repartition", "a-dead-letter")
	s = begin("a", s, 2, "fresh", nil)
	s.Topology = agreed(t, 2, "by-item", "in").Topology
	s.TopicIDs = map[string]string{"in": "x", "a-i2-0-changelog": "y", "a-i2-by-item-repartition": "z"}
	s = begin("a", s, 3, "fresh#2", nil)
	if got, want := slices.Sorted(maps.Keys(s.Old)), []string{"a-0-changelog", "a-by-user-repartition", "a-i2-0-changelog", "a-i2-by-item-repartition"}; !slices.Equal(got, want) {
		t.Errorf("remembered are %v, want %v", got, want)
	}
}
