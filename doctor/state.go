package doctor

import (
	"fmt"
	"os"
)

// stateDir looks whether state can be kept: a directory that can be written, with room.
func (r *run) stateDir() {
	dir := r.in.StateDir
	if dir == "" {
		r.add(checkState, Skipped, "no state directory given")
		return
	}
	st, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		r.add(checkState, Warn, dir+" does not exist; the app makes it if it may",
			fmt.Sprintf("mount a volume there, or run: mkdir -p %s", dir))
		return
	case err != nil:
		r.add(checkState, Fail, err.Error(), "let the app's user enter "+dir)
		return
	case !st.IsDir():
		r.add(checkState, Fail, dir+" is not a directory", "name another one in state.dir")
		return
	}
	if err := writeProbe(dir); err != nil {
		r.add(checkState, Fail, err.Error(), fmt.Sprintf("let the app's user (uid %d) write to %s, and look whether the disk is "+
			"full or read-only", os.Getuid(), dir))
		return
	}
	free, ok := freeBytes(dir)
	switch {
	case !ok:
		r.add(checkState, OK, dir+" can be written; its free space is not known on this system")
	case free < r.in.MinFreeBytes:
		r.add(checkState, Warn, fmt.Sprintf("%s can be written, but only %s are free", dir, bytesText(free)),
			fmt.Sprintf("have at least %s free: state grows until it is compacted", bytesText(r.in.MinFreeBytes)))
	default:
		r.add(checkState, OK, fmt.Sprintf("%s can be written, %s free", dir, bytesText(free)))
	}
}

// writeProbe writes a file through to the disk and removes it.
func writeProbe(dir string) (err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer func() {
		if rmErr := os.Remove(f.Name()); err == nil {
			err = rmErr
		}
	}()
	if _, err = f.WriteString("probe"); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func bytesText(n int64) string {
	const unit = 1 << 10
	switch {
	case n >= unit*unit*unit:
		return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
	case n >= unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/(unit*unit))
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}
