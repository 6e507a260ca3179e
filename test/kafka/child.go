package kafka

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a process that dies with us: a test binary that is itself killed must not leave brokers behind.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and cmd.ProcessState is set
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go func() {
		// The kernel's "kill when the parent dies" means the parent's thread, so this goroutine keeps its thread for the
		// life of the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in ProcessState
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// wait for the end; an error if it still runs after timeout.
func (c *child) wait(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("wait for process %d (%s): still running after %s", c.cmd.Process.Pid, c.cmd.Path, timeout)
	}
}

// signal a process; it is fine if it has already ended.
func (c *child) signal(sig os.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", sig, c.cmd.Process.Pid, err)
	}
	return nil
}

// kill ends the process with SIGKILL and waits until it is gone.
func (c *child) kill() error {
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return c.wait(10 * time.Second)
}
