package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-stream/millrace/configs"
)

// newConfigCommand prints the effective configuration: what a program with this file, environment and flags would take.
func newConfigCommand(environ []string) *cobra.Command {
	return &cobra.Command{
		Use:   "config [flags]",
		Short: "Check the configuration and print it with the origin of every value",
		// The flags are those of every program, so configs parses them.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			own := pflag.NewFlagSet("config", pflag.ContinueOnError)
			form := own.StringP("output", "o", configs.FormTable, "form of the output: table, yaml or json")
			loaded, err := configs.Load(configs.LoadOptions{Args: args, Environ: environ, Flags: own})
			if errors.Is(err, pflag.ErrHelp) {
				_, err := fmt.Fprint(cmd.OutOrStdout(), configs.Usage("millrace config", own))
				return err
			}
			if err != nil {
				return err
			}
			if err := noArgs(cmd, loaded.Args); err != nil {
				return err
			}
			return loaded.Print(cmd.OutOrStdout(), *form)
		},
	}
}
