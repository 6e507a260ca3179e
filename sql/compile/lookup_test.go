package compile

import (
	stdcontext "context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/row"
)

// TestAskerTries asks for a key that gets its row with the third question.
func TestAskerTries(t *testing.T) {
	l := row.NewLayout(row.Int())
	for attempts, want := range map[int]string{1: "0 after 1", 2: "0 after 2", 3: "1 after 3", 5: "1 after 3"} {
		asked := 0
		j := &lookupJoin{key: l, right: l, attempts: attempts, ask: &connector.Lookup{Open: func() (func(stdcontext.Context, *row.Row, func() *row.Row) error, error) {
			return func(_ stdcontext.Context, key *row.Row, next func() *row.Row) error {
				if asked++; asked == 3 {
					l.Assign(next(), key)
				}
				return nil
			}, nil
		}}}
		ask := j.asker()
		ctx, cancel := stdcontext.WithCancel(t.Context())
		rows, err := ask(ctx, string(l.Pack(nil, l.RowOf(int32(7)))))
		for errors.Is(err, errMiss) {
			rows, err = ask(ctx, string(l.Pack(nil, l.RowOf(int32(7)))))
		}
		cancel()
		if got := fmt.Sprintf("%d after %d", len(rows), asked); err != nil || got != want {
			t.Errorf("%d attempts: %s rows asked for (%v), want %s", attempts, got, err, want)
		}
	}
}
