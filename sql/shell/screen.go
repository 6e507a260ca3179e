package shell

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Terminal is what live tables are drawn on.
type Terminal interface {
	io.Writer
	// Size is its width and height in characters.
	Size() (width, height int)
	// Keys begins to read single keys, unseen and at once, until the function is called that it returns. Read then returns 0
	// bytes after a tenth of a second without a key.
	Keys() (stop func(), err error)
	Read(p []byte) (int, error)
}

// screen is a live table.
type screen struct {
	mu     sync.Mutex
	cols   []column
	result *result
	status string
	top    int // first row that is shown
	follow bool
}

// Control sequences of terminals (ECMA-48, xterm).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	bold        = "\x1b[1m"
	reverse     = "\x1b[7m"
	plain       = "\x1b[0m"
)

// draw is the whole picture for a terminal of this size.
func (s *screen) draw(w, h int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.result.table()
	page := max(1, h-3)
	last := max(0, len(rows)-page)
	if s.follow || s.top > last {
		s.top = last
	}
	shown := rows[s.top:min(len(rows), s.top+page)]
	ws := widths(s.cols, rows[max(0, s.top-page):min(len(rows), s.top+2*page)])
	var b strings.Builder
	b.WriteString(home)
	put := func(text, style string) {
		b.WriteString(style + cut(text, w))
		if style != "" {
			b.WriteString(plain)
		}
		b.WriteString(clearLine + "\r\n")
	}
	var l strings.Builder
	line(&l, s.cols, ws, names(s.cols))
	put(strings.TrimSuffix(l.String(), "\n"), bold)
	for _, r := range shown {
		l.Reset()
		line(&l, s.cols, ws, r)
		put(strings.TrimSuffix(l.String(), "\n"), "")
	}
	b.WriteString(clearBelow)
	more := ""
	if len(rows) > page {
		more = fmt.Sprintf(" \u00b7 rows %d-%d", s.top+1, s.top+len(shown))
	}
	if s.result.dropped > 0 {
		more += fmt.Sprintf(" \u00b7 the oldest %s left out", count(s.result.dropped, "row"))
	}
	status := fmt.Sprintf(" %s%s \u00b7 %s", count(int64(len(rows)), "row"), more, count(s.result.changes, "change"))
	if s.status != "" {
		status += " \u00b7 " + s.status
	}
	status += " \u00b7 q stops, arrows scroll, g top, G end"
	fmt.Fprintf(&b, "\x1b[%d;1H%s%s%s", h, reverse, cut(status+strings.Repeat(" ", max(0, w-width(status))), w), plain)
	return b.String()
}

// key acts on what was typed; it says whether to stop.
func (s *screen) key(k string, page int) (stop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	move := func(n int) { s.follow, s.top = false, max(0, s.top+n) }
	switch k {
	case "q", "Q", "\x03", "\x1b":
		return true
	case "\x1b[A", "\x1bOA", "k":
		move(-1)
	case "\x1b[B", "\x1bOB", "j":
		move(1)
	case "\x1b[5~", "b":
		move(-page)
	case "\x1b[6~", " ":
		move(page)
	case "g", "\x1b[H":
		s.follow, s.top = false, 0
	case "G", "\x1b[F":
		s.follow = true
	}
	return false
}

// show draws the table until ctx is done or somebody stops it, which is told by stop.
func (s *screen) show(ctx context.Context, t Terminal, stop func()) error {
	leave, err := t.Keys()
	if err != nil {
		return err
	}
	defer leave()
	if _, err := io.WriteString(t, enterScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(t, leaveScreen) }()
	buf := make([]byte, 32)
	var drawn string
	at := time.Time{}
	for ctx.Err() == nil {
		if time.Since(at) >= 100*time.Millisecond {
			at = time.Now()
			w, h := t.Size()
			if picture := s.draw(w, h); picture != drawn {
				drawn = picture
				if _, err := io.WriteString(t, picture); err != nil {
					return err
				}
			}
		}
		n, err := t.Read(buf)
		if err != nil {
			return err
		}
		if n > 0 {
			_, h := t.Size()
			if s.key(string(buf[:n]), max(1, h-3)) {
				stop()
				return nil
			}
			at = time.Time{}
		}
	}
	return nil
}
