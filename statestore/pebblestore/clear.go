package pebblestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Clear removes the stores of all incarnations, which must be closed; with everything also what else the app keeps in the
// directory, so that another app may have it. It may be repeated after an error. Nothing but Close may follow.
func (d *Dir) Clear(everything bool) error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return d.fault("list", err)
	}
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 64); err != nil {
			continue
		}
		if err := d.fs.RemoveAll(d.fs.PathJoin(d.path, name)); err != nil {
			return d.fault("clear", err)
		}
	}
	if everything {
		// The format file goes last: without it the rest is nobody's.
		for _, name := range []string{instanceFile, formatFile} {
			if err := d.fs.Remove(d.fs.PathJoin(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return d.fault("clear", err)
			}
		}
	}
	if err := d.syncDir(d.path); err != nil {
		return d.fault("clear", err)
	}
	return nil
}

// IsDir says whether a path is a state directory, of whatever app. It makes none.
func IsDir(path string) (bool, error) {
	_, err := os.Stat(filepath.Join(path, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
