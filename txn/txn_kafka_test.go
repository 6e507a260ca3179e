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
			b := kafka.Start(t, c.opts...)
			checkFeatures(t, b.Brokers(), c.txnVersion)
			runSuite(t, b.Brokers())
		})
	}
}
