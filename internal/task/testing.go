package task

// Testing is what drivers of tests ask of a task beside Env. The engine leaves it zero.
type Testing struct {
	// EagerWatermarks makes every epoch, and every Tick, tell all partitions of repartition topics how far the watermark is,
	// so that no processing time needs to pass for it.
	EagerWatermarks bool
	// Wrap puts something around the source of an input.
	Wrap func(input int, l InputLayout, s Source) Source
}

// SetIdle makes a partition of an external input idle at once, until its next record. It is for drivers of tests, where no
// processing time needs to pass for it. A partition with something buffered stays as it is.
func (t *Task) SetIdle(input int, partition int32) {
	for _, p := range t.parts {
		if p.in == &t.inputs[input] && p.number == partition && !p.in.Internal && !p.isIdle && t.heads[p.index] == never {
			p.isIdle = true
			t.moveInput(p.in)
			t.touch()
		}
	}
}
