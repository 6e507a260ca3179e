package failpoint

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHitDoesNothingUnlessArmed(t *testing.T) {
	if err := Hit(AfterEndTxn); err != nil {
		t.Fatalf("Hit of a point that is not armed: %v", err)
	}
	p, err := Arm(AfterEndTxn, func() error { return ErrInjected })
	if err != nil {
		t.Fatal(err)
	}
	if err := Hit(BeforeEndTxn); err != nil {
		t.Fatalf("Hit of another point: %v", err)
	}
	if err := Hit(AfterEndTxn); !errors.Is(err, ErrInjected) || !strings.Contains(err.Error(), AfterEndTxn) {
		t.Fatalf("Hit of the armed point: %v, want ErrInjected with the name", err)
	}
	if p.Hits() != 1 {
		t.Fatalf("Hits() = %d, want 1", p.Hits())
	}
	p.Disarm()
	if err := Hit(AfterEndTxn); err != nil || armed.Load() != nil {
		t.Fatalf("Hit after Disarm: %v, table %v", err, armed.Load())
	}
}

func TestDisarmLeavesTheNextOne(t *testing.T) {
	first, _ := Arm(BeforeFlush, func() error { return nil })
	second, _ := Arm(BeforeFlush, func() error { return ErrInjected })
	first.Disarm()
	if err := Hit(BeforeFlush); !errors.Is(err, ErrInjected) {
		t.Fatalf("the replaced point's Disarm took its successor away: %v", err)
	}
	second.Disarm()
}

func TestArmSpec(t *testing.T) {
	var code int
	exit = func(c int) { code = c }
	defer func() { exit = nil; change(func(m map[string]*Point) { clear(m) }) }()
	if err := ArmSpec("after-end-txn:exit, before-flush:error,before-end-txn:sleep(1ns)"); err != nil {
		t.Fatal(err)
	}
	if err := Hit(AfterEndTxn); err != nil || code != 137 {
		t.Fatalf("exit: error %v, code %d, want 137", err, code)
	}
	if err := Hit(BeforeFlush); !errors.Is(err, ErrInjected) {
		t.Fatalf("error: %v", err)
	}
	start := time.Now()
	if err := Hit(BeforeEndTxn); err != nil || time.Since(start) <= 0 {
		t.Fatalf("sleep: %v", err)
	}
	if err := ArmSpec("after-flush:error@3"); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 4; i++ {
		if err := Hit(AfterFlush); errors.Is(err, ErrInjected) != (i >= 3) {
			t.Fatalf("error@3, pass %d: %v", i, err)
		}
	}
	for _, bad := range []string{"after-flush:exit@0", "after-flush:exit@x", "nope:exit", "after-end-txn", "after-end-txn:kill", "before-flush:sleep(x)", "before-flush:sleep(-1s)", ","} {
		if err := ArmSpec(bad); err == nil {
			t.Errorf("ArmSpec(%q): want an error", bad)
		}
	}
	if err := ArmSpec(""); err != nil {
		t.Errorf("empty spec: %v", err)
	}
}

func TestEveryPointIsDocumented(t *testing.T) {
	for _, name := range []string{AfterInitProducerID, BeforeFlush, AfterFlush, AfterTxnOffsetCommit, BeforeEndTxn, AfterEndTxn} {
		if Points()[name] == "" {
			t.Errorf("point %s has no text", name)
		}
	}
}

func BenchmarkHitOff(b *testing.B) {
	for b.Loop() {
		_ = Hit(AfterEndTxn)
	}
}
