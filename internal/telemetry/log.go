// Package telemetry carries what the engine counts to the outside: metrics through OpenTelemetry to Prometheus, and
// the program's log. It is the only package that imports OpenTelemetry; nothing of it is on the way of a record.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"
)

// NewLogger makes the program's logger. level is debug, info, warn or error; format is text or json; anything else
// counts as info and text (package configs refuses it before). Times are UTC. Whatever the order in which a line was put
// together, app, subtask, topic, partition and epoch come first, in this order, so that lines can be compared by eye.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: l, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().UTC().Truncate(time.Millisecond))
		}
		return a
	}}
	if format == "json" {
		return slog.New(&ordered{inner: slog.NewJSONHandler(w, o)})
	}
	return slog.New(&ordered{inner: slog.NewTextHandler(w, o)})
}

// leading are the attributes that come first.
var leading = []string{"app", "subtask", "topic", "partition", "epoch"}

// ordered is a slog.Handler that puts the leading attributes first. It keeps the attributes until a group opens: behind
// that, leading names are other things.
type ordered struct {
	inner slog.Handler
	attrs []slog.Attr
	group bool // a group is open: inner has got attrs
}

func (h *ordered) Enabled(ctx context.Context, l slog.Level) bool { return h.inner.Enabled(ctx, l) }

func (h *ordered) WithAttrs(attrs []slog.Attr) slog.Handler {
	if h.group {
		return &ordered{inner: h.inner.WithAttrs(attrs), group: true}
	}
	return &ordered{inner: h.inner, attrs: slices.Concat(h.attrs, attrs)}
}

func (h *ordered) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	inner := h.inner
	if !h.group {
		inner = inner.WithAttrs(inOrder(h.attrs))
	}
	return &ordered{inner: inner.WithGroup(name), group: true}
}

func (h *ordered) Handle(ctx context.Context, r slog.Record) error {
	if h.group {
		return h.inner.Handle(ctx, r)
	}
	attrs := slices.Grow(slices.Clone(h.attrs), r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	out.AddAttrs(inOrder(attrs)...)
	return h.inner.Handle(ctx, out)
}

// inOrder sorts the leading attributes to the front. Of several with one leading name the last is kept.
func inOrder(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, 0, len(attrs))
	for _, name := range leading {
		for _, a := range slices.Backward(attrs) {
			if a.Key == name {
				out = append(out, a)
				break
			}
		}
	}
	for _, a := range attrs {
		if !slices.Contains(leading, a.Key) {
			out = append(out, a)
		}
	}
	return out
}
