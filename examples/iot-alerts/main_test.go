package main

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/examples/internal/selfcheck"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor/processortest"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func at(s float64) time.Time { return time.UnixMilli(int64(s * 1000)).UTC() }

func TestSilenceBetweenReadingsThatCameOutOfOrder(t *testing.T) {
	d := processortest.New(t, topology)
	in := processortest.In[Reading](d, "readings").Keyed(func(r Reading) any { return r.Device })
	activities, alerts := processortest.Out[Activity](d, "activities"), processortest.Out[Alert](d, "alerts")
	in.Send(Reading{"a", 20, at(1)}, Reading{"a", 95, at(5)}, Reading{"a", 30, at(4.2)})
	alerts.Want() // the watermark is 3.999 s
	d.AdvanceWatermark(at(4))
	alerts.Want(Alert{"a", "silent", at(4)})
	activities.Want(Activity{"a", at(1), at(3), 1, 20})
	d.Restart()
	d.AdvanceWatermark(at(20))
	activities.Want(Activity{"a", at(4.2), at(7), 2, 95})
	alerts.Want(Alert{"a", "hot", at(7)}, Alert{"a", "silent", at(8)})
	if rows := processortest.StateRows(d, "silence"); len(rows) != 0 {
		t.Errorf("state is left: %v", rows)
	}
}

// What the topology says on any schedule is what the obvious model says.
func TestAlertsOnAllSchedules(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	sent := map[string][]Reading{}
	var all []Reading
	now := 0.0
	for range 300 {
		now += rng.Float64() * 0.4
		r := Reading{string(rune('a' + rng.IntN(6))), 50 + rng.Int64N(45), at(now - 0.9*rng.Float64())}
		sent[r.Device] = append(sent[r.Device], r)
		all = append(all, r)
	}
	activities, wanted := expected(sent)
	processortest.Schedules(t, topology, func(d *processortest.Driver) {
		in := processortest.In[Reading](d, "readings").Keyed(func(r Reading) any { return r.Device })
		for i := 0; i < len(all); i += 10 {
			in.Send(all[i : i+10]...)
		}
		d.AdvanceWatermark(at(now + 100))
		processortest.Out[Activity](d, "activities").Want(activities...)
		processortest.Out[Alert](d, "alerts").Want(wanted...)
	}, processortest.AnyOrder("alerts"))
}

func TestEmbedded(t *testing.T) {
	var out bytes.Buffer
	if err := selfcheck.Run(t.Context(), "iot-alerts", topology, check(), time.Second, 1, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
