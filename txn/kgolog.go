package txn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoLogger passes kgo's log on, one level down: what kgo finds worth a warning (a broker that restarts, a
// rebalance) is normal operation for us, and what really ends something comes to us as an error anyway.
//
// While a broker is gone, every client and partition says so again and again. Of equal messages about one broker one is
// passed on in each interval; the next one tells how many were left out.
type kgoLogger struct {
	l *slog.Logger

	mu   sync.Mutex
	said map[string]*saying
}

// saying is one message about one broker.
type saying struct {
	next time.Time // from when on it is passed on again
	left int       // how many were left out since the last one
}

const (
	repeatInterval = 10 * time.Second
	maxSayings     = 256
)

func newKgoLogger(l *slog.Logger) *kgoLogger {
	return &kgoLogger{l: l, said: map[string]*saying{}}
}

func (k *kgoLogger) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case k.l.Enabled(ctx, slog.LevelDebug-4):
		return kgo.LogLevelDebug
	case k.l.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case k.l.Enabled(ctx, slog.LevelInfo):
		return kgo.LogLevelWarn
	case k.l.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelError
	default:
		return kgo.LogLevelNone
	}
}

func (k *kgoLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	var to slog.Level
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelWarn
	case kgo.LogLevelWarn:
		to = slog.LevelInfo
	case kgo.LogLevelInfo:
		to = slog.LevelDebug
	default:
		to = slog.LevelDebug - 4
	}
	// Who asks for more wants to see all.
	if to >= slog.LevelInfo {
		left, ok := k.admit(msg, keyvals)
		if !ok {
			return
		}
		if left > 0 {
			keyvals = append(keyvals[:len(keyvals):len(keyvals)], "left_out", left)
		}
	}
	k.l.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}

// admit says whether a message is to be passed on, and how many equal ones were left out before it.
func (k *kgoLogger) admit(msg string, keyvals []any) (left int, ok bool) {
	key := msg
	for i := 0; i+1 < len(keyvals); i += 2 {
		switch keyvals[i] {
		case "broker", "addr":
			key += fmt.Sprint("|", keyvals[i+1])
		}
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.said[key]
	switch {
	case s == nil:
		if len(k.said) >= maxSayings {
			clear(k.said)
		}
		k.said[key] = &saying{next: now.Add(repeatInterval)}
		return 0, true
	case now.Before(s.next):
		s.left++
		return 0, false
	}
	left, *s = s.left, saying{next: now.Add(repeatInterval)}
	return left, true
}
