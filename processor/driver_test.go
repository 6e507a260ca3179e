package processor_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
)

// driver is drive.Driver with the words of these tests.
type driver struct {
	*drive.Driver
	t testing.TB
}

type driverOptions struct {
	partitions  map[string]int // of topics; default 1
	parallelism int            // wanted of every sub-topology, 0 = the plan's
	maxBytes    int            // MaxRecordBytes of outputs, 0 = none
	batch       int            // records of one fetch and Step, at most; 0 = 64
	crash       float64        // probability of a crash instead of a commit
	behind      float64        // probability of a write-behind after a commit
	mayFail     bool           // a failing task ends the run and is kept in Failed
	seed        uint64
}

func newDriver(t testing.TB, topology func(*processor.Topology), o driverOptions) *driver {
	t.Helper()
	return &driver{drive.New(t, topology, drive.Options{Partitions: o.partitions, Parallelism: o.parallelism, MaxBytes: o.maxBytes, Batch: o.batch,
		Crash: o.crash, Behind: o.behind, Copy: o.behind, Restore: drive.Mixed, MayFail: o.mayFail, Seed: o.seed}), t}
}

// run works until nothing is left to do. Processing time passes between rounds, so that watermarks reach all
// partitions.
func (d *driver) run() {
	d.t.Helper()
	d.Run()
}

// pass lets processing time pass.
func (d *driver) pass(ms int64) { d.Pass(ms) }

func (d *driver) produce(topic string, partition int, key, value []byte, at int64) {
	d.Produce(topic, partition, record.Record{Key: key, Value: value, Timestamp: at})
}

// sendKeyed produces JSON where Kafka's default partitioner puts the key.
func (d *driver) sendKeyed(topic, key string, v any, at int64) {
	d.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		d.t.Fatal(err)
	}
	d.produce(topic, int(format.Partition([]byte(key), int32(d.PartitionsOf(topic)))), []byte(key), b, at)
}

// sendText is sendKeyed for text.
func (d *driver) sendText(topic, key, v string, at int64) {
	d.produce(topic, int(format.Partition([]byte(key), int32(d.PartitionsOf(topic)))), []byte(key), []byte(v), at)
}

// records are the data records of a topic, partition by partition.
func (d *driver) records(topic string) []record.Record { return d.Records(topic) }

// rows are the records of a topic as "key=value @time", sorted.
func (d *driver) rows(topic string) []string {
	var rows []string
	for _, r := range d.Records(topic) {
		v := string(r.Value)
		if r.Value == nil {
			v = "null"
		}
		rows = append(rows, fmt.Sprintf("%s=%s @%d", r.Key, v, r.Timestamp))
	}
	slices.Sort(rows)
	return rows
}

// seeds is how many random runs a test makes: n, or as many as MILLRACE_MODEL_SEEDS says.
func seeds(t testing.TB, n uint64) uint64 {
	t.Helper()
	text := os.Getenv("MILLRACE_MODEL_SEEDS")
	if text == "" {
		return n
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("MILLRACE_MODEL_SEEDS: %v", err)
	}
	return n
}

// entries is how much a store of the committed state has.
func (d *driver) entries(store string) (n int) {
	prefix := string(binary.BigEndian.AppendUint32(nil, uint32(statestore.StoreID(store))))
	for _, st := range d.Tasks {
		for k := range st.Live() {
			if strings.HasPrefix(k, prefix) {
				n++
			}
		}
	}
	return n
}

func (d *driver) late() int64 { return d.Late() }

func wantRows(t testing.TB, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := drive.DiffRows(got, want); diff != "" {
		t.Fatalf("rows differ (+ too many, - missing), %d got, %d want:\n%s", len(got), len(want), diff)
	}
}
