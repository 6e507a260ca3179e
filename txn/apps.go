package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// What is asked and done from outside of an app: by commands, not by its members.

// ControlTopic is the name of an app's control topic.
func ControlTopic(app string) string { return app + "-control" }

// ReadControl reads what the members of an app, this one or another, agree upon, and creates nothing. What a transaction
// that is open now writes is left out. The zero state means that the control topic is empty. Errors: ErrNoApp if the app has no
// control topic.
func (c *Cluster) ReadControl(ctx context.Context, app string) (ControlState, error) {
	topic := ControlTopic(app)
	dctx, cancel := c.deadline(ctx)
	infos, err := c.topicIDs(dctx, []string{topic})
	cancel()
	if err != nil {
		return ControlState{}, fmt.Errorf("read control topic: %w", err)
	}
	if infos[topic].Partitions == 0 {
		return ControlState{}, fmt.Errorf("read control topic %s: %w: the topic does not exist; is app.id right, and was the app started?", topic, ErrNoApp)
	}
	tp := record.TopicPartition{Topic: topic}
	// To the last stable offset: an open transaction in the control topic is what we may have been called for.
	stable, err := c.StableOffsets(ctx, []record.TopicPartition{tp})
	if err != nil {
		return ControlState{}, fmt.Errorf("read control topic: %w", err)
	}
	var state controlRecord
	err = c.ReadCommitted(ctx, tp, 0, stable[tp], func(r record.Record) error {
		if string(r.Key) != string(controlKey) {
			return nil
		}
		newest, err := decodeControl(r.Value)
		if err != nil {
			return fmt.Errorf("read %s at offset %d: %w", tp, r.Offset, err)
		}
		state = *newest
		return nil
	})
	return state.ControlState, err
}

// AllTopics are the topics of the cluster that this principal may describe, without their configuration.
func (c *Cluster) AllTopics(ctx context.Context) (map[string]TopicInfo, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	infos, err := c.topicIDs(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return infos, nil
}

// GroupMember is a member of the app's group, as its coordinator knows it.
type GroupMember struct {
	ID         string `json:"id"`
	InstanceID string `json:"instance_id,omitempty"` // of a static member
	ClientID   string `json:"client_id"`
	Host       string `json:"host"`
}

// GroupState describes the app's group; "" means that there is none. Errors: authorization, the coordinator does not answer.
func (c *Cluster) GroupState(ctx context.Context) (state string, members []GroupMember, err error) {
	err = c.askGroup(ctx, "describe", "Describe", func(ctx context.Context) error {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{c.opts.AppID}
		resp, err := req.RequestWith(ctx, c.cl)
		if err != nil {
			return err
		}
		if len(resp.Groups) != 1 {
			return errNoGroupAnswer
		}
		g := resp.Groups[0]
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return err
		}
		for _, m := range g.Members {
			member := GroupMember{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
			if m.InstanceID != nil {
				member.InstanceID = *m.InstanceID
			}
			members = append(members, member)
		}
		if state = g.State; state == "Dead" { // what brokers say of a group that they do not know
			state, members = "", nil
		}
		return nil
	})
	slices.SortFunc(members, func(a, b GroupMember) int {
		return cmp.Or(cmp.Compare(a.InstanceID, b.InstanceID), cmp.Compare(a.ID, b.ID))
	})
	return state, members, err
}

// Members is how many members the app's group has, as its coordinator knows: one that was killed counts until its
// session is over.
func (c *Cluster) Members(ctx context.Context) (int, error) {
	_, members, err := c.GroupState(ctx)
	return len(members), err
}

// DeleteGroup deletes the app's group with all its offsets; none is fine. Errors: ErrGroupBusy while it has members.
func (c *Cluster) DeleteGroup(ctx context.Context) error {
	return c.askGroup(ctx, "delete", "Delete", func(ctx context.Context) error {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{c.opts.AppID}
		resp, err := req.RequestWith(ctx, c.cl)
		if err != nil {
			return err
		}
		if len(resp.Groups) != 1 {
			return errNoGroupAnswer
		}
		return kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	})
}

var errNoGroupAnswer = errors.New("the coordinator did not answer for it")

// askGroup asks the coordinator of the app's group something until it answers; that there is no such group is no error. verb
// and operation are for messages: what is done, and the right that it needs.
func (c *Cluster) askGroup(ctx context.Context, verb, operation string, ask func(context.Context) error) error {
	group := c.opts.AppID
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for try := 1; ; try++ {
		err := ask(ctx)
		switch {
		case err == nil, errors.Is(err, kerr.GroupIDNotFound):
			return nil
		case errors.Is(err, kerr.NonEmptyGroup):
			return fmt.Errorf("%s group %s: %w (%w)", verb, group, ErrGroupBusy, err)
		case isAuthErr(err):
			return authErr(verb+" group "+group, "group "+group, operation, err)
		case !retriable(replyOf(err)) || pause(ctx, try) != nil:
			return fmt.Errorf("%s group %s: %w", verb, group, err)
		}
	}
}

// ErrGroupBusy: the group has members.
var ErrGroupBusy = errors.New("the group has members")

// DeleteTopics deletes topics, by their ids: one that was created again under the same name stays. Absent ones are fine. It returns
// when they are gone as far as one broker knows.
func (c *Cluster) DeleteTopics(ctx context.Context, topics map[string][16]byte) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	left := maps.Clone(topics)
	for try := 1; len(left) > 0; try++ {
		err := c.deleteTopics(ctx, left)
		if err != nil {
			return err
		}
		infos, err := c.topicIDs(ctx, slices.Sorted(maps.Keys(left)))
		if err != nil {
			return fmt.Errorf("delete topics: %w", err)
		}
		maps.DeleteFunc(left, func(name string, id [16]byte) bool {
			info, ok := infos[name]
			return !ok || info.ID != id
		})
		if len(left) > 0 && pause(ctx, try) != nil {
			return fmt.Errorf("delete topics: %d are still there, such as %s: the brokers take long, run it again", len(left), slices.Sorted(maps.Keys(left))[0])
		}
	}
	return nil
}

// deleteTopics asks once.
func (c *Cluster) deleteTopics(ctx context.Context, topics map[string][16]byte) error {
	names := map[[16]byte]string{}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = int32(c.opts.RequestTimeout.Milliseconds())
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		id := topics[name]
		names[id] = name
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.TopicID = id
		if id == [16]byte{} { // brokers before 2.8 have no ids
			t.Topic = kmsg.StringPtr(name)
		}
		req.Topics = append(req.Topics, t)
		req.TopicNames = append(req.TopicNames, name) // what older brokers read
	}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	for _, t := range resp.Topics {
		name := names[t.TopicID]
		if name == "" && t.Topic != nil {
			name = *t.Topic
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case err == nil, errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), kerr.IsRetriable(err):
			// Gone, or asked again: the caller looks whether it is.
		case isAuthErr(err):
			return authErr("delete topic "+name, "topic "+name, "Delete", err)
		case errors.Is(err, kerr.TopicDeletionDisabled):
			return fmt.Errorf("delete topic %s: %w; set delete.topic.enable on the brokers", name, err)
		default:
			return fmt.Errorf("delete topic %s: %w", name, err)
		}
	}
	return nil
}

// Fence takes the transactional ids of subtasks over, and lets go: whoever used one writes nothing any more, and its open
// transaction is aborted. What hangs in the given topics is ended as it was decided, as a takeover does (see OpenProducer).
// Errors: ErrHanging, authorization.
func (c *Cluster) Fence(ctx context.Context, subtasks []record.SubtaskID, topics []string) error {
	if len(subtasks) == 0 {
		return nil
	}
	dctx, cancel := c.deadline(ctx)
	infos, err := c.topicIDs(dctx, topics)
	cancel()
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	watch := &Producer{healer: healer{c: c}, topics: ProducerTopics{Outputs: slices.Sorted(maps.Keys(infos))}}
	watched := watch.partitions(ctx, infos)
	for _, id := range subtasks {
		if err := c.fence(ctx, c.transactionalID(id), watched); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) fence(ctx context.Context, txnID string, watched []record.TopicPartition) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for try := 1; ; try++ {
		err := c.fenceOnce(ctx, txnID, watched)
		switch {
		case err == nil:
			return nil
		case isAuthErr(err):
			return authErr("fence "+txnID, "transactional id "+txnID, "Write and Describe", err)
		case errors.Is(err, errHealed): // again: its epoch has moved
		case errors.Is(err, ErrHanging), !retriable(replyOf(err)) || pause(ctx, try) != nil:
			return fmt.Errorf("fence %s: %w", txnID, err)
		}
	}
}

func (c *Cluster) fenceOnce(ctx context.Context, txnID string, watched []record.TopicPartition) error {
	opts, err := c.producerOpts(txnID, nil)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	h := healer{c: c, cl: cl, txnID: txnID, offsets: true, watched: watched, firstEpoch: math.MaxInt16}
	if err := h.learn(ctx); err != nil {
		return err
	}
	if h.pid, h.pepoch, err = cl.ProducerID(ctx); err != nil {
		return err
	}
	_, err = h.heal(ctx)
	return err
}

// transactionalID is that of a subtask.
func (c *Cluster) transactionalID(id record.SubtaskID) string {
	return fmt.Sprintf("%s-%d-%d", c.opts.AppID, id.SubTopology, id.Index)
}
