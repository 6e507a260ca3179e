package sqltest

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Find lists the case files below a folder, in the order of their paths.
func Find(dir string) ([]string, error) { return find(dir, ".case") }

// find lists the files below a folder whose names end with ext, in the order of their paths.
func find(dir, ext string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ext {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

// Report runs the cases of a folder in one mode and writes what comes of each, and a last line "N passed, N failed".
// Cases that the mode says nothing about are left out of both. filter chooses by path; "" = all. With quiet, cases that
// pass are not listed.
func Report(w io.Writer, dir, filter string, o RunOptions, quiet bool) (failed int, err error) {
	paths, err := Find(dir)
	if err != nil {
		return 0, err
	}
	passed := 0
	for _, p := range paths {
		if !strings.Contains(p, filter) {
			continue
		}
		diff, ran := CheckFile(p, o)
		switch {
		case !ran:
		case diff == "":
			passed++
			if !quiet {
				fmt.Fprintf(w, "pass %s\n", p)
			}
		default:
			failed++
			fmt.Fprintf(w, "FAIL %s\n    %s\n", p, strings.ReplaceAll(strings.TrimRight(diff, "\n"), "\n", "\n    "))
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed\n", passed, failed)
	return failed, nil
}

// CheckFile is Check for a file; a panic is a failure of the case.
func CheckFile(path string, o RunOptions) (diff string, ran bool) {
	defer func() {
		if e := recover(); e != nil {
			diff, ran = fmt.Sprintf("panic: %v\n%s", e, stack()), true
		}
	}()
	c, err := Load(path)
	if err != nil {
		return err.Error(), true
	}
	return Check(c, o)
}

// stack is the top of the stack of the panic that is being recovered from.
func stack() string {
	all := string(debug.Stack())
	if i := strings.Index(all, "\npanic("); i >= 0 {
		all = all[i+1:]
	}
	return top(all)
}

// top is the first lines of the stack of a panic.
func top(all string) string {
	lines := strings.Split(all, "\n")
	const most = 14
	return strings.Join(lines[:min(most, len(lines))], "\n")
}
