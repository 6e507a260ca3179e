package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
)

// Options say whose metrics these are.
type Options struct {
	App      string // resource attribute service.name
	Instance string // service.instance.id; may be empty
	Version  string // service.version
	// Status is asked once for each scrape, from the scrape's goroutine.
	Status func() engine.Status
}

// Metrics exports the metrics of one worker. It implements engine.Observer.
type Metrics struct {
	provider *sdkmetric.MeterProvider
	handler  http.Handler

	transactions    metric.Int64Counter
	commitDuration  metric.Float64Histogram
	restarts        metric.Int64Counter
	skippedOffsets  metric.Int64Counter
	restoredRecords metric.Int64Counter
	restoredBytes   metric.Int64Counter
	restoreDuration metric.Float64Histogram
	checkpoints     metric.Int64Counter
	checkpointBytes metric.Int64Counter
	checkpointTime  metric.Float64Histogram
	closed          atomic.Bool
}

// Limits of one scrape.
const (
	maxScrapes    = 4 // at a time
	scrapeTimeout = 10 * time.Second
)

// NewMetrics makes the instruments on a registry of their own: several workers in a process do not meet.
func NewMetrics(o Options) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, fmt.Errorf("make the Prometheus exporter: %w", err)
	}
	attrs := []attribute.KeyValue{attribute.String("service.name", o.App), attribute.String("service.version", o.Version)}
	if o.Instance != "" {
		attrs = append(attrs, attribute.String("service.instance.id", o.Instance))
	}
	res, err := resource.Merge(resource.Environment(), resource.NewSchemaless(attrs...))
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	m := &Metrics{provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res),
		// The topology bounds the number of series; a cap would hide some partitions.
		sdkmetric.WithCardinalityLimit(0))}
	if err := m.instruments(o.Status); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the Go runtime: %w", err)
		}
	}
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	})
	return m, nil
}

// Handler answers with all metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Close ends the export; scrapes and observations after it bring nothing.
func (m *Metrics) Close() {
	if !m.closed.Swap(true) {
		// A pull exporter holds nothing back, so there is nothing to wait for and nothing to fail.
		_ = m.provider.Shutdown(context.Background())
	}
}

// instruments makes all instruments of the catalog.
func (m *Metrics) instruments(status func() engine.Status) error {
	meter := m.provider.Meter("github.com/millrace-stream/millrace")
	var observed []metric.Observable
	var reads []func(*engine.Status, metric.Observer)
	var err error
	for _, d := range catalog {
		if d.read == nil {
			continue
		}
		var inst metric.Float64Observable
		if d.kind == counter {
			inst, err = meter.Float64ObservableCounter(d.otel, metric.WithUnit(d.unit), metric.WithDescription(d.help))
		} else {
			inst, err = meter.Float64ObservableGauge(d.otel, metric.WithUnit(d.unit), metric.WithDescription(d.help))
		}
		if err != nil {
			return fmt.Errorf("make metric %s: %w", d.otel, err)
		}
		observed = append(observed, inst)
		reads = append(reads, func(s *engine.Status, o metric.Observer) {
			d.read(s, func(v float64, attrs ...attribute.KeyValue) {
				o.ObserveFloat64(inst, v, metric.WithAttributes(attrs...))
			})
		})
	}
	if _, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := status()
		for _, read := range reads {
			read(&s, o)
		}
		return nil
	}, observed...); err != nil {
		return fmt.Errorf("register the metrics of the worker's status: %w", err)
	}
	for name, to := range map[string]*metric.Int64Counter{
		transactions: &m.transactions, restarts: &m.restarts, skippedOffsets: &m.skippedOffsets, restoredRecords: &m.restoredRecords, restoredBytes: &m.restoredBytes,
		checkpoints: &m.checkpoints, checkpointBytes: &m.checkpointBytes,
	} {
		d := find(name)
		if *to, err = meter.Int64Counter(d.otel, metric.WithUnit(d.unit), metric.WithDescription(d.help)); err != nil {
			return fmt.Errorf("make metric %s: %w", d.otel, err)
		}
	}
	for name, to := range map[string]*metric.Float64Histogram{commitDuration: &m.commitDuration, restoreDuration: &m.restoreDuration, checkpointTime: &m.checkpointTime} {
		d := find(name)
		if *to, err = meter.Float64Histogram(d.otel, metric.WithUnit(d.unit), metric.WithDescription(d.help),
			metric.WithExplicitBucketBoundaries(d.buckets...)); err != nil {
			return fmt.Errorf("make metric %s: %w", d.otel, err)
		}
	}
	return nil
}

// CommitDone implements engine.Observer.
func (m *Metrics) CommitDone(id record.SubtaskID, outcome string, took time.Duration) {
	subtask := attribute.String("subtask", id.String())
	m.transactions.Add(context.Background(), 1, metric.WithAttributes(subtask, attribute.String("outcome", outcome)))
	m.commitDuration.Record(context.Background(), took.Seconds(), metric.WithAttributes(subtask))
}

// RestoreDone implements engine.Observer.
func (m *Metrics) RestoreDone(id record.SubtaskID, way string, records, bytes int64, took time.Duration) {
	attrs := metric.WithAttributes(attribute.String("subtask", id.String()))
	m.restoredRecords.Add(context.Background(), records, attrs)
	m.restoredBytes.Add(context.Background(), bytes, attrs)
	m.restoreDuration.Record(context.Background(), took.Seconds(), metric.WithAttributes(attribute.String("subtask", id.String()), attribute.String("way", way)))
}

// CheckpointDone implements engine.Observer.
func (m *Metrics) CheckpointDone(id record.SubtaskID, ok bool, uploaded int64, took time.Duration) {
	subtask := attribute.String("subtask", id.String())
	if !ok {
		m.checkpoints.Add(context.Background(), 1, metric.WithAttributes(subtask, attribute.String("outcome", "failed")))
		return
	}
	m.checkpoints.Add(context.Background(), 1, metric.WithAttributes(subtask, attribute.String("outcome", "completed")))
	m.checkpointBytes.Add(context.Background(), uploaded, metric.WithAttributes(subtask))
	m.checkpointTime.Record(context.Background(), took.Seconds(), metric.WithAttributes(subtask))
}

// SubtaskRestarted implements engine.Observer.
func (m *Metrics) SubtaskRestarted(id record.SubtaskID, reason string) {
	m.restarts.Add(context.Background(), 1, metric.WithAttributes(attribute.String("subtask", id.String()), attribute.String("reason", reason)))
}

// OffsetsSkipped implements engine.Observer.
func (m *Metrics) OffsetsSkipped(tp record.TopicPartition, offsets int64) {
	m.skippedOffsets.Add(context.Background(), offsets, metric.WithAttributes(attribute.String("topic", tp.Topic), attribute.String("partition", strconv.Itoa(int(tp.Partition)))))
}
