package main

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/examples/internal/selfcheck"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor/processortest"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func at(s float64) time.Time { return time.UnixMilli(int64(s * 1000)).UTC() }

func TestDashboardIsUpdatedAndThenFinal(t *testing.T) {
	d := processortest.New(t, topology)
	in := processortest.In[View](d, "views").Keyed(func(v View) any { return v.Page })
	pages, site := processortest.Out[PageStats](d, "page-stats"), processortest.Out[SiteStats](d, "site-stats")
	in.Send(View{"/", "ann", 10, at(0.5)}, View{"/", "bob", 20, at(1.5)})
	pages.Want()
	d.AdvanceProcessingTime(500 * time.Millisecond)
	early := func(start float64, views, took int64) PageStats { return PageStats{"/", at(start), views, took, false} }
	pages.Want(early(-4, 1, 10), early(-3, 2, 30), early(-2, 2, 30), early(-1, 2, 30), early(0, 2, 30), early(1, 1, 20))
	d.Restart()
	in.Send(View{"/", "ann", 5, at(0.9)}) // out of order
	d.AdvanceWatermark(at(1))
	pages.Want(PageStats{"/", at(-4), 2, 15, true})
	d.AdvanceWatermark(at(60))
	final := func(start float64, views, took int64) PageStats { return PageStats{"/", at(start), views, took, true} }
	pages.WantOrdered(final(-3, 3, 35), final(-2, 3, 35), final(-1, 3, 35), final(0, 3, 35), final(1, 1, 20))
	var rows []SiteStats
	for end := 10.0; end <= 60; end += 10 {
		rows = append(rows, SiteStats{at(0), at(end), 3})
	}
	site.WantOrdered(rows...)
}

// The final rows do not depend on partitions, crashes and fetches; those before them do.
func TestFinalRowsOnAllSchedules(t *testing.T) {
	processortest.Schedules(t, topology, func(d *processortest.Driver) {
		in := processortest.In[View](d, "views").Keyed(func(v View) any { return v.Page })
		for i := range 200 {
			in.Send(View{fmt.Sprintf("/%d", i%7), "ann", int64(i), at(float64(i)/10 - float64(i%3)*0.3)})
		}
		d.AdvanceWatermark(at(120))
	})
}

func TestEmbedded(t *testing.T) {
	var out bytes.Buffer
	if err := selfcheck.Run(t.Context(), "live-dashboard", topology, check(), time.Second, 1, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
