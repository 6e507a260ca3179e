package txn

import (
	"testing"

	"github.com/millrace-stream/millrace/test/kafka"
)

// TestOnKafka runs the suite on real brokers: what kfake does at once (markers, coordinators) takes its time there.
func TestOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three brokers")
	}
	for name, c := range map[string]struct {
		opts       []kafka.Option
		txnVersion int
	}{
		"4.4":                       {nil, 2},
		"4.4 transaction.version=1": {[]kafka.Option{kafka.TransactionVersion1()}, 1},
		"3.9":                       {[]kafka.Option{kafka.Version39()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			// How often the broker looks for transactions that take too long; the default is 10 s.
			b := kafka.Start(t, append(c.opts, kafka.Config("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100"))...)
			checkFeatures(t, b.Brokers(), c.txnVersion)
			runSuite(t, b.Brokers())
		})
	}
}
