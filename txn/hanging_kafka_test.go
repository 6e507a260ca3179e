package txn

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestHangingTransaction lets the broker that leads the output go down while the coordinator completes a transaction:
// Kafka 4 then leaves out its marker (KAFKA-20734). What was committed must become visible when the broker is back, what
// was aborted must not, and nothing may wait for ever. A broker that waits for the leader, as 3.9 does, passes too.
func TestHangingTransaction(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three brokers")
	}
	// With eligible leader replicas (KIP-966) a partition of one replica may stay without leader after a kill.
	cluster := kafka.StartCluster(t, 3, kafka.Feature("eligible.leader.replicas.version=0"))
	// leave ends the second epoch of a producer with the output's leader down, at the given failpoint of its commit.
	leave := func(t *testing.T, end func(r *rig, p *Producer, down func())) (r *rig, p *Producer, back func()) {
		r = newRig(t, cluster.Brokers(), nil)
		adm := kadm.NewClient(r.member)
		ctx := t.Context()
		busy := map[int32]bool{}
		txns := adm.FindTxnCoordinators(ctx, r.app+"-0-0")
		txns.Each(func(c kadm.FindCoordinatorResponse) { busy[c.NodeID] = true })
		groups := adm.FindGroupCoordinators(ctx, r.app)
		groups.Each(func(c kadm.FindCoordinatorResponse) { busy[c.NodeID] = true })
		var node int // index of the broker that leads the output and nothing else
		for busy[int32(node+1)] {
			node++
		}
		other := int32((node+1)%3 + 1)
		var req kadm.AlterPartitionAssignmentsReq
		for i := range int32(2) {
			req.Assign(r.out, i, []int32{int32(node + 1)})
			req.Assign(r.in, i, []int32{other})
		}
		for _, topic := range r.changelog {
			req.Assign(topic, 0, []int32{other})
		}
		resp, err := adm.AlterPartitionAssignments(ctx, req)
		if err = errors.Join(err, resp.Error()); err != nil {
			t.Fatal(err)
		}
		leader := func(topic string) int32 {
			meta, err := adm.Metadata(ctx, topic)
			if err != nil || len(meta.Topics[topic].Partitions) == 0 {
				return -2
			}
			return meta.Topics[topic].Partitions[0].Leader
		}
		testutil.Eventually(t, 30*time.Second, func() error {
			if leader(r.out) != int32(node+1) || leader(r.changelog[0]) != other {
				return errors.New("the partitions have not moved")
			}
			return nil
		})
		p = r.open()
		r.write(p, "a", "bb")
		r.mustCommit(p, 1, 5)
		b := cluster.Nodes[node]
		down := func() {
			if err := b.Kill(); err != nil {
				t.Error(err)
			}
			testutil.Eventually(t, 30*time.Second, func() error {
				if leader(r.out) != -1 {
					return errors.New("the output still has a leader")
				}
				return nil
			})
		}
		back = func() {
			if err := b.Restart(); err != nil {
				t.Fatal(err)
			}
			cluster.AwaitInSync(t)
		}
		end(r, p, down)
		return r, p, back
	}
	commit := func(r *rig, p *Producer, down func()) {
		r.write(p, "ccc", "dddd")
		point := arm(r.t, failpoint.BeforeEndTxn, func() error { down(); return nil })
		r.mustCommit(p, 2, 6)
		point.Disarm()
	}

	t.Run("the producer goes on", func(t *testing.T) {
		r, p, back := leave(t, commit)
		back()
		t.Logf("hanging: %v", hangs(t, p))
		p = writeHealed(r, p, "eeeee")
		p.Close() // and aborts: that must not take back what was committed
		r.open()
		r.wantVisible("a", "bb", "ccc", "dddd")
		r.wantOffsets(6)
	})
	t.Run("a successor takes over", func(t *testing.T) {
		r, p, back := leave(t, commit)
		p.Close()
		back()
		p = r.open()
		r.wantVisible("a", "bb", "ccc", "dddd")
		r.wantOffsets(6)
		r.write(p, "eeeee")
		r.mustCommit(p, 3, 7)
		r.wantVisible("a", "bb", "ccc", "dddd", "eeeee")
	})
	t.Run("a successor takes over while the leader is down", func(t *testing.T) {
		r, p, back := leave(t, func(r *rig, p *Producer, down func()) {
			r.write(p, "ccc", "dddd")
			if err := p.flush(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			down()
		})
		p.Close()
		p = r.open() // aborts the transaction, of which the output learns nothing
		back()
		t.Logf("hanging: %v", hangs(t, p))
		p = writeHealed(r, p, "eeeee")
		r.mustCommit(p, 2, 6)
		r.wantVisible("a", "bb", "eeeee")
		r.wantOffsets(6)
	})
}

// writeHealed writes, and opens the producer again if it had something to heal. It returns the one that is open.
func writeHealed(r *rig, p *Producer, value string) *Producer {
	r.t.Helper()
	err := r.tryWrite(p, value)
	if err == nil {
		return p
	}
	if !errors.Is(err, errHealed) {
		r.t.Fatal(err)
	}
	p.Close()
	p = r.open()
	r.write(p, value)
	return p
}

func hangs(t *testing.T, p *Producer) []hang {
	t.Helper()
	found, complete, err := p.hanging(t.Context())
	if err != nil || !complete {
		t.Errorf("look for hanging transactions: complete %v: %v", complete, err)
	}
	return found
}

// TestHangingOffsetsPartition compares where we think a group's offsets are with what a broker says.
func TestHangingOffsetsPartition(t *testing.T) {
	b := kafka.Shared(t)
	r := newRig(t, b.Brokers(), nil)
	p := r.open()
	r.write(p, "a")
	r.mustCommit(p, 1, 5)
	i := slices.IndexFunc(p.watched, func(tp record.TopicPartition) bool { return tp.Topic == offsetsTopic })
	if i < 0 {
		t.Fatalf("the offsets partition is not watched: %v", p.watched)
	}
	var at []int32
	for _, rec := range b.Read(t, offsetsTopic) {
		if containsApp(rec, r.app) {
			at = append(at, rec.Partition)
		}
	}
	if len(at) == 0 || slices.Min(at) != slices.Max(at) || at[0] != p.watched[i].Partition {
		t.Errorf("the group's offsets are on %v, watched is %v", at, p.watched[i])
	}
}

func containsApp(rec *kgo.Record, app string) bool { return slices.Contains(groupsOf(rec.Key), app) }

// groupsOf is the group in a key of the offsets topic: a version, then a string with its length.
func groupsOf(key []byte) []string {
	if len(key) < 4 {
		return nil
	}
	n := int(key[2])<<8 | int(key[3])
	if len(key) < 4+n {
		return nil
	}
	return []string{string(key[4 : 4+n])}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		state     string
		version   int
		data      int16
		committed bool
		known     bool
	}{
		{"Empty", 2, 0, false, false},
		{"", 2, 0, false, false},
		{"Ongoing", 2, 7, false, true},
		{"PrepareCommit", 2, 6, true, true},
		{"CompleteCommit", 2, 6, true, true},
		{"CompleteAbort", 2, 6, false, true},
		{"CompleteCommit", 1, 7, true, true},
		{"CompleteAbort", 0, 7, false, true},
	} {
		data, committed, known := judge(c.state, 7, c.version)
		if data != c.data || committed != c.committed || known != c.known {
			t.Errorf("%s under transaction.version %d: epoch %d committed %v known %v, want %+v", c.state, c.version, data, committed, known, c)
		}
	}
}

// TestHangingControl leaves a transaction hanging on the control topic: the next one to open it ends it, as its
// coordinator had decided.
func TestHangingControl(t *testing.T) {
	b := kafka.Start(t, kafka.TransactionVersion1(), kafka.Config("transaction.partition.verification.enable", "false"))
	r := newRig(t, b.Brokers(), func(o *Options) { o.TransactionTimeout = time.Second })
	ctl, err := r.c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	if _, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) { s.Incarnation = 7; return s, nil }); err != nil {
		t.Fatal(err)
	}
	// Below transaction.version 2 the epoch stays, so that this looks as if the marker of the Update had been left out.
	h := healer{c: r.c, cl: r.member, txnID: ctl.topic, watched: []record.TopicPartition{{Topic: ctl.topic}}}
	desc := kmsg.NewPtrDescribeTransactionsRequest()
	desc.TransactionalIDs = []string{ctl.topic}
	var pid int64
	var epoch int16
	testutil.Eventually(t, 30*time.Second, func() error {
		resp, err := desc.RequestWith(t.Context(), r.member)
		if err != nil || len(resp.TransactionStates) != 1 {
			return fmt.Errorf("describe: %w", err)
		}
		s := resp.TransactionStates[0]
		pid, epoch = s.ProducerID, s.ProducerEpoch
		if s.State != "CompleteCommit" {
			return fmt.Errorf("the transaction is %s", s.State)
		}
		return nil
	})
	b.WriteHanging(t, ctl.topic, kafka.Batch{TransactionalID: ctl.topic, ProducerID: pid, ProducerEpoch: epoch, Sequence: 1}, []byte("other"), []byte("{}"))
	h.pid = pid
	if found, _, err := h.hanging(t.Context()); err != nil || len(found) != 1 {
		t.Fatalf("the transaction does not hang: %v %v", found, err)
	}

	again, err := r.c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := again.State().Incarnation; got != 7 {
		t.Errorf("incarnation %d, want 7", got)
	}
	if found, complete, err := h.open(t.Context()); err != nil || !complete || len(found) != 0 {
		t.Errorf("hanging still: %v %v", found, err)
	}
}
