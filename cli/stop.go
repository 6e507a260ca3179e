package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/txn"
)

// anyName is what --savepoint means without a name. It is no name of a savepoint.
const anyName = "<app>-<time>"

// newStopCommand stops all members of an app, and keeps those that are started from processing.
func newStopCommand(environ []string) *cobra.Command {
	return appCommand{
		use: "stop", short: "Stop all members of the app on purpose, with a savepoint or without; members that are started wait until millrace resume",
		flags: func(own *pflag.FlagSet) {
			own.StringP("output", "o", "text", "form of the output: text or json")
			own.String("savepoint", "", "take a savepoint, at which processing ends; its name, if one is given")
			own.Lookup("savepoint").NoOptDefVal = anyName
			timeoutFlag(own)
		},
		run: stopApp,
	}.command(environ)
}

// newResumeCommand lets a stopped app go on.
func newResumeCommand(environ []string) *cobra.Command {
	return appCommand{
		use: "resume", short: "Let an app go on that was stopped with millrace stop",
		flags: func(own *pflag.FlagSet) {
			own.StringP("output", "o", "text", "form of the output: text or json")
		},
		run: resumeApp,
	}.command(environ)
}

func timeoutFlag(own *pflag.FlagSet) {
	own.Duration("timeout", 10*time.Minute, "longest time that the savepoint takes; processing goes on if it is not completed by then")
}

// open connects to the brokers and opens the control topic of an app that was started before. Close both.
func (c *appCall) open() (*txn.Cluster, *txn.Control, error) {
	cluster, err := txn.Connect(c.ctx, c.kafka)
	if err != nil {
		return nil, nil, err
	}
	// A mistyped app must not get a control topic.
	if _, err = cluster.ReadControl(c.ctx, c.app); err != nil {
		cluster.Close()
		return nil, nil, err
	}
	control, err := cluster.OpenControl(c.ctx)
	if err != nil {
		cluster.Close()
		return nil, nil, err
	}
	return cluster, control, nil
}

// by says who gave a command, for people.
func by() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

func createSavepoint(c *appCall) error {
	if len(c.args) > 1 {
		return usageError{fmt.Errorf("%d arguments, wanted is at most one: the name of the savepoint; %s --help shows the usage", len(c.args), c.cmd.CommandPath())}
	}
	name := ""
	if len(c.args) == 1 {
		name = c.args[0]
	}
	cluster, control, err := c.openForSavepoint(&name)
	if err != nil {
		return err
	}
	defer cluster.Close()
	defer control.Close()
	sp, err := c.takeSavepoint(cluster, control, name, false)
	if err != nil {
		return err
	}
	j := newSavepointJSON(sp)
	if c.json {
		return c.writeJSON(j)
	}
	_, err = fmt.Fprintf(c.out, "Savepoint %s is completed after %s: %s.\n", name, span(j.Ended.Sub(*j.Began)), j.holds())
	return err
}

// holds tells what a completed savepoint holds.
func (s savepointJSON) holds() string {
	return fmt.Sprintf("%s in %s, %s", plural64(s.Entries, "entry"), plural(s.Files, "file"), bytesText(s.Bytes))
}

// openForSavepoint checks what can be checked before the brokers are asked, and connects. An empty name gets a default.
func (c *appCall) openForSavepoint(name *string) (*txn.Cluster, *txn.Control, error) {
	*name = cmp.Or(*name, library.SavepointName(c.app, time.Now()))
	if err := checkpoint.CheckName(*name); err != nil {
		return nil, nil, usageError{err}
	}
	if d, err := c.flags.GetDuration("timeout"); err != nil || d <= 0 {
		return nil, nil, usageError{fmt.Errorf("read --timeout %s: more than 0 is wanted", d)}
	}
	blobs, err := c.blobs()
	if err != nil {
		return nil, nil, err
	}
	if err := blobs.Close(); err != nil {
		return nil, nil, err
	}
	return c.open()
}

// takeSavepoint takes one, and tells on stderr how far it is.
func (c *appCall) takeSavepoint(cluster *txn.Cluster, control *txn.Control, name string, stop bool) (*checkpoint.Savepoint, error) {
	timeout, err := c.flags.GetDuration("timeout")
	if err != nil {
		return nil, err
	}
	blobs, err := c.blobs()
	if err != nil {
		return nil, err
	}
	defer blobs.Close()
	c.progress("savepoint %s begins, Ctrl-C gives it up", name)
	return engine.TakeSavepoint(c.ctx, cluster, control, blobs, engine.SavepointOptions{
		Name: name, Stop: stop, Timeout: timeout, AlignTimeout: c.config.Savepoint.AlignTimeout, By: by(), Version: library.Version(),
		Progress: func(aligned, written, total int) {
			c.progress("%d of %d subtasks have their state in hand, %d have written it", aligned, total, written)
		},
		Tries: savepointTries,
		Again: func(err error) { c.progress("savepoint %s is tried again: %v", name, err) },
	})
}

// savepointTries is how often a command takes a savepoint if subtasks move meanwhile.
const savepointTries = 5

// progress writes a line about how far a command is, beside its output.
func (c *appCall) progress(format string, args ...any) {
	fmt.Fprintf(c.cmd.ErrOrStderr(), format+"\n", args...)
}

// stopResult is what stop writes as JSON.
type stopResult struct {
	App       string         `json:"app"`
	Stopped   bool           `json:"stopped"`
	Already   bool           `json:"already,omitempty"` // it was stopped before
	Members   int            `json:"members"`           // that have not ended yet
	Savepoint *savepointJSON `json:"savepoint,omitempty"`
}

func stopApp(c *appCall) error {
	name, err := c.flags.GetString("savepoint")
	if err != nil {
		return err
	}
	wanted := c.flags.Changed("savepoint")
	if name == anyName {
		name = ""
	}
	var cluster *txn.Cluster
	var control *txn.Control
	if wanted {
		cluster, control, err = c.openForSavepoint(&name)
	} else {
		cluster, control, err = c.open()
	}
	if err != nil {
		return err
	}
	defer cluster.Close()
	defer control.Close()
	r := stopResult{App: c.app, Stopped: true}
	if wanted {
		sp, err := c.takeSavepoint(cluster, control, name, true)
		if err != nil {
			return err
		}
		j := newSavepointJSON(sp)
		r.Savepoint = &j
	} else if err := engine.Stop(c.ctx, control, by()); errors.Is(err, engine.ErrStopped) {
		r.Already = true
	} else if err != nil {
		return err
	}
	if r.Members, err = c.awaitMembers(cluster); err != nil {
		return fmt.Errorf("app %s is stopped, but whether its members have ended is not known: %w", c.app, err)
	}
	if c.json {
		if err := c.writeJSON(r); err != nil {
			return err
		}
	} else {
		word := "stopped"
		if r.Already {
			word = "stopped already"
		}
		with := ""
		if r.Savepoint != nil {
			with = fmt.Sprintf(" with savepoint %s: %s", name, r.Savepoint.holds())
		}
		if _, err := fmt.Fprintf(c.out, "App %s is %s%s.\nMembers that are started wait until: millrace resume --app.id=%s\n", c.app, word, with, c.app); err != nil {
			return err
		}
	}
	if r.Members > 0 {
		return fmt.Errorf("app %s is stopped, but %s did not end within %s: see their logs; those that were killed count until their session is over (group.session-timeout)",
			c.app, plural(r.Members, "member"), span(c.stopPatience()))
	}
	return nil
}

// stopPatience is how long members may take to end.
func (c *appCall) stopPatience() time.Duration {
	return c.config.Shutdown.Timeout + c.config.Group.SessionTimeout
}

// awaitMembers waits until the group has no members, and returns how many are left.
func (c *appCall) awaitMembers(cluster *txn.Cluster) (int, error) {
	end := time.Now().Add(c.stopPatience())
	told := time.Now()
	for {
		_, members, err := cluster.GroupState(c.ctx)
		if err != nil || len(members) == 0 || time.Now().After(end) {
			return len(members), err
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			c.progress("%s to end", plural(len(members), "member"))
		}
		select {
		case <-c.ctx.Done():
			return len(members), c.ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func resumeApp(c *appCall) error {
	cluster, control, err := c.open()
	if err != nil {
		return err
	}
	defer cluster.Close()
	defer control.Close()
	was, err := control.Refresh(c.ctx)
	if err != nil {
		return err
	}
	err = engine.Resume(c.ctx, control)
	already := errors.Is(err, engine.ErrNotStopped)
	if err != nil && !already {
		return err
	}
	if c.json {
		return c.writeJSON(struct {
			App     string `json:"app"`
			Resumed bool   `json:"resumed"` // false = it was not stopped
		}{c.app, !already})
	}
	if already || was.Stopped == nil {
		_, err = fmt.Fprintf(c.out, "App %s is not stopped.\n", c.app)
		return err
	}
	_, err = fmt.Fprintf(c.out, "App %s goes on. It was stopped at %s by %s. Members that wait begin by themselves; start others.\n",
		c.app, instant(time.UnixMilli(was.Stopped.At)), was.Stopped.By)
	return err
}
