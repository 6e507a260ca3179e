// Package kafka has the connectors 'kafka' and 'upsert-kafka': tables that are topics, with the options of Flink's
// connectors of these names.
package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// Options are what the connectors are made with.
type Options struct {
	// Formats are the formats of keys and values.
	Formats format.RowFormats
	// Cluster tells which topics there are, for 'topic-pattern'; nil = that is refused, or Offline.
	Cluster connector.Cluster
	// Offline says that plans are only looked at and never run: without a Cluster PatternTopic stands for the topics of a pattern.
	Offline bool
}

type kafka struct {
	Options
	upsert bool
}

// New makes the connector 'kafka': a topic is a stream of rows that are added, or, with a format that tells changes, a
// changelog.
func New(o Options) connector.Connector { return &kafka{Options: o} }

// NewUpsert makes the connector 'upsert-kafka': a topic is a table by its PRIMARY KEY.
func NewUpsert(o Options) connector.Connector { return &kafka{o, true} }

// Spec is of connector.Connector.
func (k *kafka) Spec() connector.Spec {
	s := connector.Spec{Options: k.options(), Metadata: metadata}
	if k.upsert {
		s.Doc = "A topic that is a table: a record is the newest row of its key, and one with a null value deletes it. The columns of the PRIMARY KEY are the key of the record."
	} else {
		s.Doc = "A topic that is a stream: each record is a row that is added, or, with a format that tells changes such as debezium-json, a change. A source may read several topics."
	}
	return s
}

// Traits is of connector.Connector.
func (k *kafka) Traits(t connector.Table) (connector.Traits, error) {
	x, err := k.read(t)
	if err != nil {
		return connector.Traits{}, err
	}
	tr := connector.Traits{CanRead: true, CanWrite: x.pattern == nil && len(x.topics) == 1, Keyed: x.keyed,
		Unused: append(connector.NoEffect(t.Options, k.options()), noEffect(x.o.Prefixed("properties."))...)}
	if x.keyed != nil {
		tr.KeyForm = x.keyForm()
	}
	switch {
	case k.upsert:
		tr.Reads, tr.Writes = catalog.Upsert, catalog.Upsert
	case x.value.spec.Changes:
		tr.Reads, tr.Writes = catalog.Retract, catalog.Retract
	}
	return tr, nil
}

// Source is of connector.Connector.
func (k *kafka) Source(t connector.Table) (*connector.Source, error) {
	x, err := k.read(t)
	if err != nil {
		return nil, err
	}
	if w := t.Table.Watermark; w != nil && w.FromSource {
		return nil, errors.New("SOURCE_WATERMARK() is for sources that make watermarks, and a topic has none; say how much records may be out of order: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
	}
	s := &connector.Source{Topics: x.topics, OnError: x.onError, Settings: x.settings, Idle: x.o.Duration("scan.watermark.idle-timeout")}
	if x.pattern != nil {
		if s.Topics, err = k.matching(x); err != nil {
			return nil, err
		}
		s.Pattern = x.pattern.String()
	}
	if s.Start, err = x.start(len(s.Topics)); err != nil {
		return nil, err
	}
	if s.End, err = x.end(len(s.Topics)); err != nil {
		return nil, err
	}
	if x.pattern != nil && x.o.Text("scan.bounded.mode") == "unbounded" {
		s.Discover = x.o.Duration("scan.topic-partition-discovery.interval")
	}
	if _, err := newDecoder(x); err != nil { // for the errors
		return nil, err
	}
	s.Open = func(*processor.SubtaskContext) (connector.Decoder, error) { return newDecoder(x) }
	return s, nil
}

// PatternTopic is the name that stands for the topics of a 'topic-pattern' where no cluster is asked.
func PatternTopic(pattern string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-') {
			return r
		}
		return '_'
	}, pattern)
	return "topic-pattern_" + name[:min(len(name), 200)]
}

// matching are the topics that a pattern stands for.
func (k *kafka) matching(x *table) ([]string, error) {
	if k.Cluster == nil && k.Offline {
		return []string{PatternTopic(x.o.Text("topic-pattern"))}, nil
	}
	if k.Cluster == nil {
		return nil, errors.New("option 'topic-pattern' needs to know the topics of the cluster, which is not asked here; name them in 'topic'")
	}
	all, err := k.Cluster.Topics(x.settings)
	if err != nil {
		return nil, fmt.Errorf("find the topics of option 'topic-pattern': %w", err)
	}
	var topics []string
	for name := range all {
		if x.pattern.MatchString(name) {
			topics = append(topics, name)
		}
	}
	slices.Sort(topics)
	if len(topics) == 0 {
		return nil, fmt.Errorf("option 'topic-pattern' = '%s': none of the %d topics of the cluster has such a name", x.o.Text("topic-pattern"), len(all))
	}
	return topics, nil
}

// Sink is of connector.Connector.
func (k *kafka) Sink(t connector.Table) (*connector.Sink, error) {
	x, err := k.read(t)
	if err != nil {
		return nil, err
	}
	switch {
	case x.pattern != nil:
		return nil, errors.New("a table with 'topic-pattern' can be read only; name the topic to write to in 'topic'")
	case len(x.topics) > 1:
		return nil, fmt.Errorf("a table of several topics can be read only; 'topic' has %d", len(x.topics))
	}
	if err := x.checkWritten(); err != nil {
		return nil, err
	}
	if _, err := newEncoder(x, nil); err != nil { // for the errors
		return nil, err
	}
	return &connector.Sink{Ask: func() ([]string, error) { return ask(x) }, Topic: x.topics[0], OnError: x.onError, Settings: x.settings,
		Open: func(ctx *processor.SubtaskContext, w *processor.SinkWriter) (func(r *row.Row) error, error) {
			e, err := newEncoder(x, w)
			if err != nil {
				return nil, err
			}
			e.subtask = ctx.Subtask().Index
			return e.write, nil
		}}, nil
}

// Lookup is of connector.Connector.
func (k *kafka) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("a topic cannot be asked by key; join it as a table by FOR SYSTEM_TIME AS OF an event time, or in an ordinary join")
}
