package txn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

var owner = Ownership{MemberID: "m", Generation: 3, InstanceID: "i"}

// replies are one answer of each kind that the machine tells apart.
var replies = map[string]Reply{
	"ok":          {},
	"lost":        {Lost: true},
	"generation":  {Code: kerr.IllegalGeneration.Code},
	"rebalance":   {Code: kerr.RebalanceInProgress.Code},
	"unknown-mem": {Code: kerr.UnknownMemberID.Code},
	"fenced-inst": {Code: kerr.FencedInstanceID.Code},
	"epoch":       {Code: kerr.InvalidProducerEpoch.Code},
	"fenced":      {Code: kerr.ProducerFenced.Code},
	"txn-state":   {Code: kerr.InvalidTxnState.Code},
	"mapping":     {Code: kerr.InvalidProducerIDMapping.Code},
	"concurrent":  {Code: kerr.ConcurrentTransactions.Code},
	"loading":     {Code: kerr.CoordinatorLoadInProgress.Code},
	"not-coord":   {Code: kerr.NotCoordinator.Code},
	"unstable":    {Code: kerr.UnstableOffsetCommit.Code},
	"abortable":   {Code: kerr.TransactionAbortable.Code},
	"not-tried":   {Code: kerr.OperationNotAttempted.Code},
	"server":      {Code: kerr.UnknownServerError.Code},
	"auth":        {Code: kerr.TransactionalIDAuthorizationFailed.Code},
	"too-large":   {Code: kerr.MessageTooLarge.Code},
}

// events are all inputs, by name: replies as "<event>:<reply>".
func events() map[string]Event {
	out := map[string]Event{
		"owned":      {Kind: EventOwned, Own: owner},
		"no-member":  {Kind: EventOwned, Own: Ownership{Generation: 3}},
		"generation": {Kind: EventOwned, Own: Ownership{MemberID: "m", Generation: -1}},
		"not-owned":  {Kind: EventNotOwned},
		"seal":       {Kind: EventSeal},
		"word":       {Kind: EventWord},
		"paused":     {Kind: EventPaused},
		"deadline":   {Kind: EventDeadline},
	}
	for _, k := range []EventKind{EventInitReply, EventFlushed, EventOffsetsReply, EventEndReply} {
		for name, r := range replies {
			out[k.String()+":"+name] = Event{Kind: k, Reply: r}
		}
	}
	return out
}

// expand turns "offsets-reply:{a b}" into its events, "{*}" into all replies not named otherwise in the phase.
func expand(t *testing.T, rules string) map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(rules), "\n") {
		from, to, ok := strings.Cut(line, "->")
		if !ok {
			t.Fatalf("rule %q", line)
		}
		to = strings.Join(strings.Fields(to), " ")
		for _, name := range strings.Fields(from) {
			kind, list, ok := strings.Cut(name, ":")
			if !ok {
				out[name] = to
				continue
			}
			for r := range replies {
				full := kind + ":" + r
				for _, want := range strings.Split(list, ",") {
					if _, taken := out[full]; want == r || want == "*" && !taken {
						out[full] = to
					}
				}
			}
		}
	}
	return out
}

// TestMachineAllPairs walks every phase with every input. What is not in the table is a fault of the driver.
func TestMachineAllPairs(t *testing.T) {
	const fence = "epoch,fenced,txn-state,mapping"
	const heal = "lost,concurrent,loading,not-coord,unstable"
	table := map[Phase]string{
		PhaseAsking: `
			owned -> initing init
			not-owned -> closed close aborted`,
		PhaseIniting: `
			init-reply:ok -> open produce
			init-reply:` + heal + ` -> retry-init pause
			init-reply:* -> closed close aborted`,
		PhaseRetryInit: `
			paused -> asking ask
			deadline -> closed close aborted`,
		PhaseOpen: `
			seal -> flushing flush`,
		PhaseFlushing: `
			flushed:ok -> confirming ask
			flushed:` + fence + ` -> closed close fenced
			flushed:* -> closed close aborted`,
		PhaseConfirming: `
			owned -> offsets commit-offsets
			not-owned -> closed close aborted`,
		PhaseOffsets: `
			offsets-reply:ok -> ending end-txn
			offsets-reply:` + fence + ` -> closed close fenced
			offsets-reply:generation,rebalance -> waiting wait
			offsets-reply:` + heal + ` -> retry-offsets pause
			offsets-reply:* -> closed close aborted`,
		PhaseWaiting: `
			word -> confirming ask
			deadline -> closed close aborted`,
		PhaseRetryOffsets: `
			paused -> confirming ask
			deadline -> closed close aborted`,
		PhaseEnding: `
			end-reply:ok -> open produce committed
			end-reply:` + fence + ` -> closed close fenced
			end-reply:abortable,not-tried -> closed close aborted
			end-reply:* -> closed close unknown`,
		PhaseClosed: ``,
	}
	outcomes := map[Outcome]string{0: "", Committed: "committed", Aborted: "aborted", Fenced: "fenced", Unknown: "unknown"}
	pairs := 0
	for phase := PhaseAsking; phase <= PhaseClosed; phase++ {
		rules := map[string]string{}
		if text, ok := table[phase]; !ok {
			t.Fatalf("phase %s is not in the table", phase)
		} else if strings.TrimSpace(text) != "" {
			rules = expand(t, text)
		}
		for name, e := range events() {
			pairs++
			m := &Machine{phase: phase, own: owner}
			if phase == PhaseClosed {
				m.outcome = Fenced
			}
			act, err := m.Step(e)
			got := strings.TrimSpace(fmt.Sprintf("%s %s %s", m.phase, act.Kind, outcomes[m.outcome]))
			want, legal := rules[name]
			var fault *MachineError
			switch {
			case legal && (err != nil || got != want):
				t.Errorf("%s + %s: got %q (%v), want %q", phase, name, got, err, want)
			case !legal && (!errors.As(err, &fault) || m.phase != PhaseClosed || act.Kind != ActClose):
				t.Errorf("%s + %s: got %q (%v), want a *MachineError and closed", phase, name, got, err)
			case !legal && phase == PhaseEnding && m.outcome != Unknown:
				t.Errorf("%s + %s: outcome %d, want unknown: EndTxn may have gone through", phase, name, m.outcome)
			case !legal && phase == PhaseClosed && m.outcome != Fenced:
				t.Errorf("closed + %s changed the outcome to %d", name, m.outcome)
			}
			if act.Kind == ActCommitOffsets && act.Own != owner {
				t.Errorf("%s + %s: offsets would be sent as %+v, want %+v", phase, name, act.Own, owner)
			}
		}
	}
	t.Logf("%d pairs", pairs)
}

// TestMachineInvariants explores every state that any sequence of inputs reaches.
func TestMachineInvariants(t *testing.T) {
	type node struct {
		m        Machine
		accepted bool // offsets accepted in the running commit
	}
	evs := events()
	const white, grey, black = 0, 1, 2
	color := map[node]int{}
	edges := 0
	var visit func(n node, path []string)
	visit = func(n node, path []string) {
		color[n] = grey
		for name, e := range evs {
			next := n
			act, err := next.m.Step(e)
			edges++
			if n.m.phase == PhaseOpen && e.Kind == EventSeal {
				next.accepted = false
			}
			if n.m.phase == PhaseOffsets && e.Kind == EventOffsetsReply && e.Reply.OK() {
				next.accepted = true
			}
			where := func() string { return fmt.Sprintf("%v then %s", path, name) }
			if act.Kind == ActInit && (err != nil || e.Kind != EventOwned || e.Own.MemberID == "") {
				t.Fatalf("InitProducerID without fresh proof of ownership: %s", where())
			}
			if act.Kind == ActCommitOffsets && (act.Own.MemberID == "" || act.Own.Generation < 0 || e.Kind != EventOwned) {
				t.Fatalf("offsets sent as %+v: %s", act.Own, where())
			}
			if act.Kind == ActEndTxn && !next.accepted {
				t.Fatalf("EndTxn(commit) before the offsets were accepted: %s", where())
			}
			if next.m.outcome == Committed && n.m.outcome != Committed &&
				(n.m.phase != PhaseEnding || e.Kind != EventEndReply || !e.Reply.OK()) {
				t.Fatalf("committed without EndTxn's success: %s", where())
			}
			if (next.m.phase == PhaseClosed) != (act.Kind == ActClose) || next.m.phase == PhaseClosed && next.m.outcome == Committed {
				t.Fatalf("phase %s, action %s, outcome %d: %s", next.m.phase, act.Kind, next.m.outcome, where())
			}
			if next.m.phase == PhaseClosed || next.m.phase == PhaseOpen && e.Kind == EventEndReply {
				// Closed is final; a committed epoch starts the next one, which may go on for ever.
				continue
			}
			switch color[next] {
			case white:
				visit(next, append(path[:len(path):len(path)], name))
			case grey:
				t.Fatalf("a loop without bound: %s leads back to %+v", where(), next.m)
			}
		}
		color[n] = black
	}
	visit(node{m: *NewMachine()}, nil)
	visit(node{m: Machine{phase: PhaseOpen, outcome: Committed, inits: 1}}, nil)
	if len(color) < 1000 {
		t.Fatalf("only %d states were seen", len(color))
	}
	t.Logf("%d states, %d steps", len(color), edges)
}

// TestMachineBounds drives each loop with the answer that keeps it going.
func TestMachineBounds(t *testing.T) {
	run := func(reply Reply) (tries int, out Outcome) {
		m := &Machine{phase: PhaseOpen}
		act, err := m.Step(Event{Kind: EventSeal})
		for err == nil {
			e := Event{Kind: EventPaused}
			switch act.Kind {
			case ActFlush:
				e = Event{Kind: EventFlushed}
			case ActAsk:
				e = Event{Kind: EventOwned, Own: owner}
			case ActCommitOffsets:
				tries++
				e = Event{Kind: EventOffsetsReply, Reply: reply}
			case ActWait:
				if act.Own != owner {
					t.Fatalf("wait for a newer word than %+v, want %+v", act.Own, owner)
				}
				e = Event{Kind: EventWord}
			case ActClose:
				return tries, m.Outcome()
			}
			act, err = m.Step(e)
		}
		t.Fatal(err)
		return
	}
	if n, out := run(replies["concurrent"]); n != maxOffsetTries+1 || out != Aborted {
		t.Errorf("CONCURRENT_TRANSACTIONS for ever: %d tries, outcome %d", n, out)
	}
	if n, out := run(replies["generation"]); n != maxWords+1 || out != Aborted {
		t.Errorf("ILLEGAL_GENERATION for ever: %d tries, outcome %d", n, out)
	}
}
