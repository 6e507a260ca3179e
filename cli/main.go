// Package cli is the command millrace: it runs, explains, checks and tests scripts of SQL, and has the tools around all Millrace
// programs. A program whose SQL calls functions of its own, in Go, calls Main with them and has all commands so.
package cli

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
	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/sql/fn"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // or configuration
)

// Options is what a program adds to the command millrace.
type Options struct {
	// Functions are user functions by the identifiers that CREATE FUNCTION name AS 'identifier' has.
	Functions map[string]*fn.Func
	// Connectors are connectors of the program by the option 'connector' of tables; they go before ours of the same name.
	Connectors connector.Registry
	// Version and Commit are what the command version prints; "" = what the build says.
	Version, Commit string
}

// Main executes the command line of the process and ends it: see Run for the exit code. SIGINT and SIGTERM end it in order, the
// second one at once.
func Main(o Options) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if err := failpoint.ArmSpec(os.Getenv(failpoint.Env)); err != nil {
		fmt.Fprintf(os.Stderr, "millrace: arm %s: %v\n", failpoint.Env, err)
		os.Exit(exitUsage)
	}
	os.Exit(Run(ctx, o, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// Run executes a command line, without the name of the program, and returns the exit code: 0 well, 1 failed, 2 a mistake in a script,
// the configuration or the command line. It goes on until ctx ends. environ has NAME=value as os.Environ.
func Run(ctx context.Context, o Options, args, environ []string, stdout, stderr io.Writer) int {
	root := newRootCommand(&o, environ)
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

func newRootCommand(o *Options, environ []string) *cobra.Command {
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
		newCheckCommand(o, environ),
		newConfigCommand(environ),
		newDeadLetterCommand(environ),
		newDemoCommand(),
		newDoctorCommand(environ),
		newExplainCommand(o, environ),
		newHealthcheckCommand(),
		newPlanCommand(o, environ),
		newRescaleCommand(environ),
		newResumeCommand(environ),
		newRunCommand(o, environ),
		newSavepointCommand(environ),
		newShellCommand(o, environ),
		newStateCommand(environ),
		newStopCommand(environ),
		newTestCommand(o, environ),
		newTxnCommand(environ),
		newVersionCommand(o),
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
