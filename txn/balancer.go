package txn

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// protocolName is the name of our assignment protocol in JoinGroup. Members with another one cannot join the group.
const protocolName = "millrace"

// The first byte of our user data in JoinGroup and SyncGroup. A member with a version that the leader does not know gets
// no subtask. Fields are only ever added together with a new version. Version 2 is spoken only by members that keep
// standbys, and to them: where nobody does, all is as in version 1, so that members of both understand each other.
const (
	metadataVersion        = 1
	metadataVersionStandby = 2
)

// validate checks that subtasks can be told from partitions: every subtask has one, and none has two subtasks.
func (l Layout) validate() error {
	if l.Fingerprint == "" {
		return errors.New("layout: fingerprint is empty")
	}
	if len(l.Subs) == 0 {
		return errors.New("layout: no sub-topology")
	}
	ids := make(map[int]bool)
	topics := make(map[string]int)
	for _, s := range l.Subs {
		if ids[s.ID] {
			return fmt.Errorf("layout: sub-topology %d is there twice", s.ID)
		}
		ids[s.ID] = true
		if s.Parallelism < 1 {
			return fmt.Errorf("layout: sub-topology %d has parallelism %d", s.ID, s.Parallelism)
		}
		most := int32(0)
		for _, in := range s.Inputs {
			if other, ok := topics[in.Topic]; ok {
				return fmt.Errorf("layout: topic %s is read by sub-topologies %d and %d; a group has one offset per "+
					"partition, so only one of them can read it", in.Topic, other, s.ID)
			}
			topics[in.Topic] = s.ID
			if in.Partitions < 1 {
				return fmt.Errorf("layout: topic %s has %d partitions", in.Topic, in.Partitions)
			}
			most = max(most, in.Partitions)
		}
		if int32(s.Parallelism) > most {
			return fmt.Errorf("layout: sub-topology %d has parallelism %d, but its inputs have at most %d partitions; "+
				"lower the parallelism", s.ID, s.Parallelism, most)
		}
	}
	return nil
}

// topics are the names of all inputs, sorted.
func (l Layout) topics() []string {
	var out []string
	for _, s := range l.Subs {
		for _, in := range s.Inputs {
			out = append(out, in.Topic)
		}
	}
	slices.Sort(out)
	return out
}

// subtasks are all subtasks, sorted.
func (l Layout) subtasks() []record.SubtaskID {
	var out []record.SubtaskID
	for _, s := range l.Subs {
		for k := range s.Parallelism {
			out = append(out, record.SubtaskID{SubTopology: s.ID, Index: k})
		}
	}
	slices.SortFunc(out, record.SubtaskID.Compare)
	return out
}

// partitionsOf adds the partitions of a subtask to m.
func (l Layout) partitionsOf(id record.SubtaskID, m map[string][]int32) {
	for _, s := range l.Subs {
		if s.ID != id.SubTopology {
			continue
		}
		for _, in := range s.Inputs {
			for p := int32(id.Index); p < in.Partitions; p += int32(s.Parallelism) {
				m[in.Topic] = append(m[in.Topic], p)
			}
		}
	}
}

// subtaskOf tells whose partition it is. A partition that the layout does not know (the topic has grown) belongs to
// nobody.
func (l Layout) subtaskOf(topic string, partition int32) (record.SubtaskID, bool) {
	for _, s := range l.Subs {
		for _, in := range s.Inputs {
			if in.Topic == topic {
				if partition < 0 || partition >= in.Partitions {
					return record.SubtaskID{}, false
				}
				return record.SubtaskID{SubTopology: s.ID, Index: int(partition) % s.Parallelism}, true
			}
		}
	}
	return record.SubtaskID{}, false
}

// subtasksIn are the subtasks that a set of partitions touches, sorted.
func (l Layout) subtasksIn(m map[string][]int32) []record.SubtaskID {
	seen := make(map[record.SubtaskID]bool)
	for t, ps := range m {
		for _, p := range ps {
			if id, ok := l.subtaskOf(t, p); ok {
				seen[id] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), record.SubtaskID.Compare)
}

// groupMember is what the balancing knows of a member.
type groupMember struct {
	ID         string
	Instance   string // static member id, "" = dynamic
	Generation int32  // the one in which it owned Owned
	// Eligible is false for a member with another fingerprint or metadata version: it gets nothing.
	Eligible bool
	Owned    []record.SubtaskID
	// Kept are subtasks whose state lies on the member's disk: from an earlier life, or as a standby. For the balance it is
	// only a hint; preferState goes by it.
	Kept []Kept
	// Keeps says that the member can be given standbys.
	Keeps bool
	Rack  string // "" = not known
}

// key orders members in a way that survives a restart of static members.
func (m groupMember) key() string {
	if m.Instance != "" {
		return "0" + m.Instance
	}
	return "1" + m.ID
}

// eligible are the members that can be given something, in an order that survives a restart of static members.
func eligible(members []groupMember) []groupMember {
	var ms []groupMember
	for _, m := range members {
		if m.Eligible {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(a, b groupMember) int {
		return cmp.Or(cmp.Compare(a.key(), b.key()), cmp.Compare(a.ID, b.ID))
	})
	return ms
}

// owners tells which of the members owns what. If two claim the same subtask, the older generation is out of date.
func owners(ms []groupMember) map[record.SubtaskID]int {
	owner := make(map[record.SubtaskID]int)
	for i, m := range ms {
		for _, id := range m.Owned {
			if j, ok := owner[id]; !ok || m.Generation > ms[j].Generation {
				owner[id] = i
			}
		}
	}
	return owner
}

// balance gives every subtask one owner among the eligible members. It is a pure function of layout and the set of
// members. In this order it sees to it that
//   - in each sub-topology, and in total, members differ by at most one subtask;
//   - as many subtasks as that allows stay with their owner;
//   - as many of the others as is easily found go where their state lies (Kept), the least behind first.
//
// The result is nil if nobody is eligible.
func balance(l Layout, members []groupMember) map[string][]record.SubtaskID {
	ms := eligible(members)
	if len(ms) == 0 {
		return nil
	}
	subs := slices.Clone(l.Subs)
	slices.SortFunc(subs, func(a, b LayoutSub) int { return a.ID - b.ID })
	known := make(map[record.SubtaskID]bool)
	for _, id := range l.subtasks() {
		known[id] = true
	}

	owner := owners(ms)
	for id := range owner {
		if !known[id] {
			delete(owner, id)
		}
	}
	holds := make([]map[record.SubtaskID]int, len(ms)) // member: how far behind, as behind tells
	owned := make([][]int, len(ms))                    // member, sub: how many
	held := make([][]int, len(ms))
	pos := make(map[int]int)
	for j, s := range subs {
		pos[s.ID] = j
	}
	for i, m := range ms {
		holds[i] = make(map[record.SubtaskID]int)
		owned[i], held[i] = make([]int, len(subs)), make([]int, len(subs))
		for _, k := range m.Kept {
			id := k.Subtask
			if _, twice := holds[i][id]; twice || !known[id] {
				continue
			}
			if o, ok := owner[id]; !ok || o != i {
				holds[i][id] = behind(k.Lag)
				held[i][pos[id.SubTopology]]++
			}
		}
	}
	for id, i := range owner {
		owned[i][pos[id.SubTopology]]++
	}

	quota := quotas(subs, owned, held)

	out := make(map[string][]record.SubtaskID, len(ms))
	for _, m := range ms {
		out[m.ID] = nil
	}
	for j, s := range subs {
		left := make([]int, len(ms))
		for i := range ms {
			left[i] = quota[i][j]
		}
		// An owner that must give something up gives what lies on the disk of somebody who has room.
		elsewhere := func(id record.SubtaskID) bool {
			for i := range ms {
				if _, ok := holds[i][id]; ok && quota[i][j] > owned[i][j] {
					return true
				}
			}
			return false
		}
		stays := make([]bool, s.Parallelism)
		for _, wanted := range []bool{false, true} {
			for k := range s.Parallelism {
				id := record.SubtaskID{SubTopology: s.ID, Index: k}
				if i, ok := owner[id]; ok && left[i] > 0 && elsewhere(id) == wanted {
					left[i]--
					out[ms[i].ID] = append(out[ms[i].ID], id)
					stays[k] = true
				}
			}
		}
		var free []record.SubtaskID
		for k, stay := range stays {
			if !stay {
				free = append(free, record.SubtaskID{SubTopology: s.ID, Index: k})
			}
		}
		var rest []record.SubtaskID
		for _, id := range free {
			to := -1
			for i := range ms {
				if b, ok := holds[i][id]; ok && left[i] > 0 && (to < 0 || b < holds[to][id]) {
					to = i
				}
			}
			if to < 0 {
				rest = append(rest, id)
				continue
			}
			left[to]--
			out[ms[to].ID] = append(out[ms[to].ID], id)
		}
		i := 0
		for _, id := range rest {
			for left[i] == 0 {
				i++
			}
			left[i]--
			out[ms[i].ID] = append(out[ms[i].ID], id)
		}
	}
	for _, ids := range out {
		slices.SortFunc(ids, record.SubtaskID.Compare)
	}
	return out
}

// quotas says how many subtasks of each sub-topology each member gets: quota[member][sub]. Everybody gets the
// rounded-down share; what is over ("extras") is one per member and sub-topology at most, and is dealt so that the
// totals differ by at most one, where it keeps the most subtasks in place. That is a transport problem, solved as a
// flow of least cost: source -> sub-topology (its extras) -> member (1) -> sink (the rounded-down number of extras a
// member must get, then one more).
func quotas(subs []LayoutSub, owned, held [][]int) [][]int {
	members := len(owned)
	quota := make([][]int, members)
	total := 0
	f := newFlow(2 + len(subs) + members)
	source, sink := 0, 1
	for j, s := range subs {
		extras := s.Parallelism % members
		total += extras
		f.edge(source, 2+j, extras, 0)
	}
	// One subtask that stays is worth more than all hints together, and filling a member's lower bound more than that.
	const hint = 1
	keep := hint * (total + 1)
	must := keep * (total + 1)
	type cell struct{ i, j, edge int }
	var cells []cell
	for i := range members {
		quota[i] = make([]int, len(subs))
		for j, s := range subs {
			base := s.Parallelism / members
			quota[i][j] = base
			cost := 0
			switch {
			case owned[i][j] > base:
				cost = -keep
			case owned[i][j]+held[i][j] > base:
				cost = -hint
			}
			cells = append(cells, cell{i, j, f.edge(2+j, 2+len(subs)+i, 1, cost)})
		}
		f.edge(2+len(subs)+i, sink, total/members, -must)
		f.edge(2+len(subs)+i, sink, 1, 0)
	}
	f.run(source, sink)
	for _, c := range cells {
		quota[c.i][c.j] += f.used(c.edge)
	}
	return quota
}

// flow is a small network for a maximum flow of least cost (successive shortest paths, Bellman-Ford, since costs are
// negative). Edges come in pairs, the second of each being the way back.
type flow struct {
	from, to, capacity, cost []int
	orig                     []int
	nodes                    int
}

func newFlow(nodes int) *flow { return &flow{nodes: nodes} }

func (f *flow) edge(from, to, capacity, cost int) int {
	id := len(f.to)
	f.from = append(f.from, from, to)
	f.to = append(f.to, to, from)
	f.capacity = append(f.capacity, capacity, 0)
	f.orig = append(f.orig, capacity, 0)
	f.cost = append(f.cost, cost, -cost)
	return id
}

func (f *flow) used(edge int) int { return f.orig[edge] - f.capacity[edge] }

func (f *flow) run(source, sink int) {
	const far = int(^uint(0) >> 2)
	dist := make([]int, f.nodes)
	by := make([]int, f.nodes)
	for {
		for i := range dist {
			dist[i], by[i] = far, -1
		}
		dist[source] = 0
		for changed := true; changed; {
			changed = false
			for e := range f.to {
				if f.capacity[e] > 0 && dist[f.from[e]] < far && dist[f.from[e]]+f.cost[e] < dist[f.to[e]] {
					dist[f.to[e]] = dist[f.from[e]] + f.cost[e]
					by[f.to[e]] = e
					changed = true
				}
			}
		}
		if dist[sink] == far {
			return
		}
		for n := sink; n != source; n = f.from[by[n]] {
			f.capacity[by[n]]--
			f.capacity[by[n]^1]++
		}
	}
}

// handOver is the second half of a cooperative balance: a subtask of which somebody else still owns a partition is
// left out of this round. Its owner sees that it is missing, revokes it and joins again, and then it is given out.
// claims holds, for each partition, the members that own it.
func handOver(l Layout, target map[string][]record.SubtaskID, claims map[record.TopicPartition][]string) map[string][]record.SubtaskID {
	out := make(map[string][]record.SubtaskID, len(target))
	for member, ids := range target {
		out[member] = nil
		for _, id := range ids {
			parts := make(map[string][]int32)
			l.partitionsOf(id, parts)
			free := true
			for t, ps := range parts {
				for _, p := range ps {
					for _, by := range claims[record.TopicPartition{Topic: t, Partition: p}] {
						free = free && by == member
					}
				}
			}
			if free {
				out[member] = append(out[member], id)
			}
		}
	}
	return out
}

// joinData is our part of the join metadata.
type joinData struct {
	Fingerprint   string
	LayoutVersion int
	Kept          []Kept
	Keeps         bool   // from here on: version 2
	Rack          string // only if Keeps
	Address       string // in both versions: what is left at the end, if anything
}

// encode writes, in version 1: version, layout version, fingerprint, number of kept states, per state sub-topology and
// index. Version 2 has behind each of these twice its lag code (0 = not known, else 1 + its bits), plus 1 if it is a
// standby; and the rack at the end.
func (d joinData) encode() []byte {
	b := []byte{metadataVersion}
	if d.Keeps {
		b[0] = metadataVersionStandby
	}
	b = binary.AppendUvarint(b, uint64(d.LayoutVersion))
	b = appendString(b, d.Fingerprint)
	b = binary.AppendUvarint(b, uint64(len(d.Kept)))
	for _, k := range d.Kept {
		b = binary.AppendUvarint(b, uint64(k.Subtask.SubTopology))
		b = binary.AppendUvarint(b, uint64(k.Subtask.Index))
		if !d.Keeps {
			continue
		}
		code := uint64(0)
		if k.Lag >= 0 {
			code = 1 + uint64(bits.Len64(uint64(k.Lag)))
		}
		code *= 2
		if k.Standby {
			code++
		}
		b = binary.AppendUvarint(b, code)
	}
	if d.Keeps {
		b = appendString(b, d.Rack)
	}
	if d.Address != "" {
		b = appendString(b, d.Address)
	}
	return b
}

// addressOf reads the address of a member from its join metadata.
func addressOf(metadata []byte) string {
	var meta kmsg.ConsumerMemberMetadata
	if meta.ReadFrom(metadata) != nil {
		return ""
	}
	d, err := decodeJoinData(meta.UserData)
	if err != nil {
		return ""
	}
	return d.Address
}

// errMetadata: user data of a group member that this version does not understand.
var errMetadata = errors.New("group member metadata is of another version or damaged")

// decodeJoinData reads what encode wrote. A lag comes back as the greatest with as many bits.
func decodeJoinData(b []byte) (d joinData, err error) {
	r := byteReader{b: b}
	switch r.byte() {
	case metadataVersion:
	case metadataVersionStandby:
		d.Keeps = true
	default:
		return d, errMetadata
	}
	d.LayoutVersion = int(r.uvarint())
	d.Fingerprint = r.string()
	n := r.uvarint()
	for range n {
		if r.bad {
			break
		}
		k := Kept{Subtask: record.SubtaskID{SubTopology: int(r.uvarint()), Index: int(r.uvarint())}, Lag: -1}
		if d.Keeps {
			code := r.uvarint()
			k.Standby = code&1 == 1
			switch code /= 2; {
			case code > 64:
				r.bad = true
			case code > 0:
				k.Lag = 1<<(code-1) - 1
			}
		}
		d.Kept = append(d.Kept, k)
	}
	if d.Keeps {
		d.Rack = r.string()
	}
	if len(r.b) > 0 {
		d.Address = r.string()
	}
	if r.bad || len(r.b) != 0 {
		return joinData{}, errMetadata
	}
	return d, nil
}

// syncData is our part of a member's assignment: it says by which topology the leader has balanced. A static member
// that returns is given its old assignment without a balance, so that the member itself must compare.
type syncData struct {
	Fingerprint   string // of the leader
	LayoutVersion int
	Refused       bool      // the leader could not use this member
	Standbys      []Standby // what the member keeps besides its subtasks; version 2
}

// encode writes, in version 1: version, refused (0, 1), layout version, fingerprint. Version 2 adds the number of
// standbys, per standby sub-topology, index, and whether it is to take over (0, 1).
func (d syncData) encode() []byte {
	b := []byte{metadataVersion, 0}
	if len(d.Standbys) > 0 {
		b[0] = metadataVersionStandby
	}
	if d.Refused {
		b[1] = 1
	}
	b = binary.AppendUvarint(b, uint64(d.LayoutVersion))
	b = appendString(b, d.Fingerprint)
	if len(d.Standbys) > 0 {
		b = binary.AppendUvarint(b, uint64(len(d.Standbys)))
		for _, s := range d.Standbys {
			b = binary.AppendUvarint(b, uint64(s.Subtask.SubTopology))
			b = binary.AppendUvarint(b, uint64(s.Subtask.Index))
			b = appendBool(b, s.WarmUp)
		}
	}
	return b
}

func decodeSyncData(b []byte) (d syncData, err error) {
	r := byteReader{b: b}
	version := r.byte()
	if version != metadataVersion && version != metadataVersionStandby {
		return d, errMetadata
	}
	d.Refused = r.byte() == 1
	d.LayoutVersion = int(r.uvarint())
	d.Fingerprint = r.string()
	if version == metadataVersionStandby {
		for range r.uvarint() {
			if r.bad {
				break
			}
			d.Standbys = append(d.Standbys, Standby{
				Subtask: record.SubtaskID{SubTopology: int(r.uvarint()), Index: int(r.uvarint())}, WarmUp: r.byte() == 1,
			})
		}
	}
	if r.bad || len(r.b) != 0 {
		return syncData{}, errMetadata
	}
	return d, nil
}

// byteReader reads what encode wrote; after the first fault everything reads as zero and bad is set.
type byteReader struct {
	b   []byte
	bad bool
}

func (r *byteReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *byteReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<31 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *byteReader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// balancer is our kgo.GroupBalancer: whole subtasks, cooperative. It holds no state of its own.
type balancer struct {
	layout Layout
	rack   string
	// synced is told every assignment, on kgo's group goroutine, before kgo acts on it. What it returns is what we take.
	synced func(assigned map[string][]int32, d syncData, err error) map[string][]int32
}

// ProtocolName implements kgo.GroupBalancer.
func (*balancer) ProtocolName() string { return protocolName }

// IsCooperative implements kgo.GroupBalancer.
func (*balancer) IsCooperative() bool { return true }

// JoinGroupMetadata implements kgo.GroupBalancer. The topics are those of the layout and not those that kgo has
// loaded so far, since metadata that differs makes the broker rebalance.
func (b *balancer) JoinGroupMetadata(_ []string, current map[string][]int32, generation int32) []byte {
	var meta kmsg.ConsumerMemberMetadata
	meta.Default()
	meta.Version = 2 // with owned partitions and generation (KIP-429, KIP-792)
	meta.Topics = b.layout.topics()
	meta.UserData = b.joinData().encode()
	for _, t := range slices.Sorted(maps.Keys(current)) {
		op := kmsg.NewConsumerMemberMetadataOwnedPartition()
		op.Topic, op.Partitions = t, current[t]
		meta.OwnedPartitions = append(meta.OwnedPartitions, op)
	}
	meta.Generation = generation
	return meta.AppendTo(nil)
}

// joinData is what this member tells the leader at this moment.
func (b *balancer) joinData() joinData {
	d := joinData{Fingerprint: b.layout.Fingerprint, LayoutVersion: b.layout.Version, Keeps: b.layout.Standbys > 0, Address: b.layout.Address}
	if b.layout.Keeper != nil {
		d.Kept = b.layout.Keeper.Kept()
	}
	if d.Keeps {
		d.Rack = b.rack
	}
	return d
}

// ParseSyncAssignment implements kgo.GroupBalancer.
func (b *balancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	assigned := make(map[string][]int32)
	var d syncData
	var err error
	if len(assignment) > 0 {
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(assignment); err != nil {
			return nil, fmt.Errorf("read group assignment: %w", err)
		}
		for _, t := range a.Topics {
			assigned[t.Topic] = t.Partitions
		}
		d, err = decodeSyncData(a.UserData)
	} else {
		err = errMetadata
	}
	return b.synced(assigned, d, err), nil
}

// MemberBalancer implements kgo.GroupBalancer. Partition counts are those of the layout, so we ask for none.
func (b *balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	return memberBalancer{b.layout, members}, nil, nil
}

// memberBalancer balances the members of one generation.
type memberBalancer struct {
	layout  Layout
	members []kmsg.JoinGroupResponseMember
}

// syncPlan implements kgo.IntoSyncAssignment.
type syncPlan []kmsg.SyncGroupRequestGroupAssignment

func (p syncPlan) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return p }

// Balance implements kgo.GroupMemberBalancer.
func (b memberBalancer) Balance(map[string]int32) kgo.IntoSyncAssignment {
	members := make([]groupMember, 0, len(b.members))
	claims := make(map[record.TopicPartition][]string)
	for _, jm := range b.members {
		m := groupMember{ID: jm.MemberID}
		if jm.InstanceID != nil {
			m.Instance = *jm.InstanceID
		}
		var meta kmsg.ConsumerMemberMetadata
		if meta.ReadFrom(jm.ProtocolMetadata) == nil {
			m.Generation = meta.Generation
			current := make(map[string][]int32)
			for _, o := range meta.OwnedPartitions {
				current[o.Topic] = append(current[o.Topic], o.Partitions...)
				for _, p := range o.Partitions {
					tp := record.TopicPartition{Topic: o.Topic, Partition: p}
					claims[tp] = append(claims[tp], m.ID)
				}
			}
			if d, err := decodeJoinData(meta.UserData); err == nil {
				m.Eligible = d.Fingerprint == b.layout.Fingerprint && d.LayoutVersion == b.layout.Version
				m.Kept, m.Keeps, m.Rack = d.Kept, d.Keeps, d.Rack
			}
			m.Owned = b.layout.subtasksIn(current)
		}
		members = append(members, m)
	}
	given, standbys := assign(b.layout, members, claims)
	plan := make(syncPlan, 0, len(members))
	for _, m := range members {
		parts := make(map[string][]int32)
		for _, id := range given[m.ID] {
			b.layout.partitionsOf(id, parts)
		}
		var a kmsg.ConsumerMemberAssignment
		a.Default()
		for _, t := range slices.Sorted(maps.Keys(parts)) {
			at := kmsg.NewConsumerMemberAssignmentTopic()
			at.Topic, at.Partitions = t, parts[t]
			slices.Sort(at.Partitions)
			a.Topics = append(a.Topics, at)
		}
		a.UserData = syncData{b.layout.Fingerprint, b.layout.Version, !m.Eligible, standbys[m.ID]}.encode()
		sa := kmsg.NewSyncGroupRequestGroupAssignment()
		sa.MemberID, sa.MemberAssignment = m.ID, a.AppendTo(nil)
		plan = append(plan, sa)
	}
	slices.SortFunc(plan, func(x, y kmsg.SyncGroupRequestGroupAssignment) int { return cmp.Compare(x.MemberID, y.MemberID) })
	return plan
}
