// Package blackhole is the connector of tables that take all rows and keep none, to measure what comes before.
package blackhole

import (
	"errors"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// New is the connector 'blackhole'.
func New() connector.Connector { return hole{} }

type hole struct{}

// Spec is of connector.Connector.
func (hole) Spec() connector.Spec {
	return connector.Spec{Doc: "Takes all rows and keeps none: to measure a query, or to run it for its checks."}
}

// Traits is of connector.Connector.
func (hole) Traits(t connector.Table) (connector.Traits, error) {
	_, err := connector.Options(t.Options, nil)
	return connector.Traits{Writes: catalog.Retract, CanWrite: true}, err
}

// Source is of connector.Connector.
func (hole) Source(connector.Table) (*connector.Source, error) {
	return nil, errors.New("connector 'blackhole' can be written only")
}

// Sink is of connector.Connector.
func (hole) Sink(connector.Table) (*connector.Sink, error) {
	return &connector.Sink{Discard: true}, nil
}

// Lookup is of connector.Connector.
func (hole) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("connector 'blackhole' can be written only")
}
