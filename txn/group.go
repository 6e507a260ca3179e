package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// Group is our membership in the app's consumer group. It decides who owns which subtask and nothing else: it never
// fetches and never commits (offsets are committed only in transactions). Its methods are safe for concurrent use.
type Group struct {
	c       *Cluster
	layout  Layout
	handler GroupHandler
	cl      *kgo.Client
	stop    context.CancelFunc // ends the client's context: nothing is sent any more

	started chan struct{} // closed when cl is set: kgo may join before NewClient has returned to us
	calls   chan handlerCall
	keep    chan struct{} // cap 1: standbys has changed
	errs    chan error
	wg      sync.WaitGroup // the handler and poll goroutines

	closeOnce sync.Once
	closeErr  error

	mu         sync.Mutex
	member     string // "" while there is no session
	generation int32  // -1 while there is no session
	owned      map[record.SubtaskID]bool
	changed    chan struct{} // closed and replaced whenever something above changes
	told       bool          // the handler knows that this is a member
	dying      bool          // no commit can succeed any more: what is revoked from here on is lost
	standbys   []Standby     // as last assigned
	callCtx    context.Context
	cancelCall context.CancelFunc // ends a running Revoked
	mismatch   *time.Timer        // runs while the group's assignment is of another topology
}

// handlerCall is one callback on its way to the handler goroutine.
type handlerCall struct {
	kind callKind
	ids  []record.SubtaskID
	done chan struct{}
}

type callKind uint8

const (
	callAssigned callKind = iota
	callRevoked
	callLost
)

// Join joins the group Options.AppID as a member. The topics of the layout must exist with just the layout's
// partitions, else a *TopicError is returned. Join returns at once; what the member gets comes through h, from one
// goroutine, until Close has returned. Fatal ends come through Err.
func (c *Cluster) Join(ctx context.Context, l Layout, h GroupHandler) (*Group, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	if err := c.checkInputs(ctx, l); err != nil {
		return nil, err
	}
	gctx, stop := context.WithCancel(context.Background())
	g := &Group{
		c: c, layout: l, handler: h, stop: stop,
		started: make(chan struct{}), calls: make(chan handlerCall), keep: make(chan struct{}, 1), errs: make(chan error, 1),
		generation: -1, owned: make(map[record.SubtaskID]bool), changed: make(chan struct{}),
	}
	g.callCtx, g.cancelCall = context.WithCancel(context.Background())
	o := c.opts
	opts := []kgo.Opt{
		kgo.WithContext(gctx),
		kgo.ConsumerGroup(o.AppID),
		kgo.ConsumeTopics(l.topics()...),
		kgo.Balancers(&balancer{layout: l, rack: o.Rack, synced: g.synced}),
		kgo.SessionTimeout(o.SessionTimeout),
		kgo.HeartbeatInterval(o.HeartbeatInterval),
		kgo.RebalanceTimeout(o.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		// Nothing is ever assigned to the client's own fetching: data comes through a Consumer, at offsets that we set.
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.assigned(m) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.revoked(m) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, _ map[string][]int32) { g.lost() }),
		kgo.WithHooks(groupHook{g}),
	}
	if o.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(o.InstanceID))
	}
	cl, err := kgo.NewClient(c.clientOpts(opts...)...)
	if err != nil {
		stop()
		return nil, fmt.Errorf("join group %s: %w", o.AppID, err)
	}
	g.cl = cl
	close(g.started)
	g.wg.Go(g.runHandler)
	g.wg.Go(func() { g.poll(gctx) })
	return g, nil
}

// checkInputs compares the layout with the topics as they are. One may have more partitions: they belong to nobody.
func (c *Cluster) checkInputs(ctx context.Context, l Layout) error {
	dctx, cancel := c.deadline(ctx)
	defer cancel()
	infos, err := c.topicIDs(dctx, l.topics())
	if err != nil {
		return fmt.Errorf("join group %s: %w", c.opts.AppID, err)
	}
	for _, s := range l.Subs {
		for _, in := range s.Inputs {
			ti, ok := infos[in.Topic]
			if !ok {
				return fmt.Errorf("join group %s: %w", c.opts.AppID,
					&TopicError{Topic: in.Topic, OldPartitions: in.Partitions, Err: kerr.UnknownTopicOrPartition})
			}
			if ti.Partitions < in.Partitions {
				return fmt.Errorf("join group %s: %w", c.opts.AppID, &TopicError{Topic: in.Topic, OldID: ti.ID, NewID: ti.ID,
					OldPartitions: in.Partitions, NewPartitions: ti.Partitions})
			}
		}
	}
	return nil
}

// Ownership is the session's word about a subtask, as a transaction must carry it. ok is false if the subtask is not
// ours. During Revoked it still is; the word's generation then is that of the rebalance that takes it away.
func (g *Group) Ownership(id record.SubtaskID) (o Ownership, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// An empty word is never given out: brokers accept it from anyone.
	if !g.owned[id] || g.dying || g.member == "" || g.generation < 0 {
		return Ownership{}, false
	}
	return Ownership{MemberID: g.member, Generation: g.generation, InstanceID: g.c.opts.InstanceID}, true
}

// WaitChange waits until the session's word is another than since (a newer generation, or no session any more). It
// returns ErrClosed when the group has ended, or ctx's error.
func (g *Group) WaitChange(ctx context.Context, since Ownership) error {
	for {
		g.mu.Lock()
		differs := g.member != since.MemberID || g.generation != since.Generation
		changed, dying := g.changed, g.dying
		g.mu.Unlock()
		if dying {
			return fmt.Errorf("group %s: %w", g.c.opts.AppID, ErrClosed)
		}
		if differs {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Owner is the member of the group that owns a subtask.
type Owner struct {
	Member string // instance id of a static member, else the member id
	Host   string // as the coordinator sees it
	// Address is where the member says that it can be asked, host:port: Layout.Address. It is "" if it says nothing.
	Address string
}

// Owners asks the group's coordinator who owns what. It is for people: the answer may be out of date, and is empty
// while the group rebalances.
func (g *Group) Owners(ctx context.Context) (map[record.SubtaskID]Owner, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{g.c.opts.AppID}
	resp, err := g.c.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("describe group %s: %w", g.c.opts.AppID, err)
	}
	owners := make(map[record.SubtaskID]Owner)
	for _, described := range resp.(*kmsg.DescribeGroupsResponse).Groups {
		if err := kerr.ErrorForCode(described.ErrorCode); err != nil {
			return nil, fmt.Errorf("describe group %s: %w", g.c.opts.AppID, err)
		}
		for _, m := range described.Members {
			var a kmsg.ConsumerMemberAssignment
			if err := a.ReadFrom(m.MemberAssignment); err != nil {
				continue // it has none
			}
			at := make(map[string][]int32)
			for _, t := range a.Topics {
				at[t.Topic] = t.Partitions
			}
			o := Owner{Member: m.MemberID, Host: m.ClientHost, Address: addressOf(m.ProtocolMetadata)}
			if m.InstanceID != nil {
				o.Member = *m.InstanceID
			}
			for _, id := range g.layout.subtasksIn(at) {
				owners[id] = o
			}
		}
	}
	return owners, nil
}

// Err delivers at most one error: the group has ended for a reason that does not heal (ErrFencedInstance,
// ErrTopologyDiffers, ErrAuthorization, ErrGroupProtocol, *TopicError ...). All subtasks are Lost, Close is still
// needed.
func (g *Group) Err() <-chan error { return g.errs }

// broadcast wakes WaitChange; g.mu is held.
func (g *Group) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// synced is called with every assignment that the session brings, before kgo compares it with the last one. From here
// on the new generation is good for what we own.
func (g *Group) synced(assigned map[string][]int32, d syncData, err error) map[string][]int32 {
	<-g.started
	g.mu.Lock()
	defer g.mu.Unlock()
	g.member, g.generation = g.cl.GroupMetadata()
	g.broadcast()
	mine := g.layout
	if err == nil && !d.Refused && d.Fingerprint == mine.Fingerprint && d.LayoutVersion == mine.Version {
		if g.mismatch != nil {
			g.mismatch.Stop()
			g.mismatch = nil
		}
		g.setStandbys(d.Standbys)
		return assigned
	}
	g.setStandbys(nil)
	// The leader has balanced another topology. This may pass: a static member that comes back gets what was decided
	// before, and old members may be going right now. So we wait a little with nothing before we give up.
	if g.mismatch == nil && !g.dying {
		why := fmt.Errorf("join group %s: %w: the group's leader runs %s (version %d), this member runs %s (version %d); stop "+
			"the members of the other version first, or give this one an app id of its own", g.c.opts.AppID, ErrTopologyDiffers,
			d.Fingerprint, d.LayoutVersion, mine.Fingerprint, mine.Version)
		if err != nil {
			why = fmt.Errorf("join group %s: %w: the group's leader runs another version of the program: %w; stop its members "+
				"first", g.c.opts.AppID, ErrTopologyDiffers, err)
		}
		g.c.opts.Logger.Warn("the group runs another topology, waiting for it to change", "group", g.c.opts.AppID,
			"leader_fingerprint", d.Fingerprint, "fingerprint", mine.Fingerprint)
		patience := 2 * g.c.opts.SessionTimeout
		if err == nil && sameProgram(d.Fingerprint, mine.Fingerprint) {
			// Members of another incarnation of the same program are on their way to this one, or to an end: a balance waits
			// for one that is busy with that.
			patience += g.c.opts.RebalanceTimeout
		}
		g.mismatch = time.AfterFunc(patience, func() { g.fatal(why) })
		// If we are the leader, this makes us balance; if not, it does nothing.
		g.cl.ForceRebalance()
	}
	return map[string][]int32{}
}

// sameProgram says whether two fingerprints differ by the incarnation alone: from the second on it stands at the end, as "-i2".
func sameProgram(a, b string) bool {
	a, _, _ = strings.Cut(a, "-i")
	b, _, _ = strings.Cut(b, "-i")
	return a == b
}

// setStandbys passes on what the member keeps; g.mu is held.
func (g *Group) setStandbys(s []Standby) {
	if g.layout.Keeper == nil || slices.Equal(g.standbys, s) {
		return
	}
	g.standbys = s
	select {
	case g.keep <- struct{}{}:
	default:
	}
}

// Rejoin makes the group balance anew: what this member keeps has changed in a way that matters (Standby.WarmUp).
func (g *Group) Rejoin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.dying {
		g.cl.ForceRebalance()
	}
}

// assigned, revoked and lost are kgo's callbacks, never two at once.
func (g *Group) assigned(m map[string][]int32) {
	ids := g.layout.subtasksIn(m)
	g.mu.Lock()
	ids = slices.DeleteFunc(ids, func(id record.SubtaskID) bool { return g.owned[id] || g.dying })
	for _, id := range ids {
		g.owned[id] = true
	}
	// A member that gets nothing must know that it is one: it stands by.
	tell := len(ids) > 0 || !g.told && !g.dying && g.mismatch == nil
	g.told = g.told || tell
	g.broadcast()
	g.mu.Unlock()
	if tell {
		g.call(callAssigned, ids)
	}
}

func (g *Group) revoked(m map[string][]int32) {
	ids := g.layout.subtasksIn(m)
	g.mu.Lock()
	ids = slices.DeleteFunc(ids, func(id record.SubtaskID) bool { return !g.owned[id] })
	dying := g.dying
	g.mu.Unlock()
	if dying {
		g.lost()
		return
	}
	if len(ids) > 0 {
		g.call(callRevoked, ids)
	}
	g.disown(ids)
}

func (g *Group) lost() {
	g.mu.Lock()
	ids := slices.SortedFunc(maps.Keys(g.owned), record.SubtaskID.Compare)
	g.member, g.generation = "", -1
	g.mu.Unlock()
	g.disown(ids)
	if len(ids) > 0 {
		g.call(callLost, ids)
	}
}

func (g *Group) disown(ids []record.SubtaskID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		delete(g.owned, id)
	}
	g.broadcast()
}

// call hands a callback to the handler goroutine and waits for its end. It lives until kgo's client is closed, which
// is after the last callback.
func (g *Group) call(kind callKind, ids []record.SubtaskID) {
	c := handlerCall{kind: kind, ids: ids, done: make(chan struct{})}
	g.calls <- c
	<-c.done
}

func (g *Group) runHandler() {
	for {
		var c handlerCall
		select {
		case <-g.keep:
			g.mu.Lock()
			standbys := g.standbys
			g.mu.Unlock()
			g.layout.Keeper.Keep(standbys)
			continue
		case next, ok := <-g.calls:
			if !ok {
				return
			}
			c = next
		}
		switch c.kind {
		case callAssigned:
			g.handler.Assigned(c.ids)
		case callRevoked:
			// The others wait for us to join again, until the rebalance time-out; then the broker throws us out.
			ctx, cancel := context.WithTimeout(g.callCtx, g.c.opts.RebalanceTimeout*3/4)
			g.handler.Revoked(ctx, c.ids)
			cancel()
		case callLost:
			g.handler.Lost(c.ids)
		}
		close(c.done)
	}
}

// poll drains what kgo has to tell; no records come.
func (g *Group) poll(ctx context.Context) {
	for {
		fs := g.cl.PollFetches(ctx)
		if ctx.Err() != nil || fs.IsClientClosed() {
			return
		}
		for _, e := range fs.Errors() {
			var session *kgo.ErrGroupSession
			switch {
			case errors.As(e.Err, &session):
				// The hook has seen it.
			case errors.Is(e.Err, kerr.UnknownTopicOrPartition), errors.Is(e.Err, kerr.UnknownTopicID):
				g.unknownTopic(ctx, e.Topic, e.Err)
			default:
				g.sessionError(e.Err)
			}
		}
	}
}

// unknownTopic asks again before it believes that a topic is gone: a broker that has just started may not know it.
func (g *Group) unknownTopic(ctx context.Context, topic string, err error) {
	dctx, cancel := g.c.deadline(ctx)
	defer cancel()
	infos, askErr := g.c.topicIDs(dctx, []string{topic})
	if askErr != nil {
		return
	}
	if _, ok := infos[topic]; !ok {
		g.fatal(&TopicError{Topic: topic, Err: err})
	}
}

// groupHook is told of every end of a group session.
type groupHook struct{ g *Group }

// OnGroupManageError implements kgo.HookGroupManageError. It runs on kgo's group goroutine before it joins again.
func (h groupHook) OnGroupManageError(err error) { h.g.sessionError(err) }

// sessionError sorts out the ends of a session that joining again cannot heal.
func (g *Group) sessionError(err error) {
	app := g.c.opts.AppID
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		g.fatal(fmt.Errorf("group %s: %w %q: two processes share one state directory or instance id; give each its own (%w)",
			app, ErrFencedInstance, g.c.opts.InstanceID, err))
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		g.fatal(fmt.Errorf("join group %s: %w: it has members that do not speak the protocol %q; use another app id (%w)", app,
			ErrGroupProtocol, protocolName, err))
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		g.fatal(authErr("join group "+app, "group "+app, "Read", err))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		g.fatal(authErr("join group "+app, "the input topics", "Read and Describe", err))
	case errors.Is(err, kerr.InvalidSessionTimeout):
		g.fatal(fmt.Errorf("join group %s: the brokers refuse a session time-out of %v: it must be between "+
			"group.min.session.timeout.ms and group.max.session.timeout.ms (%w)", app, g.c.opts.SessionTimeout, err))
	case errors.Is(err, kerr.GroupMaxSizeReached):
		g.fatal(fmt.Errorf("join group %s: it has as many members as group.max.size allows (%w)", app, err))
	case errors.Is(err, kerr.InvalidGroupID):
		g.fatal(fmt.Errorf("join group %s: the app id is no valid group id (%w)", app, err))
	case errors.Is(err, kerr.GroupIDNotFound):
		g.fatal(fmt.Errorf("join group %s: %w: the group is one of the new protocol (KIP-848) or of share consumers; use "+
			"another app id (%w)", app, ErrGroupProtocol, err))
	}
}

// fatal ends the session at once, so that kgo does not join again and fence or disturb others.
func (g *Group) fatal(err error) {
	g.mu.Lock()
	if g.dying {
		g.mu.Unlock()
		return
	}
	g.dying = true
	g.broadcast()
	g.mu.Unlock()
	g.errs <- err // never blocks: dying is set once
	g.cancelCall()
	g.stop()
}

// Close ends the membership: all subtasks are Revoked (finish and commit them) and then the group is left, if leave is
// set or the membership is dynamic. A static member that does not leave keeps its subtasks until its session times
// out, so that it can come back without a rebalance. Once ctx ends, what is not finished is Lost. The handler is not
// called any more after Close has returned.
func (g *Group) Close(ctx context.Context, leave bool) error {
	g.closeOnce.Do(func() { g.closeErr = g.close(ctx, leave) })
	return g.closeErr
}

func (g *Group) close(ctx context.Context, leave bool) error {
	var err error
	g.mu.Lock()
	fatal := g.dying
	if g.mismatch != nil {
		g.mismatch.Stop()
	}
	g.mu.Unlock()
	member, _ := g.cl.GroupMetadata()
	if !fatal {
		// kgo waits for a running join, and for the callbacks; a dynamic member then leaves.
		if err = g.cl.LeaveGroupContext(ctx); err != nil {
			err = fmt.Errorf("leave group %s: %w", g.c.opts.AppID, err)
		}
		if m, _ := g.cl.GroupMetadata(); m != "" {
			member = m
		}
	}
	g.mu.Lock()
	g.dying = true
	g.broadcast()
	g.mu.Unlock()
	g.cancelCall()
	g.stop()
	g.cl.Close()
	close(g.calls)
	g.wg.Wait()
	// A static member leaves only like this. One that was fenced is no member any more, and its word would hit the
	// member that took its place only if the member id were left out.
	if static := g.c.opts.InstanceID != ""; leave && member != "" && (static || fatal) {
		err = errors.Join(err, g.leave(ctx, member))
	}
	return err
}

// leave takes this member out of the group. That it is not in there any more is fine.
func (g *Group) leave(ctx context.Context, member string) error {
	ctx, cancel := g.c.deadline(ctx)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = g.c.opts.AppID, member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	if g.c.opts.InstanceID != "" {
		m.InstanceID = &g.c.opts.InstanceID
	}
	m.Reason = kmsg.StringPtr("stopped")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, g.c.cl)
	if err != nil {
		return fmt.Errorf("leave group %s: %w", g.c.opts.AppID, err)
	}
	codes := []int16{resp.ErrorCode}
	for _, m := range resp.Members {
		codes = append(codes, m.ErrorCode)
	}
	for _, code := range codes {
		err := kerr.ErrorForCode(code)
		switch {
		case err == nil, errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
		default:
			return fmt.Errorf("leave group %s: %w", g.c.opts.AppID, err)
		}
	}
	return nil
}
