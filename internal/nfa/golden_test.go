package nfa

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var (
	moreCases = flag.String("cep.golden", "", "file of more answers of test/cepgolden")
	writeTo   = flag.String("cep.cases", "", "file to write random cases to, for test/cepgolden")
	writeN    = flag.Int("cep.n", 1000, "how many")
	writeSeed = flag.Uint64("cep.seed", 1, "seed of the cases")
)

// The answers in testdata/golden.txt are those of Flink's CEP library; test/cepgolden/run.sh gives them. More of them:
//
//	go test ./internal/nfa -run TestWriteCases -cep.cases /tmp/cases -cep.n 20000 -cep.seed 7
//	test/cepgolden/run.sh < /tmp/cases > /tmp/answers
//	go test ./internal/nfa -run TestGolden -cep.golden /tmp/answers
func TestGolden(t *testing.T) {
	files := []string{"testdata/golden.txt"}
	if *moreCases != "" {
		files = append(files, *moreCases)
	}
	for _, name := range files {
		golden(t, name)
	}
}

func golden(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	cases, bad, line := 0, 0, 0
	for answer := range strings.Lines(string(text)) {
		line++
		if strings.TrimSpace(answer) == "" || strings.HasPrefix(answer, "#") {
			continue
		}
		parts := strings.Split(answer, "|")
		if strings.HasPrefix(strings.TrimSpace(parts[2]), "error") {
			t.Logf("%s:%d: %s: %s", name, line, parts[0], parts[2]) // it takes fewer patterns
			continue
		}
		cases++
		p, conds := parseWords(parts[0])
		prog, err := Compile(p)
		if err != nil {
			t.Errorf("%s:%d: %s\n%v", name, line, parts[0], err)
			continue
		}
		r := newRun(prog, conds, parseEvents(parts[1]))
		if err := r.all(func() {}); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.matches, "; ") + " | " + strings.Join(r.timeouts, "; ")
		if want := strings.TrimSpace(parts[2]) + " | " + strings.TrimSpace(parts[3]); strings.TrimSpace(got) != strings.TrimSpace(want) {
			if bad++; bad < 10 {
				t.Errorf("%s:%d:\n%s|%s\ngot  %s\nwant %s", name, line, parts[0], parts[1], got, want)
			}
		}
	}
	t.Logf("%s: %d cases, %d differ", name, cases, bad)
	if cases == 0 {
		t.Fatal("no cases")
	}
}

// TestWriteCases writes random cases.
func TestWriteCases(t *testing.T) {
	if *writeTo == "" {
		t.Skip("-cep.cases is not set")
	}
	rng := rand.New(rand.NewPCG(*writeSeed, 0))
	var out bytes.Buffer
	for n := 0; n < *writeN; {
		text := randomPattern(rng)
		events := randomEvents(rng, 1+rng.IntN(14))
		p, conds := parseWords(text)
		prog, err := Compile(p)
		if err != nil {
			continue
		}
		r := newRun(prog, conds, parseEvents(events))
		flinkForgets := strings.Contains(text, "win=") && strings.Contains(text, "until=") && strings.Contains(text, "greedy")
		if err := r.all(func() {}); err != nil || flinkForgets || r.asked > 5000 || len(r.matches) > 500 {
			continue // some have very many matches; and Flink loses a WithinStage behind a greedy stage with Until
		}
		n++
		fmt.Fprintf(&out, "%s | %s\n", text, events)
	}
	if err := os.WriteFile(*writeTo, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
