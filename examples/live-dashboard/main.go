// Command live-dashboard counts page views for a dashboard: for each page in windows of five seconds that begin every second,
// which are updated twice a second until they are final; and for the whole site minute by minute, so far.
//
// With --embedded it needs no broker: it makes its own views and checks its own committed output. With
// --check-on host:port it does that on a broker of yours.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/examples/internal/selfcheck"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// View is one page view; its Kafka key is the page.
type View struct {
	Page string    `json:"page"`
	User string    `json:"user"`
	Took int64     `json:"took_ms"`
	At   time.Time `json:"ts,unixmilli"`
}

// PageStats is what a page got in a window. Rows of one page and start replace each other; the one with Final is the last.
type PageStats struct {
	Page  string    `json:"page"`
	Start time.Time `json:"start,unixmilli"`
	Views int64     `json:"views"`
	Took  int64     `json:"took_ms"` // in all
	Final bool      `json:"final"`
}

// SiteStats is what the whole site got in a minute up to End.
type SiteStats struct {
	Minute time.Time `json:"minute,unixmilli"`
	End    time.Time `json:"end,unixmilli"`
	Views  int64     `json:"views"`
}

const (
	size, slide   = 5 * time.Second, time.Second
	maxOutOfOrder = time.Second
)

// stats is the state of a page and slice of a window.
type stats struct{ Views, Took int64 }

func topology(t *processor.Topology) {
	views := processor.FromKeyed(t, format.String(), processor.Topic[View]{Name: "views",
		EventTime: func(v View) time.Time { return v.At }, MaxOutOfOrder: maxOutOfOrder})

	count := processor.Fold(func(s *stats, v View) { s.Views++; s.Took += v.Took })
	count.Merge = func(into, from *stats) { into.Views += from.Views; into.Took += from.Took }
	pages := processor.Aggregate(views.Window(window.Sliding(size, slide)).EmitEarly(500*time.Millisecond), "pages", count,
		func(w processor.Window[string], s stats) PageStats {
			return PageStats{w.Key, w.Start, s.Views, s.Took, w.Pane.Timing == processor.OnTime}
		})
	processor.ToTopic(pages, "page-stats")

	// One key for the whole site: what comes here was counted page by page and second by second before.
	seconds := processor.Aggregate(views.Window(window.Tumbling(time.Second)), "seconds", processor.Count[View](),
		func(w processor.Window[string], n int64) int64 { return n })
	site := processor.KeyBy(seconds, "by-site", func(int64) string { return "site" })
	minutes := processor.Aggregate(site.Window(window.Cumulate(time.Minute, 10*time.Second)), "minutes", processor.Sum(func(n int64) int64 { return n }),
		func(w processor.Window[string], n int64) SiteStats { return SiteStats{w.Start, w.End, n} })
	processor.ToTopic(minutes, "site-stats")
}

func main() { selfcheck.Main("live-dashboard", topology, check) }

// check makes views, some out of order, and counts them in the obvious way.
func check() selfcheck.Check {
	type pageWindow struct {
		page  string
		start int64
	}
	pages, minutes := map[pageWindow]stats{}, map[[2]int64]int64{}
	return selfcheck.Check{
		Inputs: []string{"views"}, Outputs: []string{"page-stats", "site-stats"},
		Feed: func(ctx context.Context, p *selfcheck.Producer) error {
			selfcheck.Every(ctx, 10*time.Millisecond, func(now time.Time) {
				for range 20 {
					v := View{Page: fmt.Sprintf("/page/%d", p.Rand.IntN(1+p.Rand.IntN(30))), User: fmt.Sprintf("user-%d", p.Rand.IntN(1000)), Took: p.Rand.Int64N(300), At: now}
					if p.Rand.IntN(4) == 0 {
						v.At = now.Add(-time.Duration(p.Rand.IntN(900)) * time.Millisecond)
					}
					selfcheck.Send(p, "views", v.Page, v)
					at := v.At.UnixMilli()
					for start := at - at%slide.Milliseconds(); start > at-size.Milliseconds(); start -= slide.Milliseconds() {
						s := pages[pageWindow{v.Page, start}]
						pages[pageWindow{v.Page, start}] = stats{s.Views + 1, s.Took + v.Took}
					}
					const minute, step = 60_000, 10_000
					for end := at - at%step + step; ; end += step {
						minutes[[2]int64{at - at%minute, end}]++
						if end%minute == 0 {
							break
						}
					}
				}
			})
			// Behind the last minute, but no more: brokers refuse early rows of windows too far ahead of the clock.
			end := time.Now().UTC().Truncate(time.Minute).Add(2 * time.Minute)
			for _, page := range selfcheck.Keys("/closing/") {
				selfcheck.Send(p, "views", page, View{Page: page, At: end})
			}
			return nil
		},
		Verify: func(out map[string][]selfcheck.Record) error {
			rows, err := selfcheck.Values[PageStats](out["page-stats"])
			if err != nil {
				return err
			}
			final := map[pageWindow]bool{}
			for _, r := range rows {
				w := pageWindow{r.Page, r.Start.UnixMilli()}
				want := pages[w]
				switch {
				case final[w]:
					return fmt.Errorf("page %s, window %s: a row behind the final one", r.Page, r.Start)
				case r.Final && (stats{r.Views, r.Took}) != want:
					return fmt.Errorf("page %s, window %s: %d views, want %d", r.Page, r.Start, r.Views, want.Views)
				case r.Views > want.Views && want.Views > 0:
					return fmt.Errorf("page %s, window %s: %d views so far, there are %d", r.Page, r.Start, r.Views, want.Views)
				}
				final[w] = final[w] || r.Final
			}
			for w := range pages {
				if !final[w] {
					return fmt.Errorf("page %s, window at %d: no final row", w.page, w.start)
				}
			}
			site, err := selfcheck.Values[SiteStats](out["site-stats"])
			if err != nil {
				return err
			}
			if len(site) != len(minutes) {
				return fmt.Errorf("%d rows of the site, want %d", len(site), len(minutes))
			}
			for _, r := range site {
				if want := minutes[[2]int64{r.Minute.UnixMilli(), r.End.UnixMilli()}]; r.Views != want {
					return fmt.Errorf("minute %s up to %s: %d views, want %d", r.Minute, r.End, r.Views, want)
				}
			}
			return nil
		},
		Summary: func(out map[string][]selfcheck.Record) string {
			return fmt.Sprintf("%d windows of pages, %d rows on their way to the final ones, %d rows of the site", len(pages), len(out["page-stats"])-len(pages), len(minutes))
		},
	}
}
