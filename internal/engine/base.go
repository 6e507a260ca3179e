package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// What a subtask of a new incarnation begins with, out of the parts of a savepoint. Equal keys lie on equal subtasks: with
// S subtasks a key's is hash mod S, its partition is hash mod P, its key group hash mod 5040, and S divides P. So the part
// of old subtask j of S can hold something for new subtask k of S' only if j and k are equal modulo gcd(S, S'); entries
// are told apart by their group, if S' divides 5040, and partitions by their number. When S' is S, a part goes whole.

// oldPart is what one old subtask has put into a savepoint, without the entries.
type oldPart struct {
	id     record.SubtaskID
	of     int // subtasks of its sub-topology
	record *txn.EpochRecord
}

// basePlan is what one new subtask begins with.
type basePlan struct {
	sources []baseSource
	// record is that of an epoch 0: offsets, watermarks and horizons to go on with.
	record *txn.EpochRecord
	// handles are those of Externals: see task.Begun.
	handles map[string][][]byte
}

// baseSource is what of an old part goes into a new subtask.
type baseSource struct {
	part oldPart
	// stores that are taken over, by their old ids.
	stores map[statestore.ID]baseStore
	// Entries are taken over if their group modulo this is take, the index of the new subtask; 0 = all are.
	modulus, take int
	// All entries must be in groups that are the part's index modulo this. 1 = nothing is known.
	check int
}

// baseStore is where the entries of an old store go.
type baseStore struct {
	name    string
	kind    statestore.Kind
	to      statestore.ID
	horizon int64 // windows up to it are gone; math.MinInt64 = none
	// replicated: see statestore.Spec.Replicated.
	replicated bool
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// partsOf reads what a savepoint tells of its parts.
func partsOf(sp *checkpoint.Savepoint) (topologyRecord, []oldPart, error) {
	fail := func(err error) (topologyRecord, []oldPart, error) {
		return topologyRecord{}, nil, fmt.Errorf("read savepoint %s of app %s: %w", sp.Name, sp.App, err)
	}
	was, err := parseTopology(sp.Topology)
	if err != nil {
		return fail(err)
	}
	var parts []oldPart
	for _, m := range sp.Subtasks {
		id, err := record.ParseSubtaskID(m.Subtask)
		if err != nil {
			return fail(err)
		}
		sub, ok := was.sub(id.SubTopology)
		if !ok || id.Index >= sub.Parallelism {
			return fail(fmt.Errorf("it has state of subtask %s, but its topology has no such subtask", id))
		}
		rec, err := txn.DecodeEpochRecord(m.EpochRecord)
		if err != nil {
			return fail(fmt.Errorf("subtask %s: %w", id, err))
		}
		parts = append(parts, oldPart{id, sub.Parallelism, rec})
	}
	return was, parts, nil
}

// planBase decides what subtask k of a new sub-topology begins with (pure). It refuses what checkBase refuses.
func planBase(was topologyRecord, parts []oldPart, sub topologySub, k int, incarnation uint64) (*basePlan, error) {
	n := sub.Parallelism
	p := &basePlan{record: &txn.EpochRecord{Incarnation: incarnation, Watermarks: map[string]int64{}}}
	var mine []oldPart // those that can hold something for k
	for _, part := range parts {
		if (part.id.Index-k)%gcd(part.of, n) == 0 {
			mine = append(mine, part)
		}
	}
	for _, part := range parts {
		if part.id.Index%n == k {
			p.handles = addHandles(p.handles, part.record)
		}
		for _, in := range part.record.Inputs {
			if int(in.Partition)%n != k || !slices.ContainsFunc(sub.Inputs, func(x topologyInput) bool { return !x.Internal && x.Topic == in.Topic }) {
				continue // the repartition topics of an incarnation begin empty
			}
			in.Upstream = nil
			p.record.Inputs = append(p.record.Inputs, in)
			id := task.EndID(in.Topic, in.Partition)
			if end, ok := part.record.Watermarks[id]; ok {
				p.record.Watermarks[id] = end
			}
		}
	}
	slices.SortFunc(p.record.Inputs, func(a, b txn.InputProgress) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, part := range mine {
		src := baseSource{part: part, stores: map[statestore.ID]baseStore{}, take: k, check: gcd(part.of, statestore.Groups)}
		if part.of != n {
			src.modulus = n
		}
		old, _ := was.sub(part.id.SubTopology)
		for _, st := range old.Stores {
			i := slices.IndexFunc(sub.Stores, func(x topologyStore) bool { return x.Name == st.Name })
			if i < 0 {
				continue
			}
			horizon, _ := horizonOf(part.record, st.ID)
			src.stores[st.ID] = baseStore{st.Name, st.Kind, sub.Stores[i].ID, horizon, st.Replicated}
		}
		if len(src.stores) == 0 {
			continue
		}
		if part.of != n && statestore.Groups%n != 0 {
			return nil, fmt.Errorf("the state of sub-topology %d was made by %d subtasks and cannot be divided among %d: the number must divide %d", part.id.SubTopology, part.of, n, statestore.Groups)
		}
		p.sources = append(p.sources, src)
	}
	p.record.Horizons = horizonsOf(p.sources)
	watermarksOf(mine, p.record.Watermarks)
	return p, nil
}

// addHandles adds those of an epoch record.
func addHandles(handles map[string][][]byte, rec *txn.EpochRecord) map[string][][]byte {
	if rec == nil || len(rec.Sinks) == 0 {
		return handles
	}
	if handles == nil {
		handles = map[string][][]byte{}
	}
	for name, h := range rec.Sinks {
		handles[name] = append(handles[name], h)
	}
	return handles
}

func horizonOf(rec *txn.EpochRecord, id statestore.ID) (int64, bool) {
	for _, h := range rec.Horizons {
		if h.Store == id {
			return h.End, true
		}
	}
	return math.MinInt64, false
}

// horizonsOf are those of the new stores: the least of what is put together. What is gone in one part alone is left out
// when its entries are read.
func horizonsOf(sources []baseSource) []txn.Horizon {
	least := map[statestore.ID]int64{}
	for _, src := range sources {
		for _, st := range src.stores {
			if h, ok := least[st.to]; !ok || st.horizon < h {
				least[st.to] = st.horizon
			}
		}
	}
	var hs []txn.Horizon
	for _, id := range slices.Sorted(maps.Keys(least)) {
		if least[id] != math.MinInt64 {
			hs = append(hs, txn.Horizon{Store: id, End: least[id]})
		}
	}
	return hs
}

// watermarksOf puts the watermarks of operators into marks: the least of those parts, and none if one of them has none.
// What was sent to the repartition topics is forgotten with them.
func watermarksOf(parts []oldPart, marks map[string]int64) {
	bySub := map[int][]oldPart{}
	for _, p := range parts {
		bySub[p.id.SubTopology] = append(bySub[p.id.SubTopology], p)
	}
	for _, parts := range bySub {
	operators:
		for id, least := range parts[0].record.Watermarks {
			if strings.Contains(id, "/") {
				continue
			}
			for _, p := range parts[1:] {
				w, ok := p.record.Watermarks[id]
				if !ok {
					continue operators
				}
				least = min(least, w)
			}
			marks[id] = least
		}
	}
}

// checkBase lists why a topology cannot begin from a savepoint, besides what the table of compatibility tells (pure).
// topics are the external ones, as they are now.
func checkBase(was topologyRecord, parts []oldPart, now topologyRecord, topics map[string]txn.TopicInfo) []string {
	var faults []string
	addf := func(format string, a ...any) {
		if f := fmt.Sprintf(format, a...); !slices.Contains(faults, f) {
			faults = append(faults, f)
		}
	}
	for _, sub := range now.Subs {
		n := sub.Parallelism
		for _, st := range sub.Stores {
			_, old, ok := was.store(st.Name)
			if !ok || old.Parallelism == n {
				continue
			}
			if why := cannotDivide(sub, old.Parallelism, was); why != "" {
				addf("sub-topology %d: %s", sub.ID, why)
			}
		}
		for _, in := range sub.Inputs {
			info, ok := topics[in.Topic]
			if in.Internal || !ok {
				continue
			}
			for _, part := range parts {
				for _, p := range part.record.Inputs {
					if p.Topic == in.Topic && p.TopicID != info.ID {
						addf("input topic %s was deleted and created again since (was %s, is %s): the offsets of the savepoint are those of the old one", in.Topic, txn.TopicIDString(p.TopicID), txn.TopicIDString(info.ID))
					}
				}
			}
		}
	}
	return faults
}

// cannotDivide says why the state of a sub-topology with stores, which was made by old subtasks, cannot go to its number
// of subtasks (pure); "" = it can.
func cannotDivide(sub topologySub, old int, was topologyRecord) string {
	n := sub.Parallelism
	if statestore.Groups%n != 0 {
		return fmt.Sprintf("state moves by key groups, and %d subtasks do not divide their number, %d; choose one of 1 to 10, 12, 14, 15, 16", n, statestore.Groups)
	}
	for _, in := range sub.Inputs {
		if in.Internal {
			continue
		}
		had := in.Partitions
		if o, _, ok := was.input(in); ok {
			had = o.Partitions
		}
		if int(had)%n != 0 || int(in.Partitions)%n != 0 {
			return fmt.Sprintf("its state goes by the partitions of %s, which has %s: %d subtasks must divide that; choose a divisor of %d, or put a KeyBy in front, whose topic has partitions of its own",
				in.Topic, partitionsText(had, in.Partitions), n, gcd(int(had), int(in.Partitions)))
		}
	}
	return ""
}

func partitionsText(had, has int32) string {
	if had == has {
		return fmt.Sprintf("%d partitions", has)
	}
	return fmt.Sprintf("%d partitions and had %d", has, had)
}

// entry decides what becomes of an entry of a store (pure): skip, or the key under which it goes on.
func (s *baseSource) entry(key []byte) (to []byte, skip bool, err error) {
	id, err := statestore.KeyID(key)
	if err != nil {
		return nil, false, err
	}
	st, ok := s.stores[id]
	if !ok {
		return nil, true, nil
	}
	group, err := statestore.KeyGroup(st.kind, key)
	if err != nil {
		return nil, false, err
	}
	if st.replicated {
		if s.part.id.Index != s.take%s.part.of {
			return nil, true, nil // one of the old copies is enough
		}
		key, err = statestore.WithGroup(st.kind, key, statestore.Group(s.take))
		return statestore.WithID(key, st.to), false, err
	}
	if s.modulus != 0 {
		if int(group)%s.check != s.part.id.Index%s.check {
			return nil, false, fatalf("state %q of subtask %s of %d has the key %s in key group %d, which belongs to another subtask: its input was not partitioned by Kafka's default partitioner, so that the state cannot be divided anew; keep the number of subtasks, or put a KeyBy in front of the operator and begin without its state",
				st.name, s.part.id, s.part.of, keyText(st.kind, key), group)
		}
		if int(group)%s.modulus != s.take {
			return nil, true, nil
		}
	}
	if st.kind.Windowed() {
		end, err := statestore.WindowEnd(key)
		if err != nil || end <= st.horizon {
			return nil, true, err
		}
	}
	if st.to == id {
		return key, false, nil
	}
	return statestore.WithID(key, st.to), false, nil
}
