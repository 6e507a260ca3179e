package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// line logs one line and cuts off time and level.
func line(t *testing.T, format string, log func(*slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	log(NewLogger(&b, "info", format))
	_, s, _ := strings.Cut(b.String(), " msg=")
	return strings.TrimSpace(s)
}

func TestLogOrder(t *testing.T) {
	for want, log := range map[string]func(*slog.Logger){
		"hello app=a subtask=0_1 topic=t partition=3 epoch=7 x=1 err=e y=2": func(l *slog.Logger) {
			l.With("x", 1, "epoch", 7).With("subtask", "0_1").Info("hello", "err", "e", "partition", 3, "topic", "t", "app", "a", "y", 2)
		},
		"hello subtask=0_2 x=1": func(l *slog.Logger) { l.With("x", 1, "subtask", "0_1").Info("hello", "subtask", "0_2") },
		"hello app=a x=1 g.y=2 g.epoch=3": func(l *slog.Logger) {
			l.With("x", 1, "app", "a").WithGroup("g").With("y", 2).Info("hello", "epoch", 3)
		},
		"hello x=1": func(l *slog.Logger) { l.WithGroup("").Info("hello", "x", 1) },
		"":          func(l *slog.Logger) { l.Debug("hello") },
	} {
		if got := line(t, "text", log); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestLogLoggersAreApart: two loggers of one parent do not write into each other.
func TestLogLoggersAreApart(t *testing.T) {
	got := line(t, "text", func(l *slog.Logger) {
		p := l.With("a", 1).With("b", 2).With("c", 3)
		one, _ := p.With("d", 4), p.With("d", 5)
		one.Info("m")
	})
	if got != "m a=1 b=2 c=3 d=4" {
		t.Error(got)
	}
}

func TestLogJSONAndLevel(t *testing.T) {
	var b bytes.Buffer
	log := NewLogger(&b, "warn", "json")
	log.Info("no")
	log.Warn("yes", "n", 1, "app", "a")
	var got struct {
		Time       time.Time
		Level, Msg string
		App        string
		N          int
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Msg != "yes" || got.App != "a" || got.N != 1 || got.Level != "WARN" {
		t.Errorf("%v: %s", err, &b)
	}
	if got.Time.Location() != time.UTC || !strings.Contains(b.String(), `"msg":"yes","app":"a","n":1`) {
		t.Errorf("%s", &b)
	}
}
