package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-stream/millrace/test/bench/common"
)

// proc is a running process of a peer.
type proc struct {
	cmd     *exec.Cmd
	start   time.Time
	dead    atomic.Bool
	metrics string // address of its metrics, or ""
}

// startProc starts the peer's command. Its log goes to a file that is named by the group; a restart appends to it.
func startProc(args []string, group, out, state string, inst int, env ...string) *proc {
	lf, err := os.OpenFile(filepath.Join(*tmp, group+"-"+strconv.Itoa(inst)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	common.Must(err)
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = lf, lf
	c.Env = append(os.Environ(), "BROKERS="+strings.Join(common.Brokers(), ","), "IN="+*in, "IN2="+*in2, "OUT="+out, "GROUP="+group,
		"WORKLOAD="+*work, "COMMIT_MS="+strconv.Itoa(*cms), "STATE_DIR="+state, "INSTANCE="+strconv.Itoa(inst))
	for k, v := range map[string]int{"SESSION_MS": *sms, "TXN_MS": *tms, "STATE_BYTES": *stBytes} {
		if v > 0 {
			c.Env = append(c.Env, k+"="+strconv.Itoa(v))
		}
	}
	p := &proc{cmd: c}
	if *metrics {
		p.metrics = freeAddr()
		c.Env = append(c.Env, "METRICS="+p.metrics)
	}
	c.Env = append(c.Env, env...)
	p.start = time.Now()
	common.Must(c.Start())
	go func() {
		_ = c.Wait()
		p.dead.Store(true)
		_ = lf.Close()
	}()
	return p
}

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	common.Must(err)
	defer l.Close()
	return l.Addr().String()
}

// kill ends the process with SIGKILL, unless it is to write a profile.
func (p *proc) kill() {
	if os.Getenv("CPUPROFILE") != "" { // a killed process writes no profile
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		for i := 0; i < 500 && !p.dead.Load(); i++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
	_ = p.cmd.Process.Kill()
	for !p.dead.Load() {
		time.Sleep(5 * time.Millisecond)
	}
}

// cpu is user and system time of the process, in seconds.
func (p *proc) cpu() float64 { return cpuOfPid(p.cmd.Process.Pid) }

func cpuOfPid(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return cpuOf(b)
}

// cpuOf reads /proc/PID/stat, whose unit is 10 ms on Linux.
func cpuOf(stat []byte) float64 {
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	u, _ := strconv.ParseFloat(f[11], 64)
	s, _ := strconv.ParseFloat(f[12], 64)
	return (u + s) / 100
}

// memory is the peak resident set in MiB (VmHWM: heap, stacks and the pages of mapped files that are in memory, not the
// page cache of files that are read and written), and how much of the present one is anonymous, so not of a file.
func (p *proc) memory() (peak, anon int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	return memoryOf(b)
}

// memoryOf reads /proc/PID/status.
func memoryOf(status []byte) (peak, anon int) {
	for l := range strings.Lines(string(status)) {
		f := strings.Fields(l)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "VmHWM:":
			peak = kib / 1024
		case "RssAnon:":
			anon = kib / 1024
		}
	}
	return peak, anon
}

// team is the processes that share a group.
type team []*proc

func (t team) cpu() (s float64) {
	for _, p := range t {
		s += p.cpu()
	}
	return s
}

func (t team) memory() (peak, anon int) {
	for _, p := range t {
		a, b := p.memory()
		peak, anon = peak+a, anon+b
	}
	return peak, anon
}

func (t team) dead() bool {
	for _, p := range t {
		if p.dead.Load() {
			return true
		}
	}
	return false
}

func (t team) kill() {
	for _, p := range t {
		p.kill()
	}
}
