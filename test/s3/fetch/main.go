// Command fetch builds the S3 server of the tests, so that no test waits for that.
package main

import (
	"fmt"
	"os"

	"github.com/millrace-stream/millrace/test/s3"
)

func main() {
	bin, err := s3.Program()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(bin)
}
