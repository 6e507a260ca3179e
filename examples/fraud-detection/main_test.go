package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/examples/internal/selfcheck"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor/processortest"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func at(s float64) time.Time { return time.UnixMilli(int64(s * 1000)).UTC() }

// sure is a service that thinks everything likely.
func sure(_ context.Context, a Alert) (Alert, error) {
	a.Score = 0.9
	return a, nil
}

func TestRulesCanBeChangedWhileItRuns(t *testing.T) {
	d := processortest.New(t, topology(sure), processortest.Partitions(3))
	rules, payments := processortest.In[Rule](d, "rules"), processortest.In[Payment](d, "payments").Keyed(func(p Payment) any { return p.Card })
	alerts := processortest.Out[Alert](d, "fraud-alerts")
	rules.SendKeyed("daily", Rule{"daily", 1000})
	payments.Send(Payment{"a", 900, "CH", at(1)}, Payment{"b", 1001, "CH", at(1)})
	alerts.Want(Alert{"b", "daily", 0.9, at(1)})
	d.Restart()
	payments.Send(Payment{"a", 101, "CH", at(2)}, Payment{"a", 101, "CH", at(3)})
	alerts.Want(Alert{"a", "daily", 0.9, at(2)}) // once
	rules.SendKeyed("daily", Rule{"daily", 2000})
	payments.Send(Payment{"a", 1000, "CH", at(4)}, Payment{"a", 1000, "CH", at(86_400)})
	alerts.Want(Alert{"a", "daily", 0.9, at(4)}) // the next day counts anew
	rules.SendKeyed("daily", Rule{"daily", 0})
	payments.Send(Payment{"a", 100_000, "CH", at(86_401)})
	alerts.Want()
}

func TestProbesAreFoundWhateverTheirOrder(t *testing.T) {
	d := processortest.New(t, topology(sure))
	payments := processortest.In[Payment](d, "payments").Keyed(func(p Payment) any { return p.Card })
	alerts := processortest.Out[Alert](d, "fraud-alerts")
	payments.Send(Payment{"a", 60_000, "US", at(3)}, Payment{"a", 10, "CH", at(2.5)}, Payment{"a", 20, "CH", at(2.1)},
		Payment{"b", 10, "CH", at(1)}, Payment{"b", 60_000, "US", at(3)}, // one is not enough
		Payment{"c", 10, "US", at(1)}, Payment{"c", 10, "CH", at(2)}, Payment{"c", 60_000, "US", at(3)}) // the same country
	alerts.Want()
	d.Restart()
	d.AdvanceWatermark(at(3))
	alerts.Want(Alert{"a", "probe", 0.9, at(3)})
}

func TestHarmlessCardsGiveNoAlert(t *testing.T) {
	d := processortest.New(t, topology(func(_ context.Context, a Alert) (Alert, error) { a.Score = 0.1; return a, nil }))
	processortest.In[Rule](d, "rules").SendKeyed("daily", Rule{"daily", 1000})
	processortest.In[Payment](d, "payments").SendKeyed("a", Payment{"a", 2000, "CH", at(1)})
	processortest.Out[Alert](d, "fraud-alerts").Want()
}

// The same alerts on every schedule, as long as the rules are there before the payments.
func TestAlertsOnAllSchedules(t *testing.T) {
	processortest.Schedules(t, topology(sure), func(d *processortest.Driver) {
		processortest.In[Rule](d, "rules").SendKeyed("daily", Rule{"daily", 100_000})
		d.Settle()
		rng := rand.New(rand.NewPCG(5, 5))
		payments := processortest.In[Payment](d, "payments").Keyed(func(p Payment) any { return p.Card })
		for i := range 300 {
			cents := []int64{10, 20, 5000, 60_000}[rng.IntN(4)]
			payments.Send(Payment{fmt.Sprintf("card-%d", rng.IntN(20)), cents, []string{"CH", "US"}[rng.IntN(2)], at(float64(i)/10 + 0.9*rng.Float64())})
		}
		d.AdvanceWatermark(at(1000))
	}, processortest.AnyOrder("fraud-alerts"))
}

func TestEmbedded(t *testing.T) {
	var out bytes.Buffer
	if err := selfcheck.Run(t.Context(), "fraud-detection", topology(service), check(), time.Second, 1, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
