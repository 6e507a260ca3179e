package demo

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestDemo(t *testing.T) {
	var out, log bytes.Buffer
	err := Run(t.Context(), Config{Duration: 8 * time.Second, Rate: 1000, Out: &out, Log: &log})
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), log.String())
	}
	for _, want := range []string{"worker B is killed", "takes over from the dead B", "exactly once:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, out.String())
		}
	}
	if os.Getenv("SHOW") != "" {
		t.Log(out.String(), log.String())
	}
}
