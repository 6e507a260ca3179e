package pebblestore

// Abandon forgets what is open, as the death of the process does, so that Close gives up the lock.
func (d *Dir) Abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.open)
}
