package exec

// clock is the time that an operator goes by: the watermark, or the processing time.
type clock struct {
	c    Context
	proc bool
	// fire does what is due at or before upTo.
	fire func(upTo int64) error
}

// now is how far time has come: what is at or before it is over.
func (k *clock) now() int64 {
	if k.proc {
		return k.c.Env().Now - 1
	}
	return k.c.Watermark()
}

// due asks for fire once now is at or behind at.
func (k *clock) due(at int64) {
	if k.proc {
		k.c.DueProcessing(at + 1)
		return
	}
	k.c.Due(at)
}

// OnWatermark is of Timed.
func (k *clock) OnWatermark(_, watermark int64) error { return k.fire(watermark) }

// OnTime is of ProcTimed.
func (k *clock) OnTime(now int64) error { return k.fire(now - 1) }
