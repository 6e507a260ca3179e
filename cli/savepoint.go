package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/txn"
)

// newSavepointCommand takes, shows and deletes savepoints.
func newSavepointCommand(environ []string) *cobra.Command {
	cmd := parentCommand("savepoint", "Take, list, show, verify and delete savepoints of the app")
	output := func(own *pflag.FlagSet) {
		own.StringP("output", "o", "text", "form of the output: text or json")
	}
	cmd.AddCommand(
		appCommand{
			use: "create", short: "Take a savepoint of the running app; processing goes on", args: "[name]",
			flags: func(own *pflag.FlagSet) {
				output(own)
				timeoutFlag(own)
			},
			run: createSavepoint,
		}.command(environ),
		appCommand{use: "list", short: "List the savepoints of the app, the newest first", flags: output, run: listSavepoints}.command(environ),
		appCommand{use: "show", short: "Show one savepoint: what it holds, and how to start from it", args: "<name>", flags: output, run: showSavepoint}.command(environ),
		appCommand{use: "verify", short: "Read all of a savepoint and compare it with its checksums", args: "<name>", flags: output, run: verifySavepoint}.command(environ),
		appCommand{
			use: "delete", short: "Delete a savepoint", args: "<name>",
			flags: func(own *pflag.FlagSet) {
				output(own)
				own.Bool("yes", false, "do not ask")
				own.Bool("force", false, "delete it even if an app needs it to begin from, and do not ask the brokers about that")
			},
			run: deleteSavepoint,
		}.command(environ),
	)
	return cmd
}

// discard is for what a command does not log.
var discard = slog.New(slog.DiscardHandler)

// blobs opens the object storage, which must be configured.
func (c *appCall) blobs() (blob.Store, error) {
	blobs, err := library.OpenBlobs(c.ctx, c.config, discard)
	if err == nil && blobs == nil {
		err = usageError{fmt.Errorf("checkpoint.url is not set: %s must know where the savepoints of app %s are, for example --checkpoint.url=s3://bucket/prefix or file:///folder",
			c.cmd.CommandPath(), c.app)}
	}
	return blobs, err
}

// savepoints opens those of the app; close what is returned.
func (c *appCall) savepoints() (*checkpoint.Savepoints, blob.Store, error) {
	blobs, err := c.blobs()
	if err != nil {
		return nil, nil, err
	}
	return checkpoint.NewSavepoints(blobs, c.app, nil, nil), blobs, nil
}

// named is savepoints and the name of the one that the only argument names.
func (c *appCall) named() (string, *checkpoint.Savepoints, blob.Store, error) {
	name, err := c.oneArg("the name of a savepoint")
	if err != nil {
		return "", nil, nil, err
	}
	if err := checkpoint.CheckName(name); err != nil {
		return "", nil, nil, usageError{err}
	}
	saved, blobs, err := c.savepoints()
	return name, saved, blobs, err
}

func listSavepoints(c *appCall) error {
	saved, blobs, err := c.savepoints()
	if err != nil {
		return err
	}
	defer blobs.Close()
	all, err := api.ListSavepoints(c.ctx, saved)
	if err != nil {
		return err
	}
	l := savepointList{App: c.app, Store: blobs.String(), Savepoints: []savepointJSON{}}
	for _, s := range all {
		l.Savepoints = append(l.Savepoints, savepointJSON{s})
	}
	if c.json {
		return c.writeJSON(l)
	}
	return l.write(c.out, time.Now())
}

// savepointList is what list writes as JSON.
type savepointList struct {
	App        string          `json:"app"`
	Store      string          `json:"store"`
	Savepoints []savepointJSON `json:"savepoints"`
}

// savepointJSON is a savepoint as JSON.
type savepointJSON struct{ api.Savepoint }

func newSavepointJSON(sp *checkpoint.Savepoint) savepointJSON {
	return savepointJSON{api.NewSavepoint(sp)}
}

// write writes a table for people.
func (l savepointList) write(w io.Writer, now time.Time) error {
	var sb strings.Builder
	bytes := int64(0)
	if len(l.Savepoints) > 0 {
		tw := tabwriter.NewWriter(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "NAME\tSTATUS\tBEGAN\tAGE\tTOOK\tSUBTASKS\tSIZE\tREASON")
		for _, s := range l.Savepoints {
			bytes += s.Bytes
			if s.Problem != "" {
				fmt.Fprintf(tw, "%s\tunreadable\t-\t-\t-\t-\t%s\t%s\n", s.Name, bytesText(s.Bytes), oneLine(s.Problem))
				continue
			}
			took, subtasks, reason := "-", strconv.Itoa(s.Expected), "-"
			if s.Ended != nil {
				took = span(s.Ended.Sub(*s.Began))
			}
			if s.Status == checkpoint.StatusRunning {
				subtasks = fmt.Sprintf("%d of %d", s.Written, s.Expected)
			}
			if s.Reason != "" {
				reason = oneLine(s.Reason)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Status, instant(*s.Began), span(now.Sub(*s.Began)), took, subtasks, bytesText(s.Bytes), reason)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		sb.WriteByte('\n')
	}
	fmt.Fprintf(&sb, "%s of app %s in %s", plural(len(l.Savepoints), "savepoint"), l.App, l.Store)
	if bytes > 0 {
		fmt.Fprintf(&sb, ", %s", bytesText(bytes))
	}
	sb.WriteByte('\n')
	_, err := io.WriteString(w, sb.String())
	return err
}

// bytesText shows a size for people: 1.5 GiB.
func bytesText(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	f, unit := float64(n), "B"
	for i := 0; f >= 1024 && i < len(units); i++ {
		f, unit = f/1024, units[i]
	}
	switch {
	case unit == "B":
		return fmt.Sprintf("%d B", n)
	case f < 9.95:
		return fmt.Sprintf("%.1f %s", f, unit)
	}
	return fmt.Sprintf("%.0f %s", f, unit)
}

// span shows a duration for people, in its two largest units: 3d4h, 5m12s, 0.8s.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

func showSavepoint(c *appCall) error {
	name, saved, blobs, err := c.named()
	if err != nil {
		return err
	}
	defer blobs.Close()
	sp, err := api.ShowSavepoint(c.ctx, saved, name)
	if err != nil {
		return noSavepoint(err)
	}
	j := savepointJSON{sp}
	if c.json {
		return c.writeJSON(j)
	}
	return j.write(c.out, blobs.String(), time.Now())
}

// noSavepoint says what to do when there is no savepoint of a name.
func noSavepoint(err error) error {
	if errors.Is(err, checkpoint.ErrNoSavepoint) {
		return fmt.Errorf("%w; millrace savepoint list shows those that there are", err)
	}
	return err
}

// write writes everything about one for people.
func (s savepointJSON) write(w io.Writer, store string, now time.Time) error {
	var sb strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&sb, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("name", "%s", s.Name)
	status := string(s.Status)
	if s.Status == checkpoint.StatusRunning {
		status += fmt.Sprintf(": %d of %s written, until %s", s.Written, plural(s.Expected, "subtask"), instant(*s.Deadline))
	}
	if s.Reason != "" {
		status += ": " + strings.ReplaceAll(s.Reason, "\n", "\n           ")
	}
	line("status", "%s", status)
	line("made of", "app %s, incarnation %d, on cluster %s", s.App, s.Incarnation, s.ClusterID)
	line("id", "%s", s.ID)
	line("began", "%s, %s ago, by %s with version %s", instant(*s.Began), span(now.Sub(*s.Began)), s.Owner, s.Version)
	if s.Ended != nil {
		line("ended", "%s, after %s", instant(*s.Ended), span(s.Ended.Sub(*s.Began)))
	}
	line("location", "%s/%s/savepoints/%s", strings.TrimSuffix(store, "/"), s.App, s.Name)
	if s.Status == checkpoint.StatusCompleted {
		line("holds", "%s", s.holds())
		line("start", "a program with --start.mode=savepoint:%s begins from it", s.Name)
		sb.WriteByte('\n')
		tw := tabwriter.NewWriter(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "STORE\tKIND\tKEY\tVALUE")
		for _, st := range s.Stores {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", st.Name, st.Kind, oneLine(st.Key), oneLine(st.Value))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		sb.WriteByte('\n')
		tw = tabwriter.NewWriter(&sb, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "SUBTASK\tEPOCH\tENTRIES\tSIZE\tFILES\tWRITTEN BY")
		for _, p := range s.Parts {
			fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%d\t%s\n", p.Subtask, p.Epoch, p.Entries, bytesText(p.Bytes), p.Files, p.Owner)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, sb.String())
	return err
}

func verifySavepoint(c *appCall) error {
	name, saved, blobs, err := c.named()
	if err != nil {
		return err
	}
	defer blobs.Close()
	told := time.Now()
	sp, err := saved.Verify(c.ctx, name, func(done, total int64) {
		if now := time.Now(); now.Sub(told) >= progressEvery {
			told = now
			fmt.Fprintf(c.cmd.ErrOrStderr(), "%s of %s read\n", bytesText(done), bytesText(total))
		}
	})
	if err != nil {
		return noSavepoint(err)
	}
	j := newSavepointJSON(sp)
	if c.json {
		return c.writeJSON(j)
	}
	_, err = fmt.Fprintf(c.out, "Savepoint %s is whole: %s, as they were written.\n", name, j.holds())
	return err
}

// progressEvery is how often a command that takes long says how far it is.
const progressEvery = 2 * time.Second

// unneeded refuses to delete a savepoint that an app of the cluster begins from.
func (c *appCall) unneeded(sp *checkpoint.Savepoint) error {
	cluster, err := txn.Connect(c.ctx, c.kafka)
	if err == nil {
		defer cluster.Close()
		err = engine.CheckUnneeded(c.ctx, cluster, c.app, sp.ID)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrSavepointNeeded):
		return fmt.Errorf("delete savepoint %s: %w; --force deletes it all the same", sp.Name, err)
	default:
		return fmt.Errorf("delete savepoint %s: whether an app still begins from it cannot be asked: %w; --force deletes it without asking", sp.Name, err)
	}
}

func deleteSavepoint(c *appCall) error {
	yes, err := c.flags.GetBool("yes")
	if err != nil {
		return err
	}
	force, err := c.flags.GetBool("force")
	if err != nil {
		return err
	}
	name, saved, blobs, err := c.named()
	if err != nil {
		return err
	}
	defer blobs.Close()
	sp, err := saved.Show(c.ctx, name)
	// One that cannot be read can be deleted still.
	if errors.Is(err, checkpoint.ErrNoSavepoint) {
		return noSavepoint(err)
	}
	// Only a completed one can be begun from.
	if err == nil && sp.Status == checkpoint.StatusCompleted && !force {
		if err := c.unneeded(sp); err != nil {
			return err
		}
	}
	if !yes {
		what := fmt.Sprintf("Savepoint %s of app %s in %s", name, c.app, blobs.String())
		switch {
		case err != nil:
			what += fmt.Sprintf(" cannot be read (%v).", err)
		case sp.Status == checkpoint.StatusCompleted:
			what += fmt.Sprintf(" is completed, began %s ago and holds %s.", span(time.Since(time.UnixMilli(sp.Began))), bytesText(sp.Bytes()))
		case sp.Status == checkpoint.StatusRunning:
			what += " is running: if the app is still at it, it will fail."
		default:
			what += fmt.Sprintf(" is %s.", sp.Status)
		}
		if force {
			what += " An app that begins from it, and has not read all of it yet, cannot go on without it."
		}
		what += "\nDelete it?"
		if err := c.confirm(what, "nothing was deleted"); err != nil {
			return err
		}
	}
	u, err := saved.Delete(c.ctx, name)
	if err != nil {
		return fmt.Errorf("%w; %s were deleted, run it again", err, plural(u.Blobs, "blob"))
	}
	if c.json {
		return c.writeJSON(struct {
			Deleted string `json:"deleted"`
			Blobs   int    `json:"blobs"`
			Bytes   int64  `json:"bytes"`
		}{name, u.Blobs, u.Bytes})
	}
	_, err = fmt.Fprintf(c.out, "Savepoint %s is deleted: %s, %s.\n", name, plural(u.Blobs, "blob"), bytesText(u.Bytes))
	return err
}
