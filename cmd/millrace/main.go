// Command millrace runs, explains, checks and tests scripts of SQL, and has the tools around all Millrace programs:
// configuration, preflight checks, state, health check, demo. Programs that are no SQL are Go programs that import the module.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/failpoint"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // or configuration
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := failpoint.ArmSpec(os.Getenv(failpoint.Env)); err != nil {
		fmt.Fprintf(os.Stderr, "millrace: arm %s: %v\n", failpoint.Env, err)
		os.Exit(exitUsage)
	}
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := newRootCommand(environ)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var script scriptError
	switch {
	case errors.As(err, &script):
		fmt.Fprint(stderr, script.list.Text())
	case err != nil:
		fmt.Fprintf(stderr, "millrace: %v\n", err)
	}
	return exitCode(err)
}

func newRootCommand(environ []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Stateful stream processing on Kafka: SQL, and tools for programs",
		// Errors are printed by run, once.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			problem := fmt.Sprintf("unknown command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				problem += "; did you mean " + strings.Join(near, " or ") + "?"
			} else {
				problem += "; millrace help lists all"
			}
			return usageError{errors.New(problem)}
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; %s --help shows the usage", err, cmd.CommandPath())}
	})
	root.AddCommand(
		newAppCommand(environ),
		newCheckCommand(environ),
		newConfigCommand(environ),
		newDeadLetterCommand(environ),
		newDemoCommand(),
		newDoctorCommand(environ),
		newExplainCommand(environ),
		newHealthcheckCommand(),
		newPlanCommand(environ),
		newRescaleCommand(environ),
		newResumeCommand(environ),
		newRunCommand(environ),
		newSavepointCommand(environ),
		newShellCommand(environ),
		newStateCommand(environ),
		newStopCommand(environ),
		newTestCommand(environ),
		newTxnCommand(environ),
		newVersionCommand(),
	)
	return root
}

// usageError is a command line that cannot be understood: exit code 2.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// noArgs is for commands that take flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q; %s --help shows the usage", args[0], cmd.CommandPath())}
	}
	return nil
}

func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage), configs.IsFaults(err):
		return exitUsage
	default:
		return exitFailed
	}
}
