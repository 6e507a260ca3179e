package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	library "github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/doctor"
)

// errSick is why doctor exits with code 1; the report has said everything else.
var errSick = errors.New("a check failed; the report says what to do")

// newDoctorCommand checks what a program with this file, environment and flags would meet.
func newDoctorCommand(environ []string) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check brokers, permissions, topics and the state directory; exit code 0 or 1",
		// The flags are those of every program, so configs parses them.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			own := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
			form := own.StringP("output", "o", "text", "form of the report: text or json")
			inputs := own.StringSlice("input", nil, "a topic that the program reads; may be given several times")
			keyed := own.StringSlice("keyed-input", nil, "as --input, for a topic whose partitioning by key the program relies on")
			outputs := own.StringSlice("output-topic", nil, "a topic that the program writes")
			loaded, err := configs.Load(configs.LoadOptions{Args: args, Environ: environ, Flags: own})
			if errors.Is(err, pflag.ErrHelp) {
				_, err := fmt.Fprint(cmd.OutOrStdout(), configs.Usage("millrace doctor", own))
				return err
			}
			if err != nil {
				return err
			}
			if err := noArgs(cmd, loaded.Args); err != nil {
				return err
			}
			if *form != "text" && *form != "json" {
				return usageError{fmt.Errorf("unknown output %q: text or json is wanted", *form)}
			}
			cfg := loaded.Config
			if cfg.App.ID == "" {
				return usageError{errors.New("app.id is not set: the doctor must know whose permissions to look at")}
			}
			in, err := doctorInput(cfg, *inputs, *keyed, *outputs)
			if err != nil {
				return err
			}
			report := doctor.Run(cmd.Context(), in)
			if *form == "json" {
				err = report.WriteJSON(cmd.OutOrStdout())
			} else {
				err = report.WriteText(cmd.OutOrStdout())
			}
			if err == nil && report.Failed() {
				err = errSick
			}
			return err
		},
	}
}

// doctorInput turns a configuration into what is to be checked.
func doctorInput(cfg configs.Config, inputs, keyed, outputs []string) (doctor.Input, error) {
	kafka, err := library.KafkaOptions(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return doctor.Input{}, err
	}
	in := doctor.Input{
		Kafka: kafka, Internal: []string{cfg.App.ID + "-control"},
		Parallelism: cfg.Parallelism, ReplicationFactor: cfg.Internal.ReplicationFactor, CommitLatency: cfg.Commit.MaxLatency,
	}
	if cfg.State.Store == "pebble" {
		in.StateDir = cfg.State.Dir
	}
	// Which inputs meet in one sub-topology only the program knows; keyed ones are taken to be joined.
	var joined doctor.SubTopology
	for _, t := range keyed {
		joined.Inputs = append(joined.Inputs, doctor.Topic{Name: t, Keyed: true})
	}
	if len(keyed) > 0 {
		in.Subs = append(in.Subs, joined)
	}
	for _, t := range inputs {
		in.Subs = append(in.Subs, doctor.SubTopology{Inputs: []doctor.Topic{{Name: t}}})
	}
	switch {
	case len(outputs) == 0:
	case len(in.Subs) == 0:
		in.Subs = []doctor.SubTopology{{Outputs: outputs}}
	default:
		in.Subs[0].Outputs = outputs
	}
	return in, nil
}
