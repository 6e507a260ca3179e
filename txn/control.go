package txn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
)

// ControlState is what all members of an app agree upon. It is one record of the control topic.
type ControlState struct {
	// Revision counts the updates; 0 = nothing was ever written. Update sets it.
	Revision    uint64            `json:"revision"`
	ClusterID   string            `json:"cluster_id"`
	Incarnation uint64            `json:"incarnation"`
	Fingerprint string            `json:"fingerprint"`         // of the topology
	Topology    json.RawMessage   `json:"topology,omitempty"`  // what compatibility of state is decided by
	TopicIDs    map[string]string `json:"topic_ids,omitempty"` // by topic name, as text
	// Old are the ids of the internal topics of earlier incarnations: who removes the app must know which are its own.
	Old         map[string]string `json:"old_topic_ids,omitempty"`
	Parallelism []int             `json:"parallelism,omitempty"` // number of subtasks, by sub-topology
	// Origin says what the incarnation began with: "" = the first start of the app, "fresh" or "savepoint:<path>", followed
	// by "#<nonce>" if the start had one. A member that is started with the same origin joins the incarnation.
	Origin string `json:"origin,omitempty"`
	// Past are the origins of earlier incarnations, the newest last. A start that asks for one of them joins the incarnation
	// that there is, and does not begin it again.
	Past []string `json:"past,omitempty"`
	// Base is the savepoint that the incarnation began from; nil = it began without state.
	Base *Base `json:"base,omitempty"`
	// Savepoint is the one that is being taken, or was taken last; nil = none in this incarnation.
	Savepoint *SavepointRequest `json:"savepoint,omitempty"`
	// Stopped says that the app was stopped on purpose: members that start wait until it is resumed.
	Stopped *Stopped `json:"stopped,omitempty"`
	// Ended are the subtasks that have read all their inputs to an end and committed that. With all of them the app has
	// ended: members end, and so do those that are started with this topology.
	Ended []string `json:"ended,omitempty"`
}

// Base names a savepoint that an incarnation begins from.
type Base struct {
	App  string `json:"app"`  // whose savepoint it is
	Name string `json:"name"` // of the savepoint
	ID   string `json:"id"`   // of the savepoint, since names can be used again
	URL  string `json:"url"`  // of the blob store that holds it, without credentials
	// Parallelism is that of a rescale; 0 = as the savepoint was made.
	Parallelism int `json:"parallelism,omitempty"`
}

// SavepointRequest asks the members of an app for a savepoint, and says how far it is. Who asked moves it on by Update;
// every member may make it failed.
//
//	running -> aligned -> completed
//	   \----------\------> failed (with a reason)
type SavepointRequest struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Phase    SavepointPhase `json:"phase"`
	Reason   string         `json:"reason,omitempty"` // why it failed
	Moved    bool           `json:"moved,omitempty"`  // it failed since subtasks moved: another try helps
	Stop     bool           `json:"stop,omitempty"`   // processing does not go on after it
	Began    int64          `json:"began_ms"`
	Deadline int64          `json:"deadline_ms"` // of this phase: members make it failed then
	By       string         `json:"by"`          // who asked, for people
}

// SavepointPhase is how far a savepoint is.
type SavepointPhase string

// The phases. From aligned on every subtask has the state in hand that the savepoint holds, and processing may go on.
const (
	SavepointRunning   SavepointPhase = "running"
	SavepointAligned   SavepointPhase = "aligned"
	SavepointCompleted SavepointPhase = "completed"
	SavepointFailed    SavepointPhase = "failed"
)

// Stopped is how an app was stopped on purpose.
type Stopped struct {
	At        int64  `json:"at_ms"`
	Savepoint string `json:"savepoint,omitempty"` // that was taken then
	By        string `json:"by"`
	// Removal says that the app is being reset or deleted. If nobody is at it, it was cut off, and can be done again.
	Removal bool `json:"removal,omitempty"`
}

// controlVersion is raised by every change that an older program must not drop when it rewrites the record.
const controlVersion = 1

// controlRecord is the value of the record, as JSON.
type controlRecord struct {
	Version int `json:"version"`
	// Writer names the call of Update that wrote it, so that the call knows its own write when EndTxn's answer was lost.
	Writer string `json:"writer"`
	ControlState
}

var controlKey = []byte("state")

// ErrControlVersion: the control topic was written by a newer version of millrace.
var ErrControlVersion = errors.New("the control topic has an unknown format version")

// Control is the control topic <app.id>-control: one partition, compacted. It is safe for concurrent use.
type Control struct {
	c     *Cluster
	topic string
	cl    *kgo.Client // of all reads but Follow's
	start int64       // position at which OpenControl ended; Follow begins here

	updating chan struct{} // cap 1, one Update at a time: two would fence each other

	mu       sync.Mutex
	state    controlRecord
	position int64 // next offset to read
}

// OpenControl creates the control topic if it is missing, verifies it, and reads it to the end.
func (c *Cluster) OpenControl(ctx context.Context) (*Control, error) {
	t := &Control{c: c, topic: c.opts.AppID + "-control", updating: make(chan struct{}, 1)}
	if _, err := c.EnsureTopics(ctx, []TopicSpec{{Name: t.topic, Partitions: 1, ReplicationFactor: -1,
		Configs: map[string]string{"cleanup.policy": "compact"}}}); err != nil {
		return nil, fmt.Errorf("open control topic: %w", err)
	}
	var err error
	if t.cl, err = kgo.NewClient(c.clientOpts()...); err != nil {
		return nil, fmt.Errorf("open control topic: %w", err)
	}
	err = t.refresh(ctx)
	if errors.Is(err, ErrStalled) {
		// No transaction lives that long.
		if err = t.heal(ctx); err == nil {
			err = t.refresh(ctx)
		}
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("open control topic: %w", err)
	}
	t.start = t.position
	return t, nil
}

// Close ends the connections; Update and Follow must have returned.
func (t *Control) Close() { t.cl.Close() }

// State is the newest state read so far, by OpenControl, Update or Follow.
func (t *Control) State() ControlState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.clone()
}

func (s ControlState) clone() ControlState {
	s.Topology = bytes.Clone(s.Topology)
	s.TopicIDs, s.Old = maps.Clone(s.TopicIDs), maps.Clone(s.Old)
	s.Parallelism = append([]int(nil), s.Parallelism...)
	s.Past = append([]string(nil), s.Past...)
	s.Ended = append([]string(nil), s.Ended...)
	s.Base, s.Savepoint, s.Stopped = copied(s.Base), copied(s.Savepoint), copied(s.Stopped)
	return s
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// AppID is whose control topic it is.
func (t *Control) AppID() string { return t.c.opts.AppID }

// Refresh reads what is decided up to now, and returns it. Unlike Update it does not wait for a transaction that is
// open: nobody can have seen what that writes.
func (t *Control) Refresh(ctx context.Context) (ControlState, error) {
	tp := record.TopicPartition{Topic: t.topic}
	ends, err := t.c.StableOffsets(ctx, []record.TopicPartition{tp})
	if err == nil {
		err = t.readTo(ctx, ends[tp])
	}
	if err != nil {
		return ControlState{}, fmt.Errorf("read control topic %s: %w", t.topic, err)
	}
	return t.State(), nil
}

// refresh reads to the high watermark.
func (t *Control) refresh(ctx context.Context) error {
	tp := record.TopicPartition{Topic: t.topic}
	ends, err := t.c.EndOffsets(ctx, []record.TopicPartition{tp})
	if err != nil {
		return err
	}
	return t.readTo(ctx, ends[tp])
}

func (t *Control) readTo(ctx context.Context, end int64) error {
	t.mu.Lock()
	from := t.position
	t.mu.Unlock()
	// A writer that was killed may have left a transaction open: it is over by twice its time-out (see ChangelogRead.Stall).
	return t.read(ctx, t.cl, from, end, 2*t.c.opts.TransactionTimeout, fetchWait, func(int64, *controlRecord) {})
}

// read goes from one position to another, or until ctx ends. It tells each position and the newest record before it,
// nil if there was none.
func (t *Control) read(ctx context.Context, cl *kgo.Client, from, to int64, stall, wait time.Duration, seen func(int64, *controlRecord)) error {
	f := &fetcher{cl: cl, opts: t.c.opts, topic: t.topic, position: from, end: to, stall: stall, wait: wait, leader: -1}
	return f.run(ctx, func(records []*kgo.Record, position int64) error {
		var newest *controlRecord
		for _, r := range records {
			if !bytes.Equal(r.Key, controlKey) {
				continue
			}
			c, err := decodeControl(r.Value)
			if err != nil {
				return fmt.Errorf("read %s/0 at offset %d: %w", t.topic, r.Offset, err)
			}
			newest = c
		}
		t.mu.Lock()
		if position > t.position { // else Update or Follow was here first
			t.position = position
			if newest != nil {
				t.state = *newest
			}
		}
		t.mu.Unlock()
		seen(position, newest)
		return nil
	})
}

func decodeControl(value []byte) (*controlRecord, error) {
	var v struct{ Version int }
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("control record is not JSON: %w", err)
	}
	if v.Version != controlVersion {
		return nil, fmt.Errorf("%w: %d, this program knows only %d; run the version of millrace that wrote it", ErrControlVersion, v.Version, controlVersion)
	}
	c := &controlRecord{}
	if err := json.Unmarshal(value, c); err != nil {
		return nil, fmt.Errorf("control record: %w", err)
	}
	return c, nil
}

// takeover fences every other writer, and ends what one of them has left hanging (see hanging.go).
func (t *Control) takeover(ctx context.Context, cl *kgo.Client) error {
	h := healer{c: t.c, cl: cl, txnID: t.topic, watched: []record.TopicPartition{{Topic: t.topic}}, firstEpoch: math.MaxInt16}
	if err := h.learn(ctx); err != nil {
		return err
	}
	var err error
	if h.pid, h.pepoch, err = cl.ProducerID(ctx); err != nil {
		return err
	}
	if _, err = h.heal(ctx); errors.Is(err, errHealed) {
		return fmt.Errorf("%w: %w", kerr.ConcurrentTransactions, err) // again, from the start
	}
	return err
}

// heal ends what a writer has left hanging, as an Update does that writes nothing.
func (t *Control) heal(ctx context.Context) error {
	opts, err := t.c.producerOpts(t.topic, nil)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := t.takeover(ctx, cl); err != nil && !errors.Is(err, errHealed) {
		return err
	}
	return nil
}

// maxControlTries bounds how often an Update starts again because another writer fenced it.
const maxControlTries = 50

// Update changes the state by compare-and-set: it takes the transactional id <app.id>-control, which fences every
// other writer, reads to the end of what is decided, lets decide choose, writes and commits. decide gets the newest
// state and returns the next one; its error ends the update and is returned as it is; a state that it returns unchanged
// is not written. It may be called several times, since a writer that was fenced starts again, with a random back-off,
// until ctx or three times Options.RequestTimeout end.
func (t *Control) Update(ctx context.Context, decide func(ControlState) (ControlState, error)) (ControlState, error) {
	select {
	case t.updating <- struct{}{}:
	case <-ctx.Done():
		return ControlState{}, fmt.Errorf("update control topic %s: another update of this process is not done: %w", t.topic, context.Cause(ctx))
	}
	defer func() { <-t.updating }()
	ctx, cancel := context.WithTimeout(ctx, 3*t.c.opts.RequestTimeout)
	defer cancel()
	writer := strconv.FormatUint(rand.Uint64(), 36)
	var last error
	for try := 1; try <= maxControlTries; try++ {
		state, again, err := t.try(ctx, writer, decide)
		if err == nil {
			return state, nil
		}
		if !again {
			return ControlState{}, err
		}
		last = err
		if Sleep(ctx, rand.N(20*time.Millisecond<<min(try, 6))) != nil {
			break
		}
	}
	return ControlState{}, fmt.Errorf("update control topic %s: other writers or the brokers did not let it through: %w", t.topic, last)
}

// try is one turn of Update. again means that it may be repeated.
func (t *Control) try(ctx context.Context, writer string, decide func(ControlState) (ControlState, error)) (_ ControlState, again bool, _ error) {
	txnID := t.topic
	fail := func(what string, err error) (ControlState, bool, error) {
		r := replyOf(err)
		if isAuthErr(err) {
			return ControlState{}, false, authErr("update control topic", "transactional id "+txnID+" and topic "+t.topic, "Write and Describe", err)
		}
		again := fencing(r) || retriable(r) || !r.Lost && (r.Code == kerr.OperationNotAttempted.Code || r.Code == kerr.TransactionAbortable.Code)
		return ControlState{}, again, fmt.Errorf("update control topic %s: %s: %w", t.topic, what, err)
	}
	opts, err := t.c.producerOpts(txnID, nil)
	if err != nil {
		return fail("make client", err)
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return fail("make client", err)
	}
	defer cl.Close()
	if err := t.takeover(ctx, cl); err != nil {
		return fail("init producer id", err)
	}
	if err := t.refresh(ctx); err != nil {
		return fail("read", err)
	}
	t.mu.Lock()
	cur := t.state
	t.mu.Unlock()
	if cur.Writer == writer {
		return cur.clone(), false, nil // an earlier turn did commit, and its answer was lost
	}
	next, err := decide(cur.clone())
	if err != nil {
		return ControlState{}, false, err
	}
	next.Revision = cur.Revision
	if same(next, cur.ControlState) {
		return next, false, nil
	}
	next.Revision++
	value, err := json.Marshal(controlRecord{controlVersion, writer, next})
	if err != nil {
		return ControlState{}, false, fmt.Errorf("update control topic %s: encode: %w", t.topic, err)
	}
	if err := cl.BeginTransaction(); err != nil {
		return fail("begin transaction", err)
	}
	// Not ProduceSync: kgo does not give up a record that a broker may have, whatever ctx says. Closing the client does.
	written := make(chan error, 1)
	cl.Produce(ctx, &kgo.Record{Topic: t.topic, Key: controlKey, Value: value}, func(_ *kgo.Record, err error) { written <- err })
	select {
	case err = <-written:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fail("write", err)
	}
	if err := commitTransaction(ctx, cl); err != nil {
		// Whatever the answer was, the next turn reads what came of it.
		state, _, err := fail("commit", err)
		return state, !isAuthErr(err), err
	}
	// Read back: the position moves over our own record, and what State tells is what the topic holds.
	if err := t.refresh(ctx); err != nil {
		return fail("read back", err)
	}
	return next, false, nil
}

func same(a, b ControlState) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// Follow calls seen with every state written since OpenControl, by whomever, until ctx ends, whose error it then
// returns; other errors mean that the topic cannot be followed (authorization, a newer format, a recreated topic). When
// states follow each other closely, only the newest may be told.
func (t *Control) Follow(ctx context.Context, seen func(ControlState)) error {
	// An own client: a fetch that waits would hold up the reads of Update on the same connection.
	cl, err := kgo.NewClient(t.c.clientOpts()...)
	if err != nil {
		return fmt.Errorf("follow control topic: %w", err)
	}
	defer cl.Close()
	position := t.start
	for {
		err := t.read(ctx, cl, position, math.MaxInt64, time.Minute, 2*time.Second, func(p int64, c *controlRecord) {
			position = p
			if c != nil {
				seen(c.clone())
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, ErrStalled) {
			return err
		}
	}
}
