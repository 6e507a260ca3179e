// Command echo is the child process of this package's tests: it says what it got and waits for SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Printf("%s %s %q\n", os.Args[1], os.Getenv("WORD"), os.Getenv("MILLRACE_WORD"))
	<-stop
	fmt.Println("terminated")
	os.Exit(3)
}
