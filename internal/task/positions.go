package task

// Positions tells how far each partition is, sorted by input and partition, without Upstream. The slice is the task's
// own and valid until the next call.
func (t *Task) Positions() []PartitionProgress {
	t.positions = t.positions[:0]
	for i := range t.inputs {
		for _, q := range t.inputs[i].parts {
			t.positions = append(t.positions, PartitionProgress{Input: i, Partition: q.number, Offset: q.offset, MaxTime: q.maxTime,
				Watermark: q.watermark, Idle: q.isIdle})
		}
	}
	return t.positions
}
