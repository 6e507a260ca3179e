package txn

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// seeded gives a random source whose seed is printed when the test fails.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func randomLayout(r *rand.Rand, maxSubs, maxPar int) Layout {
	l := Layout{Version: 1, Fingerprint: "f"}
	for j := range 1 + r.IntN(maxSubs) {
		par := 1 + r.IntN(maxPar)
		s := LayoutSub{ID: j, Parallelism: par}
		for i := range 1 + r.IntN(2) {
			s.Inputs = append(s.Inputs, LayoutInput{fmt.Sprintf("t%d-%d", j, i), int32(par * (1 + r.IntN(3)))})
		}
		l.Subs = append(l.Subs, s)
	}
	return l
}

// checkBalanced verifies what holds for every target: one owner each, members at most one apart.
func checkBalanced(t *testing.T, l Layout, got map[string][]record.SubtaskID, eligible int) {
	t.Helper()
	if len(got) != eligible {
		t.Fatalf("%d members in the assignment, want %d", len(got), eligible)
	}
	seen := make(map[record.SubtaskID]string)
	perSub := make(map[int]map[string]int)
	total := make(map[string]int)
	for _, s := range l.Subs {
		perSub[s.ID] = make(map[string]int)
	}
	for m, ids := range got {
		total[m] = len(ids)
		for _, c := range perSub {
			c[m] = 0
		}
	}
	for m, ids := range got {
		for _, id := range ids {
			if other, ok := seen[id]; ok {
				t.Fatalf("subtask %s has two owners, %s and %s", id, other, m)
			}
			seen[id] = m
			perSub[id.SubTopology][m]++
		}
	}
	if want := len(l.subtasks()); len(seen) != want {
		t.Fatalf("%d subtasks have an owner, want %d", len(seen), want)
	}
	apart := func(what string, c map[string]int) {
		vs := slices.Collect(maps.Values(c))
		if slices.Max(vs)-slices.Min(vs) > 1 {
			t.Fatalf("%s: members are more than one apart: %v", what, c)
		}
	}
	for id, c := range perSub {
		apart(fmt.Sprintf("sub-topology %d", id), c)
	}
	apart("total", total)
}

func kept(members []groupMember, got map[string][]record.SubtaskID) int {
	n := 0
	for _, m := range members {
		for _, id := range m.Owned {
			if slices.Contains(got[m.ID], id) {
				n++
			}
		}
	}
	return n
}

// mostKept tries every assignment of a small layout and returns how many subtasks can stay at most.
func mostKept(l Layout, members []groupMember) int {
	ids := l.subtasks()
	at := make([]int, len(ids))
	best := -1
	for {
		total := make([]int, len(members))
		perSub := make(map[int][]int)
		keep := 0
		for i, id := range ids {
			if perSub[id.SubTopology] == nil {
				perSub[id.SubTopology] = make([]int, len(members))
			}
			total[at[i]]++
			perSub[id.SubTopology][at[i]]++
			if slices.Contains(members[at[i]].Owned, id) {
				keep++
			}
		}
		ok := slices.Max(total)-slices.Min(total) <= 1
		for _, c := range perSub {
			ok = ok && slices.Max(c)-slices.Min(c) <= 1
		}
		if ok {
			best = max(best, keep)
		}
		i := 0
		for ; i < len(at); i++ {
			if at[i]++; at[i] < len(members) {
				break
			}
			at[i] = 0
		}
		if i == len(at) {
			return best
		}
	}
}

// ownedAtRandom gives each subtask at random to one of the members or to nobody.
func ownedAtRandom(r *rand.Rand, l Layout, members []groupMember) {
	lopsided := 1 + r.IntN(len(members))
	for _, id := range l.subtasks() {
		if i := r.IntN(lopsided + 1); i < lopsided {
			members[i].Owned = append(members[i].Owned, id)
		}
	}
}

func someMembers(r *rand.Rand, n int) []groupMember {
	ms := make([]groupMember, n)
	for i := range ms {
		ms[i] = groupMember{ID: fmt.Sprintf("m%02d-%d", i, r.IntN(1000)), Eligible: true, Generation: 5}
		if r.IntN(2) == 0 {
			ms[i].Instance = fmt.Sprintf("host-%d", i)
		}
	}
	return ms
}

func TestBalanceMovesLeast(t *testing.T) {
	r := seeded(t)
	for range 1500 {
		l := randomLayout(r, 2, 4)
		n := 1 + r.IntN(3)
		if len(l.subtasks()) > 7 {
			continue
		}
		ms := someMembers(r, n)
		ownedAtRandom(r, l, ms)
		got := balance(l, ms)
		checkBalanced(t, l, got, n)
		if k, want := kept(ms, got), mostKept(l, ms); k != want {
			t.Fatalf("layout %+v members %+v: %d subtasks stay, %d could; got %v", l, ms, k, want, got)
		}
	}
}

func TestBalanceIsDeterministicInMemberOrder(t *testing.T) {
	r := seeded(t)
	for range 1000 {
		l := randomLayout(r, 4, 16)
		ms := someMembers(r, 1+r.IntN(8))
		ownedAtRandom(r, l, ms)
		want := balance(l, ms)
		r.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		shuffled := l
		shuffled.Subs = slices.Clone(l.Subs)
		r.Shuffle(len(shuffled.Subs), func(i, j int) {
			shuffled.Subs[i], shuffled.Subs[j] = shuffled.Subs[j], shuffled.Subs[i]
		})
		if got := balance(shuffled, ms); !reflect.DeepEqual(got, want) {
			t.Fatalf("the order of members or sub-topologies changes the result:\n%v\n%v", got, want)
		}
	}
}

func TestBalanceLeavesOutTheIneligible(t *testing.T) {
	l := Layout{Fingerprint: "f", Subs: []LayoutSub{{ID: 0, Parallelism: 4, Inputs: []LayoutInput{{"a", 4}}}}}
	got := balance(l, []groupMember{{ID: "a", Owned: l.subtasks()}, {ID: "b", Eligible: true}})
	if len(got["a"]) != 0 || len(got["b"]) != 4 {
		t.Fatalf("got %v", got)
	}
	if got := balance(l, []groupMember{{ID: "a"}}); got != nil {
		t.Fatalf("nobody is eligible, got %v", got)
	}
}

func TestBalanceOldGenerationDoesNotOwn(t *testing.T) {
	l := Layout{Fingerprint: "f", Subs: []LayoutSub{{ID: 0, Parallelism: 2, Inputs: []LayoutInput{{"a", 2}}}}}
	all := l.subtasks()
	got := balance(l, []groupMember{
		{ID: "a", Eligible: true, Generation: 3, Owned: all[:1]},
		{ID: "b", Eligible: true, Generation: 4, Owned: all[:1]},
	})
	if want := map[string][]record.SubtaskID{"a": all[1:], "b": all[:1]}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestBalanceGivesStateBackToItsHolder(t *testing.T) {
	l := Layout{Fingerprint: "f", Subs: []LayoutSub{{ID: 0, Parallelism: 6, Inputs: []LayoutInput{{"a", 6}}}}}
	all := l.subtasks()
	// b was away: a and c run everything. What comes back to b is what lies on its disk.
	got := balance(l, []groupMember{
		{ID: "a", Eligible: true, Owned: []record.SubtaskID{all[0], all[1], all[2]}},
		{ID: "b", Eligible: true, Kept: []Kept{{Subtask: all[1], Lag: -1}, {Subtask: all[4], Lag: -1}}},
		{ID: "c", Eligible: true, Owned: []record.SubtaskID{all[3], all[4], all[5]}},
	})
	checkBalanced(t, l, got, 3)
	if !slices.Equal(got["b"], []record.SubtaskID{all[1], all[4]}) {
		t.Fatalf("b holds 0_1 and 0_4 and gets %v", got["b"])
	}
}

// groupSim plays a cooperative group: who owns what, and what the brokers would carry from round to round.
type groupSim struct {
	l       Layout
	members []groupMember
	gen     int32
}

// round is one generation: the leader balances, members give up what they miss, and take what is new.
func (g *groupSim) round(t *testing.T) (moved bool) {
	t.Helper()
	g.gen++
	claims := make(map[record.TopicPartition][]string)
	for _, m := range g.members {
		parts := make(map[string][]int32)
		for _, id := range m.Owned {
			g.l.partitionsOf(id, parts)
		}
		for tn, ps := range parts {
			for _, p := range ps {
				tp := record.TopicPartition{Topic: tn, Partition: p}
				claims[tp] = append(claims[tp], m.ID)
			}
		}
	}
	before := make(map[record.SubtaskID]string)
	for _, m := range g.members {
		for _, id := range m.Owned {
			before[id] = m.ID
		}
	}
	given := handOver(g.l, balance(g.l, g.members), claims)
	for i := range g.members {
		m := &g.members[i]
		for _, id := range given[m.ID] {
			if by, ok := before[id]; ok && by != m.ID {
				t.Fatalf("subtask %s goes to %s while %s still owns it", id, m.ID, by)
			}
		}
		if !slices.Equal(m.Owned, given[m.ID]) {
			moved = true
		}
		m.Owned, m.Generation = given[m.ID], g.gen
	}
	return moved
}

func TestGroupConverges(t *testing.T) {
	r := seeded(t)
	for range 300 {
		g := &groupSim{l: randomLayout(r, 4, 16)}
		next := 0
		join := func(eligible bool) {
			next++
			g.members = append(g.members, groupMember{ID: fmt.Sprintf("m%03d", r.IntN(1000)*1000+next), Eligible: eligible})
		}
		join(true)
		for range 12 {
			switch {
			case r.IntN(2) == 0 || len(g.members) < 2:
				for range 1 + r.IntN(3) {
					join(r.IntN(8) > 0)
				}
			default:
				for range 1 + r.IntN(len(g.members)-1) {
					i := r.IntN(len(g.members))
					g.members = slices.Delete(g.members, i, i+1)
				}
			}
			eligible := 0
			for _, m := range g.members {
				if m.Eligible {
					eligible++
				}
			}
			// One round gives the free ones out and takes away, the next hands over, the third changes nothing.
			g.round(t)
			g.round(t)
			if g.round(t) {
				t.Fatalf("not stable after two rounds: %+v", g.members)
			}
			if eligible == 0 {
				continue
			}
			got := make(map[string][]record.SubtaskID)
			for _, m := range g.members {
				if m.Eligible {
					got[m.ID] = m.Owned
				} else if len(m.Owned) > 0 {
					t.Fatalf("a member of another topology owns %v", m.Owned)
				}
			}
			checkBalanced(t, g.l, got, eligible)
		}
	}
}

// TestBalancerSpeaksKafka plays two rounds through the bytes of JoinGroup and SyncGroup.
func TestBalancerSpeaksKafka(t *testing.T) {
	l := Layout{Version: 2, Fingerprint: "abc", Subs: []LayoutSub{
		{ID: 0, Parallelism: 2, Inputs: []LayoutInput{{"a", 4}, {"b", 2}}},
		{ID: 1, Parallelism: 2, Inputs: []LayoutInput{{"c", 2}}},
	}}
	other := l
	other.Fingerprint = "xyz"
	var seen syncData
	bal := &balancer{layout: l, synced: func(m map[string][]int32, d syncData, err error) map[string][]int32 {
		if err != nil {
			t.Errorf("user data of the assignment: %v", err)
		}
		seen = d
		return m
	}}
	foreign := &balancer{layout: other}
	all := map[string][]int32{"a": {0, 1, 2, 3}, "b": {0, 1}, "c": {0, 1}}
	join := func(current map[string][]int32) []kmsg.JoinGroupResponseMember {
		return []kmsg.JoinGroupResponseMember{
			{MemberID: "m1", InstanceID: kmsg.StringPtr("i1"), ProtocolMetadata: bal.JoinGroupMetadata(nil, current, 7)},
			{MemberID: "m2", ProtocolMetadata: bal.JoinGroupMetadata(nil, nil, -1)},
			{MemberID: "m3", ProtocolMetadata: foreign.JoinGroupMetadata(nil, nil, -1)},
			{MemberID: "m4", ProtocolMetadata: []byte("rubbish")},
		}
	}
	sync := func(current map[string][]int32) (out []map[string][]int32, told []syncData) {
		mb, topics, err := bal.MemberBalancer(join(current))
		if err != nil || len(topics) != 0 {
			t.Fatal(topics, err)
		}
		for _, a := range mb.Balance(nil).IntoSyncAssignment() {
			m, err := bal.ParseSyncAssignment(a.MemberAssignment)
			if err != nil {
				t.Fatal(err)
			}
			out, told = append(out, m), append(told, seen)
		}
		return out, told
	}
	round1, told := sync(all)
	// m1 keeps one subtask of each sub-topology; the others it must give up first, so m2 gets nothing yet.
	want1 := []map[string][]int32{{"a": {0, 2}, "b": {0}, "c": {0}}, {}, {}, {}}
	if !reflect.DeepEqual(round1, want1) {
		t.Fatalf("first round: got %v, want %v", round1, want1)
	}
	for i, d := range told {
		if want := (syncData{"abc", 2, i >= 2, nil}); !reflect.DeepEqual(d, want) {
			t.Errorf("member %d is told %+v, want %+v", i+1, d, want)
		}
	}
	round2, _ := sync(round1[0])
	want2 := []map[string][]int32{{"a": {0, 2}, "b": {0}, "c": {0}}, {"a": {1, 3}, "b": {1}, "c": {1}}, {}, {}}
	if !reflect.DeepEqual(round2, want2) {
		t.Fatalf("second round: got %v, want %v", round2, want2)
	}
}

func TestLayoutValidate(t *testing.T) {
	ok := Layout{Fingerprint: "f", Subs: []LayoutSub{{ID: 0, Parallelism: 2, Inputs: []LayoutInput{{"a", 2}}}}}
	if err := ok.validate(); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Layout{
		"no fingerprint": {Subs: ok.Subs},
		"no subs":        {Fingerprint: "f"},
		"twice":          {Fingerprint: "f", Subs: append(slices.Clone(ok.Subs), ok.Subs...)},
		"shared topic":   {Fingerprint: "f", Subs: append(slices.Clone(ok.Subs), LayoutSub{1, 1, []LayoutInput{{"a", 2}}, false})},
		"too wide":       {Fingerprint: "f", Subs: []LayoutSub{{0, 3, []LayoutInput{{"a", 2}}, false}}},
		"parallelism":    {Fingerprint: "f", Subs: []LayoutSub{{0, 0, []LayoutInput{{"a", 2}}, false}}},
		"no partitions":  {Fingerprint: "f", Subs: []LayoutSub{{0, 1, []LayoutInput{{"a", 2}, {"b", 0}}, false}}},
	} {
		if l.validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLayoutPartitionsAndSubtasksAgree(t *testing.T) {
	r := seeded(t)
	for range 200 {
		l := randomLayout(r, 4, 12)
		count := 0
		for _, id := range l.subtasks() {
			parts := make(map[string][]int32)
			l.partitionsOf(id, parts)
			if got := l.subtasksIn(parts); !slices.Equal(got, []record.SubtaskID{id}) {
				t.Fatalf("partitions %v of %s belong to %v", parts, id, got)
			}
			for _, ps := range parts {
				count += len(ps)
			}
		}
		want := 0
		for _, s := range l.Subs {
			for _, in := range s.Inputs {
				want += int(in.Partitions)
			}
		}
		if count != want {
			t.Fatalf("%d partitions belong to subtasks, want %d", count, want)
		}
	}
}

func FuzzJoinData(f *testing.F) {
	id := record.SubtaskID{SubTopology: 1, Index: 2}
	f.Add(joinData{"f", 1, []Kept{{id, false, -1}}, false, "", ""}.encode())
	f.Add(joinData{"f", 1, []Kept{{id, true, 127}, {id, false, -1}}, true, "rack-1", ""}.encode())
	f.Add(joinData{"f", 1, nil, false, "", "host-1:9644"}.encode())
	f.Add(joinData{"f", 1, []Kept{{id, true, 1}}, true, "r", "host-2:9644"}.encode())
	f.Add(syncData{"f", 1, true, nil}.encode())
	f.Add(syncData{"f", 1, false, []Standby{{id, true}, {id, false}}}.encode())
	f.Add([]byte{metadataVersion, 1, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decodeJoinData(b); err == nil {
			again, err := decodeJoinData(d.encode())
			if err != nil || !reflect.DeepEqual(again, d) {
				t.Fatalf("%+v came back as %+v, %v", d, again, err)
			}
		}
		if d, err := decodeSyncData(b); err == nil {
			if again, err := decodeSyncData(d.encode()); err != nil || !reflect.DeepEqual(again, d) {
				t.Fatalf("%+v came back as %+v, %v", d, again, err)
			}
		}
	})
}

func BenchmarkBalance(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	l := Layout{Version: 1, Fingerprint: "f"}
	for j := range 8 {
		l.Subs = append(l.Subs, LayoutSub{j, 60, []LayoutInput{{fmt.Sprint("t", j), 60}}, true})
	}
	ms := someMembers(r, 40)
	ownedAtRandom(r, l, ms)
	for b.Loop() {
		balance(l, ms)
	}
}
