package processor

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// pkgPath is the import path of this package, as function names show it.
const pkgPath = "github.com/millrace-stream/millrace/processor"

// callSite is where the user called into this package: the first frame outside of it and of package cep, as file:line.
func callSite() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		inside := (strings.HasPrefix(f.Function, pkgPath+".") || strings.HasPrefix(f.Function, pkgPath+"/cep.")) && !strings.HasSuffix(f.File, "_test.go")
		if f.File != "" && !inside {
			return filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
