//go:build linux || darwin

package doctor

import "syscall"

// freeBytes is the space that an ordinary user may still fill.
func freeBytes(dir string) (n int64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true //nolint:unconvert // Bsize is an int32 on other systems
}
