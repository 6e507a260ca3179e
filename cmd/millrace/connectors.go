package main

import "github.com/millrace-stream/millrace/connector"

// connectors are what tables may stand for, by the option 'connector'.
func connectors() connector.Registry {
	return connector.Registry{}
}
