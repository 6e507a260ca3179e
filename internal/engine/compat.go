package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// topologyRecord is what the control topic keeps of a topology, to compare the next start with.
type topologyRecord struct {
	Subs []topologySub `json:"subs"`
	// Dropped are the states that earlier topologies of the incarnation had. Their entries are still in the changelogs, so
	// that a state of the same name that comes back gets another id.
	Dropped []droppedStore `json:"dropped,omitempty"`
}

type topologySub struct {
	ID          int             `json:"id"`
	Parallelism int             `json:"parallelism"`
	Fixed       bool            `json:"fixed,omitempty"` // the program names the parallelism itself
	Feeds       bool            `json:"feeds,omitempty"` // see task.SubTopology.Feeds
	Inputs      []topologyInput `json:"inputs"`
	Stores      []topologyStore `json:"stores,omitempty"`
}

type topologyInput struct {
	Topic      string `json:"topic"` // logical name
	Internal   bool   `json:"internal,omitempty"`
	Broadcast  bool   `json:"broadcast,omitempty"` // see task.Input.Broadcast
	Partitions int32  `json:"partitions"`
	// Of a repartition topic: who writes it, and whether the program names the number of its partitions.
	Upstream int  `json:"upstream,omitempty"`
	Fixed    bool `json:"fixed,omitempty"`
	// Moved says that another sub-topology read it before, so that the changelog of this one may know nothing of it: it goes
	// on at the group's offsets.
	Moved bool `json:"moved,omitempty"`
	// Of a repartition topic: how its keys and values are written.
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
}

type topologyStore struct {
	statestore.Spec
	// Past are the other schemas that values in the store may still have: they are rewritten only when they change.
	Past []string `json:"past,omitempty"`
	// Migrated are the schemas, of past or present, whose values a program had a migration for: without one they would be
	// read as something else than they became.
	Migrated []string `json:"migrated,omitempty"`
}

type droppedStore struct {
	Name string        `json:"name"`
	ID   statestore.ID `json:"id"`
}

func (r *resolved) record() topologyRecord {
	var t topologyRecord
	for _, s := range r.subs {
		ts := topologySub{ID: s.plan.ID, Parallelism: s.parallelism, Fixed: s.plan.Parallelism != 0, Feeds: s.plan.Feeds}
		for _, spec := range s.plan.Stores {
			ts.Stores = append(ts.Stores, topologyStore{Spec: spec})
		}
		for i, in := range s.inputs {
			p := s.plan.Inputs[i]
			ts.Inputs = append(ts.Inputs, topologyInput{Topic: p.Topic, Internal: in.internal, Broadcast: in.broadcast, Partitions: in.partitions, Upstream: p.Upstream, Fixed: p.Partitions != 0, Key: p.KeySchema, Value: p.ValueSchema})
		}
		t.Subs = append(t.Subs, ts)
	}
	return t
}

func parseTopology(b json.RawMessage) (topologyRecord, error) {
	var t topologyRecord
	if len(b) == 0 {
		return t, nil
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("decode the topology kept in the control topic: %w", err)
	}
	return t, nil
}

// pinned is the parallelism that state was made with.
func (t topologyRecord) pinned() map[int]int {
	m := map[int]int{}
	for _, s := range t.Subs {
		m[s.ID] = s.Parallelism
	}
	return m
}

func (t topologyRecord) sub(id int) (topologySub, bool) {
	i := slices.IndexFunc(t.Subs, func(s topologySub) bool { return s.ID == id })
	if i < 0 {
		return topologySub{}, false
	}
	return t.Subs[i], true
}

// input finds who reads a topic; an external topic is read by one sub-topology, and so is a repartition topic.
func (t topologyRecord) input(in topologyInput) (topologyInput, topologySub, bool) {
	for _, s := range t.Subs {
		for _, x := range s.Inputs {
			if x.Topic == in.Topic && x.Internal == in.Internal {
				return x, s, true
			}
		}
	}
	return topologyInput{}, topologySub{}, false
}

func (t topologyRecord) store(name string) (topologyStore, topologySub, bool) {
	for _, s := range t.Subs {
		for _, x := range s.Stores {
			if x.Name == name {
				return x, s, true
			}
		}
	}
	return topologyStore{}, topologySub{}, false
}

// Verdict is what becomes of a part of the old topology.
type Verdict string

// The verdicts.
const (
	VerdictKept         Verdict = "kept"
	VerdictNew          Verdict = "new"
	VerdictDropped      Verdict = "dropped"
	VerdictIncompatible Verdict = "incompatible"
)

// CompatRow tells of one state, input or sub-topology what becomes of it under the new topology.
type CompatRow struct {
	Operator string // of a state its operator's id; else what is meant: "input orders", "key-by by-user", "sub-topology 1"
	Store    string // name of the state in the operator; "" if the row is of none
	Verdict  Verdict
	Why      string // "" where nothing changed
	// Stops says that the start is refused because of this row.
	Stops bool
}

// CompatTable is the answer to the question what a new topology makes of the state of the old one: states first, then
// inputs and sub-topologies, each sorted.
type CompatTable []CompatRow

// Refused says that the topology must not start.
func (t CompatTable) Refused() bool {
	return slices.ContainsFunc(t, func(r CompatRow) bool { return r.Stops })
}

// Changed are the rows that tell more than that all is as it was.
func (t CompatTable) Changed() CompatTable {
	return slices.DeleteFunc(slices.Clone(t), func(r CompatRow) bool { return r.Verdict == VerdictKept && r.Why == "" && !r.Stops })
}

// String is the table as text, one line for each row, columns aligned.
func (t CompatTable) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "OPERATOR\tSTORE\tVERDICT\tWHY\n")
	for _, r := range t {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Operator, cmp.Or(r.Store, "-"), r.Verdict, cmp.Or(r.Why, "-"))
	}
	_ = w.Flush() // to memory
	return b.String()
}

// compatMode says how state gets from the old topology to the new one.
type compatMode struct {
	// Base: the state comes from a savepoint into a new incarnation. States may then move between sub-topologies, inputs and
	// parallelism may change, repartition topics begin empty. Without it the new topology goes on with the topics that there
	// are: a changelog belongs to the number of its sub-topology, and has as many partitions as there were subtasks.
	Base bool
	// AllowDropped is start.allow-dropped-state.
	AllowDropped bool
	// Unread are the repartition topics, by the id of their KeyBy, that hold records which were not processed yet; only
	// those of mustBeRead are looked at.
	Unread map[string]bool
	// Running: members of the old topology are at work, so that nobody can tell what they will leave unread.
	Running bool
}

// allowDropped is how a user allows it.
const allowDropped = "allow it with --start.allow-dropped-state"

// compatibility tells what becomes of the state, inputs and sub-topologies of a topology when another one goes on with
// them (pure). It is empty before the first start. mode.Base is how it is asked for a savepoint, with the topology that
// the savepoint keeps. Call inherit when the table is not refused.
func compatibility(was, now topologyRecord, mode compatMode) CompatTable {
	if len(was.Subs) == 0 {
		return nil
	}
	var stores, others CompatTable
	for _, old := range was.Subs {
		for _, st := range old.Stores {
			r := storeRow(st, old, now, mode)
			r.Operator, r.Store, _ = strings.Cut(st.Name, "/")
			stores = append(stores, r)
		}
		for _, in := range old.Inputs {
			others = append(others, inputRow(in, old, now, mode))
		}
		if r, ok := subRow(old, was, now, mode); ok {
			others = append(others, r)
		}
	}
	for _, s := range now.Subs {
		for _, st := range s.Stores {
			if _, _, ok := was.store(st.Name); ok {
				continue
			}
			r := CompatRow{Verdict: VerdictNew, Why: "begins empty"}
			if !mode.Base && slices.ContainsFunc(was.Dropped, func(d droppedStore) bool { return d.Name == st.Name }) {
				r.Why = "begins empty: what an earlier version kept under this name was dropped, and does not come back"
			}
			r.Operator, r.Store, _ = strings.Cut(st.Name, "/")
			stores = append(stores, r)
		}
		for _, in := range s.Inputs {
			if _, _, ok := was.input(in); ok {
				continue
			}
			r := CompatRow{Operator: in.title(), Verdict: VerdictNew}
			if !in.Internal {
				r.Why = "begins where the group has committed an offset, else at the start position of its source, or at its first record if it came by a pattern that was read already"
			}
			others = append(others, r)
		}
	}
	byName := func(a, b CompatRow) int {
		return cmp.Or(cmp.Compare(a.Operator, b.Operator), cmp.Compare(a.Store, b.Store))
	}
	slices.SortStableFunc(stores, byName)
	slices.SortStableFunc(others, byName)
	return append(stores, others...)
}

func (in topologyInput) title() string {
	if in.Internal {
		return "key-by " + in.Topic
	}
	return "input " + in.Topic
}

// storeRow compares a state with what the new topology has under its name.
func storeRow(old topologyStore, sub topologySub, now topologyRecord, mode compatMode) CompatRow {
	st, cur, ok := now.store(old.Name)
	if !ok {
		r := CompatRow{Verdict: VerdictDropped, Why: "no operator has it any more; its entries are given up", Stops: !mode.AllowDropped}
		if r.Stops {
			r.Why = "no operator has it any more: was it removed or renamed? If it is to be given up, " + allowDropped
		}
		return r
	}
	bad := func(format string, a ...any) CompatRow {
		return CompatRow{Verdict: VerdictIncompatible, Why: fmt.Sprintf(format, a...), Stops: true}
	}
	const another = "give the operator or the state another id, and it begins empty"
	switch {
	case st.Kind != old.Kind:
		return bad("it was a %s, and is a %s now; %s", old.Kind, st.Kind, another)
	case st.Replicated != old.Replicated:
		return bad("it changed between state by key and a copy on each subtask; %s", another)
	case st.KeyType != old.KeyType:
		return bad("its keys were %s, and are %s now; %s", old.KeyType, st.KeyType, another)
	case st.Windows != old.Windows && st.Windows != "" && old.Windows != "":
		return bad("its windows were %s, and are %s now: what is in them cannot be divided anew; %s", old.Windows, st.Windows, another)
	case st.Aggregate != old.Aggregate && st.Aggregate != "" && old.Aggregate != "":
		return bad("it was made by %s, and is taken for that of %s now; %s", old.Aggregate, st.Aggregate, another)
	case !mode.Base && st.Expiring != old.Expiring:
		return bad("it changed between kept and expiring, which have different changelogs; %s, or begin from a savepoint", another)
	case !mode.Base && cur.ID != sub.ID:
		return bad("it moved from sub-topology %d to %d, which has another changelog: make new sources behind the old ones, since they are numbered in the order of the program, or begin from a savepoint", sub.ID, cur.ID)
	}
	for _, schema := range old.schemas() {
		if schema == st.ValType {
			continue
		}
		switch {
		case st.Migrates(schema):
		case slices.Contains(old.Migrated, st.ValType):
			return bad("its values were migrated from %s to %s, and do not go back by themselves: add a migration back, or begin from a savepoint of before", st.ValType, schema)
		case slices.Contains(old.Migrated, schema):
			return bad("values of the form %s may be left, for which an earlier version had a migration: keep it", schema)
		}
		if err := st.CanRead(schema); err != nil {
			return bad("its values: %v", err)
		}
	}
	var why []string
	tell := func(format string, a ...any) { why = append(why, fmt.Sprintf(format, a...)) }
	if st.ValType != old.ValType {
		now, ttl := statestore.HasTTL(st.ValType)
		was, had := statestore.HasTTL(old.ValType)
		switch {
		case ttl && !had:
			tell("its values have a time to live now, which begins for those that are there when clean-up first meets them")
		case had && !ttl:
			tell("its values have no time to live any more: those that are still there live on")
		}
		if st.Migrates(old.ValType) {
			tell("values are migrated when they are read")
		} else if now != was {
			tell("values are read as the new type, in which new fields are zero")
			if lost := statestore.LostFields(st.ValType, old.ValType); len(lost) > 0 {
				tell("what was in the fields %s is gone once a value changes", strings.Join(lost, ", "))
			}
		}
	}
	if st.Life != old.Life {
		tell("its entries live %s, they did %s", st.Life, old.Life)
	}
	if st.Operator != old.Operator && st.Operator != "" && old.Operator != "" {
		tell("it was the state of a %s, and is that of a %s now: values must mean the same", old.Operator, st.Operator)
	}
	if cur.ID != sub.ID {
		tell("it moved from sub-topology %d to %d", sub.ID, cur.ID)
	}
	return CompatRow{Verdict: VerdictKept, Why: strings.Join(why, "; ")}
}

// schemas are all that values in the store may have.
func (s topologyStore) schemas() []string {
	return append(slices.Clone(s.Past), s.ValType)
}

// inputRow tells what becomes of the records of an input that are not processed yet.
func inputRow(old topologyInput, sub topologySub, now topologyRecord, mode compatMode) CompatRow {
	r := CompatRow{Operator: old.title(), Verdict: VerdictKept}
	in, cur, ok := now.input(old)
	unread := old.Internal && !mode.Base && mode.Unread[old.Topic]
	const drain = "its repartition topic holds records that were not processed yet: run the old version until it has read them all, or stop it with a savepoint and begin from that"
	switch {
	case !ok && unread:
		r.Verdict, r.Why, r.Stops = VerdictIncompatible, "it is gone, but "+drain, true
	case mode.Running && old.Internal && slices.Contains(mustBeRead(topologyRecord{Subs: []topologySub{sub}}, now), old.Topic):
		r.Why = "it is not what it was: what the old version leaves unread in its repartition topic when it stops would stop the start; stop it with a savepoint, which leaves nothing, or look again then"
		if !ok {
			r.Verdict = VerdictDropped
		}
	case !ok && old.Internal:
		r.Verdict, r.Why = VerdictDropped, "it is gone; all its records were processed"
	case !ok:
		r.Verdict, r.Stops = VerdictDropped, !mode.AllowDropped
		r.Why = "it is not read any more; its committed offsets stay in the group until they expire there, and a version that reads it again goes on at them"
		if r.Stops {
			r.Why += "; " + allowDropped
		}
	case unread && in.Key != old.Key:
		r.Verdict, r.Why, r.Stops = VerdictIncompatible, fmt.Sprintf("its keys were %s, and are %s now, and %s", old.Key, in.Key, drain), true
	case unread && in.Value != old.Value:
		r.Verdict, r.Why, r.Stops = VerdictIncompatible, fmt.Sprintf("its values were %s, and are %s now, and %s", old.Value, in.Value, drain), true
	case !mode.Base && (in.Partitions < old.Partitions || old.Internal && in.Partitions != old.Partitions):
		r.Verdict, r.Stops = VerdictIncompatible, true
		r.Why = fmt.Sprintf("it had %d partitions, and has %d now; begin from a savepoint", old.Partitions, in.Partitions)
	case in.Partitions != old.Partitions:
		r.Why = fmt.Sprintf("it had %d partitions, and has %d now", old.Partitions, in.Partitions)
	case cur.ID != sub.ID:
		r.Why = fmt.Sprintf("it was read by sub-topology %d, and is by %d now", sub.ID, cur.ID)
	case in.Value != old.Value && old.Value != "":
		r.Why = "it carries another type; all its records were processed"
	}
	return r
}

// subRow tells of a sub-topology what neither its states nor its inputs tell.
func subRow(old topologySub, was, now topologyRecord, mode compatMode) (CompatRow, bool) {
	r := CompatRow{Operator: fmt.Sprintf("sub-topology %d", old.ID), Verdict: VerdictKept}
	cur, ok := now.sub(old.ID)
	switch {
	case !ok && len(now.Subs) < len(was.Subs):
		r.Verdict, r.Why = VerdictDropped, "there are fewer sub-topologies; its states and inputs are told of above"
		return r, true
	case ok && cur.Parallelism != old.Parallelism && !mode.Base:
		r.Verdict, r.Stops = VerdictIncompatible, true
		r.Why = fmt.Sprintf("it had %d subtasks, and has %d now: millrace rescale changes their number", old.Parallelism, cur.Parallelism)
		return r, true
	case ok && cur.Parallelism != old.Parallelism:
		r.Why = fmt.Sprintf("it had %d subtasks, and has %d now", old.Parallelism, cur.Parallelism)
		return r, true
	}
	return r, false
}

// mustBeRead are the repartition topics, by the id of their KeyBy, whose records the new topology cannot use: it must
// not start while there are unread ones (pure).
func mustBeRead(was, now topologyRecord) []string {
	var ids []string
	for _, s := range was.Subs {
		for _, old := range s.Inputs {
			if !old.Internal {
				continue
			}
			in, _, ok := now.input(old)
			if !ok || old.Value != "" && (in.Key != old.Key || in.Value != old.Value) {
				ids = append(ids, old.Topic)
			}
		}
	}
	return ids
}

// inherit makes now the successor of was (pure): it takes over what the comparison with later topologies needs to know
// of earlier ones, and the ids of the states. mode is that of compatibility.
func inherit(was, now topologyRecord, mode compatMode) topologyRecord {
	next := topologyRecord{Subs: slices.Clone(now.Subs)}
	if !mode.Base {
		next.Dropped = slices.Clone(was.Dropped)
	}
	for i := range next.Subs {
		s := &next.Subs[i]
		s.Stores = slices.Clone(s.Stores)
		for j := range s.Stores {
			st := &s.Stores[j]
			old, _, ok := was.store(st.Name)
			if ok {
				st.Past, st.Migrated = nil, slices.Clone(old.Migrated)
				for _, schema := range old.schemas() {
					if schema != st.ValType && !slices.Contains(st.Past, schema) {
						st.Past = append(st.Past, schema)
					}
					if st.Migrates(schema) && !slices.Contains(st.Migrated, schema) {
						st.Migrated = append(st.Migrated, schema)
					}
				}
			}
			switch {
			case mode.Base:
			case ok:
				st.ID = old.ID
			default:
				st.ID = was.freshID(st.Spec)
			}
		}
		s.Inputs = slices.Clone(s.Inputs)
		for j := range s.Inputs {
			if old, sub, ok := was.input(s.Inputs[j]); ok && !mode.Base {
				s.Inputs[j].Moved = old.Moved || sub.ID != s.ID
			}
		}
	}
	if !mode.Base {
		for _, s := range was.Subs {
			for _, st := range s.Stores {
				if _, _, ok := now.store(st.Name); !ok {
					next.Dropped = append(next.Dropped, droppedStore{st.Name, st.ID})
				}
			}
		}
	}
	return next
}

// freshID is the id of a state that begins empty: that of its name, unless entries of a dropped state have it.
func (t topologyRecord) freshID(spec statestore.Spec) statestore.ID {
	id := spec.ID
	taken := func() bool {
		if slices.ContainsFunc(t.Dropped, func(d droppedStore) bool { return d.ID == id }) {
			return true
		}
		return slices.ContainsFunc(t.Subs, func(s topologySub) bool {
			return slices.ContainsFunc(s.Stores, func(st topologyStore) bool { return st.ID == id })
		})
	}
	for n := 2; taken(); n++ {
		id = statestore.StoreID(fmt.Sprintf("%s#%d", spec.Name, n)) // names hold no '#'
	}
	return id
}

// keep leaves repartition topics with the partitions that they have, where the program names no number: the inputs before
// them may have grown since, and a repartition topic cannot.
func (r *resolved) keep(was topologyRecord) {
	for _, s := range r.subs {
		for i := range s.inputs {
			in, p := &s.inputs[i], s.plan.Inputs[i]
			old, _, ok := was.input(topologyInput{Topic: p.Topic, Internal: true})
			if !in.internal || p.Partitions != 0 || !ok || old.Partitions == 0 || old.Partitions%int32(s.parallelism) != 0 {
				continue
			}
			in.partitions = old.Partitions
			for _, up := range r.subs {
				for j := range up.outputs {
					if up.plan.Outputs[j].Internal && up.plan.Outputs[j].Topic == p.Topic {
						up.outputs[j].partitions = old.Partitions
					}
				}
			}
		}
	}
}

// shortRetention names the changelogs that were made for states with a shorter life than those of this topology (pure).
func (r *resolved) shortRetention(topics map[string]txn.TopicInfo) []string {
	var short []string
	for _, s := range r.subs {
		if len(s.changelogs) < 2 {
			continue
		}
		name := s.changelogs[1]
		need, err := strconv.ParseInt(expiringRetention(s.plan.Stores), 10, 64)
		if has := topics[name].RetentionMs; err == nil && has > 0 && has < need {
			short = append(short, fmt.Sprintf("retention.ms of %s is %d, but its windows live longer now, for which it should be %d: raise it with kafka-configs.sh; until then windows that are open for longer are lost together with the local state", name, has, need))
		}
	}
	return short
}

// adopt takes over what inherit decided: the ids of the states, and where inputs go on.
func (r *resolved) adopt(t topologyRecord) {
	for i, s := range r.subs {
		plan := *s.plan
		plan.Stores = nil
		declared := map[statestore.ID]statestore.ID{}
		for _, st := range t.Subs[i].Stores {
			plan.Stores = append(plan.Stores, st.Spec)
			declared[st.ID] = statestore.StoreID(st.Name)
		}
		if of := s.plan.KeyGroup; of != nil {
			plan.KeyGroup = func(id statestore.ID, key []byte) (statestore.Group, error) {
				if d, ok := declared[id]; ok {
					id = d
				}
				return of(id, key)
			}
		}
		s.plan = &plan
		for j := range s.inputs {
			s.inputs[j].moved = t.Subs[i].Inputs[j].Moved
		}
	}
}

// storeIDs are the ids of a subtask's states, by name.
func (s *resolvedSub) storeIDs() map[string]statestore.ID {
	ids := map[string]statestore.ID{}
	for _, st := range s.plan.Stores {
		ids[st.Name] = st.ID
	}
	return ids
}

// refusal is the error of a start that compatibility refuses.
func refusal(app string, t CompatTable) error {
	return fatalf("this topology cannot take over the state of app %s:\n%s"+
		"Put ids and types back, or do what the table says; the old version still goes on where it was. Or start it under another app.id, with empty state", app, t.Changed())
}

// tell logs what a start takes over from another topology.
func (t CompatTable) tell(log *slog.Logger) {
	for _, r := range t.Changed() {
		log.Info("the topology changed", "operator", r.Operator, "store", r.Store, "verdict", r.Verdict, "why", r.Why)
	}
}

// unreadTopics finds out which of the repartition topics that now cannot use any more hold records that were not
// processed yet. The members of the old topology must be gone by then: they would write more.
func unreadTopics(ctx context.Context, c *txn.Cluster, r *resolved, topology json.RawMessage) (map[string]bool, error) {
	was, err := parseTopology(topology)
	if err != nil {
		return nil, &fatalError{err}
	}
	ids := mustBeRead(was, r.record())
	if len(ids) == 0 {
		return nil, nil
	}
	members, err := c.Members(ctx)
	if err != nil {
		return nil, err
	}
	if members > 0 {
		return nil, fatalf("the topology changed the repartition topics of %s, but %d members of the app are still in its group and may write to them; stop all members of the old version first (one that was killed counts until group.session-timeout)", strings.Join(ids, ", "), members)
	}
	unread := map[string]bool{}
	for _, id := range ids {
		in, _, _ := was.input(topologyInput{Topic: id, Internal: true})
		if unread[id], err = hasUnread(ctx, c, repartitionTopic(r.app, r.incarnation, id), in.Partitions); err != nil {
			return nil, err
		}
	}
	return unread, nil
}

// hasUnread says whether a repartition topic holds data behind the group's offsets: watermarks and markers do not count.
func hasUnread(ctx context.Context, c *txn.Cluster, topic string, partitions int32) (bool, error) {
	infos, err := c.Topics(ctx, topic)
	if err != nil {
		return false, err
	}
	if _, ok := infos[topic]; !ok {
		return false, nil
	}
	var tps []record.TopicPartition
	for p := range partitions {
		tps = append(tps, record.TopicPartition{Topic: topic, Partition: p})
	}
	committed, err := c.CommittedOffsets(ctx, "", tps)
	if err != nil {
		return false, err
	}
	ends, err := c.EndOffsets(ctx, tps)
	if err != nil {
		return false, err
	}
	stable, err := c.StableOffsets(ctx, tps)
	if err != nil {
		return false, err
	}
	for _, tp := range tps {
		if stable[tp] < ends[tp] {
			return true, nil // a transaction is open: nobody knows what comes of it
		}
		err := c.ReadCommitted(ctx, tp, max(committed[tp], 0), ends[tp], func(r record.Record) error {
			if r.Control {
				return nil
			}
			if _, _, err := task.DataFrame(r.Value); err != nil {
				return nil // it carries no data
			}
			return errUnread
		})
		if errors.Is(err, errUnread) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for unread records of %s: %w", tp, err)
		}
	}
	return false, nil
}

var errUnread = errors.New("the topic holds unread records")
