package txn

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// met is what a producer knows of a topic that it writes.
type met struct {
	id    [16]byte // when the subtask was taken over; zero: the topic was not there
	state metState
}

type metState uint8

const (
	unmet   metState = iota // no record went there yet
	touched                 // records did, in the running transaction
	sure                    // and the topic was still the same one then
)

// meet notes that the running transaction writes a topic for the first time.
func (p *Producer) meet(t *met) {
	t.state = touched
	p.unsure = true
}

// sameTopics refuses a topic that was deleted and created again between the takeover and the first records that went there:
// the client asks for a topic's id when it has a record for it, and would take the new topic for the old one. From then on it
// keeps the id, and the brokers refuse another. It is called when all records are acknowledged.
func (p *Producer) sameTopics(ctx context.Context) error {
	if !p.unsure {
		return nil
	}
	var names []string
	for name, t := range p.met {
		if t.state == touched {
			names = append(names, name)
		}
	}
	ctx, cancel := p.c.deadline(ctx)
	defer cancel()
	infos, err := p.c.topicIDs(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		t := p.met[name]
		switch info, ok := infos[name]; {
		case !ok:
			return fmt.Errorf("verify topic %s: %w", name, kerr.UnknownTopicOrPartition)
		case t.id == [16]byte{}:
			return fmt.Errorf("verify topic %s: it was not there when the subtask was taken over", name)
		case info.ID != t.id:
			return &TopicError{Topic: name, OldID: t.id, NewID: info.ID}
		}
		t.state = sure
	}
	p.unsure = false
	return nil
}
