// Command iot-alerts watches devices: it tells for each when it was active (sessions), which were hot in such a time, and
// which have fallen silent.
//
// With --embedded it needs no broker: it makes its own readings and checks its own committed output. With
// --check-on host:port it does that on a broker of yours.
package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/examples/internal/selfcheck"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// Reading is what a device says; its Kafka key is the device.
type Reading struct {
	Device  string    `json:"device"`
	Celsius int64     `json:"celsius"`
	At      time.Time `json:"ts,unixmilli"`
}

// Activity is a time in which a device said something at least every two seconds.
type Activity struct {
	Device   string    `json:"device"`
	From     time.Time `json:"from,unixmilli"` // the first reading
	Until    time.Time `json:"until,unixmilli"`
	Readings int64     `json:"readings"`
	Max      int64     `json:"max"`
}

// Alert is about one device.
type Alert struct {
	Device string    `json:"device"`
	What   string    `json:"what"` // hot or silent
	At     time.Time `json:"ts,unixmilli"`
}

const (
	gap           = 2 * time.Second // between two readings of one session, at most
	silence       = 3 * time.Second // without a reading, that is an alert
	hot           = 90              // degrees Celsius
	maxOutOfOrder = time.Second
)

func topology(t *processor.Topology) {
	readings := processor.FromKeyed(t, format.String(), processor.Topic[Reading]{Name: "readings",
		EventTime: func(r Reading) time.Time { return r.At }, MaxOutOfOrder: maxOutOfOrder})

	activities := processor.Aggregate(readings.Window(window.Session(gap)), "activity",
		processor.Both(processor.Count[Reading](), processor.Max(func(r Reading) int64 { return r.Celsius })),
		func(w processor.Window[string], a processor.Pair[int64, processor.Extreme[int64]]) Activity {
			return Activity{w.Key, w.Start, w.End, a.First, a.Second.Value}
		})
	processor.ToTopic(activities, "activities")

	tooHot := processor.MapValues(activities.Filter(func(a Activity) bool { return a.Max >= hot }),
		func(a Activity) Alert { return Alert{a.Device, "hot", a.Until} })
	silent := processor.Process(readings, "silence", watch)
	processor.To(processor.Union(tooHot, silent), processor.SinkTopic[Alert]{Name: "alerts", Key: func(a Alert) []byte { return []byte(a.Device) }})
}

// watch emits an alert when a device has said nothing for a time. Readings come out of order, so a reading must not just
// replace the timer of the one before: a later one may be here already, and the silence between them lies in the past. Each
// reading has a timer of its own, and when it fires, all readings up to then are here.
func watch(ctx *processor.KeyedContext[string, Reading, Alert]) {
	times := processor.MapOf[int64, bool](ctx, "times")
	ctx.OnRecord(func(r Reading) error {
		times.Put(r.At.UnixMilli(), true)
		ctx.RegisterEventTimer(r.At.Add(silence))
		return nil
	})
	ctx.OnTimer(func(timer processor.Timer) error {
		now := timer.At.UnixMilli()
		reading := now - silence.Milliseconds()
		alive := false
		for range times.Range(reading+1, now+1) {
			alive = true
			break
		}
		if !alive {
			ctx.Emit(Alert{ctx.Key(), "silent", timer.At})
		}
		times.Delete(reading)
		return nil
	})
}

func main() { selfcheck.Main("iot-alerts", topology, check) }

// check makes readings of devices that fall silent now and then, and looks at them in the obvious way: sorted.
func check() selfcheck.Check {
	sent := map[string][]Reading{}
	return selfcheck.Check{
		Inputs: []string{"readings"}, Outputs: []string{"activities", "alerts"},
		Feed: func(ctx context.Context, p *selfcheck.Producer) error {
			start := time.Now()
			selfcheck.Every(ctx, 50*time.Millisecond, func(now time.Time) {
				for i := range 40 {
					// Device i sleeps for i/10 s after each 2 s.
					if since := now.Sub(start).Milliseconds() % (2000 + int64(i)*100); since >= 2000 {
						continue
					}
					r := Reading{fmt.Sprintf("device-%d", i), 50 + p.Rand.Int64N(41), now.Add(-time.Duration(p.Rand.IntN(900)) * time.Millisecond)}
					selfcheck.Send(p, "readings", r.Device, r)
					sent[r.Device] = append(sent[r.Device], r)
				}
			})
			end := time.Now().Add(time.Minute)
			for _, device := range selfcheck.Keys("closing-") {
				selfcheck.Send(p, "readings", device, Reading{device, 0, end})
			}
			return nil
		},
		Verify: func(out map[string][]selfcheck.Record) error {
			activities, alerts := expected(sent)
			got, err := selfcheck.Values[Activity](out["activities"])
			if err != nil {
				return err
			}
			slices.SortFunc(got, func(a, b Activity) int {
				return cmp.Or(cmp.Compare(a.Device, b.Device), a.From.Compare(b.From))
			})
			if err := selfcheck.Compare("activity", got, activities); err != nil {
				return err
			}
			told, err := selfcheck.Values[Alert](out["alerts"])
			if err != nil {
				return err
			}
			slices.SortFunc(told, compareAlerts)
			return selfcheck.Compare("alert", told, alerts)
		},
		Summary: func(out map[string][]selfcheck.Record) string {
			return fmt.Sprintf("%d activities of %d devices, %d alerts", len(out["activities"]), len(sent), len(out["alerts"]))
		},
	}
}

func compareAlerts(a, b Alert) int {
	return cmp.Or(cmp.Compare(a.Device, b.Device), a.At.Compare(b.At), cmp.Compare(a.What, b.What))
}

// expected are the rows that belong to the readings, sorted.
func expected(sent map[string][]Reading) (activities []Activity, alerts []Alert) {
	for device, readings := range sent {
		slices.SortFunc(readings, func(a, b Reading) int { return a.At.Compare(b.At) })
		var a *Activity
		for i, r := range readings {
			if a == nil || r.At.After(a.Until) {
				activities = append(activities, Activity{Device: device, From: r.At, Max: r.Celsius})
				a = &activities[len(activities)-1]
			}
			a.Until, a.Readings, a.Max = r.At.Add(gap), a.Readings+1, max(a.Max, r.Celsius)
			if i+1 == len(readings) || readings[i+1].At.Sub(r.At) > silence {
				alerts = append(alerts, Alert{device, "silent", r.At.Add(silence)})
			}
		}
	}
	for _, a := range activities {
		if a.Max >= hot {
			alerts = append(alerts, Alert{a.Device, "hot", a.Until})
		}
	}
	slices.SortFunc(activities, func(a, b Activity) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), a.From.Compare(b.From))
	})
	slices.SortFunc(alerts, compareAlerts)
	return activities, alerts
}
