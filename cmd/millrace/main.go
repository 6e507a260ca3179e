// Command millrace runs, explains, checks and tests scripts of SQL, and has the tools around all Millrace programs:
// configuration, preflight checks, state, health check, demo. Programs that are no SQL are Go programs that import the module;
// those whose SQL calls functions of Go are this command with functions of their own, see package cli.
package main

import "github.com/millrace-stream/millrace/cli"

// Set by the linker: -X main.version=v1.2.3 -X main.commit=abc1234. Else the module's build information is asked.
var (
	version string
	commit  string
)

func main() { cli.Main(cli.Options{Version: version, Commit: commit}) }
