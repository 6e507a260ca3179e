package task

import (
	"strconv"

	"github.com/millrace-stream/millrace/internal/record"
)

// EndID is the name under which Progress.Watermarks keeps where the reading of a partition ends. No operator's id has a slash.
func EndID(topic string, partition int32) string {
	return "/end/" + topic + "/" + strconv.Itoa(int(partition))
}

// ended says that a partition was read up to where reading ends.
func (p *part) ended() bool { return p.until != never && p.watermark == never }

// bound cuts off what lies behind the end.
func (p *part) bound(recs []record.Record) []record.Record {
	if p.until == never {
		return recs
	}
	for i := range recs {
		if recs[i].Offset >= p.until {
			p.past = true
			return recs[:i]
		}
	}
	return recs
}

// endPart ends the time of a partition that was read up to its end.
func (t *Task) endPart(p *part) {
	if p.until == never || p.watermark == never || p.cur != nil || p.offset < p.until && !p.past {
		return
	}
	p.isIdle, p.watermark = false, never
	t.moveInput(p.in)
	t.touch()
	t.lookLoaded(p.in)
}

// endParts looks at partitions that end without a record: an empty one, or one behind whose last record there is a hole.
func (t *Task) endParts() {
	for _, p := range t.parts {
		t.endPart(p)
	}
}

// Until are the partitions that have ended, by input: nothing more is to be read of them.
func (t *Task) Until(yield func(input int, partition int32) bool) {
	for i := range t.inputs {
		for _, p := range t.inputs[i].parts {
			if p.ended() && !yield(i, p.number) {
				return
			}
		}
	}
}

// ended says that time is over for every operator.
func (t *Task) ended() bool {
	if t.buffered > 0 || t.blocked > 0 {
		return false
	}
	for i, n := range t.nodes {
		if n.Watermark != never && (i >= len(t.inputs) || !t.inputs[i].Nothing) {
			return false
		}
	}
	return true
}
