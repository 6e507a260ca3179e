// Command fetch brings the jars of the Kafka versions that the tests run on into the cache: make kafka-jars.
package main

import (
	"fmt"
	"os"

	"github.com/millrace-stream/millrace/test/kafka"
)

func main() {
	for _, version := range []string{kafka.V4, kafka.V3} {
		dir, err := kafka.Jars(version)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(dir)
	}
}
