package txn

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestKgoLoggerRepeats: while a broker is gone its clients say so once in ten seconds, each broker for itself, and not
// once in each attempt.
func TestKgoLoggerRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		l := newKgoLogger(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelInfo})))
		gone := func(broker int) {
			l.Log(kgo.LogLevelWarn, "unable to open connection", "addr", fmt.Sprint("h", broker), "broker", broker, "err", errors.New("refused"))
		}
		lines := func() (out []string) {
			for line := range strings.Lines(buf.String()) {
				out = append(out, line[strings.Index(line, "msg="):])
			}
			buf.Reset()
			return out
		}
		for range 100 {
			gone(1)
			gone(2)
			<-time.After(50 * time.Millisecond)
		}
		l.Log(kgo.LogLevelWarn, "something else", "broker", 1)
		if got := lines(); len(got) != 3 {
			t.Fatalf("after 5 s: %q, want one line for each broker and the other message", got)
		}
		<-time.After(5 * time.Second)
		gone(1)
		gone(1)
		got := lines()
		if len(got) != 1 || !strings.Contains(got[0], "broker=1") || !strings.Contains(got[0], "left_out=99") {
			t.Fatalf("after 10 s: %q, want one line with 99 that were left out", got)
		}
		// Nothing is left out of what only a debug log shows.
		buf.Reset()
		l.l = slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for range 3 {
			l.Log(kgo.LogLevelInfo, "metadata", "broker", 1)
		}
		if got := lines(); len(got) != 3 {
			t.Errorf("debug: %q, want three lines", got)
		}
		for i := range 10 * maxSayings {
			l.Log(kgo.LogLevelWarn, "unable to open connection", "broker", i)
		}
		if len(l.said) > maxSayings {
			t.Errorf("%d messages are remembered", len(l.said))
		}
	})
}
