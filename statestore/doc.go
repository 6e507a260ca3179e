// Package statestore keeps the state of subtasks: typed stores (Table, Windows, Map, List, Timers) over an ordered byte
// store (Store) that holds committed state only.
//
// The layers, and how values move down through them, are described at State; the layout of keys at Kind. Of a value's
// bytes the first ones are the version of its schema; the schemas themselves are changes like others, under store id
// 0, so that they travel with the changelog and the store.
//
// # Places for what the SQL engine needs
//
// Nothing of it is built ahead; each has one place where it fits without changing the stores' contracts:
//
//   - reads through an iterator held between write-behinds, with bloom filters: values.get, the only place that
//     reads single keys of the Store;
//   - all entries of one key as one cache entry: buckets, which Map and List are made of;
//   - ordered scans merged over cache and Store: cache.each, and buckets.walk within one key;
//   - appends that neither read nor cache: List.Add, whose only read is that of the last sequence number (List.next);
//   - accumulators of words and bytes whose undo copies the words: a Codec that says Flat, since undo copies flat values
//     as they are and the codec's owner promises never to write to what they point to.
package statestore
