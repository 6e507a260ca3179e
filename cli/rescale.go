package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/internal/engine"
)

// newRescaleCommand changes the number of subtasks of a running app.
func newRescaleCommand(environ []string) *cobra.Command {
	return appCommand{
		use: "rescale", short: "Change the number of subtasks of a running app: by a savepoint, from which its members go on by themselves",
		flags: func(own *pflag.FlagSet) {
			own.StringP("output", "o", "text", "form of the output: text or json")
			own.Int("subtasks", 0, "the number of subtasks that is wanted")
			own.String("savepoint", "", "name of the savepoint that is taken; it is kept")
			own.Bool("yes", false, "do not ask")
			timeoutFlag(own)
		},
		run: rescaleApp,
	}.command(environ)
}

func rescaleApp(c *appCall) error {
	subtasks, err := c.flags.GetInt("subtasks")
	if err == nil && subtasks < 1 {
		err = usageError{fmt.Errorf("--subtasks is %d: how many subtasks are wanted? At least 1", subtasks)}
	}
	if err != nil {
		return err
	}
	name, err := c.flags.GetString("savepoint")
	if err != nil {
		return err
	}
	if name == "" {
		name = library.SavepointName("rescale-to-"+strconv.Itoa(subtasks), time.Now())
	}
	cluster, control, err := c.openForSavepoint(&name)
	if err != nil {
		return err
	}
	defer cluster.Close()
	defer control.Close()
	plan, err := engine.PlanRescale(c.ctx, cluster, control, subtasks)
	if err != nil {
		return err
	}
	r := newRescaleResult(c.app, subtasks, plan)
	if !c.json {
		if err := r.write(c.out); err != nil {
			return err
		}
	}
	if plan.Refused() {
		if c.json {
			if err := c.writeJSON(r); err != nil {
				return err
			}
		}
		return fmt.Errorf("rescale app %s to %d subtasks: it is refused, for the reasons given; nothing was changed", c.app, subtasks)
	}
	yes, err := c.flags.GetBool("yes")
	if err != nil {
		return err
	}
	if !yes {
		question := fmt.Sprintf("Processing stops for a savepoint (%s) and goes on in incarnation %d, as long as it takes to write and read the state. Rescale?", name, plan.Incarnation)
		if err := c.confirm(question, "nothing was changed"); err != nil {
			return err
		}
	}
	timeout, err := c.flags.GetDuration("timeout")
	if err != nil {
		return err
	}
	blobs, err := c.blobs()
	if err != nil {
		return err
	}
	defer blobs.Close()
	began := time.Now()
	c.progress("savepoint %s begins, Ctrl-C gives it up", name)
	sp, err := engine.Rescale(c.ctx, cluster, control, blobs, plan, engine.SavepointOptions{
		Name: name, Timeout: timeout, AlignTimeout: c.config.Savepoint.AlignTimeout, By: by(), Version: library.Version(),
		Progress: func(aligned, written, total int) {
			c.progress("%d of %d subtasks have their state in hand, %d have written it", aligned, total, written)
		},
		Tries: savepointTries,
		Again: func(err error) { c.progress("savepoint %s is tried again: %v", name, err) },
	})
	if err != nil {
		return err
	}
	j := newSavepointJSON(sp)
	r.Savepoint, r.Done, r.TookMs = &j, true, time.Since(began).Milliseconds()
	if c.json {
		return c.writeJSON(r)
	}
	_, err = fmt.Fprintf(c.out, "App %s goes on in incarnation %d after %s, with %s taken over.\nSet parallelism to %d or 0 in the configuration of its members, should it be another number.\n",
		c.app, r.Incarnation, span(time.Since(began)), plural64(j.Entries, "entry"), subtasks)
	return err
}

// rescaleResult is what rescale writes as JSON.
type rescaleResult struct {
	App         string         `json:"app"`
	Subtasks    int            `json:"subtasks"` // wanted
	Incarnation uint64         `json:"incarnation"`
	Subs        []rescaleSub   `json:"sub_topologies"`
	Done        bool           `json:"done"`
	TookMs      int64          `json:"took_ms,omitempty"`
	Savepoint   *savepointJSON `json:"savepoint,omitempty"`
}

type rescaleSub struct {
	ID      int      `json:"id"`
	Inputs  []string `json:"inputs"`
	Stores  int      `json:"stores"`
	Now     int      `json:"now"`
	Then    int      `json:"then"`
	Refused bool     `json:"refused,omitempty"`
	Why     string   `json:"why,omitempty"`
}

func newRescaleResult(app string, subtasks int, p *engine.RescalePlan) rescaleResult {
	r := rescaleResult{App: app, Subtasks: subtasks, Incarnation: p.Incarnation}
	for _, s := range p.Subs {
		r.Subs = append(r.Subs, rescaleSub{s.ID, s.Inputs, s.Stores, s.Now, s.Then, s.Stops, s.Why})
	}
	return r
}

// write shows what will be done, one line for each sub-topology.
func (r rescaleResult) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "SUB-TOPOLOGY\tINPUTS\tSTATES\tSUBTASKS NOW\tTHEN\t\n")
	for _, s := range r.Subs {
		then := strconv.Itoa(s.Then)
		if s.Refused {
			then = "-"
		}
		why := s.Why
		if s.Refused {
			why = "refused: " + why
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%s\t%s\n", s.ID, strings.Join(s.Inputs, ", "), s.Stores, s.Now, then, why)
	}
	return w.Flush()
}
