package engine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// entryKey is the key of an entry of a store, for a record key with that hash.
func entryKey(st topologyStore, hash uint32, end int64) []byte {
	k := binary.BigEndian.AppendUint32(nil, uint32(st.ID))
	if st.Kind == statestore.KindWindows || st.Kind == statestore.KindTimers {
		k = binary.BigEndian.AppendUint64(k, uint64(end)^1<<63)
	}
	k = binary.BigEndian.AppendUint16(k, uint16(hash%statestore.Groups))
	return binary.BigEndian.AppendUint32(k, hash)
}

func divisor(rnd *rand.Rand, of ...int) int {
	var all []int
	for n := 1; n <= 16; n++ {
		ok := true
		for _, x := range of {
			ok = ok && x%n == 0
		}
		if ok {
			all = append(all, n)
		}
	}
	return all[rnd.IntN(len(all))]
}

// TestBaseDividesStateAndOffsets moves state and offsets from S subtasks of P partitions to S' of P', for random numbers:
// each entry lands in exactly one new subtask, that of its key, and so does the offset of each partition. Windows that
// were gone in their old subtask stay gone, and no watermark or horizon is ahead of that of a part that it stands for.
func TestBaseDividesStateAndOffsets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for try := range 300 {
		parts0 := 1 + rnd.IntN(24)
		S := divisor(rnd, parts0)
		parts1 := parts0
		if rnd.IntN(2) == 0 {
			parts1 += rnd.IntN(24)
		}
		S1 := divisor(rnd, parts0, parts1, statestore.Groups)
		if rnd.IntN(4) == 0 && parts1%S == 0 {
			S1 = S // also one that does not divide the groups
		}
		table := topologyStore{Spec: statestore.Spec{Name: "op/table", ID: 7, Kind: statestore.KindTable}}
		windows := topologyStore{Spec: statestore.Spec{Name: "win/windows", ID: 8, Kind: statestore.KindWindows}}
		gone := topologyStore{Spec: statestore.Spec{Name: "gone/table", ID: 9, Kind: statestore.KindTable}}
		was := topologyRecord{Subs: []topologySub{{ID: 0, Parallelism: S, Stores: []topologyStore{table, gone, windows},
			Inputs: []topologyInput{{Topic: "in", Partitions: int32(parts0)}, {Topic: "by", Internal: true, Partitions: int32(parts0)}}}}}
		newTable, newWindows := table, windows
		newTable.ID = 70 // another id, in another sub-topology
		sub := topologySub{ID: 1, Parallelism: S1, Stores: []topologyStore{newTable, newWindows},
			Inputs: []topologyInput{{Topic: "in", Partitions: int32(parts1)}, {Topic: "by", Internal: true, Partitions: int32(parts1)}}}
		now := topologyRecord{Subs: []topologySub{{ID: 0, Parallelism: 1}, sub}}
		var old []oldPart
		for j := range S {
			rec := &txn.EpochRecord{Epoch: 9, Watermarks: map[string]int64{"win": int64(1000 + rnd.IntN(100)), "key/sent": 5}}
			if rnd.IntN(8) == 0 {
				delete(rec.Watermarks, "win")
			}
			if rnd.IntN(8) > 0 {
				rec.Horizons = []txn.Horizon{{Store: windows.ID, End: int64(900 + rnd.IntN(100))}}
			}
			for p := j; p < parts0; p += S {
				rec.Inputs = append(rec.Inputs, txn.InputProgress{Topic: "in", Partition: int32(p), Offset: int64(100 + p), Watermark: int64(p), MaxTime: int64(2 * p)},
					txn.InputProgress{Topic: "app-by-repartition", Partition: int32(p), Offset: 5, Upstream: []txn.UpstreamMark{{}}})
			}
			old = append(old, oldPart{record.SubtaskID{Index: j}, S, rec})
		}
		if faults := checkBase(was, old, now, nil); len(faults) > 0 {
			t.Fatalf("S %d -> %d, partitions %d -> %d are refused: %v", S, S1, parts0, parts1, faults)
		}
		plans := make([]*basePlan, S1)
		offsets := map[int32]int{}
		for k := range S1 {
			p, err := planBase(was, old, sub, k, 2)
			if err != nil {
				t.Fatalf("S %d -> %d, partitions %d -> %d: %v", S, S1, parts0, parts1, err)
			}
			plans[k] = p
			for _, in := range p.record.Inputs {
				if in.Topic != "in" || int(in.Partition)%S1 != k || in.Offset != int64(100+in.Partition) || in.Watermark != int64(in.Partition) || in.Upstream != nil {
					t.Fatalf("subtask %d of %d goes on with %+v", k, S1, in)
				}
				offsets[in.Partition]++
			}
		}
		for p := range int32(parts0) {
			if offsets[p] != 1 {
				t.Fatalf("S %d -> %d: partition %d of %d goes to %d subtasks", S, S1, p, parts0, offsets[p])
			}
		}
		for range 300 {
			hash := rnd.Uint32() & 0x7fffffff
			j := int(hash) % S
			for _, st := range []topologyStore{table, windows, gone} {
				end := int64(850 + rnd.IntN(200))
				key := entryKey(st, hash, end)
				h, _ := horizonOf(old[j].record, windows.ID)
				want := 1
				if st.Name == gone.Name || st.Kind == statestore.KindWindows && end <= h {
					want = 0
				}
				found := 0
				for k, p := range plans {
					for i := range p.sources {
						src := &p.sources[i]
						if src.part.id.Index != j {
							continue
						}
						to, skip, err := src.entry(key)
						if err != nil {
							t.Fatalf("S %d -> %d: %v", S, S1, err)
						}
						if skip {
							continue
						}
						found++
						if k != int(hash)%S1 {
							t.Fatalf("S %d -> %d: the key of hash %d goes to subtask %d", S, S1, hash, k)
						}
						if id, _ := statestore.KeyID(to); st.Name == table.Name && id != newTable.ID || string(to[4:]) != string(key[4:]) {
							t.Fatalf("key %x became %x", key, to)
						}
						// What stands for this part must not be ahead of it.
						w, ok := p.record.Watermarks["win"]
						if ow, have := old[j].record.Watermarks["win"]; ok && (!have || w > ow) {
							t.Fatalf("the watermark %d is ahead of that of part %d: %d %v", w, j, ow, have)
						}
						if nh, ok := horizonOf(p.record, windows.ID); ok && nh > h {
							t.Fatalf("the horizon %d is ahead of that of part %d: %d", nh, j, h)
						}
						if _, ok := p.record.Watermarks["key/sent"]; ok {
							t.Fatal("what repartition topics of the old incarnation were told is not forgotten")
						}
					}
				}
				if found != want {
					t.Fatalf("try %d, S %d -> %d, partitions %d -> %d: an entry of %s with hash %d and window end %d (horizon %d) lands in %d subtasks, want %d", try, S, S1, parts0, parts1, st.Name, hash, end, h, found, want)
				}
			}
		}
	}
}

// TestBaseKeepsWatermarks: with as many subtasks as before each goes on with its own watermarks and horizons.
func TestBaseKeepsWatermarks(t *testing.T) {
	st := topologyStore{Spec: statestore.Spec{Name: "w/windows", ID: 8, Kind: statestore.KindWindows}}
	sub := topologySub{Parallelism: 2, Stores: []topologyStore{st}, Inputs: []topologyInput{{Topic: "in", Partitions: 2}}}
	var old []oldPart
	for j := range 2 {
		old = append(old, oldPart{record.SubtaskID{Index: j}, 2, &txn.EpochRecord{Watermarks: map[string]int64{"w": int64(10 * j)}, Horizons: []txn.Horizon{{Store: 8, End: int64(100 * j)}}}})
	}
	for k := range 2 {
		p, err := planBase(topologyRecord{Subs: []topologySub{sub}}, old, sub, k, 2)
		if err != nil {
			t.Fatal(err)
		}
		if h, _ := horizonOf(p.record, 8); p.record.Watermarks["w"] != int64(10*k) || h != int64(100*k) || len(p.sources) != 1 {
			t.Errorf("subtask %d begins with %+v of %d parts", k, p.record, len(p.sources))
		}
	}
}

// TestBaseKeepsEnds: where the reading of a partition ends goes with the partition, whatever subtask it comes to.
func TestBaseKeepsEnds(t *testing.T) {
	sub := topologySub{Parallelism: 4, Inputs: []topologyInput{{Topic: "in", Partitions: 4}}}
	var old []oldPart
	for j := range 2 {
		rec := &txn.EpochRecord{Watermarks: map[string]int64{}}
		for _, p := range partitionsOf(j, 2, 4) {
			rec.Inputs = append(rec.Inputs, txn.InputProgress{Topic: "in", Partition: p, Offset: 1})
			rec.Watermarks[task.EndID("in", p)] = int64(10 + p)
		}
		old = append(old, oldPart{record.SubtaskID{Index: j}, 2, rec})
	}
	for k := range 4 {
		p, err := planBase(topologyRecord{Subs: []topologySub{sub}}, old, sub, k, 2)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int64{task.EndID("in", int32(k)): int64(10 + k)}; !maps.Equal(p.record.Watermarks, want) {
			t.Errorf("subtask %d begins with %v, want %v", k, p.record.Watermarks, want)
		}
	}
}

// TestBaseHandles: of each part some new subtask begins with what it prepared in other systems, and only one.
func TestBaseHandles(t *testing.T) {
	var old []oldPart
	for j := range 4 {
		old = append(old, oldPart{record.SubtaskID{Index: j}, 4, &txn.EpochRecord{Sinks: map[string][]byte{"sink": {byte(j)}}}})
	}
	sub := topologySub{Parallelism: 2, Inputs: []topologyInput{{Topic: "in", Partitions: 4}}}
	for k := range 2 {
		p, err := planBase(topologyRecord{Subs: []topologySub{sub}}, old, sub, k, 2)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.handles); got != fmt.Sprintf("map[sink:[[%d] [%d]]]", k, k+2) {
			t.Errorf("subtask %d begins with %s", k, got)
		}
	}
}

func TestCheckBase(t *testing.T) {
	st := []topologyStore{{Spec: statestore.Spec{Name: "w/windows", ID: 8, Kind: statestore.KindWindows}}}
	topo := func(subtasks int, in ...topologyInput) topologyRecord {
		return topologyRecord{Subs: []topologySub{{Parallelism: subtasks, Stores: st, Inputs: in}}}
	}
	in := func(n int32) topologyInput { return topologyInput{Topic: "in", Partitions: n} }
	by := func(n int32) topologyInput { return topologyInput{Topic: "by", Internal: true, Partitions: n} }
	id := func(b byte) map[string]txn.TopicInfo { return map[string]txn.TopicInfo{"in": {ID: [16]byte{b}}} }
	part := []oldPart{{record.SubtaskID{}, 1, &txn.EpochRecord{Inputs: []txn.InputProgress{{Topic: "in", TopicID: [16]byte{1}}}}}}
	for _, c := range []struct {
		name     string
		was, now topologyRecord
		topics   map[string]txn.TopicInfo
		want     string // "" = none
	}{
		{"as before", topo(4, in(4)), topo(4, in(4)), id(1), ""},
		{"divisor", topo(4, in(4)), topo(2, in(4)), id(1), ""},
		{"grown", topo(4, in(4)), topo(2, in(6)), id(1), ""},
		{"grown too far", topo(4, in(4)), topo(6, in(6)), id(1), "6 partitions and had 4"},
		{"behind a KeyBy", topo(4, by(4)), topo(6, by(6)), nil, ""},
		{"11 groups", topo(4, by(44)), topo(11, by(44)), nil, "choose one of 1 to 10"},
		{"11 as before", topo(11, by(44)), topo(11, by(44)), nil, ""},
		{"made anew", topo(4, in(4)), topo(4, in(4)), id(2), "deleted and created again"},
		{"not read any more", topo(4, in(4)), topo(4, by(4)), nil, ""},
	} {
		faults := strings.Join(checkBase(c.was, part, c.now, c.topics), "; ")
		if (c.want == "") != (faults == "") || !strings.Contains(faults, c.want) {
			t.Errorf("%s: %q, want %q", c.name, faults, c.want)
		}
	}
}

// TestBaseRefusesForeignKeys: an entry whose group is not that of its subtask was not partitioned by Kafka's default.
func TestBaseRefusesForeignKeys(t *testing.T) {
	st := topologyStore{Spec: statestore.Spec{Name: "op/table", ID: 7, Kind: statestore.KindTable}}
	was := topologyRecord{Subs: []topologySub{{Parallelism: 2, Stores: []topologyStore{st}, Inputs: []topologyInput{{Topic: "in", Partitions: 4}}}}}
	sub := topologySub{Parallelism: 4, Stores: []topologyStore{st}, Inputs: was.Subs[0].Inputs}
	p, err := planBase(was, []oldPart{{record.SubtaskID{Index: 1}, 2, &txn.EpochRecord{}}}, sub, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	for hash := range uint32(4) {
		_, skip, err := p.sources[0].entry(entryKey(st, hash, 0))
		switch {
		case hash%2 == 0:
			if err == nil || !strings.Contains(err.Error(), `"op/table"`) || !strings.Contains(err.Error(), "default partitioner") || classify(err) != actStop {
				t.Errorf("hash %d in subtask 1 of 2: %v", hash, err)
			}
		case err != nil || skip != (hash != 3):
			t.Errorf("hash %d: skip %v, %v", hash, skip, err)
		}
	}
}

func TestStartRequest(t *testing.T) {
	const own = "s3://bucket/prefix"
	for _, c := range []struct {
		start  Start
		origin string
		base   string // app name url
		fails  string
	}{
		{Start{}, "", "", ""},
		{Start{Mode: "latest", Nonce: "x"}, "", "", ""},
		{Start{Mode: "fresh"}, "fresh", "", ""},
		{Start{Mode: "fresh", Nonce: "2"}, "fresh#2", "", ""},
		{Start{Mode: "savepoint:before"}, "savepoint:before", "app before " + own, ""},
		{Start{Mode: "savepoint:app/before"}, "savepoint:before", "app before " + own, ""},
		{Start{Mode: "savepoint:" + own + "/app/savepoints/before/", Nonce: "n"}, "savepoint:before#n", "app before " + own, ""},
		{Start{Mode: "savepoint:other/before"}, "savepoint:other/before", "other before " + own, ""},
		{Start{Mode: "savepoint:s3://b2/app/savepoints/before"}, "savepoint:s3://b2/app/savepoints/before", "app before s3://b2", ""},
		{Start{Mode: "savepoint:file:///a/b/app/savepoints/x"}, "savepoint:file:///a/b/app/savepoints/x", "app x file:///a/b", ""},
		{Start{Mode: "savepoint:s3://b2/app/x"}, "", "", "not that of a savepoint's folder"},
		{Start{Mode: "savepoint:"}, "", "", "name of a savepoint"},
		{Start{Mode: "savepoint:a/b/c"}, "", "", "name of a savepoint"},
		{Start{Mode: "earliest"}, "", "", "want latest, fresh or savepoint"},
	} {
		origin, base, err := c.start.request("app", own)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || CheckStartMode(c.start.Mode) == nil {
				t.Errorf("%+v: %v, want %q", c.start, err, c.fails)
			}
			continue
		}
		got := ""
		if base != nil {
			got = fmt.Sprintf("%s %s %s", base.App, base.Name, base.URL)
		}
		if err != nil || origin != c.origin || got != c.base || CheckStartMode(c.start.Mode) != nil {
			t.Errorf("%+v: origin %q, base %q, %v; want %q, %q", c.start, origin, got, err, c.origin, c.base)
		}
	}
	if _, _, err := (Start{Mode: "savepoint:x"}).request("app", ""); err == nil || !strings.Contains(err.Error(), "checkpoint.url") {
		t.Errorf("no store: %v", err)
	}
}

// TestDecideStart goes through a life of an app: each start mode begins once, and an old one never takes back what came
// after it.
func TestDecideStart(t *testing.T) {
	var s txn.ControlState
	start := func(origin string, begins bool, incarnation uint64) {
		t.Helper()
		d := decideStart(s, origin)
		if d.begins != begins || d.incarnation != incarnation {
			t.Fatalf("start %q with %+v: %+v, want begins %v, incarnation %d", origin, s, d, begins, incarnation)
		}
		if d.begins {
			s = begin("app", s, d.incarnation, origin, nil)
		} else {
			s.Incarnation = d.incarnation
		}
	}
	start("", false, 1)
	s.Stopped, s.Savepoint, s.Topology, s.TopicIDs = &txn.Stopped{}, &txn.SavepointRequest{}, json.RawMessage("{}"), map[string]string{"a": "b"}
	start("fresh", true, 2)
	if s.Stopped != nil || s.Savepoint != nil || s.Topology != nil || s.TopicIDs != nil {
		t.Fatalf("the new incarnation keeps something of the old one: %+v", s)
	}
	start("fresh", false, 2)
	start("", false, 2)
	start("savepoint:x", true, 3)
	start("fresh", false, 3) // an old configuration
	start("savepoint:x", false, 3)
	start("fresh#2", true, 4)
	start("savepoint:x", false, 4)
	for n := range 3 * maxPast {
		start(fmt.Sprintf("fresh#n%d", n), true, uint64(5+n))
	}
	if len(s.Past) != maxPast || s.Past[maxPast-1] != fmt.Sprintf("fresh#n%d", 3*maxPast-2) {
		t.Errorf("%d origins are remembered, the last is %s", len(s.Past), s.Past[len(s.Past)-1])
	}
	first := txn.ControlState{}
	if d := decideStart(first, "savepoint:x"); !d.begins || d.incarnation != 1 {
		t.Errorf("the first start of an app: %+v", d)
	}
}

// TestInputsGrow: what the subtasks do not divide counts as it was, until a rescale.
func TestInputsGrow(t *testing.T) {
	was := topologyRecord{Subs: []topologySub{{Parallelism: 4, Inputs: []topologyInput{{Topic: "in", Partitions: 4}, {Topic: "other", Partitions: 8}, {Topic: "by", Internal: true, Partitions: 4}}}}}
	topics := map[string]txn.TopicInfo{"in": {Partitions: 4}, "other": {Partitions: 8}, "new": {Partitions: 5}}
	for _, c := range []struct{ in, other, wantIn, wantOther int32 }{{4, 8, 4, 8}, {8, 8, 8, 8}, {6, 12, 4, 12}, {13, 9, 4, 8}} {
		topics["in"], topics["other"] = txn.TopicInfo{Partitions: c.in}, txn.TopicInfo{Partitions: c.other}
		held := was.held(topics)
		if held["in"].Partitions != c.wantIn || held["other"].Partitions != c.wantOther || held["new"].Partitions != 5 || topics["in"].Partitions != c.in {
			t.Errorf("%+v: %+v", c, held)
		}
	}
}

func TestPlanRescale(t *testing.T) {
	store := []topologyStore{{Spec: statestore.Spec{Name: "count/value", ID: 8, Kind: statestore.KindTable}}}
	in := func(n int32) topologyInput { return topologyInput{Topic: "in", Partitions: n} }
	by := topologyInput{Topic: "by", Internal: true, Partitions: 4}
	sub := func(id, subtasks int, st []topologyStore, in topologyInput) topologySub {
		return topologySub{ID: id, Parallelism: subtasks, Stores: st, Inputs: []topologyInput{in}}
	}
	own := sub(1, 1, store, by)
	own.Fixed = true
	topics := func(n int32) map[string]txn.TopicInfo { return map[string]txn.TopicInfo{"in": {Partitions: n}} }
	for _, c := range []struct {
		name     string
		was      []topologySub
		subtasks int
		topics   map[string]txn.TopicInfo
		then     string // "<subtasks>" or "why" of each
		fails    string
	}{
		{"fewer", []topologySub{sub(0, 4, nil, in(4)), sub(1, 4, store, by)}, 2, topics(4), "2 2", ""},
		{"no divisor", []topologySub{sub(0, 4, nil, in(4)), sub(1, 4, store, by)}, 3, topics(4), "refused refused", ""},
		{"the program's own number", []topologySub{sub(0, 4, nil, in(4)), own}, 2, topics(4), "2 1", ""},
		{"the input has grown, and its topic behind the KeyBy does", []topologySub{sub(0, 4, nil, in(4)), sub(1, 4, store, by)}, 6, topics(6), "6 6", ""},
		{"keyed by the input, which has grown", []topologySub{sub(0, 4, store, in(4))}, 6, topics(6), "refused", ""},
		{"keyed by the input, a divisor of both", []topologySub{sub(0, 4, store, in(4))}, 2, topics(6), "2", ""},
		{"as it is", []topologySub{sub(0, 4, store, in(4))}, 4, topics(4), "", "nothing is to be done"},
		{"none", []topologySub{sub(0, 4, store, in(4))}, 0, topics(4), "", "at least 1"},
		{"the input is gone", []topologySub{sub(0, 4, store, in(4))}, 2, nil, "", "does not exist"},
	} {
		p, err := planRescale(topologyRecord{Subs: c.was}, c.subtasks, c.topics)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want %q", c.name, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var then []string
		for _, s := range p.Subs {
			if s.Stops {
				then = append(then, "refused")
				if s.Why == "" || !p.Refused() {
					t.Errorf("%s: refused without a reason: %+v", c.name, s)
				}
				continue
			}
			then = append(then, fmt.Sprint(s.Then))
		}
		if got := strings.Join(then, " "); got != c.then {
			t.Errorf("%s: %s, want %s", c.name, got, c.then)
		}
	}
}
