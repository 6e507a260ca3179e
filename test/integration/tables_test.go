package integration

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestTableIsLoadedFirst: at the first start of an app its stream waits until the table's topic, which is longer by far, was
// read; one that has lost its state goes on at once.
func TestTableIsLoadedFirst(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, copyJob)
	users := b.CreateTopic(t, partitions, map[string]string{"cleanup.policy": "compact"})
	topology := func(top *processor.Topology) {
		table := processor.TableFrom(top, "users", format.String(), processor.Topic[string]{Name: users, Value: format.String()})
		in := processor.FromKeyed(top, format.String(), processor.Topic[purchase]{Name: j.in})
		processor.ToTopic(processor.LeftJoinTable(in, table, "join", func(_ purchase, name *string) string {
			if name == nil {
				return "none"
			}
			return *name
		}), j.out)
	}
	write := func(name string, times int) {
		t.Helper()
		var rs []*kgo.Record
		for range times {
			for i := range 500 { // all users of the source
				rs = append(rs, &kgo.Record{Topic: users, Key: fmt.Appendf(nil, "u%06d", i), Value: []byte(name)})
			}
		}
		b.Produce(t, rs...)
	}
	check := func(n int, want string) {
		t.Helper()
		j.settled(j.out)
		rows := b.Read(t, j.out)
		if len(rows) != n {
			t.Fatalf("%d rows, want %d", len(rows), n)
		}
		for _, r := range rows {
			if string(r.Value) != want {
				t.Fatalf("user %s has the row %s, want %s", r.Key, r.Value, want)
			}
		}
	}
	write("old", 100)
	write("new", 1)
	j.produce(1000)
	for n := 1000; n <= 1500; n += 500 {
		m := j.local(topology, memstore.NewDir(j.app))
		j.committed()
		m.stop(t)
		check(n, "new")
		j.produce(500)
	}
}
