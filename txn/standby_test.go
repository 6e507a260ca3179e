package txn

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
)

// keeperSim plays a cooperative group whose members keep standbys: who owns what, what each of them keeps and how far
// behind that is.
type keeperSim struct {
	l       Layout
	rnd     *rand.Rand
	members []*keeperMember
	next    int
	gen     int32
	moves   int // subtasks that changed their owner, or were taken away
}

type keeperMember struct {
	groupMember
	standbys []Standby
	disk     map[record.SubtaskID]int64 // lag of what lies there and is not owned
}

func (s *keeperSim) join() *keeperMember {
	s.next++
	m := &keeperMember{disk: make(map[record.SubtaskID]int64)}
	m.ID, m.Eligible, m.Keeps = fmt.Sprintf("m%03d", s.rnd.IntN(1000)*1000+s.next), true, true
	s.members = append(s.members, m)
	return m
}

// round is one generation. It says whether anything changed.
func (s *keeperSim) round(t *testing.T) (changed bool) {
	t.Helper()
	s.gen++
	claims := make(map[record.TopicPartition][]string)
	before := make(map[record.SubtaskID]string)
	var ms []groupMember
	for _, m := range s.members {
		parts := make(map[string][]int32)
		for _, id := range m.Owned {
			s.l.partitionsOf(id, parts)
			before[id] = m.ID
		}
		for tn, ps := range parts {
			for _, p := range ps {
				tp := record.TopicPartition{Topic: tn, Partition: p}
				claims[tp] = append(claims[tp], m.ID)
			}
		}
		d := joinData{Keeps: m.Keeps, Rack: m.Rack}
		for id, lag := range m.disk {
			k := Kept{Subtask: id, Lag: lag}
			k.Standby = slices.ContainsFunc(m.standbys, func(b Standby) bool { return b.Subtask == id })
			d.Kept = append(d.Kept, k)
		}
		d, err := decodeJoinData(d.encode()) // the leader knows no more than this
		if err != nil {
			t.Fatal(err)
		}
		m.Kept = d.Kept
		ms = append(ms, m.groupMember)
	}
	s.rnd.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	given, standbys := assign(s.l, ms, claims)
	s.check(t, before, given, standbys)
	for _, m := range s.members {
		for _, id := range m.Owned {
			if !slices.Contains(given[m.ID], id) {
				m.disk[id] = 0
				s.moves++
			}
		}
		for _, id := range given[m.ID] {
			delete(m.disk, id)
		}
		changed = changed || !slices.Equal(m.Owned, given[m.ID]) || !slices.Equal(m.standbys, standbys[m.ID])
		m.Owned, m.Generation, m.standbys = given[m.ID], s.gen, standbys[m.ID]
		for _, b := range m.standbys {
			if _, ok := m.disk[b.Subtask]; !ok {
				m.disk[b.Subtask] = 1 << 20 // it begins from nothing
			}
		}
	}
	return changed
}

// check is what must hold in every single round.
func (s *keeperSim) check(t *testing.T, before map[record.SubtaskID]string, given map[string][]record.SubtaskID, standbys map[string][]Standby) {
	t.Helper()
	owner := make(map[record.SubtaskID]string)
	for m, ids := range given {
		for _, id := range ids {
			if other, ok := owner[id]; ok {
				t.Fatalf("subtask %s has two owners, %s and %s", id, other, m)
			}
			if by, ok := before[id]; ok && by != m {
				t.Fatalf("subtask %s goes to %s while %s still owns it", id, m, by)
			}
			owner[id] = m
		}
	}
	for _, id := range s.l.subtasks() {
		if owner[id] == "" && before[id] == "" {
			t.Fatalf("subtask %s belongs to nobody, and nobody has to let go of it", id)
		}
	}
	count, warm := make(map[record.SubtaskID]int), make(map[record.SubtaskID]int)
	stateful := s.l.stateful()
	for m, bs := range standbys {
		for i, b := range bs {
			if !slices.Contains(stateful, b.Subtask) {
				t.Fatalf("%s is to keep a standby of %s, which has no state", m, b.Subtask)
			}
			if owner[b.Subtask] == m || before[b.Subtask] == m {
				t.Fatalf("%s owns subtask %s and is to keep a standby of it", m, b.Subtask)
			}
			if i > 0 && bs[i-1].Subtask == b.Subtask {
				t.Fatalf("%s is to keep two standbys of %s", m, b.Subtask)
			}
			count[b.Subtask]++
			if b.WarmUp {
				warm[b.Subtask]++
			}
		}
	}
	for id, n := range count {
		// One more where somebody warms up, or is about to take over.
		more := 0
		if warm[id] > 0 || owner[id] == "" {
			more = 1
		}
		if n > s.l.Standbys+more || warm[id] > 1 {
			t.Fatalf("subtask %s has %d standbys, %d of them warm up, want at most %d", id, n, warm[id], s.l.Standbys)
		}
	}
}

// catchUp brings every standby up to date, and says whether a member has to tell so.
func (s *keeperSim) catchUp() (tell bool) {
	for _, m := range s.members {
		for _, b := range m.standbys {
			m.disk[b.Subtask] = int64(s.rnd.IntN(AcceptableLag))
			tell = tell || b.WarmUp
		}
	}
	return tell
}

func (s *keeperSim) find(id string) *keeperMember {
	i := slices.IndexFunc(s.members, func(m *keeperMember) bool { return m.ID == id })
	return s.members[i]
}

// TestStandbysConverge lets members come and go at random; after each change the group comes to rest within a few
// rounds, balanced, with all standbys in place and evenly spread.
func TestStandbysConverge(t *testing.T) {
	r := seeded(t)
	for range 150 {
		s := &keeperSim{l: randomLayout(r, 3, 12), rnd: r}
		s.l.Standbys = 1 + r.IntN(3)
		for j := range s.l.Subs {
			s.l.Subs[j].Stateful = r.IntN(4) > 0
		}
		s.join()
		for range 10 {
			if r.IntN(2) == 0 || len(s.members) < 2 {
				for range 1 + r.IntN(2) {
					s.join()
				}
			} else {
				i := r.IntN(len(s.members))
				s.members = slices.Delete(s.members, i, i+1)
			}
			if r.IntN(3) == 0 { // somebody comes or goes again before the others have caught up
				s.round(t)
				continue
			}
			rounds := 0
			for s.round(t) || s.catchUp() {
				if rounds++; rounds > 20 { // a few for each time that somebody has warmed up
					t.Fatalf("no rest after %d rounds", rounds)
				}
			}
			got := make(map[string][]record.SubtaskID)
			standbys := make(map[string]int)
			wanted := 0
			for _, m := range s.members {
				got[m.ID] = m.Owned
				standbys[m.ID] = len(m.standbys)
				wanted += len(m.standbys)
			}
			checkBalanced(t, s.l, got, len(s.members))
			if want := len(s.l.stateful()) * min(s.l.Standbys, len(s.members)-1); wanted != want {
				t.Fatalf("%d standbys with %d members, want %d", wanted, len(s.members), want)
			}
			least, most := wanted, 0
			for _, n := range standbys {
				least, most = min(least, n), max(most, n)
			}
			// Owners of stateful subtasks may be apart by one for each sub-topology.
			if most-least > 1+len(s.l.Subs) || len(s.l.Subs) == 1 && most-least > 1 {
				t.Fatalf("standbys are spread unevenly: %v", standbys)
			}
		}
	}
}

// TestTakeoverGoesToTheStandby kills members of a group at rest: every stateful subtask goes at once to a member that kept
// its state up to date, and what the others own stays where it is.
func TestTakeoverGoesToTheStandby(t *testing.T) {
	r := seeded(t)
	for range 200 {
		s := &keeperSim{l: randomLayout(r, 1, 24), rnd: r} // several may have to move for the sum of all
		s.l.Standbys = 1
		for j := range s.l.Subs {
			s.l.Subs[j].Stateful = true
		}
		for range 2 + r.IntN(4) {
			s.join()
		}
		for s.round(t) || s.catchUp() {
		}
		i := r.IntN(len(s.members))
		dead := s.members[i]
		s.members = slices.Delete(s.members, i, i+1)
		s.moves = 0
		s.round(t)
		if s.moves > 0 {
			t.Fatalf("%d subtasks of members that live were taken away at a takeover", s.moves)
		}
		for _, id := range dead.Owned {
			for _, m := range s.members {
				if _, kept := m.disk[id]; slices.Contains(m.Owned, id) && kept {
					t.Fatal("an owner reports its own state as kept")
				}
			}
			var owner string
			for _, m := range s.members {
				if slices.Contains(m.Owned, id) {
					owner = m.ID
				}
			}
			was := slices.ContainsFunc(s.find(owner).Kept, func(k Kept) bool { return k.Subtask == id && k.Lag >= 0 && k.Lag <= AcceptableLag })
			if !was {
				t.Fatalf("subtask %s of the dead member went to %s, which had no standby of it", id, owner)
			}
		}
	}
}

// TestNewMemberWarmsUpFirst: a member that joins anew gets no stateful subtask before it has its state, and all of its
// share then; one whose disk is up to date gets it at once.
func TestNewMemberWarmsUpFirst(t *testing.T) {
	l := Layout{Fingerprint: "f", Standbys: 1, Subs: []LayoutSub{{ID: 0, Parallelism: 6, Inputs: []LayoutInput{{"a", 6}}, Stateful: true},
		{ID: 1, Parallelism: 2, Inputs: []LayoutInput{{"b", 2}}}}}
	s := &keeperSim{l: l, rnd: seeded(t)}
	s.join()
	for s.round(t) {
	}
	b := s.join()
	for s.round(t) {
	}
	for _, id := range b.Owned {
		if id.SubTopology == 0 {
			t.Fatalf("the new member owns %v before it has any state", b.Owned)
		}
	}
	warm := 0
	for _, k := range b.standbys {
		if k.WarmUp {
			warm++
		}
	}
	if len(b.Owned) != 1 || len(b.standbys) != 6 || warm != 3 {
		t.Fatalf("the new member owns %v and keeps %v, want one subtask without state, and all standbys, of which 3 warm up", b.Owned, b.standbys)
	}
	s.catchUp()
	if s.round(t); len(b.Owned) != 1 { // the owner lets go
		t.Fatalf("the new member has %v while the owner still owns them", b.Owned)
	}
	if s.round(t); len(b.Owned) != 4 || len(b.standbys) != 3 {
		t.Fatalf("the new member has %v and keeps %v once it is up to date", b.Owned, b.standbys)
	}
	for s.round(t) {
	}
	s.moves = 0
	c := s.join()
	c.disk = map[record.SubtaskID]int64{}
	for _, id := range l.stateful() {
		c.disk[id] = 100
	}
	for s.round(t) {
	}
	stateful := 0
	for _, id := range c.Owned {
		if id.SubTopology == 0 {
			stateful++
		}
	}
	if stateful != 2 {
		t.Fatalf("a member that is up to date owns %v", c.Owned)
	}
}

// TestStandbysPreferAnotherRack: no standby is in the rack of its owner, if there are enough members elsewhere.
func TestStandbysPreferAnotherRack(t *testing.T) {
	s := &keeperSim{rnd: seeded(t), l: Layout{Fingerprint: "f", Standbys: 1, Subs: []LayoutSub{{ID: 0, Parallelism: 12, Inputs: []LayoutInput{{"a", 12}}, Stateful: true}}}}
	for i := range 6 {
		s.join().Rack = fmt.Sprint("rack-", i%3)
	}
	for s.round(t) || s.catchUp() {
	}
	rack := make(map[record.SubtaskID]string)
	for _, m := range s.members {
		for _, id := range m.Owned {
			rack[id] = m.Rack
		}
	}
	for _, m := range s.members {
		if len(m.standbys) != 2 {
			t.Errorf("%s keeps %v, want 2", m.ID, m.standbys)
		}
		for _, b := range m.standbys {
			if rack[b.Subtask] == m.Rack {
				t.Errorf("%s keeps a standby of %s, whose owner is in the same rack", m.ID, b.Subtask)
			}
		}
	}
}

// TestStandbysStayWhereTheyAre: of all placements that are as good, the one is taken that there is, or that state on the
// disks asks for.
func TestStandbysStayWhereTheyAre(t *testing.T) {
	l := Layout{Fingerprint: "f", Standbys: 1, Subs: []LayoutSub{{ID: 0, Parallelism: 3, Inputs: []LayoutInput{{"a", 3}}, Stateful: true}}}
	for _, standby := range []bool{true, false} {
		for shift := 1; shift <= 2; shift++ {
			var ms []groupMember
			claims := make(map[record.TopicPartition][]string)
			for i := range 3 {
				id := record.SubtaskID{Index: i}
				kept := Kept{Subtask: record.SubtaskID{Index: (i + shift) % 3}, Standby: standby, Lag: -1}
				ms = append(ms, groupMember{ID: fmt.Sprint("m", i), Eligible: true, Keeps: true, Owned: []record.SubtaskID{id}, Kept: []Kept{kept}})
				claims[record.TopicPartition{Topic: "a", Partition: int32(i)}] = []string{ms[i].ID}
			}
			_, got := assign(l, ms, claims)
			for i, m := range ms {
				if want := []Standby{{Subtask: record.SubtaskID{Index: (i + shift) % 3}}}; !slices.Equal(got[m.ID], want) {
					t.Errorf("shift %d: %s is to keep %v, want %v", shift, m.ID, got[m.ID], want)
				}
			}
		}
	}
}

// TestMembersOfBothVersions: a member that keeps no standbys speaks version 1, gets its subtasks and no standby, and what
// it is told an older program can read.
func TestMembersOfBothVersions(t *testing.T) {
	l := Layout{Version: 1, Fingerprint: "f", Standbys: 2, Subs: []LayoutSub{{ID: 0, Parallelism: 3, Inputs: []LayoutInput{{"a", 3}}, Stateful: true}}}
	id := record.SubtaskID{}
	old := joinData{Fingerprint: "f", LayoutVersion: 1, Kept: []Kept{{Subtask: id, Lag: 12}}}
	b := old.encode()
	if want := []byte{1, 1, 1, 'f', 1, 0, 0}; !slices.Equal(b, want) {
		t.Fatalf("version 1 of the join data is % x, want % x", b, want)
	}
	if b := (syncData{"f", 1, false, nil}).encode(); !slices.Equal(b, []byte{1, 0, 1, 1, 'f'}) {
		t.Fatalf("version 1 of the assignment is % x", b)
	}
	d, err := decodeJoinData(b)
	if err != nil || d.Keeps || d.Kept[0].Lag != -1 {
		t.Fatalf("%+v, %v", d, err)
	}
	given, standbys := assign(l, []groupMember{{ID: "old", Eligible: true, Kept: d.Kept}, {ID: "a", Eligible: true, Keeps: true},
		{ID: "b", Eligible: true, Keeps: true}}, nil)
	for _, m := range []string{"old", "a", "b"} {
		if len(given[m]) != 1 {
			t.Errorf("%s gets %v", m, given[m])
		}
	}
	if len(standbys["old"]) != 0 || len(standbys["a"]) != 2 || len(standbys["b"]) != 2 {
		t.Errorf("standbys %v", standbys)
	}
	now := joinData{Fingerprint: "f", LayoutVersion: 1, Keeps: true, Rack: "r", Kept: []Kept{{id, true, 1000}, {id, false, -1}, {id, true, 0}}}
	got, err := decodeJoinData(now.encode())
	now.Kept[0].Lag = 1023 // as many bits
	if err != nil || !reflect.DeepEqual(got, now) {
		t.Errorf("%+v came back as %+v, %v", now, got, err)
	}
}

func BenchmarkAssign(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	l := Layout{Version: 1, Fingerprint: "f", Standbys: 2}
	for j := range 8 {
		l.Subs = append(l.Subs, LayoutSub{j, 60, []LayoutInput{{fmt.Sprint("t", j), 60}}, true})
	}
	ms := someMembers(r, 40)
	for i := range ms {
		ms[i].Keeps = true
	}
	ownedAtRandom(r, l, ms)
	for b.Loop() {
		assign(l, ms, nil)
	}
}
