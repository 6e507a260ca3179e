package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// KVFormat names the format of a savepoint's parts, which does not depend on any store: entries in the order of their keys,
// in compressed blocks. docs/checkpoints.md describes it byte by byte:
//
//	"MLRCKV1\n"
//	blocks: length of the data (4 bytes, big endian), length when decompressed (4), CRC-32C of the data (4), data (one zstd frame)
//	end: 4 zero bytes, number of entries (8), CRC-32C of these 12 bytes (4)
//
// A decompressed block is a run of whole entries: length of the key, length of the value (uvarints), key, value.
const KVFormat = "kv-1"

const (
	kvMagic = "MLRCKV1\n"
	// kvBlock is the size at which a block ends.
	kvBlock = 256 << 10
	// maxKVBlock is what a reader accepts: one entry can be larger than a block.
	maxKVBlock = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kvWriter writes entries.
type kvWriter struct {
	w       io.Writer
	enc     *zstd.Encoder
	block   []byte
	out     []byte
	last    []byte // key
	entries int64
	written int64 // bytes
	begun   bool
}

// newCompressor makes what a kvWriter needs; it can be used for many, one after the other.
func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(false))
}

func newKVWriter(w io.Writer, enc *zstd.Encoder) *kvWriter { return &kvWriter{w: w, enc: enc} }

// add appends an entry; keys must ascend.
func (k *kvWriter) add(key, value []byte) error {
	if k.entries > 0 && bytes.Compare(key, k.last) <= 0 {
		return fmt.Errorf("key %x is not behind %x", key, k.last)
	}
	k.last = append(k.last[:0], key...)
	k.block = binary.AppendUvarint(k.block, uint64(len(key)))
	k.block = binary.AppendUvarint(k.block, uint64(len(value)))
	k.block = append(append(k.block, key...), value...)
	k.entries++
	if len(k.block) >= kvBlock {
		return k.flush()
	}
	return nil
}

func (k *kvWriter) flush() error {
	k.out = k.out[:0]
	if !k.begun {
		k.begun = true
		k.out = append(k.out, kvMagic...)
	}
	if len(k.block) > 0 {
		if len(k.block) > maxKVBlock {
			return fmt.Errorf("an entry of %d bytes is more than the %d that a block may have", len(k.block), maxKVBlock)
		}
		head := len(k.out)
		k.out = append(k.out, make([]byte, 12)...)
		k.out = k.enc.EncodeAll(k.block, k.out)
		data := k.out[head+12:]
		binary.BigEndian.PutUint32(k.out[head:], uint32(len(data)))
		binary.BigEndian.PutUint32(k.out[head+4:], uint32(len(k.block)))
		binary.BigEndian.PutUint32(k.out[head+8:], crc32.Checksum(data, castagnoli))
		k.block = k.block[:0]
	}
	n, err := k.w.Write(k.out)
	k.written += int64(n)
	return err
}

// close writes the end.
func (k *kvWriter) close() error {
	if err := k.flush(); err != nil {
		return err
	}
	end := binary.BigEndian.AppendUint64(make([]byte, 4), uint64(k.entries))
	end = binary.BigEndian.AppendUint32(end, crc32.Checksum(end, castagnoli))
	n, err := k.w.Write(end)
	k.written += int64(n)
	return err
}

// kvReader reads what kvWriter wrote. Errors of the format are ErrCorrupt.
type kvReader struct {
	r       io.Reader
	dec     *zstd.Decoder
	data    []byte
	block   []byte
	rest    []byte
	last    []byte
	entries int64
	begun   bool
	ended   bool
}

// newDecompressor makes what a kvReader needs. It must be closed.
func newDecompressor() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxKVBlock))
}

func newKVReader(r io.Reader, dec *zstd.Decoder) *kvReader { return &kvReader{r: r, dec: dec} }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// next returns an entry, valid until the next call; io.EOF after the last one, when the end was found whole.
func (k *kvReader) next() (key, value []byte, err error) {
	for len(k.rest) == 0 {
		if k.ended {
			return nil, nil, io.EOF
		}
		if err := k.readBlock(); err != nil {
			return nil, nil, err
		}
	}
	keySize, n := binary.Uvarint(k.rest)
	if n <= 0 {
		return nil, nil, corrupt("bad length of a key")
	}
	valueSize, m := binary.Uvarint(k.rest[n:])
	if m <= 0 {
		return nil, nil, corrupt("bad length of a value")
	}
	rest := k.rest[n+m:]
	if keySize > uint64(len(rest)) || valueSize > uint64(len(rest))-keySize {
		return nil, nil, corrupt("an entry is longer than its block")
	}
	key, value, k.rest = rest[:keySize:keySize], rest[keySize:keySize+valueSize:keySize+valueSize], rest[keySize+valueSize:]
	if k.entries > 0 && bytes.Compare(key, k.last) <= 0 {
		return nil, nil, corrupt("key %x is not behind %x", key, k.last)
	}
	k.last = append(k.last[:0], key...)
	k.entries++
	return key, value, nil
}

func (k *kvReader) read(n int) ([]byte, error) {
	// In steps, so that a damaged length cannot ask for memory that the file does not fill.
	k.data = k.data[:0]
	for len(k.data) < n {
		at := len(k.data)
		step := min(n-at, 1<<20)
		k.data = append(k.data, make([]byte, step)...)
		if _, err := io.ReadFull(k.r, k.data[at:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, corrupt("it is cut short")
			}
			return nil, err
		}
	}
	return k.data, nil
}

func (k *kvReader) readBlock() error {
	if !k.begun {
		magic, err := k.read(len(kvMagic))
		if err != nil {
			return err
		}
		if string(magic) != kvMagic {
			return corrupt("it begins with %q", magic)
		}
		k.begun = true
	}
	head, err := k.read(4)
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size == 0 {
		return k.readEnd()
	}
	if head, err = k.read(8); err != nil {
		return err
	}
	raw, sum := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	if size > maxKVBlock || raw > maxKVBlock || raw == 0 {
		return corrupt("a block of %d bytes, %d decompressed", size, raw)
	}
	data, err := k.read(int(size))
	if err != nil {
		return err
	}
	if crc32.Checksum(data, castagnoli) != sum {
		return corrupt("bad checksum of a block")
	}
	k.block, err = k.dec.DecodeAll(data, k.block[:0])
	if err != nil {
		return corrupt("decompress a block: %v", err)
	}
	if len(k.block) != int(raw) {
		return corrupt("a block of %d bytes, not %d", len(k.block), raw)
	}
	k.rest = k.block
	return nil
}

func (k *kvReader) readEnd() error {
	data, err := k.read(12)
	if err != nil {
		return err
	}
	sum := crc32.Checksum([]byte{0, 0, 0, 0}, castagnoli)
	sum = crc32.Update(sum, castagnoli, data[:8])
	if sum != binary.BigEndian.Uint32(data[8:]) {
		return corrupt("bad checksum of the end")
	}
	if n := binary.BigEndian.Uint64(data); n != uint64(k.entries) {
		return corrupt("it has %d entries, its end says %d", k.entries, n)
	}
	var one [1]byte
	switch n, err := io.ReadFull(k.r, one[:]); {
	case n > 0:
		return corrupt("there is something behind its end")
	case !errors.Is(err, io.EOF):
		return err // of the reader, which may have compared hashes
	}
	k.ended = true
	return nil
}
