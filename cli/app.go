package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// newAppCommand removes what an app has made for itself.
func newAppCommand(environ []string) *cobra.Command {
	cmd := parentCommand("app", "Reset or delete an app: its group, internal topics, transactional ids and checkpoints")
	flags := func(own *pflag.FlagSet) {
		own.StringP("output", "o", "text", "form of the output: text or json")
		own.Bool("savepoints", false, "delete the savepoints, too")
		own.Bool("state", false, "delete the state in state.dir of this machine, too")
		own.Bool("dry-run", false, "only show what would be done")
		own.Bool("yes", false, "do not ask")
	}
	cmd.AddCommand(
		appCommand{
			use: "reset", short: "Let an app begin anew, without state, at the start offsets of its inputs", flags: flags,
			run: func(c *appCall) error { return removeApp(c, false) },
		}.command(environ),
		appCommand{
			use: "delete", short: "Delete all that an app has made for itself; inputs and outputs stay",
			flags: func(own *pflag.FlagSet) {
				flags(own)
				own.Bool("dead-letters", false, "delete the dead letters, too; without it and without --yes this is asked")
			},
			run: func(c *appCall) error { return removeApp(c, true) },
		}.command(environ),
	)
	return cmd
}

// removal is one call of app reset or delete.
type removal struct {
	call    *appCall
	remains *engine.Remains
	opts    engine.RemoveOptions
	state   *pebblestore.Dir // to be cleared, nil = none
	timeout time.Duration    // of the group's sessions
}

func removeApp(c *appCall, everything bool) (err error) {
	r := removal{call: c, opts: engine.RemoveOptions{Delete: everything}, timeout: c.config.Group.SessionTimeout}
	var errs [5]error
	var dry, yes, state bool
	dry, errs[0] = c.flags.GetBool("dry-run")
	yes, errs[1] = c.flags.GetBool("yes")
	state, errs[2] = c.flags.GetBool("state")
	r.opts.Savepoints, errs[3] = c.flags.GetBool("savepoints")
	if everything {
		r.opts.DeadLetters, errs[4] = c.flags.GetBool("dead-letters")
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	r.opts.By = fmt.Sprintf("%s (millrace app %s)", by(), r.verb())
	if state {
		if r.state, err = openOwnState(c); err != nil {
			return err
		}
		if r.state != nil {
			defer func() { err = errors.Join(err, r.state.Close()) }()
		}
	}
	blobs, err := library.OpenBlobs(c.ctx, c.config, discard)
	if err != nil {
		return err
	}
	if blobs != nil {
		defer blobs.Close()
	}
	if blobs == nil && r.opts.Savepoints {
		return usageError{errors.New("checkpoint.url is not set: where are the savepoints that --savepoints deletes?")}
	}
	cluster, err := txn.Connect(c.ctx, c.kafka)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if r.remains, err = engine.LookAt(c.ctx, cluster, blobs, c.app); err != nil {
		return err
	}
	return r.run(cluster, blobs, dry, yes)
}

// openOwnState opens the state directory, so that no worker uses it; nil = there is none.
func openOwnState(c *appCall) (*pebblestore.Dir, error) {
	there, err := pebblestore.IsDir(c.config.State.Dir)
	if err != nil || !there {
		return nil, err
	}
	return pebblestore.OpenDir(c.config.State.Dir, c.app, pebblestore.Options{})
}

func (r *removal) verb() string {
	if r.opts.Delete {
		return "delete"
	}
	return "reset"
}

// nothing says that there is nothing to do.
func (r *removal) nothing() bool {
	if r.state != nil {
		return false
	}
	if r.opts.Delete {
		return r.remains.Empty()
	}
	return r.remains.Clean() && !(r.opts.Savepoints && len(r.remains.Savepoints) > 0)
}

func (r *removal) run(cluster *txn.Cluster, blobs blob.Store, dry, yes bool) error {
	c := r.call
	plan := r.plan()
	if !c.json {
		if err := r.write(c.out); err != nil {
			return err
		}
	}
	done := func(did bool) error {
		if c.json {
			plan.Done = did
			return c.writeJSON(plan)
		}
		return nil
	}
	if n := len(r.remains.Members); n > 0 {
		return errors.Join(done(false), fmt.Errorf("app %s has %s: stop them first, for example with millrace stop --app.id=%s; one that was killed counts until its session is over (%s)",
			c.app, plural(n, "active member"), c.app, r.timeout))
	}
	if dry || r.nothing() {
		return done(false)
	}
	if !yes {
		if err := c.confirm(strings.ToUpper(r.verb()[:1])+r.verb()[1:]+" app "+c.app+"?", "nothing was changed"); err != nil {
			return err
		}
		if r.opts.Delete && r.remains.DeadLetter != nil && !r.opts.DeadLetters {
			var err error
			r.opts.DeadLetters, err = c.ask(fmt.Sprintf("Delete the dead letters in %s, too (%s)?", r.remains.DeadLetter.Name, letters(r.remains.Letters)))
			if err != nil {
				return err
			}
			plan = r.plan()
		}
	}
	r.opts.Step = func(what string) error {
		c.progress("%s", what)
		return nil
	}
	if err := r.remains.Remove(c.ctx, cluster, blobs, r.opts); err != nil {
		return fmt.Errorf("%w; it is not done to its end: run it again", err)
	}
	if r.state != nil {
		c.progress("clear %s", c.config.State.Dir)
		if err := r.state.Clear(r.opts.Delete); err != nil {
			return err
		}
	}
	if c.json {
		return done(true)
	}
	after := fmt.Sprintf("App %s is deleted.\n", c.app)
	if !r.opts.Delete {
		after = fmt.Sprintf("App %s is reset: members that are started, and those that wait, begin with incarnation %d.\n", c.app, r.remains.Next())
	}
	_, err := io.WriteString(c.out, after)
	return err
}

func letters(n int64) string { return "about " + plural64(n, "record") }

// removalPlan is what reset and delete write as JSON.
type removalPlan struct {
	App         string            `json:"app"`
	ClusterID   string            `json:"cluster_id"`
	Action      string            `json:"action"` // reset or delete
	Done        bool              `json:"done"`
	Incarnation uint64            `json:"incarnation"`         // as it is
	Next        uint64            `json:"next,omitempty"`      // after a reset
	Again       bool              `json:"again,omitempty"`     // one that was cut off goes on
	Members     []txn.GroupMember `json:"members,omitempty"`   // that are in the way
	Group       bool              `json:"group"`               // is deleted
	Topics      []string          `json:"topics"`              // that are deleted
	Unclear     []unclearJSON     `json:"unclear,omitempty"`   // topics that stay, though they look like the app's
	Fenced      int               `json:"transactional_ids"`   // that are fenced
	Checkpoints int64             `json:"checkpoint_bytes"`    // that are deleted
	Savepoints  []string          `json:"savepoints"`          // that are deleted
	State       string            `json:"state_dir,omitempty"` // that is cleared
}

type unclearJSON struct {
	Topic string `json:"topic"`
	Why   string `json:"why"`
}

func (r *removal) plan() removalPlan {
	m := r.remains
	p := removalPlan{App: m.App, ClusterID: m.ClusterID, Action: r.verb(), Incarnation: m.State.Incarnation, Again: m.Interrupted(), Members: m.Members,
		Group: m.Group != "", Topics: r.topics(), Fenced: len(m.Subtasks), Savepoints: []string{}}
	if !r.opts.Delete {
		p.Next = m.Next()
	}
	for _, u := range m.Unclear {
		p.Unclear = append(p.Unclear, unclearJSON{u.Name, u.Why})
	}
	for _, u := range m.Checkpoints {
		p.Checkpoints += u.Bytes
	}
	if r.opts.Savepoints {
		for _, s := range m.Savepoints {
			p.Savepoints = append(p.Savepoints, s.Name)
		}
	}
	if r.state != nil {
		p.State = r.call.config.State.Dir
	}
	return p
}

// topics are those that are deleted.
func (r *removal) topics() []string {
	names := []string{}
	for _, t := range r.remains.Topics {
		names = append(names, t.Name)
	}
	if r.opts.Delete {
		if r.opts.DeadLetters && r.remains.DeadLetter != nil {
			names = append(names, r.remains.DeadLetter.Name)
		}
		if r.remains.Control.Partitions > 0 {
			names = append(names, r.remains.Control.Name)
		}
	}
	return names
}

// write tells people what would be done.
func (r *removal) write(w io.Writer) error {
	m := r.remains
	var sb strings.Builder
	switch {
	case m.Empty() && r.state == nil:
		fmt.Fprintf(&sb, "Nothing is there of app %s on cluster %s: no group, no topics%s. Is app.id right?\n", m.App, m.ClusterID, r.noBlobs())
	case r.nothing():
		fmt.Fprintf(&sb, "App %s on cluster %s has nothing to reset: it begins without state, with incarnation %d.\n", m.App, m.ClusterID, max(m.State.Incarnation, 1))
	default:
		r.writePlan(&sb)
	}
	if len(m.Members) > 0 {
		sb.WriteString("\nActive members:\n")
		for _, g := range m.Members {
			name := g.InstanceID
			if name == "" {
				name = g.ID
			}
			fmt.Fprintf(&sb, "  %s (client %s at %s)\n", name, g.ClientID, strings.TrimPrefix(g.Host, "/"))
		}
	}
	if len(m.Unclear) > 0 {
		sb.WriteString("\nThese topics look like the app's, and stay, since they may be somebody else's. Delete them by hand if not:\n")
		for _, u := range m.Unclear {
			fmt.Fprintf(&sb, "  %s: %s\n", u.Name, u.Why)
		}
	}
	_, err := io.WriteString(w, sb.String())
	return err
}

func (r *removal) noBlobs() string {
	if r.remains.Store == "" {
		return ""
	}
	return ", nothing in " + r.remains.Store
}

func (r *removal) writePlan(sb *strings.Builder) {
	m := r.remains
	line := func(name, format string, args ...any) {
		fmt.Fprintf(sb, "  %-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	if r.opts.Delete {
		fmt.Fprintf(sb, "Delete app %s on cluster %s", m.App, m.ClusterID)
	} else {
		fmt.Fprintf(sb, "Reset app %s on cluster %s, so that it begins anew, as incarnation %d, without state, at the start offsets of its inputs", m.App, m.ClusterID, m.Next())
	}
	if m.Interrupted() {
		fmt.Fprintf(sb, " (goes on with what was begun at %s by %s)", instant(time.UnixMilli(m.State.Stopped.At)), m.State.Stopped.By)
	}
	sb.WriteString(":\n")
	if m.Group != "" {
		line("group", "%s is deleted, with its offsets", m.App)
	}
	label := "topics"
	for _, name := range r.topics() {
		line(label, "%s is deleted", name)
		label = ""
	}
	if n := len(m.Subtasks); n > 0 {
		line("transactions", "%s fenced; open transactions are aborted", plural(n, "transactional id")+isAre(n))
	}
	switch {
	case m.Store == "":
		line("checkpoints", "stay, if there are any: checkpoint.url is not set")
	case len(m.Checkpoints) > 0:
		bytes := int64(0)
		for _, u := range m.Checkpoints {
			bytes += u.Bytes
		}
		line("checkpoints", "of %s, %s in %s, are deleted", plural(len(m.Checkpoints), "incarnation"), bytesText(bytes), m.Store)
	}
	if n := len(m.Savepoints); n > 0 {
		var u checkpoint.Usage
		for _, s := range m.Savepoints {
			u.Bytes += s.Usage.Bytes
		}
		if r.opts.Savepoints {
			line("savepoints", "%s, %s, %s deleted", plural(n, "savepoint"), bytesText(u.Bytes), strings.TrimSpace(isAre(n)))
		} else {
			line("savepoints", "%s, %s, stay (--savepoints deletes them)", plural(n, "savepoint"), bytesText(u.Bytes))
		}
	}
	if d := m.DeadLetter; d != nil && !slices.Contains(r.topics(), d.Name) {
		way := ""
		if r.opts.Delete {
			way = " (--dead-letters deletes them)"
		}
		line("dead letters", "stay in %s, %s%s", d.Name, letters(m.Letters), way)
	}
	if r.state != nil {
		line("local state", "in %s of this machine is deleted; that of other members is not", r.call.config.State.Dir)
	} else if r.opts.Delete {
		line("local state", "stays in the state directories (--state deletes that of this machine); an app of this name that is started again wants them empty")
	} else {
		line("local state", "stays in the state directories (--state deletes that of this machine); it is never read again")
	}
	if len(m.External) > 0 {
		line("inputs, outputs", "stay as they are: %s", strings.Join(m.External, ", "))
	}
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
