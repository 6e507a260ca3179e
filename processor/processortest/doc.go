// Package processortest drives a topology in a test, without a broker and without sleeping:
//
//	d := processortest.New(t, topology)
//	orders, counts := processortest.In[Order](d, "orders"), processortest.Out[Count](d, "counts")
//	orders.Send(Order{"ann", 3, at(1)}, Order{"bob", 1, at(9)})
//	counts.Want() // nothing yet
//	d.Restart()   // from what is committed
//	orders.Send(Order{"zoe", 0, at(12)})
//	counts.Want(Count{"ann", at(0), 3}, Count{"bob", at(0), 1})
//
// It is the function that the program hands to millrace.Main which runs, with its serdes, state and transactions: each
// Send is processed to its end and committed before it returns, and results are what a reader with
// isolation.level=read_committed would see. Event time moves with what is sent, by each source's own strategy, or by
// AdvanceWatermark; no record has to be sent only to close a window. Processing time stands still but for
// AdvanceProcessingTime. Functions of Async are called at once and waited for.
//
// Schedules runs a test many times, with other partitions, fetches, crashes and restores, and compares the results;
// Driver.OnBroker runs what a test sent on an embedded Kafka broker, on several members. Kafka Streams:
// TopologyTestDriver. Flink: the test harnesses.
package processortest
