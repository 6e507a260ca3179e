package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
)

// What a task writes is what ReadDeadLetter reads, even if the original record has headers with our names.
func TestDeadLetterIsReadAsWritten(t *testing.T) {
	originals := [][]record.Header{
		nil,
		{{Key: "trace", Value: []byte("1")}, {Key: "trace"}},
		{{Key: headerTopic, Value: []byte("older")}, {Key: headerPartition, Value: []byte("9")}, {Key: headerOffset, Value: []byte("8")},
			{Key: headerTimestamp, Value: []byte("7")}, {Key: headerOperator, Value: []byte("o")}, {Key: headerError, Value: []byte("e")}},
	}
	tk, _ := numbers(t, Env{}, false)
	for i, hs := range originals {
		tk.Enqueue(0, 2, []record.Record{{Key: []byte("k"), Value: []byte("bad"), Headers: hs, Offset: int64(40 + i), Timestamp: 77}})
	}
	mustStep(t, tk, 10, len(originals))
	outs := tk.TakeOutputs()
	if len(outs) != len(originals) {
		t.Fatalf("%d dead letters", len(outs))
	}
	for i, o := range outs {
		d, err := ReadDeadLetter(o.Headers)
		if err != nil || d.Topic != "in" || d.Partition != 2 || d.Offset != int64(40+i) || d.Timestamp != 77 || d.Operator != "in" || d.Error == "" {
			t.Errorf("%+v, %v", d, err)
		}
		if fmt.Sprint(d.Headers) != fmt.Sprint(originals[i]) {
			t.Errorf("headers %v, want %v", d.Headers, originals[i])
		}
		// A letter of a timer has no original.
		d, err = ReadDeadLetter(o.Headers[len(o.Headers)-whyHeaders:])
		if err != nil || d.Topic != "" || d.Headers != nil || d.Timestamp != 77 || d.Operator != "in" {
			t.Errorf("without original: %+v, %v", d, err)
		}
	}
	good := outs[0].Headers
	for n := range len(good) {
		if n == whyHeaders {
			continue
		}
		if _, err := ReadDeadLetter(good[len(good)-n:]); !errors.Is(err, ErrNotDeadLetter) {
			t.Errorf("the last %d headers alone: %v", n, err)
		}
	}
	for i, h := range good {
		bad := slices.Clone(good)
		bad[i].Key = "x"
		if _, err := ReadDeadLetter(bad); !errors.Is(err, ErrNotDeadLetter) {
			t.Errorf("without %s: %v", h.Key, err)
		}
		if h.Key == headerPartition || h.Key == headerOffset || h.Key == headerTimestamp {
			bad[i] = record.Header{Key: h.Key, Value: []byte("99999999999999999999")}
			if _, err := ReadDeadLetter(bad); !errors.Is(err, ErrNotDeadLetter) || !strings.Contains(err.Error(), h.Key) {
				t.Errorf("bad %s: %v", h.Key, err)
			}
		}
	}
}
