// Package sim is the simulation of the engine: its tests run the real worker, several members of it, with a
// repartition topic, transactions and Pebble, against a fake Kafka inside a testing/synctest bubble. A seed chooses the
// input, the settings and the faults; after the faults have stopped, checkers compare everything that was committed with
// what the input says it must be. docs/simulation.md tells what is simulated, how to run and replay it, and which
// planted bugs it finds.
package sim
