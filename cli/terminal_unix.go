//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/millrace-stream/millrace/sql/shell"
)

// tty is the terminal of the process, see shell.Terminal.
type tty struct{ in, out *os.File }

func newTerminal(in, out *os.File) shell.Terminal { return &tty{in, out} }

// Write writes to the terminal.
func (t *tty) Write(p []byte) (int, error) { return t.out.Write(p) }

// Size is of shell.Terminal; 80 x 24 if it is not known.
func (t *tty) Size() (width, height int) {
	w, h, err := term.GetSize(int(t.out.Fd()))
	if err != nil || w < 1 || h < 1 {
		return 80, 24
	}
	return w, h
}

// Keys is of shell.Terminal.
func (t *tty) Keys() (stop func(), err error) {
	fd := int(t.in.Fd())
	was, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	stop = func() { _ = term.Restore(fd, was) }
	// A read ends after a tenth of a second without a key.
	set, err := unix.IoctlGetTermios(fd, ioctlGet)
	if err == nil {
		set.Cc[unix.VMIN], set.Cc[unix.VTIME] = 0, 1
		err = unix.IoctlSetTermios(fd, ioctlSet, set)
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return stop, nil
}

// Read is of shell.Terminal.
func (t *tty) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, nil
	}
	return n, err
}
