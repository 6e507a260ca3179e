package txn

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/millrace-stream/millrace/internal/testutil"
)

// testTopicMadeAnew: an output is deleted and created again after the takeover, and before the first record goes there. The
// producer, which meets the topic only now, must not take the new one for the old one.
func testTopicMadeAnew(t *testing.T, brokers []string) {
	for _, which := range []string{"output", "changelog"} {
		t.Run(which, func(t *testing.T) {
			r := newRig(t, brokers, nil)
			p := r.open()
			r.mustCommit(p, 1, 10) // touches the first changelog alone
			topic := map[string]string{"output": r.out, "changelog": r.changelog[1]}[which]
			before, err := r.c.topicIDs(t.Context(), []string{topic})
			if err != nil {
				t.Fatal(err)
			}
			adm := kadm.NewClient(r.member)
			if _, err := adm.DeleteTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			var after map[string]TopicInfo
			testutil.Eventually(t, patience, func() error {
				_, err := adm.CreateTopic(t.Context(), 2, 1, nil, topic)
				return err
			})
			testutil.Eventually(t, patience, func() error {
				if after, err = r.c.topicIDs(t.Context(), []string{topic}); err == nil && (after[topic].ID == before[topic].ID || after[topic].Partitions == 0) {
					err = errors.New("it is still the old one")
				}
				return err
			})
			ec := r.epoch(2, 20)
			if which == "output" {
				r.write(p, "a")
			} else {
				ec.Touched = []bool{true, true}
			}
			res := p.Commit(t.Context(), ec, r.own, noWait)
			var te *TopicError
			if res.Outcome != Aborted || !errors.As(res.Err, &te) || !IsFatal(res.Err) {
				t.Fatalf("commit: %v, %v; want aborted for a topic that was made anew", res.Outcome, res.Err)
			}
			if want := (TopicError{Topic: topic, OldID: before[topic].ID, NewID: after[topic].ID}); *te != want {
				t.Errorf("error %v, want %v", te, &want)
			}
			p.Close()
			// Who takes over aborts what was written, and may write the topic as it is now.
			p = r.open()
			r.write(p, "bb")
			r.mustCommit(p, 3, 30)
			r.wantVisible("bb")
		})
	}
}
