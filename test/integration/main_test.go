package integration

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/demo"
	"github.com/millrace-stream/millrace/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// TestDemo runs the demo, with its kill and takeover, on a real broker.
func TestDemo(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	var out, log bytes.Buffer
	err := demo.Run(t.Context(), demo.Config{Brokers: b.Brokers(), Duration: 16 * time.Second, Rate: 2000, Out: &out, Log: &log})
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), log.String())
	}
	for _, want := range []string{"worker B is killed", "takes over from the dead B", "exactly once:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, out.String())
		}
	}
	t.Log("\n" + out.String())
}
