package cli

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// errTestsFailed is why test exits with code 1; the diffs have said everything else.
var errTestsFailed = errors.New("tests failed")

// testRunNames are the runs of a test, in the words of messages.
var testRunNames = map[sqltest.Mode]string{sqltest.ByLine: "row by row", sqltest.Restart: "with a restart after each row", sqltest.Parallel: "on three partitions"}

// newTestCommand runs the tests beside pipelines.
func newTestCommand(o *Options, environ []string) *cobra.Command {
	var run, junit string
	var update, verbose bool
	cmd := &cobra.Command{
		Use:   "test [files or folders]",
		Short: "Run the tests beside SQL pipelines, without a broker",
		Long: `Runs files of tests, those that end with .test in folders and below; without arguments those of the current folder.
A test puts rows into tables that the pipeline reads, moves event time and processing time, and says which rows come
out. Each runs row by row, again with a restart after each row, and over three partitions where the result does not
depend on the order in which rows come. docs/sql.md describes the files.

Exit codes: 0 all passed, 1 a test failed, 2 a file or the command line has a mistake.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			filter, err := regexp.Compile(run)
			if err != nil {
				return usageError{fmt.Errorf("--run: %w", err)}
			}
			files, err := sqltest.FindTests(args)
			if err != nil {
				return usageError{err}
			}
			if len(files) == 0 {
				return usageError{fmt.Errorf("no file that ends with .test in %s", strings.Join(args, ", "))}
			}
			r := testReport{out: cmd.OutOrStdout(), verbose: verbose}
			to := sqltest.TestOptions{Functions: o.Functions, Connectors: o.connectors(nil, true), Env: environment(environ), Filter: filter.MatchString, Update: update}
			for _, path := range files {
				if err := r.run(path, to); err != nil {
					return err
				}
			}
			if err := r.end(junit); err != nil {
				return err
			}
			if r.failed > 0 {
				return errTestsFailed
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "run only tests whose name this regular expression matches")
	f.BoolVar(&update, "update", false, "write the rows that come out into the files, where they are not those that are expected")
	f.BoolVarP(&verbose, "verbose", "v", false, "list tests that pass, too")
	f.StringVar(&junit, "junit", "", "write the results to this file, too, as JUnit's XML")
	return cmd
}

// testReport writes what comes of tests.
type testReport struct {
	out            io.Writer
	verbose        bool
	passed, failed int
	suites         []junitSuite
}

func (r *testReport) run(path string, o sqltest.TestOptions) error {
	f, err := sqltest.ReadTests(path)
	if err != nil {
		return usageError{err}
	}
	results, err := f.Run(o)
	if err != nil {
		return usageError{err}
	}
	suite := junitSuite{Name: path, Tests: len(results)}
	updated, said := 0, ""
	var b strings.Builder
	for _, t := range results {
		c := junitCase{Name: t.Name, Class: path}
		switch {
		case t.Diff != "":
			r.failed++
			suite.Failures++
			how := ""
			if t.Mode != sqltest.ByLine {
				how = " (" + testRunNames[t.Mode] + ")"
			}
			fmt.Fprintf(&b, "FAIL  %s:%d: %s%s\n", path, t.Line, t.Name, how)
			diff := strings.TrimRight(t.Diff, "\n")
			if diff == said { // the pipeline cannot be planned
				diff = "as before"
			} else {
				said = diff
			}
			b.WriteString("      " + strings.ReplaceAll(diff, "\n", "\n      ") + "\n")
			c.Failure = &junitFailure{Message: "the rows are not those that are expected" + how, Text: t.Diff}
		default:
			r.passed++
			if t.Updated {
				updated++
			}
			if r.verbose {
				var runs []string
				for _, m := range t.Modes {
					runs = append(runs, testRunNames[m])
				}
				fmt.Fprintf(&b, "pass  %s:%d: %s (%s)\n", path, t.Line, t.Name, strings.Join(runs, ", "))
			}
		}
		suite.Cases = append(suite.Cases, c)
	}
	switch {
	case updated > 0:
		fmt.Fprintf(&b, "wrote %s: %s updated\n", path, plural(updated, "test"))
	case suite.Failures == 0 && len(results) > 0 && !r.verbose:
		fmt.Fprintf(&b, "ok    %s (%s)\n", path, plural(len(results), "test"))
	}
	r.suites = append(r.suites, suite)
	_, err = io.WriteString(r.out, b.String())
	return err
}

// end writes the last line, and the file for JUnit if there is to be one.
func (r *testReport) end(junit string) error {
	if _, err := fmt.Fprintf(r.out, "%d passed, %d failed\n", r.passed, r.failed); err != nil || junit == "" {
		return err
	}
	b, err := xml.MarshalIndent(junitSuites{Suites: r.suites}, "", "  ")
	if err == nil {
		err = os.WriteFile(junit, append([]byte(xml.Header), append(b, '\n')...), 0o644) //nolint:gosec // a report that others read
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", junit, err)
	}
	return nil
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}
