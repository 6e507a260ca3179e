package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/plan"
	"github.com/millrace-stream/millrace/sql/rel"
)

// newExplainCommand shows what a script becomes.
func newExplainCommand(o *Options, environ []string) *cobra.Command {
	return scriptCommand{
		use: "explain", short: "Show the plans of a SQL script, its topics and its state; no broker is asked",
		long: "Shows what a script becomes: the logical plan, the physical plan with what changes each operator gives, and the sub-topologies with their topics and state. It asks no broker.",
		flags: func(own *pflag.FlagSet) {
			own.String("format", "text", "form of the output: text or json")
		},
		run: explainScript,
	}.command(o, environ)
}

func explainScript(c *scriptCall) error {
	asJSON, err := form(c.flags)
	if err != nil {
		return err
	}
	c.offline = true
	s, err := c.open()
	if err != nil {
		return err
	}
	e, err := newExplanation(c.config.App.ID, s)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.cmd.OutOrStdout(), e)
	}
	return e.write(c.cmd.OutOrStdout())
}

// explanation is what explain writes as JSON.
type explanation struct {
	App      string          `json:"app"`
	Logical  []string        `json:"logical"` // one text for each INSERT
	Physical []plan.Operator `json:"physical"`
	Subs     []explainedSub  `json:"sub_topologies"`
	Warnings diag.List       `json:"warnings"`

	physical string
}

// explainedSub is a sub-topology.
type explainedSub struct {
	ID          int              `json:"id"`
	Parallelism int              `json:"parallelism,omitempty"` // 0 = by the partitions of its topics
	Reads       []explainedTopic `json:"reads"`
	Writes      []explainedTopic `json:"writes"`
	State       []explainedState `json:"state"`
}

type explainedTopic struct {
	Topic    string `json:"topic"`
	Internal bool   `json:"internal,omitempty"`
}

type explainedState struct {
	Operator string `json:"operator"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	// Changelog is the topic that it is kept in.
	Changelog string `json:"changelog"`
}

func newExplanation(app string, s *script) (*explanation, error) {
	e := &explanation{App: app, Logical: []string{}, Physical: plan.Operators(s.app.Plan), Warnings: s.warnings, physical: plan.Text(s.app.Plan)}
	if e.Warnings == nil {
		e.Warnings = diag.List{}
	}
	for _, sink := range s.sinks {
		e.Logical = append(e.Logical, rel.Tree(sink))
	}
	top, err := s.app.Topology.Plan()
	if err != nil {
		return nil, err
	}
	patterns := s.patterns()
	for _, sub := range top.Subs {
		x := explainedSub{ID: sub.ID, Parallelism: sub.Parallelism, Reads: []explainedTopic{}, Writes: []explainedTopic{}, State: []explainedState{}}
		topic := func(name string, internal bool) explainedTopic {
			if internal {
				name = app + "-" + name + "-repartition"
			}
			return explainedTopic{name, internal}
		}
		for _, in := range sub.Inputs {
			x.Reads = append(x.Reads, topic(cmp.Or(patterns[in.Topic], in.Topic), in.Internal))
		}
		for _, o := range sub.Outputs {
			if o.DeadLetter {
				x.Writes = append(x.Writes, explainedTopic{app + "-dead-letter", true})
				continue
			}
			x.Writes = append(x.Writes, topic(o.Topic, o.Internal))
		}
		for _, st := range sub.Stores {
			op, name, _ := strings.Cut(st.Name, "/")
			log := fmt.Sprintf("%s-%d-changelog", app, sub.ID)
			if st.Expiring {
				log += "-expiring"
			}
			x.State = append(x.State, explainedState{op, name, st.Kind.String(), log})
		}
		e.Subs = append(e.Subs, x)
	}
	return e, nil
}

func (e *explanation) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("== Logical plan ==\n" + strings.Join(e.Logical, "\n"))
	b.WriteString("\n== Physical plan ==\n" + e.physical)
	fmt.Fprintf(&b, "\n== Sub-topologies of app %s ==\n", e.App)
	for _, s := range e.Subs {
		fmt.Fprintf(&b, "%d", s.ID)
		if s.Parallelism > 0 {
			fmt.Fprintf(&b, ", %s", plural(s.Parallelism, "subtask"))
		}
		b.WriteByte('\n')
		line := func(what string, topics []explainedTopic) {
			for _, t := range topics {
				fmt.Fprintf(&b, "  %-6s %s\n", what, t.Topic)
			}
		}
		line("reads", s.Reads)
		line("writes", s.Writes)
		for _, st := range s.State {
			fmt.Fprintf(&b, "  state  %s/%s (%s) in %s\n", st.Operator, st.Name, st.Kind, st.Changelog)
		}
	}
	if len(e.Warnings) > 0 {
		b.WriteString("\n== Warnings ==\n" + e.Warnings.Text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
