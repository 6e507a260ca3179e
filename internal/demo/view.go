package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
)

// view shows a run: redrawn in place on a terminal, else one line a second and one for each event.
type view struct {
	d      *demo
	start  time.Time
	lines  int // drawn last, to be overwritten
	events []string
	last   time.Time
	lastIn map[string]int64
	rates  map[string]float64
	owners map[string]string // subtask -> worker
	prev   time.Time
}

func newView(d *demo) *view {
	return &view{d: d, start: time.Now(), lastIn: map[string]int64{}, rates: map[string]float64{}, owners: map[string]string{}, prev: time.Now()}
}

// event tells of something that happened.
func (v *view) event(format string, a ...any) {
	line := fmt.Sprintf("%6.1fs  ", time.Since(v.start).Seconds()) + fmt.Sprintf(format, a...)
	if v.d.cfg.Terminal {
		v.events = append(v.events, line)
		if len(v.events) > 8 {
			v.events = v.events[1:]
		}
		return
	}
	fmt.Fprintln(v.d.cfg.Out, line)
}

// owns counts the subtasks that run on a worker, as last drawn.
func (v *view) owns(worker string) (n int) {
	for _, w := range v.owners {
		if w == worker {
			n++
		}
	}
	return n
}

// draw shows the state of all workers.
func (v *view) draw(elapsed time.Duration) {
	now := time.Now()
	type row struct {
		w  *worker
		st engine.Status
	}
	var rows []row
	for _, w := range v.d.workers {
		rows = append(rows, row{w, w.engine.Status()})
	}
	for _, r := range rows {
		if r.w.killed {
			continue
		}
		for _, s := range r.st.Subtasks {
			if s.State != engine.SubtaskRunning {
				continue
			}
			if was := v.owners[s.ID]; was != r.w.name {
				switch {
				case was == "":
				case v.d.dead[was]:
					v.event("subtask %s: worker %s takes over from the dead %s at epoch %d", s.ID, r.w.name, was, s.Epoch)
				default:
					v.event("subtask %s moves from %s to %s at epoch %d", s.ID, was, r.w.name, s.Epoch)
				}
				v.owners[s.ID] = r.w.name
			}
		}
	}
	if dt := now.Sub(v.prev); dt > 200*time.Millisecond {
		for _, r := range rows {
			var in int64
			for _, s := range r.st.Subtasks {
				in += s.RecordsIn
			}
			if d := in - v.lastIn[r.w.name]; d >= 0 {
				v.rates[r.w.name] = float64(d) / dt.Seconds()
			}
			v.lastIn[r.w.name] = in
		}
		v.prev = now
	}
	if !v.d.cfg.Terminal {
		if now.Sub(v.last) < time.Second {
			return
		}
		v.last = now
		var parts []string
		for _, r := range rows {
			parts = append(parts, v.line(r.w, r.st))
		}
		fmt.Fprintf(v.d.cfg.Out, "%6.1fs  sent %7d | %s\n", elapsed.Seconds(), v.d.gen.sent.Load(), strings.Join(parts, " | "))
		return
	}
	var b strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines)
	}
	n := 0
	put := func(format string, a ...any) {
		s := fmt.Sprintf(format, a...)
		if w := v.d.cfg.Width; w > 0 && len(s) > w-1 {
			s = s[:w-1]
		}
		b.WriteString("\x1b[2K" + s + "\n")
		n++
	}
	put("%5.1f s of %s   orders sent %d", elapsed.Seconds(), v.d.cfg.Duration, v.d.gen.sent.Load())
	put("")
	put("  %-7s %-9s %-22s %9s %7s %10s %8s %9s %6s", "worker", "state", "subtasks", "records/s", "lag", "watermark", "commits", "commit ms", "late")
	for _, r := range rows {
		c := collect(r.st)
		state := string(r.st.State)
		if r.w.killed {
			state = "killed"
			c.names, c.delay = "-", "-"
			put("  %-7s %-9s", r.w.name, state)
			continue
		}
		put("  %-7s %-9s %-22s %9.0f %7d %10s %8d %9.1f %6d", r.w.name, state, c.names, v.rates[r.w.name], c.lag, c.delay, c.commits, c.commitMs, c.late)
	}
	put("")
	for i := range 8 {
		if i < len(v.events) {
			put("  %s", v.events[i])
		} else {
			put("")
		}
	}
	v.lines = n
	fmt.Fprint(v.d.cfg.Out, b.String())
}

// end leaves the last picture in place.
func (v *view) end() { v.lines = 0 }

func (v *view) line(w *worker, st engine.Status) string {
	if w.killed {
		return w.name + " killed"
	}
	c := collect(st)
	return fmt.Sprintf("%s %s [%s] %.0f rec/s lag %d watermark %s commits %d late %d", w.name, st.State, c.names, v.rates[w.name], c.lag, c.delay, c.commits, c.late)
}

type summary struct {
	names, delay       string
	lag, commits, late int64
	commitMs           float64
}

func collect(st engine.Status) summary {
	c := summary{delay: "-"}
	var names []string
	delay := int64(-1)
	for _, s := range st.Subtasks {
		name := s.ID
		if s.State != engine.SubtaskRunning {
			name += "(" + string(s.State) + ")"
		}
		names = append(names, name)
		c.lag += s.Lag
		c.commits += s.Commits
		c.late += s.Late
		c.commitMs = max(c.commitMs, s.CommitMs)
		if s.WatermarkDelayMs != nil {
			delay = max(delay, *s.WatermarkDelayMs)
		}
	}
	c.names = strings.Join(names, " ")
	if c.names == "" {
		c.names = "-"
	}
	if delay >= 0 {
		c.delay = fmt.Sprintf("-%.1fs", float64(delay)/1000)
	}
	return c
}

// owned names the subtasks of a worker.
func owned(w *worker) string {
	var ids []string
	for _, s := range w.engine.Status().Subtasks {
		ids = append(ids, s.ID)
	}
	return "subtasks " + strings.Join(ids, ", ")
}
