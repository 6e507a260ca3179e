package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/txn"
)

// Start says what a worker begins with.
type Start struct {
	// Mode is "latest" or "" (go on with the app's newest state; its first start begins without), "fresh" (begin without
	// state, at the start positions of the sources), or "savepoint:<path>" (begin with the state and the offsets of a
	// savepoint). The last two begin a new incarnation, once: later starts of the same mode and nonce join it. The path is
	// the name of a savepoint of this app, <app>/<name>, or the URL of its folder in another store.
	Mode string
	// Nonce is any text; another one makes the same mode begin again.
	Nonce string
}

// The start modes.
const (
	startLatest    = "latest"
	startFresh     = "fresh"
	startSavepoint = "savepoint:"
)

// CheckStartMode says what is wrong with a start mode.
func CheckStartMode(mode string) error {
	path, ok := strings.CutPrefix(mode, startSavepoint)
	switch {
	case mode == "", mode == startLatest, mode == startFresh:
		return nil
	case !ok:
		return fmt.Errorf("start mode %q: want latest, fresh or savepoint:<path>", mode)
	}
	_, err := parseSavepointPath(path, "app", "file:///any")
	return err
}

// request is what a start asks for (pure): its origin, "" for the newest state, and the savepoint, if any, in the store
// own ("" = none is configured) or the one that the path names.
func (s Start) request(app, own string) (origin string, base *txn.Base, err error) {
	path, ok := strings.CutPrefix(s.Mode, startSavepoint)
	switch {
	case s.Mode == "", s.Mode == startLatest:
		return "", nil, nil
	case s.Mode == startFresh:
		origin = startFresh
	case !ok:
		return "", nil, CheckStartMode(s.Mode)
	default:
		b, err := parseSavepointPath(path, app, own)
		if err != nil {
			return "", nil, err
		}
		origin, base = originOf(b, app, own), &b
	}
	if s.Nonce != "" {
		origin += "#" + s.Nonce
	}
	return origin, base, nil
}

// originOf is how an incarnation that begins with a savepoint is known: the shortest path that names it.
func originOf(b txn.Base, app, own string) string {
	switch {
	case b.URL != own:
		return startSavepoint + b.URL + "/" + b.App + "/savepoints/" + b.Name
	case b.App != app:
		return startSavepoint + b.App + "/" + b.Name
	default:
		return startSavepoint + b.Name
	}
}

// parseSavepointPath reads <name>, <app>/<name> or <url>/<app>/savepoints/<name> (pure).
func parseSavepointPath(path, app, own string) (txn.Base, error) {
	b := txn.Base{App: app, Name: path, URL: own}
	bad := func(why string) (txn.Base, error) {
		return txn.Base{}, fmt.Errorf("savepoint %q: %s; want <name>, <app>/<name>, or a URL that ends in /<app>/savepoints/<name>", path, why)
	}
	if strings.Contains(path, "://") {
		parts := strings.Split(strings.TrimRight(path, "/"), "/")
		n := len(parts)
		if n < 6 || parts[n-2] != "savepoints" || parts[n-3] == "" { // scheme, "", host, app, savepoints, name
			return bad("the URL is not that of a savepoint's folder")
		}
		b.URL, b.App, b.Name = strings.Join(parts[:n-3], "/"), parts[n-3], parts[n-1]
	} else if a, name, ok := strings.Cut(path, "/"); ok {
		b.App, b.Name = a, name
	}
	if b.App == "" {
		return bad("the app is empty")
	}
	if err := checkpoint.CheckName(b.Name); err != nil {
		return bad(err.Error())
	}
	if b.URL == "" {
		return txn.Base{}, fmt.Errorf("savepoint %q: it is not known where savepoints are; set checkpoint.url, or give the URL of its folder", path)
	}
	return b, nil
}

// decision is what a start does with what the members have agreed upon.
type decision struct {
	begins      bool   // a new incarnation begins, or is joined if another member is first
	incarnation uint64 // the one that exists, or at least the new one's number
}

// decideStart compares what a start asks for with what is agreed upon (pure). An origin that was used before is joined, also
// when other incarnations have followed: a process that is started again with an old configuration must not throw away
// what came since.
func decideStart(s txn.ControlState, origin string) decision {
	switch {
	case origin == "":
		return decision{incarnation: max(s.Incarnation, 1)}
	case s.Incarnation > 0 && s.Origin == origin, slices.Contains(s.Past, origin):
		return decision{incarnation: s.Incarnation}
	default:
		return decision{begins: true, incarnation: s.Incarnation + 1}
	}
}

// maxPast bounds the origins that are remembered.
const maxPast = 100

// begin makes the state of a new incarnation from that of the last one (pure): what belonged to the last one is gone.
func begin(app string, s txn.ControlState, incarnation uint64, origin string, base *txn.Base) txn.ControlState {
	next := txn.ControlState{Revision: s.Revision, ClusterID: s.ClusterID, Incarnation: incarnation, Origin: origin, Base: base, Past: slices.Clone(s.Past), Old: ownTopics(app, s)}
	if s.Origin != "" {
		next.Past = append(next.Past, s.Origin)
		next.Past = next.Past[max(len(next.Past)-maxPast, 0):]
	}
	return next
}

// movedError says that the members have agreed upon another incarnation than the one that this worker runs.
type movedError struct{ from, to uint64 }

func (e *movedError) next(w *Worker) {
	w.log.Info("going on in another incarnation", "was", e.from, "incarnation", e.to)
	w.again(w.opts.Plan)
}

func (e *movedError) Error() string {
	return fmt.Sprintf("the app was begun anew as incarnation %d, this worker ran incarnation %d", e.to, e.from)
}

// errAgain is returned by a decision of the control topic that must be prepared again.
var errAgain = errors.New("another member has begun an incarnation at this moment")

// maxPrepares bounds how often a start prepares again because others begin incarnations at that moment.
const maxPrepares = 10

// newborn is an incarnation that a start may begin.
type newborn struct {
	origin      string // "" = none is asked for
	base        *txn.Base
	incarnation uint64
	// Of the savepoint:
	was    topologyRecord
	parts  []oldPart
	pinned map[int]int
}

// newIncarnation looks at what the start asks for, and if that is a new incarnation, reads the savepoint and finds a number
// for it.
func (w *Worker) newIncarnation(ctx context.Context, known txn.ControlState, external map[string]txn.TopicInfo) (n newborn, err error) {
	if n.origin, n.base, err = w.opts.Start.request(w.opts.Kafka.AppID, w.ownSavepoints()); err != nil {
		return n, &fatalError{err}
	}
	if !decideStart(known, n.origin).begins {
		return n, nil
	}
	if n.base != nil {
		_, sp, release, err := w.readBase(ctx, n.base)
		if err != nil {
			return n, err
		}
		release()
		if sp.ClusterID != w.cluster.ID() {
			return n, fatalf("savepoint %s of app %s was taken on cluster %s, and its offsets mean nothing on this one, %s", sp.Name, sp.App, sp.ClusterID, w.cluster.ID())
		}
		n.base.ID = sp.ID
		if n.was, n.parts, err = partsOf(sp); err != nil {
			return n, &fatalError{err}
		}
		n.pinned = n.was.suggested(w.opts.Plan, w.opts.Parallelism)
	}
	// A number whose topics hold something was used before, by an app of this name whose control topic is gone.
	for n.incarnation = known.Incarnation + 1; ; n.incarnation++ {
		r, err := resolve(w.opts.Kafka.AppID, n.incarnation, w.opts.Plan, w.opts.Parallelism, n.pinned, external)
		if err != nil {
			return n, err
		}
		unused, err := w.unused(ctx, r)
		if err != nil || unused {
			return n, err
		}
		w.log.Warn("topics of an incarnation hold records that do not belong to this app as the control topic knows it; the next number is taken", "incarnation", n.incarnation)
	}
}

// unused says that the topics of an incarnation are not there, or as this start would make them and empty.
func (w *Worker) unused(ctx context.Context, r *resolved) (bool, error) {
	specs := r.internalTopics(w.opts.ReplicationFactor, w.opts.InternalCompression)
	var names []string
	for _, s := range specs {
		if s.Name != deadLetterTopic(r.app) {
			names = append(names, s.Name)
		}
	}
	infos, err := w.cluster.Topics(ctx, names...)
	if err != nil {
		return false, err
	}
	var tps []record.TopicPartition
	for _, s := range specs {
		info, ok := infos[s.Name]
		if !ok {
			continue
		}
		if info.Partitions != s.Partitions {
			return false, nil
		}
		for p := range info.Partitions {
			tps = append(tps, record.TopicPartition{Topic: s.Name, Partition: p})
		}
	}
	if len(tps) == 0 {
		return true, nil
	}
	ends, err := w.cluster.EndOffsets(ctx, tps)
	if err != nil {
		return false, err
	}
	for _, end := range ends {
		if end > 0 {
			return false, nil
		}
	}
	return true, nil
}

// suggested is the parallelism of the sub-topologies of a plan that goes on with this one, where nobody names another
// (pure): that of the one whose state, or else inputs, it has.
func (t topologyRecord) suggested(p *task.Plan, wanted int) map[int]int {
	pinned := map[int]int{}
	for _, s := range p.Subs {
		if s.Parallelism != 0 || wanted != 0 {
			continue
		}
		for _, in := range s.Inputs {
			if _, old, ok := t.input(topologyInput{Topic: in.Topic, Internal: in.Internal}); ok {
				pinned[s.ID] = old.Parallelism
			}
		}
		for _, st := range s.Stores {
			if _, old, ok := t.store(st.Name); ok {
				pinned[s.ID] = old.Parallelism
			}
		}
	}
	return pinned
}

// tellStart says in the log which incarnation was begun or joined, if that is worth a line.
func (w *Worker) tellStart(was, now txn.ControlState) {
	origin, _, _ := w.opts.Start.request(w.opts.Kafka.AppID, w.ownSavepoints())
	switch {
	case now.Incarnation != was.Incarnation && now.Origin != "":
		w.log.Info("a new incarnation begins", "incarnation", now.Incarnation, "from", now.Origin)
	case origin != "" && origin != now.Origin:
		w.log.Info("what start.mode asks for was begun before, and the app has gone on since; joining it. Set start.nonce to begin again", "asked", origin, "incarnation", now.Incarnation, "from", now.Origin)
	}
}

// again makes the worker as new, so that it can run in another incarnation or with another plan.
func (w *Worker) again(p *task.Plan) {
	fresh := New(w.opts)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opts.Plan = p
	w.state, w.failure, w.stopping = StateStarting, nil, false
	w.cluster, w.control, w.group, w.topo, w.origin, w.base, w.poll, w.joined = nil, nil, nil, nil, "", nil, nil, nil
	w.grown = nil
	w.subtasks, w.totals, w.topicIDs, w.owners = fresh.subtasks, fresh.totals, nil, nil
	w.keeper = newKeeper(w)
	w.fatal, w.ended = fresh.fatal, fresh.ended
	w.ends.ids = nil
}
