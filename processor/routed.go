package processor

import (
	"fmt"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Routed is the key group of the record that is being processed, by its key. The error, to be returned as it is, says that
// the record is not on the subtask where Kafka's default partitioner (murmur2) puts its key, and ends with advice, what to do
// then: it stops the app unless the policy of the source says otherwise. See FromKeyed.
func (c *SubtaskContext) Routed(key []byte, advice string) (statestore.Group, error) {
	x := c.b.x
	partition, total, ok := x.Input()
	if !ok {
		return 0, x.Fail(x.Op, task.Misrouted, fmt.Errorf("check key: there is no record"))
	}
	if key == nil {
		return 0, x.Fail(x.Op, task.Misrouted, fmt.Errorf("check key: the record has no key, by which it should lie on its partition; %s", advice))
	}
	want, group := place(key, total)
	if _, n := x.Subtask(); int(want)%n != int(partition)%n {
		return 0, x.Fail(x.Op, task.Misrouted, fmt.Errorf("check key: key %q is on partition %d, Kafka's default partitioner puts it on %d of %d; %s", key, partition, want, total, advice))
	}
	return group, nil
}
