// Command sql-functions runs scripts of SQL that call functions of Go: CREATE FUNCTION name AS 'identifier' finds those that are
// registered here.
//
//	go run ./examples/sql-functions examples/sql-functions/visits.sql --brokers localhost:9092
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/connector/print"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/sql"
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

// connectors are what tables may stand for.
func connectors() connector.Registry {
	topics := kafka.Options{Formats: format.RowFormats{"json": format.JSONRows(), "raw": format.RawRows()}}
	return connector.Registry{"datagen": datagen.New(), "kafka": kafka.New(topics), "print": print.New(), "upsert-kafka": kafka.NewUpsert(topics)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, stderr io.Writer) error {
	loaded, err := configs.Load(configs.LoadOptions{Args: args, Environ: environ, Defaults: map[string]any{"app.id": "sql-functions"}})
	if err != nil {
		return err
	}
	if len(loaded.Args) != 1 {
		return errors.New("usage: sql-functions script.sql [flags]")
	}
	text, err := os.ReadFile(loaded.Args[0])
	if err != nil {
		return err
	}
	app, list := sql.Script(loaded.Args[0], string(text), sql.Options{Functions: functions, Connectors: connectors(), BadInput: millrace.DecodePolicy(loaded.Config),
		Env: func(name string) (string, bool) {
			for _, e := range environ {
				if v, ok := strings.CutPrefix(e, name+"="); ok {
					return v, true
				}
			}
			return "", false
		}})
	fmt.Fprint(stderr, list.Text())
	if list.Err() != nil {
		return errors.New("the script has mistakes")
	}
	return millrace.RunTopology(ctx, loaded.Config.App.ID, app.Topology, loaded.Config)
}
