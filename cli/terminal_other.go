//go:build !unix

package cli

import (
	"os"

	"github.com/millrace-stream/millrace/sql/shell"
)

// newTerminal: live tables need a terminal of Unix; without one changes are printed as they come.
func newTerminal(_, _ *os.File) shell.Terminal { return nil }
