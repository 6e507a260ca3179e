package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace-stream/millrace/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var cfg demo.Config
	var logFile string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a windowed job on two workers, kill one in mid-transaction, and judge the output",
		Long: `Runs a windowed count of orders on two workers in this process, kills one of them in the middle of a transaction,
shows how the other takes over, and ends with a verdict computed from the committed output: every order counted
exactly once, late ones in the side output. Exit code 0 if so, else 1.

Without --brokers it starts a broker of its own in the process and needs nothing installed. With --brokers it makes
topics that begin with "millrace-demo-" and removes them at the end.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Duration < 0 || cfg.Rate < 0 {
				return usageError{fmt.Errorf("--duration and --rate must be positive")}
			}
			cfg.Out = cmd.OutOrStdout()
			cfg.Terminal, cfg.Width = terminal(cfg.Out)
			if logFile != "" {
				f, err := os.Create(logFile)
				if err != nil {
					return fmt.Errorf("create the log file: %w", err)
				}
				defer f.Close()
				cfg.Log = f
			}
			return demo.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Brokers, "brokers", nil, "run on this cluster (host:port, comma separated) instead of an embedded broker")
	f.DurationVar(&cfg.Duration, "duration", 20*time.Second, "how long orders are generated")
	f.IntVar(&cfg.Rate, "rate", 2000, "orders per second")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed of the generated orders; 0 = a random one, which is printed")
	f.StringVar(&logFile, "log", "", "write the workers' logs to this file")
	return cmd
}

// terminal says whether w is a terminal that can be redrawn, and how wide it is.
func terminal(w io.Writer) (bool, int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return false, 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return false, 0
	}
	return true, width
}
