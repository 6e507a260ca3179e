package txn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

func TestTopics(t *testing.T) {
	k := fakeKafka(t)
	c := connect(t, k.ListenAddrs(), nil)
	specs := []TopicSpec{
		{Name: "x", Partitions: 3, ReplicationFactor: -1, Configs: map[string]string{
			"cleanup.policy": "compact,delete", "retention.ms": "-1", "max.message.bytes": "12345", "delete.retention.ms": "77",
		}},
		{Name: "y", Partitions: 1, ReplicationFactor: 1},
	}
	made, err := c.EnsureTopics(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := c.Topics(t.Context(), "x", "y", "missing")
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) != 2 || infos["x"] != made["x"] || infos["y"] != made["y"] {
		t.Errorf("made %+v, found %+v", made, infos)
	}
	x := infos["x"]
	if x.Partitions != 3 || x.ID == [16]byte{} || x.RetentionMs != -1 || x.MaxMessageBytes != 12345 ||
		x.DeleteRetentionMs != 77 || x.ReplicationFactor != 1 || !samePolicy(x.CleanupPolicy, "delete,compact") {
		t.Errorf("x is %+v", x)
	}
	if y := infos["y"]; y.CleanupPolicy != "delete" || y.RetentionMs != 7*24*3600*1000 || y.MinISR != 1 || y.TimestampType != "CreateTime" {
		t.Errorf("y is %+v", y)
	}
	// A second time it only verifies.
	if again, err := c.EnsureTopics(t.Context(), specs); err != nil || again["x"] != x {
		t.Errorf("again: %+v, %v", again, err)
	}
	// A member that was late in making it does not mind.
	if err := c.createTopics(t.Context(), specs); err != nil {
		t.Errorf("creating what exists: %v", err)
	}
	specs[0].Partitions, specs[1].Configs = 4, map[string]string{"cleanup.policy": "compact"}
	_, err = c.EnsureTopics(t.Context(), specs)
	if !errors.Is(err, ErrTopicDiffers) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"topic x", "3 partitions", "needed are 4", "topic y", `"delete"`, `"compact"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestEnsureTopicsRace(t *testing.T) {
	k := fakeKafka(t, kfake.NumBrokers(3))
	var wg sync.WaitGroup
	errs := make([]error, 5)
	ids := make([][16]byte, 5)
	for i := range errs {
		c := connect(t, k.ListenAddrs(), nil)
		wg.Go(func() {
			infos, err := c.EnsureTopics(context.Background(), []TopicSpec{{Name: "r", Partitions: 4, ReplicationFactor: -1}})
			errs[i], ids[i] = err, infos["r"].ID
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil || ids[i] != ids[0] {
			t.Errorf("member %d: %v, topic id %x", i, err, ids[i])
		}
	}
}

// TestEnsureTopicsBrokersDiffer: of several brokers one already knows a new topic, and the next one that is asked does not.
func TestEnsureTopicsBrokersDiffer(t *testing.T) {
	k := fakeKafka(t)
	c := connect(t, k.ListenAddrs(), nil)
	asked, created := 0, false
	k.ControlKey(int16(kmsg.CreateTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		created = true
		return nil, nil, false
	})
	k.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		if !created || len(r.Topics) != 1 {
			return nil, nil, false
		}
		if asked++; asked != 2 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode = r.Topics[0].Topic, kerr.UnknownTopicOrPartition.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	infos, err := c.EnsureTopics(t.Context(), []TopicSpec{{Name: "r", Partitions: 2, ReplicationFactor: -1}})
	if err != nil || infos["r"].Partitions != 2 || asked < 3 {
		t.Errorf("%+v, %v; asked %d times", infos, err, asked)
	}
}

// TestEnsureTopicsOldBroker: before KIP-464 a broker does not know "your default".
func TestEnsureTopicsOldBroker(t *testing.T) {
	k := fakeKafka(t, kfake.NumBrokers(3))
	var seen []int16
	k.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		r := req.(*kmsg.CreateTopicsRequest)
		seen = append(seen, r.Topics[0].ReplicationFactor)
		if r.Topics[0].ReplicationFactor != -1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = r.Topics[0].Topic, kerr.InvalidReplicationFactor.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	c := connect(t, k.ListenAddrs(), nil)
	infos, err := c.EnsureTopics(t.Context(), []TopicSpec{{Name: "r", Partitions: 1, ReplicationFactor: -1}})
	if err != nil || infos["r"].ReplicationFactor != 3 {
		t.Errorf("%+v, %v; asked for %v", infos, err, seen)
	}
}

func TestTopicsAuthorization(t *testing.T) {
	k := fakeKafka(t, kfake.SeedTopics(1, "secret-topic"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "root", "root"),
		kfake.User("PLAIN", "me", "me"))
	c := connect(t, k.ListenAddrs(), func(o *Options) { o.SASL = SASL{"PLAIN", "me", "me"} })
	for name, f := range map[string]func() error{
		"describe": func() error { _, err := c.Topics(t.Context(), "secret-topic"); return err },
		"create": func() error {
			return c.createTopics(t.Context(), []TopicSpec{{Name: "secret-topic-2", Partitions: 1, ReplicationFactor: 1}})
		},
		"offsets": func() error {
			_, err := c.EndOffsets(t.Context(), []record.TopicPartition{{Topic: "secret-topic"}})
			return err
		},
		"delete records": func() error {
			return c.DeleteRecords(t.Context(), map[record.TopicPartition]int64{{Topic: "secret-topic"}: 0})
		},
	} {
		err := f()
		if !errors.Is(err, ErrAuthorization) || !strings.Contains(err.Error(), "secret-topic") || !strings.Contains(err.Error(), "grant") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func produce(t *testing.T, brokers []string, recs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestOffsets(t *testing.T) {
	k := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "o"))
	c := connect(t, k.ListenAddrs(), nil)
	tps := []record.TopicPartition{{Topic: "o", Partition: 0}, {Topic: "o", Partition: 2}}
	var recs []*kgo.Record
	for i := range 10 {
		recs = append(recs, &kgo.Record{Topic: "o", Partition: 2, Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 + i))})
	}
	produce(t, k.ListenAddrs(), recs...)
	if err := c.DeleteRecords(t.Context(), map[record.TopicPartition]int64{tps[1]: 4}); err != nil {
		t.Fatal(err)
	}
	check := func(what string, m map[record.TopicPartition]int64, err error, want0, want2 int64) {
		t.Helper()
		if err != nil || len(m) != 2 || m[tps[0]] != want0 || m[tps[1]] != want2 {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
	m, err := c.StartOffsets(t.Context(), tps)
	check("start", m, err, 0, 4)
	m, err = c.EndOffsets(t.Context(), tps)
	check("end", m, err, 0, 10)
	m, err = c.StableOffsets(t.Context(), tps)
	check("stable", m, err, 0, 10)
	m, err = c.OffsetsAt(t.Context(), tps, time.UnixMilli(1007))
	check("at", m, err, 0, 7)
	m, err = c.OffsetsAt(t.Context(), tps, time.UnixMilli(5000))
	check("at, none", m, err, 0, 10)
	if err := c.DeleteRecords(t.Context(), map[record.TopicPartition]int64{tps[1]: 99}); err == nil ||
		!strings.Contains(err.Error(), "o/2 below 99") {
		t.Errorf("delete beyond the end: %v", err)
	}
	short := connect(t, k.ListenAddrs(), func(o *Options) { o.RequestTimeout = 500 * time.Millisecond })
	if _, err := short.EndOffsets(t.Context(), []record.TopicPartition{{Topic: "nothere"}}); err == nil {
		t.Error("offsets of a missing topic: no error")
	}
}
