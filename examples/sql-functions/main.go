// Command sql-functions is the command millrace with functions of Go, which scripts of SQL call: CREATE FUNCTION name AS
// 'identifier' finds those that are registered here.
//
//	go run ./examples/sql-functions test examples/sql-functions
//	go run ./examples/sql-functions run examples/sql-functions/visits.sql --brokers localhost:9092
package main

import (
	"fmt"
	"net/netip"

	"github.com/millrace-stream/millrace/cli"
	"github.com/millrace-stream/millrace/sql/fn"
)

// functions are those of this program, by the identifier that CREATE FUNCTION names.
var functions = map[string]*fn.Func{
	// The network of an IP address: 10.1.2.3 is of 10.1.2.0/24. What is no address is NULL.
	"example.network": fn.Scalar2("NETWORK", func(_ *fn.Env, address string, bits int32) (string, error) {
		a, err := netip.ParseAddr(address)
		if err != nil {
			return "", fn.ErrNull
		}
		p, err := a.Prefix(int(bits))
		if err != nil {
			return "", fmt.Errorf("NETWORK: %w", err)
		}
		return p.String(), nil
	}),
	// The longest of some texts; of equally long ones the first.
	"example.longest": fn.Aggregate1("LONGEST", func(longest *string, text string) error {
		if len(text) > len(*longest) {
			*longest = text
		}
		return nil
	}, nil, nil, func(longest string) (string, error) { return longest, nil }),
}

func main() { cli.Main(cli.Options{Functions: functions}) }
