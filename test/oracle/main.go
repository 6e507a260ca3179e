// Command oracle runs the cases of a folder against the streaming SQL of Millrace: what real Flink answers must come out.
//
//	go run ./test/oracle [-mode line|restart|batch|parallel] [-run TEXT] [-q] DIR
//
// It prints pass or a diff for each case and a last line "N passed, N failed", and exits with 1 on a failure.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

func main() {
	mode := flag.String("mode", "line", "line, restart, batch or parallel")
	run := flag.String("run", "", "only cases whose path has this text")
	quiet := flag.Bool("q", false, "do not list cases that pass")
	seed := flag.Uint64("seed", 1, "seed of the order in which things happen, in parallel mode")
	flag.Parse()
	m := slices.Index(sqltest.Modes, *mode)
	if m < 0 || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: oracle [-mode line|restart|batch|parallel] [-run TEXT] [-q] DIR")
		os.Exit(2)
	}
	failed, err := sqltest.Report(os.Stdout, flag.Arg(0), *run, sqltest.RunOptions{Mode: sqltest.Mode(m), Seed: *seed}, *quiet)
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}
