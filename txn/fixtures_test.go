package txn

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
)

// fixtureVersion is the folder of testdata that holds what this version writes. Whoever changes the layout of an epoch record or
// a control record raises it and runs
//
//	go test ./txn -run TestFixtures -update
//
// which writes the folder if it is not there. Folders are never changed, and every later version reads them all.
const fixtureVersion = 1

var update = flag.Bool("update", false, "write the fixtures of this version, if there are none")

// What the fixtures hold. A field that a later version adds is absent in older ones.
var (
	fixtureEpoch = EpochRecord{
		Epoch: 71, Incarnation: 2, Owner: "worker-1", WallTime: 1_700_000_000_123, Touched: []bool{true, false}, Positions: []int64{4711, 0},
		Inputs: []InputProgress{
			{Topic: "clicks", TopicID: [16]byte{1, 2, 3}, Partition: 0, Offset: 1 << 40, MaxTime: 1_700_000_000_000, Watermark: 1_699_999_999_000},
			{Topic: "clicks", TopicID: [16]byte{1, 2, 3}, Partition: 4, Offset: -1, MaxTime: math.MinInt64, Watermark: math.MinInt64, Idle: true},
			{Topic: "orders-by-user-repartition", TopicID: [16]byte{9}, Partition: 0, Offset: 12, MaxTime: -5, Watermark: -6,
				Upstream: []UpstreamMark{{Watermark: 17}, {Watermark: math.MinInt64, Idle: true}}},
		},
		Horizons:   []Horizon{{Store: statestore.ID(7), End: 1_700_000_000_000}},
		Watermarks: map[string]int64{"count": 1_699_999_999_000, "join": math.MinInt64},
		Sinks:      map[string][]byte{"table": {0, 255, 3}},
	}
	fixtureControl = controlRecord{
		Version: 1, Writer: "writer-1", ControlState: ControlState{
			Revision: 17, ClusterID: "cluster-1", Incarnation: 2, Fingerprint: "0123abcd", Topology: json.RawMessage(`{"format":1,"subtopologies":[]}`),
			TopicIDs: map[string]string{"clicks": "AQIDAAAAAAAAAAAAAAAAAA", "orders-i2-0-changelog": "CQAAAAAAAAAAAAAAAAAAAA"}, Parallelism: []int{4, 2},
			Origin: "savepoint:before-upgrade#2", Base: &Base{App: "orders", Name: "before-upgrade", ID: "26letters", URL: "s3://bucket/prefix", Parallelism: 8},
			Savepoint: &SavepointRequest{ID: "27letters", Name: "nightly", Phase: SavepointFailed, Reason: "subtask 0_1 moved to member m", Stop: true,
				Began: 1_700_000_000_000, Deadline: 1_700_000_600_000, By: "worker-1"},
			Stopped: &Stopped{At: 1_700_000_000_001, Savepoint: "nightly", By: "somebody"},
		},
	}
)

// TestFixtures reads the bytes of epoch records and control records that each version has written.
func TestFixtures(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	current := filepath.Join("testdata", fmt.Sprintf("v%d", fixtureVersion))
	if _, err := os.Stat(current); *update && errors.Is(err, fs.ErrNotExist) {
		must(os.MkdirAll(current, 0o755))
		must(os.WriteFile(filepath.Join(current, "epoch-record"), fixtureEpoch.Append(nil), 0o644))
		data, err := json.Marshal(fixtureControl)
		must(err)
		must(os.WriteFile(filepath.Join(current, "control-record.json"), data, 0o644))
	}
	versions, err := filepath.Glob("testdata/v*")
	must(err)
	if len(versions) != fixtureVersion {
		t.Fatalf("fixtures %v, want those of %d versions", versions, fixtureVersion)
	}
	for _, folder := range versions {
		data, err := os.ReadFile(filepath.Join(folder, "epoch-record"))
		must(err)
		epoch, err := DecodeEpochRecord(data)
		must(err)
		if !reflect.DeepEqual(*epoch, fixtureEpoch) {
			t.Errorf("%s: epoch record\n%+v, want\n%+v", folder, *epoch, fixtureEpoch)
		}
		data, err = os.ReadFile(filepath.Join(folder, "control-record.json"))
		must(err)
		control, err := decodeControl(data)
		must(err)
		if !reflect.DeepEqual(*control, fixtureControl) {
			t.Errorf("%s: control record\n%+v, want\n%+v", folder, *control, fixtureControl)
		}
	}
}
