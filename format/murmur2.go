package format

import "encoding/binary"

// Murmur2 is the hash of Kafka's default partitioner (murmur2 with the seed 0x9747b28c). Java prints it as a signed
// int.
func Murmur2(b []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// Partition is where Kafka's default partitioner puts a record with this key: (murmur2 & 0x7fffffff) mod partitions.
// partitions must be positive. Records with a null key are spread by the producer and have no such place.
func Partition(key []byte, partitions int32) int32 {
	return int32(Murmur2(key)&0x7fffffff) % partitions
}
