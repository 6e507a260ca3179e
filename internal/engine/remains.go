package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// Remains is what an app has on its cluster and in object storage, without its inputs and outputs, which are not its own.
type Remains struct {
	App       string
	ClusterID string
	// State is what its members agree upon; Control is the topic that holds it, with no partitions if there is none.
	State   txn.ControlState
	Control txn.TopicInfo

	Group   string            // its state, "" if there is none
	Members []txn.GroupMember // that are active

	Topics     []OwnTopic // internal ones, of all incarnations, by name
	Unclear    []Unclear  // topics that look like internal ones, and stay
	DeadLetter *OwnTopic  // nil = there is none
	Letters    int64      // dead letters, markers of transactions included
	Subtasks   []record.SubtaskID
	External   []string // inputs and outputs

	// Of object storage, if there is one.
	Store       string
	Checkpoints map[uint64]checkpoint.Usage // by incarnation
	Savepoints  []checkpoint.Listed
}

// OwnTopic is a topic that an app has made for itself.
type OwnTopic struct {
	Name        string
	ID          [16]byte
	Partitions  int32
	Incarnation uint64 // 0 = it belongs to all
}

// Unclear is a topic whose name is that of an internal topic of the app, but which may be somebody else's.
type Unclear struct{ Name, Why string }

// Empty says that there is nothing.
func (r *Remains) Empty() bool {
	return r.Control.Partitions == 0 && r.Clean() && r.DeadLetter == nil && len(r.Savepoints) == 0
}

// Clean says that there is nothing of what a reset removes.
func (r *Remains) Clean() bool {
	return len(r.Topics) == 0 && r.Group == "" && len(r.Checkpoints) == 0 && !r.Interrupted()
}

// Interrupted says that a reset or deletion was cut off, or is being done.
func (r *Remains) Interrupted() bool { return r.State.Stopped != nil && r.State.Stopped.Removal }

// Next is the incarnation that begins after a reset.
func (r *Remains) Next() uint64 {
	switch {
	case r.Control.Partitions == 0:
		return 1
	case r.Interrupted():
		return r.State.Incarnation
	}
	return r.State.Incarnation + 1
}

// LookAt finds what an app has. It changes nothing. blobs may be nil.
func LookAt(ctx context.Context, cluster *txn.Cluster, blobs blob.Store, app string) (*Remains, error) {
	r := &Remains{App: app, ClusterID: cluster.ID()}
	fail := func(err error) (*Remains, error) { return nil, fmt.Errorf("look at app %s: %w", app, err) }
	topics, err := cluster.AllTopics(ctx)
	if err != nil {
		return fail(err)
	}
	r.Control = topics[txn.ControlTopic(app)]
	if r.Control.Partitions > 0 {
		if r.State, err = cluster.ReadControl(ctx, app); err != nil {
			return fail(err)
		}
	}
	if r.Group, r.Members, err = cluster.GroupState(ctx); err != nil {
		return fail(err)
	}
	c := claims{app: app, state: r.State, topics: topics, read: func(other string) (txn.ControlState, error) { return cluster.ReadControl(ctx, other) }}
	if r.Topics, r.Unclear, err = c.find(); err != nil {
		return fail(err)
	}
	r.Subtasks = subtasksIn(r.State, r.Topics)
	own := map[string]bool{deadLetterTopic(app): true}
	for _, t := range r.Topics {
		own[t.Name] = true
	}
	for name := range r.State.TopicIDs {
		if !own[name] {
			r.External = append(r.External, name)
		}
	}
	slices.Sort(r.External)
	if info, ok := topics[deadLetterTopic(app)]; ok {
		r.DeadLetter = &OwnTopic{Name: info.Name, ID: info.ID, Partitions: info.Partitions}
		if r.Letters, err = recordsIn(ctx, cluster, info); err != nil {
			return fail(err)
		}
	}
	if blobs == nil {
		return r, nil
	}
	r.Store = blobs.String()
	if r.Checkpoints, err = checkpoint.Incarnations(ctx, blobs, app); err != nil {
		return fail(err)
	}
	if r.Savepoints, err = checkpoint.NewSavepoints(blobs, app, nil, nil).List(ctx); err != nil {
		return fail(err)
	}
	return r, nil
}

// recordsIn counts the offsets of a topic.
func recordsIn(ctx context.Context, cluster *txn.Cluster, info txn.TopicInfo) (int64, error) {
	var tps []record.TopicPartition
	for p := range info.Partitions {
		tps = append(tps, record.TopicPartition{Topic: info.Name, Partition: p})
	}
	starts, err := cluster.StartOffsets(ctx, tps)
	if err != nil {
		return 0, err
	}
	ends, err := cluster.EndOffsets(ctx, tps)
	n := int64(0)
	for _, tp := range tps {
		n += ends[tp] - starts[tp]
	}
	return n, err
}

// subtasksIn are all subtasks that may have a producer (pure): a changelog has one partition for each.
func subtasksIn(s txn.ControlState, topics []OwnTopic) []record.SubtaskID {
	most := map[int]int{}
	for sub, n := range s.Parallelism {
		most[sub] = n
	}
	for _, t := range topics {
		if rest, ok := strings.CutSuffix(t.Name, "-"+kindChangelog); ok {
			if sub, err := strconv.Atoi(rest[strings.LastIndexByte(rest, '-')+1:]); err == nil {
				most[sub] = max(most[sub], int(t.Partitions))
			}
		}
	}
	var ids []record.SubtaskID
	for _, sub := range slices.Sorted(maps.Keys(most)) {
		for k := range most[sub] {
			ids = append(ids, record.SubtaskID{SubTopology: sub, Index: k})
		}
	}
	return ids
}

// claims decides which topics are an app's own: those of orders and of orders-eu begin alike, so that names do not tell.
type claims struct {
	app    string
	state  txn.ControlState
	topics map[string]txn.TopicInfo                   // all of the cluster
	read   func(app string) (txn.ControlState, error) // what another app has agreed upon

	others map[string]*claim // by app, as far as asked for
}

// claim is what another app says of its topics.
type claim struct {
	own map[string]string
	err error // it cannot be read
}

// find returns the app's internal topics, and those of which it cannot be told whose they are.
func (c *claims) find() (own []OwnTopic, unclear []Unclear, _ error) {
	known := ownTopics(c.app, c.state)
	ids := map[string]bool{} // operators with a repartition topic, of all incarnations
	for name := range known {
		for _, w := range parseInternal(c.app, name) {
			ids[w.id] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		ways := parseInternal(c.app, name)
		info := c.topics[name]
		id, listed := known[name]
		if len(ways) == 0 && !listed {
			continue
		}
		t := OwnTopic{Name: name, ID: info.ID, Partitions: info.Partitions}
		for _, w := range ways {
			t.Incarnation = max(t.Incarnation, w.incarnation)
		}
		if listed && id == txn.TopicIDString(info.ID) {
			own = append(own, t)
			continue
		}
		if _, external := c.state.TopicIDs[name]; external && !listed {
			continue // an input or output, whatever its name looks like
		}
		claimed, perhaps, err := c.elsewhere(name, info)
		switch {
		case err != nil:
			return nil, nil, err
		case claimed:
		case listed && perhaps == "":
			own = append(own, t) // deleted and created again, but by nobody else whom we know
		case perhaps != "":
			unclear = append(unclear, Unclear{name, perhaps})
		case c.state.Incarnation > 0 && t.Incarnation > c.state.Incarnation+1:
			unclear = append(unclear, Unclear{name, fmt.Sprintf("it looks like one of incarnation %d, but the app is at %d", t.Incarnation, c.state.Incarnation)})
		case slices.ContainsFunc(ways, func(w internalTopic) bool { return w.kind != kindRepartition || ids[w.id] }):
			own = append(own, t)
		default:
			unclear = append(unclear, Unclear{name, "the app has no such operator, as far as its control topic tells"})
		}
	}
	return own, unclear, nil
}

// elsewhere says whether a topic is another app's, or why it may be.
func (c *claims) elsewhere(name string, info txn.TopicInfo) (claimed bool, perhaps string, _ error) {
	for _, control := range slices.Sorted(maps.Keys(c.topics)) {
		other, ok := strings.CutSuffix(control, txn.ControlTopic(""))
		if !ok || other == "" || other == c.app || len(parseInternal(other, name)) == 0 {
			continue
		}
		known := c.others[other]
		if known == nil {
			s, err := c.read(other)
			known = &claim{ownTopics(other, s), err}
			if c.others == nil {
				c.others = map[string]*claim{}
			}
			c.others[other] = known
		}
		switch {
		case errors.Is(known.err, context.Canceled), errors.Is(known.err, context.DeadlineExceeded):
			return false, "", known.err
		case known.err != nil:
			perhaps = fmt.Sprintf("it may be one of app %s, whose control topic cannot be read (%v)", other, known.err)
		case known.own[name] == txn.TopicIDString(info.ID):
			return true, "", nil
		case perhaps == "":
			perhaps = fmt.Sprintf("it may be one of app %s, too", other)
		}
	}
	return false, perhaps, nil
}

// RemoveOptions say what of an app is removed.
type RemoveOptions struct {
	Delete      bool // the app itself, so that nothing remembers it; else it begins anew
	DeadLetters bool // with Delete: the dead-letter topic
	Savepoints  bool
	By          string // who asked, for people
	// Step is told before each step what comes. An error of it ends the removal there, as a crash would.
	Step func(what string) error
}

// busyFor is how long a removal waits for members that were started at this moment; they end when they see it.
const busyFor = 15 * time.Second

// Remove removes what LookAt has found, of an app without active members: it resets the app, so that it begins anew without
// state, or deletes it. Inputs and outputs stay as they are. When it ends in between it can be repeated, after another LookAt.
//
//  1. The control topic says that the app is stopped, and begins a new incarnation: what is started now waits, and nothing
//     of the old one is ever read again, whatever becomes of the next steps.
//  2. Transactional ids are fenced: a process that was thought dead writes nothing any more.
//  3. Group, topics, checkpoints, savepoints and dead letters are removed.
//  4. The control topic lets the app begin, or is deleted.
//
// Errors: txn.ErrGroupBusy, txn.ErrHanging, those of the brokers and the blob store.
func (r *Remains) Remove(ctx context.Context, cluster *txn.Cluster, blobs blob.Store, o RemoveOptions) error {
	verb := "reset"
	if o.Delete {
		verb = "delete"
	}
	if o.Step == nil {
		o.Step = func(string) error { return nil }
	}
	if err := r.remove(ctx, cluster, blobs, o); err != nil {
		return fmt.Errorf("%s app %s: %w", verb, r.App, err)
	}
	return nil
}

func (r *Remains) remove(ctx context.Context, cluster *txn.Cluster, blobs blob.Store, o RemoveOptions) error {
	if _, members, err := cluster.GroupState(ctx); err != nil || len(members) > 0 {
		if err == nil {
			err = fmt.Errorf("%w: %d", txn.ErrGroupBusy, len(members))
		}
		return err
	}
	var control *txn.Control
	if r.Control.Partitions > 0 {
		var err error
		if control, err = cluster.OpenControl(ctx); err != nil {
			return err
		}
		defer control.Close()
		if err := o.Step("stop the app, and begin another incarnation"); err != nil {
			return err
		}
		if err := r.hold(ctx, control, o); err != nil {
			return err
		}
	}
	if len(r.Subtasks) > 0 {
		if err := o.Step(fmt.Sprintf("fence %d transactional ids", len(r.Subtasks))); err != nil {
			return err
		}
		if err := cluster.Fence(ctx, r.Subtasks, r.External); err != nil {
			return err
		}
	}
	if r.Group != "" {
		if err := o.Step("delete group " + r.App); err != nil {
			return err
		}
		if err := deleteGroup(ctx, cluster); err != nil {
			return err
		}
	}
	if len(r.Topics) > 0 {
		if err := o.Step(fmt.Sprintf("delete %d internal topics", len(r.Topics))); err != nil {
			return err
		}
		if err := cluster.DeleteTopics(ctx, idsOf(r.Topics)); err != nil {
			return err
		}
	}
	if err := r.removeBlobs(ctx, blobs, o); err != nil {
		return err
	}
	if o.Delete && o.DeadLetters && r.DeadLetter != nil {
		if err := o.Step("delete topic " + r.DeadLetter.Name); err != nil {
			return err
		}
		if err := cluster.DeleteTopics(ctx, idsOf([]OwnTopic{*r.DeadLetter})); err != nil {
			return err
		}
	}
	switch {
	case control == nil:
		return nil
	case o.Delete:
		if err := o.Step("delete topic " + r.Control.Name); err != nil {
			return err
		}
		return cluster.DeleteTopics(ctx, map[string][16]byte{r.Control.Name: r.Control.ID})
	}
	if err := o.Step("let the app begin"); err != nil {
		return err
	}
	_, err := control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		if s.Stopped != nil && s.Stopped.Removal {
			s.Stopped, s.Old, s.TopicIDs = nil, nil, nil
		}
		return s, nil
	})
	return err
}

func idsOf(topics []OwnTopic) map[string][16]byte {
	ids := map[string][16]byte{}
	for _, t := range topics {
		ids[t.Name] = t.ID
	}
	return ids
}

// hold is the first step.
func (r *Remains) hold(ctx context.Context, control *txn.Control, o RemoveOptions) error {
	nonce := strconv.FormatUint(rand.Uint64(), 36)
	_, err := control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		if s.Stopped != nil && s.Stopped.Removal {
			return s, nil
		}
		if s.Incarnation != r.State.Incarnation {
			return s, errors.New("the app was begun anew at this moment; look at it again")
		}
		next := begin(r.App, s, s.Incarnation+1, startFresh+"#reset-"+nonce, nil)
		next.ClusterID = r.ClusterID
		next.TopicIDs = map[string]string{} // of inputs and outputs: one that is cut off has to know them still
		for _, name := range r.External {
			next.TopicIDs[name] = s.TopicIDs[name]
		}
		next.Stopped = &txn.Stopped{At: time.Now().UnixMilli(), By: o.By, Removal: true}
		return next, nil
	})
	return err
}

// deleteGroup waits for members that were started after the look; they see that the app is stopped, and end.
func deleteGroup(ctx context.Context, cluster *txn.Cluster) error {
	end := time.Now().Add(busyFor)
	for {
		err := cluster.DeleteGroup(ctx)
		if !errors.Is(err, txn.ErrGroupBusy) || time.Now().After(end) {
			return err
		}
		t := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

func (r *Remains) removeBlobs(ctx context.Context, blobs blob.Store, o RemoveOptions) error {
	if blobs == nil {
		return nil
	}
	for _, incarnation := range slices.Sorted(maps.Keys(r.Checkpoints)) {
		if err := o.Step(fmt.Sprintf("delete the checkpoints of incarnation %d", incarnation)); err != nil {
			return err
		}
		if _, err := checkpoint.DeleteIncarnation(ctx, blobs, r.App, incarnation); err != nil {
			return err
		}
	}
	if !o.Savepoints {
		return nil
	}
	saved := checkpoint.NewSavepoints(blobs, r.App, nil, nil)
	for _, l := range r.Savepoints {
		if err := o.Step("delete savepoint " + l.Name); err != nil {
			return err
		}
		if _, err := saved.Delete(ctx, l.Name); err != nil && !errors.Is(err, checkpoint.ErrNoSavepoint) {
			return err
		}
	}
	return nil
}
