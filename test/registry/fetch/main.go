// Command fetch brings the schema registry of the tests into the cache, so that no test waits for that.
package main

import (
	"fmt"
	"os"

	"github.com/millrace-stream/millrace/test/registry"
)

func main() {
	dir, err := registry.Program()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
