package task

import (
	"encoding/binary"
	"fmt"
)

// Values of repartition topics carry our own framing, so that watermarks travel with the data, in order and in the
// same transaction:
//
//	data       0 | event time, int64 BE | payload (statestore codec of the stream's type)
//	watermark  1 | upstream subtask, uint32 BE | watermark, int64 BE | idle, 0 or 1
//	barrier    2 | upstream subtask, uint32 BE | id of a savepoint, text
//	loaded     3 | upstream subtask, uint32 BE: of a broadcast, see Repartition.Loads
const (
	frameData      = 0
	frameWatermark = 1
	frameBarrier   = 2
	frameLoaded    = 3

	dataHeader     = 1 + 8
	watermarkBytes = 1 + 4 + 8 + 1
	barrierHeader  = 1 + 4
	loadedBytes    = 1 + 4
	maxBarrierID   = 100
)

// AppendDataHeader appends the frame header of a data record; the payload follows it.
func AppendDataHeader(dst []byte, eventTime int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, frameData), uint64(eventTime))
}

// DataFrame takes a data record apart.
func DataFrame(value []byte) (eventTime int64, payload []byte, err error) {
	if len(value) < dataHeader || value[0] != frameData {
		return 0, nil, fmt.Errorf("decode repartition record: %d bytes are no data frame", len(value))
	}
	return int64(binary.BigEndian.Uint64(value[1:])), value[dataHeader:], nil
}

func appendWatermark(dst []byte, upstream int, m UpstreamMark) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, frameWatermark), uint32(upstream))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Watermark))
	if m.Idle {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func watermarkFrame(value []byte) (upstream int, m UpstreamMark, err error) {
	if len(value) != watermarkBytes || value[0] != frameWatermark || value[13] > 1 {
		return 0, m, fmt.Errorf("decode watermark record: %d bytes are no watermark frame", len(value))
	}
	m.Watermark = int64(binary.BigEndian.Uint64(value[5:]))
	m.Idle = value[13] == 1
	return int(binary.BigEndian.Uint32(value[1:])), m, nil
}

func appendBarrier(dst []byte, upstream int, id string) []byte {
	return append(binary.BigEndian.AppendUint32(append(dst, frameBarrier), uint32(upstream)), id...)
}

func barrierFrame(value []byte) (upstream int, id string, err error) {
	if len(value) <= barrierHeader || len(value) > barrierHeader+maxBarrierID || value[0] != frameBarrier {
		return 0, "", fmt.Errorf("decode barrier record: %d bytes are no barrier frame", len(value))
	}
	return int(binary.BigEndian.Uint32(value[1:])), string(value[barrierHeader:]), nil
}

func appendLoaded(dst []byte, upstream int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, frameLoaded), uint32(upstream))
}

func loadedFrame(value []byte) (upstream int, err error) {
	if len(value) != loadedBytes || value[0] != frameLoaded {
		return 0, fmt.Errorf("decode loaded record: %d bytes are no loaded frame", len(value))
	}
	return int(binary.BigEndian.Uint32(value[1:])), nil
}
