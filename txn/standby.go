package txn

import (
	"math/bits"
	"slices"

	"github.com/millrace-stream/millrace/internal/record"
)

// AcceptableLag is the number of changelog records up to which a state counts as up to date: reading that many takes
// less than a second (KIP-441: acceptable.recovery.lag).
const AcceptableLag = 1<<acceptableBits - 1

const (
	acceptableBits = 14
	// What behind tells of states whose lag is not known: they are worth as much as 4 million records behind.
	behindUnknown = 8
	behindNothing = 64
)

// behind sorts states by how far behind they are, coarsely: 0 is up to date.
func behind(lag int64) int {
	if lag < 0 {
		return behindUnknown
	}
	return max(bits.Len64(uint64(lag))-acceptableBits, 0)
}

// assign is what one generation gives to each member: its subtasks, and the states that it keeps besides. A subtask of
// which somebody else still owns a partition waits for the next round. claims holds, for each partition, the members
// that own it.
func assign(l Layout, members []groupMember, claims map[record.TopicPartition][]string) (map[string][]record.SubtaskID, map[string][]Standby) {
	target := balance(l, members)
	if l.Standbys <= 0 {
		return handOver(l, target, claims), nil
	}
	warming := preferState(l, members, target)
	given := handOver(l, target, claims)
	return given, placeStandbys(l, members, target, given, claims, warming)
}

// preferState changes a balance so that no stateful subtask goes to a member whose state is behind while another one's is
// not: the other owns it, and the one that the balance had chosen warms up first (KIP-441). The owner counts as up to
// date. It returns who warms up for what. There is no ping-pong: a subtask moves only to where the balance wants it, or
// away from an owner that is gone.
func preferState(l Layout, members []groupMember, target map[string][]record.SubtaskID) map[record.SubtaskID]string {
	ms := eligible(members)
	owner := owners(ms)
	state := make([]map[record.SubtaskID]int, len(ms))
	load := make([]int, len(ms))
	at := make(map[record.SubtaskID]int)
	for i, m := range ms {
		state[i] = make(map[record.SubtaskID]int)
		for _, k := range m.Kept {
			state[i][k.Subtask] = behind(k.Lag)
		}
		load[i] = len(target[m.ID])
		for _, id := range target[m.ID] {
			at[id] = i
		}
	}
	for id, i := range owner {
		state[i][id] = 0
	}
	of := func(i int, id record.SubtaskID) int {
		if b, ok := state[i][id]; ok {
			return b
		}
		return behindNothing
	}
	warming := make(map[record.SubtaskID]string)
	for _, id := range l.stateful() {
		want, ok := at[id]
		if !ok || !ms[want].Keeps {
			continue // it has no way to warm up
		}
		best := want
		for i := range ms {
			switch a, b := of(i, id), of(best, id); {
			case a < b:
				best = i
			case a == b && best != want && load[i] < load[best]:
				best = i
			}
		}
		if o, ok := owner[id]; ok && of(best, id) == of(o, id) && best != want {
			best = o
		}
		if best == want {
			continue
		}
		warming[id] = ms[want].ID
		load[want]--
		load[best]++
		at[id] = best
	}
	for i, m := range ms {
		target[m.ID] = nil
		for _, id := range l.subtasks() {
			if j, ok := at[id]; ok && j == i {
				target[m.ID] = append(target[m.ID], id)
			}
		}
	}
	return warming
}

// stateful are the subtasks with state, sorted.
func (l Layout) stateful() []record.SubtaskID {
	with := make(map[int]bool)
	for _, s := range l.Subs {
		with[s.ID] = s.Stateful
	}
	return slices.DeleteFunc(l.subtasks(), func(id record.SubtaskID) bool { return !with[id.SubTopology] })
}

// placeStandbys gives every stateful subtask as many standbys as the layout wants, or as there are other members, and one
// more where a member warms up. None is on a member that owns the subtask, gets it, or has still to let go of it. In this
// order it sees to it that
//   - members have as equal numbers of standbys as can be;
//   - as many as that allows are in another rack than their owner;
//   - as many as that allows stay where they are, or go where the state lies.
//
// It is a flow of least cost: source -> subtask (its standbys) -> member (1) -> sink, each further standby of a member
// costing more.
func placeStandbys(l Layout, members []groupMember, target, given map[string][]record.SubtaskID,
	claims map[record.TopicPartition][]string, warming map[record.SubtaskID]string) map[string][]Standby {
	out := make(map[string][]Standby)
	ms := slices.DeleteFunc(eligible(members), func(m groupMember) bool { return !m.Keeps })
	ids := l.stateful()
	rack := make(map[string]string)
	for _, m := range members {
		rack[m.ID] = m.Rack
	}
	goes, gets := byMember(target), byMember(given)

	// A member that will be the owner once the former one has let go keeps its standby until then.
	free := make([][]int, len(ids)) // by subtask: members that may be given a standby
	total := 0
	for n, id := range ids {
		parts := make(map[string][]int32)
		l.partitionsOf(id, parts)
		busy := map[string]bool{gets[id]: true}
		for t, ps := range parts {
			for _, p := range ps {
				for _, m := range claims[record.TopicPartition{Topic: t, Partition: p}] {
					busy[m] = true
				}
			}
		}
		warm := warming[id]
		if next := goes[id]; warm == "" && next != gets[id] {
			warm = next
		}
		for i, m := range ms {
			switch {
			case busy[m.ID]:
			case m.ID == warm:
				out[m.ID] = append(out[m.ID], Standby{id, warming[id] != ""})
			default:
				free[n] = append(free[n], i)
			}
		}
		total += min(l.Standbys, len(free[n]))
	}

	// The weights: any number of what is less important counts less than one of what is more.
	const standby, kept = 3, 1
	sameRack := standby*total + 1
	uneven := sameRack*(total+1) + 1
	f := newFlow(2 + len(ids) + len(ms))
	source, sink := 0, 1
	type cell struct{ n, i, edge int }
	var cells []cell
	has := make([]map[record.SubtaskID]int, len(ms))
	for i, m := range ms {
		has[i] = make(map[record.SubtaskID]int)
		for _, k := range m.Kept {
			has[i][k.Subtask] = kept
			if k.Standby {
				has[i][k.Subtask] = standby
			}
		}
		for _, id := range m.Owned { // it was the owner until now
			has[i][id] = kept
		}
		share := total/len(ms) + 2
		for k := range share {
			f.edge(2+len(ids)+i, sink, 1, k*uneven)
		}
		f.edge(2+len(ids)+i, sink, total, share*uneven)
	}
	for n, id := range ids {
		f.edge(source, 2+n, min(l.Standbys, len(free[n])), 0)
		for _, i := range free[n] {
			cost := -has[i][id]
			if r := rack[goes[id]]; r != "" && r == ms[i].Rack {
				cost += sameRack
			}
			cells = append(cells, cell{n, i, f.edge(2+n, 2+len(ids)+i, 1, cost)})
		}
	}
	f.run(source, sink)
	for _, c := range cells {
		if f.used(c.edge) > 0 {
			out[ms[c.i].ID] = append(out[ms[c.i].ID], Standby{Subtask: ids[c.n]})
		}
	}
	for _, s := range out {
		slices.SortFunc(s, func(a, b Standby) int { return a.Subtask.Compare(b.Subtask) })
	}
	return out
}

func byMember(m map[string][]record.SubtaskID) map[record.SubtaskID]string {
	out := make(map[record.SubtaskID]string)
	for member, ids := range m {
		for _, id := range ids {
			out[id] = member
		}
	}
	return out
}
