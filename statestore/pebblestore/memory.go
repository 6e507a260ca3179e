//go:build !cgo

package pebblestore

// OffHeap says that the block cache lies outside of Go's heap, so that Go's memory limit does not see it: Pebble takes its
// memory from C where there is cgo.
const OffHeap = false
