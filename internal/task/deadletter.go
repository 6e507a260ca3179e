package task

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/internal/record"
)

// The headers of a dead letter stand behind those of the original record, in this order. The first three are absent when
// there is no original: what failed was a timer or the result of a window.
const (
	headerTopic     = "millrace-topic"
	headerPartition = "millrace-partition"
	headerOffset    = "millrace-offset"
	headerTimestamp = "millrace-timestamp" // of the original record, or the event time of the step; ms
	headerOperator  = "millrace-operator"
	headerError     = "millrace-error"
	headerStack     = "millrace-stack" // of a panic only
)

const (
	whyHeaders   = 3 // headerTimestamp, headerOperator, headerError
	whereHeaders = 3 // headerTopic, headerPartition, headerOffset
)

// Bounds of the error and the stack in the headers of a dead letter.
const (
	maxErrorText = 1024
	maxStackText = 4096
)

// deadLetter writes the original record with where it came from and why it is here.
func (x *Exec) deadLetter(f *Failure, original func() (key, value []byte)) error {
	t := x.t
	out := t.lay.DeadLetter
	if out < 0 {
		return x.locate(&Error{Kind: Bug, Cause: fmt.Errorf("write dead letter: the sub-topology has no dead-letter output: %w", f.err)})
	}
	text := cutText(f.err.Error(), maxErrorText)
	var headers []record.Header
	add := func(name, value string) {
		headers = append(headers, record.Header{Key: name, Value: []byte(value)})
	}
	timestamp := x.Time
	key, value := original()
	if o := x.Origin(); o.Topic != "" {
		timestamp = o.Timestamp
		headers = make([]record.Header, 0, len(o.Headers)+whereHeaders+whyHeaders)
		headers = append(headers, o.Headers...)
		add(headerTopic, o.Topic)
		add(headerPartition, strconv.Itoa(int(o.Partition)))
		add(headerOffset, strconv.FormatInt(o.Offset, 10))
	}
	add(headerTimestamp, strconv.FormatInt(timestamp, 10))
	add(headerOperator, t.lay.Ops[f.op].Name)
	add(headerError, text)
	// The Kafka timestamp is when it was written: the original one may be what the broker would refuse.
	partition := x.SourcePartition() % max(t.env.Outputs[out].Partitions, 1)
	if f.stack != nil {
		add(headerStack, cutText(string(f.stack), maxStackText))
		if err := x.Output(f.op, int32(out), partition, key, value, headers, t.now, 0); err == nil {
			return nil
		}
		headers = headers[:len(headers)-1] // the record may fit without it
	}
	if err := x.Output(f.op, int32(out), partition, key, value, headers, t.now, 0); err != nil {
		return x.locate(&Error{Kind: Data, Cause: fmt.Errorf("write dead letter: %w (the record is here because: %w)", err, f.err)})
	}
	return nil
}

// cutText cuts a text to at most n bytes, between two characters.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// DeadLetter is what the headers of a dead letter tell. Key and value are the record's own.
type DeadLetter struct {
	// Topic, Partition and Offset of the original record; Topic is "" if there is none (a timer, the result of a window).
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64           // of the original record, or the event time of the step that failed; ms, -1 if the record has none
	Operator  string          // that failed
	Error     string          // why, at most 1024 bytes
	Stack     string          // of a panic, at most 4096 bytes; else ""
	Headers   []record.Header // of the original record
}

// ErrNotDeadLetter: a record has not the headers of a dead letter.
var ErrNotDeadLetter = errors.New("not a dead letter of millrace")

// ReadDeadLetter reads the headers of a dead letter. Ours are the last ones, whatever the original record's are called.
func ReadDeadLetter(headers []record.Header) (DeadLetter, error) {
	var d DeadLetter
	if n := len(headers) - 1; n >= whyHeaders && headers[n].Key == headerStack {
		d.Stack, headers = string(headers[n].Value), headers[:n]
	}
	n := len(headers) - whyHeaders
	if n < 0 || headers[n].Key != headerTimestamp || headers[n+1].Key != headerOperator || headers[n+2].Key != headerError {
		return d, fmt.Errorf("read dead letter: %w: its last headers are not %s, %s and %s", ErrNotDeadLetter, headerTimestamp, headerOperator, headerError)
	}
	var err error
	number := func(h record.Header, bits int) int64 {
		v, perr := strconv.ParseInt(string(h.Value), 10, bits)
		if perr != nil && err == nil {
			err = fmt.Errorf("read dead letter: %w: header %s: %w", ErrNotDeadLetter, h.Key, perr)
		}
		return v
	}
	d.Timestamp, d.Operator, d.Error = number(headers[n], 64), string(headers[n+1].Value), string(headers[n+2].Value)
	if n == 0 {
		return d, err
	}
	n -= whereHeaders
	if n < 0 || headers[n].Key != headerTopic || headers[n+1].Key != headerPartition || headers[n+2].Key != headerOffset {
		return d, fmt.Errorf("read dead letter: %w: no %s, %s and %s before %s", ErrNotDeadLetter, headerTopic, headerPartition, headerOffset, headerTimestamp)
	}
	d.Topic, d.Partition, d.Offset = string(headers[n].Value), int32(number(headers[n+1], 32)), number(headers[n+2], 64)
	if n > 0 {
		d.Headers = headers[:n:n]
	}
	return d, err
}
