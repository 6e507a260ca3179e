package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/plan"
	"github.com/millrace-stream/millrace/sql/rel"
)

// errStateGoes is why plan diff exits with code 1; the table has said everything else.
var errStateGoes = errors.New("the new script gives up state or an input of the old one: see what is rebuilt or dropped")

// newPlanCommand compares scripts.
func newPlanCommand(o *Options, environ []string) *cobra.Command {
	cmd := parentCommand("plan", "Compare what scripts become")
	var format string
	diff := &cobra.Command{
		Use:   "diff old.sql new.sql",
		Short: "Say which state is kept, rebuilt or dropped when a script takes the place of another; no broker is asked",
		Long: `Compares the operators with state of two scripts. Those with the same meaning keep their state; of those that are
rebuilt the first difference is named: they begin empty, at the offsets that were committed. It asks no broker.

Exit codes: 0 nothing is given up, 1 a state is rebuilt or dropped or an input is not read any more, 2 a script or the
command line has a mistake.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("plan diff takes two files of SQL, and there are %d; %s --help shows the usage", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "text" && format != "json" {
				return usageError{fmt.Errorf("unknown format %q: text or json is wanted", format)}
			}
			return diffScripts(cmd, o, environ, args[0], args[1], format == "json")
		},
	}
	diff.Flags().StringVar(&format, "format", "text", "form of the output: text or json")
	cmd.AddCommand(diff)
	return cmd
}

// planDiff is what plan diff writes as JSON.
type planDiff struct {
	// Lost says that the new script gives up something of the old one.
	Lost   bool          `json:"lost"`
	State  []stateChange `json:"state"`
	Inputs []inputChange `json:"inputs"`
}

type stateChange struct {
	Change   string `json:"change"` // kept, rebuilt, new or dropped
	Operator string `json:"operator"`
	Old      string `json:"old,omitempty"`
	New      string `json:"new,omitempty"`
	Why      string `json:"why,omitempty"`
}

type inputChange struct {
	Change string `json:"change"` // kept, new or dropped
	Topic  string `json:"topic"`
}

func diffScripts(cmd *cobra.Command, o *Options, environ []string, oldPath, newPath string, asJSON bool) error {
	var plans [2]*rel.Plan
	var topics [2][]string
	for i, path := range []string{oldPath, newPath} {
		text, err := os.ReadFile(path)
		if err != nil {
			return usageError{fmt.Errorf("read the script: %w", err)}
		}
		s, err := readScript(path, string(text), sql.Options{Env: environment(environ), Functions: o.Functions, Connectors: o.connectors(nil, true)})
		if err == nil {
			err = s.plan()
		}
		if err != nil {
			return err
		}
		plans[i] = s.app.Plan
		if topics[i], err = s.inputs(); err != nil {
			return err
		}
	}
	d := planDiff{State: []stateChange{}, Inputs: []inputChange{}}
	for _, c := range plan.Diff(plans[0], plans[1]) {
		d.State = append(d.State, stateChange{c.Kind, c.Text, c.Old, c.New, c.Why})
		d.Lost = d.Lost || c.Kind == "rebuilt" || c.Kind == "dropped"
	}
	for _, t := range topics[0] {
		c := inputChange{"kept", t}
		if !slices.Contains(topics[1], t) {
			c.Change, d.Lost = "dropped", true
		}
		d.Inputs = append(d.Inputs, c)
	}
	for _, t := range topics[1] {
		if !slices.Contains(topics[0], t) {
			d.Inputs = append(d.Inputs, inputChange{"new", t})
		}
	}
	out := cmd.OutOrStdout()
	if asJSON {
		if err := writeJSON(out, d); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(out, d.text()); err != nil {
		return err
	}
	if d.Lost {
		return errStateGoes
	}
	return nil
}

func (d planDiff) text() string {
	var b strings.Builder
	for _, c := range d.State {
		fmt.Fprintf(&b, "%-8s %s\n", c.Change, c.Operator)
		if c.Why != "" {
			fmt.Fprintf(&b, "%-8s   since %s\n", "", c.Why)
		}
	}
	if len(d.State) == 0 {
		b.WriteString("Neither script keeps state.\n")
	}
	for _, in := range d.Inputs {
		fmt.Fprintf(&b, "%-8s input %s\n", in.Change, in.Topic)
	}
	return b.String()
}

// inputs are the topics that a script reads, sorted.
func (s *script) inputs() ([]string, error) {
	top, err := s.app.Topology.Plan()
	if err != nil {
		return nil, err
	}
	reads, _ := topicsOf(top)
	patterns := s.patterns()
	for i, t := range reads {
		reads[i] = cmp.Or(patterns[t], t)
	}
	return reads, nil
}
