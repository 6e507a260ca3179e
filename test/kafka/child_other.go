//go:build !linux

package kafka

import "syscall"

// childAttr: only Linux can tie a child's life to ours.
func childAttr() *syscall.SysProcAttr { return nil }
