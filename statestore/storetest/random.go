package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// SeedVar is the environment variable that repeats a random run.
const SeedVar = "STORETEST_SEED"

func seed(t testing.TB) uint64 {
	if s := os.Getenv(SeedVar); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		return n
	}
	return uint64(time.Now().UnixNano())
}

// version is the content of a store after one commit.
type version struct {
	meta statestore.Meta
	has  bool
	kv   map[string]string
}

// held is an iterator that lives on while the store changes.
type held struct {
	it   statestore.Iterator
	want []string // what is still to come
}

// testRandom plays random operations against a store and a map. After a reopen or a crash the store must be exactly one
// of the versions since the last flush.
func testRandom(t *testing.T, w World) {
	n := seed(t)
	t.Logf("repeat with %s=%d", SeedVar, n)
	r := rand.New(rand.NewPCG(n, 1))
	m := &model{t: t, w: w, r: r, history: []version{{kv: map[string]string{}}}}
	m.d, m.s = open(t, w)
	for i := range 3000 {
		m.step = i
		switch x := r.IntN(100); {
		case x < 30:
			m.commit()
		case x < 60:
			m.get()
		case x < 80:
			m.scan()
		case x < 85:
			m.hold()
		case x < 90:
			m.pull()
		case x < 93:
			must(t, m.s.Flush())
			m.behind = 0
			m.history = m.history[len(m.history)-1:]
		case x < 95:
			must(t, m.s.FlushBehind())
			m.behind = len(m.history)
		case x < 96:
			m.landed()
		case x < 98:
			m.release()
			closeAll(t, m.d, m.s)
			m.recover()
		case x < 99:
			m.held = nil
			w.Crash(t)
			m.recover()
		default:
			b := m.s.NewBatch()
			b.DeleteRange(nil, nil)
			b.Discard()
		}
	}
	m.release()
	m.same(m.last())
	closeAll(t, m.d, m.s)
}

type model struct {
	t       testing.TB
	w       World
	r       *rand.Rand
	step    int
	d       statestore.Dir
	s       statestore.Store
	history []version // since the last flush; the last one is the store's content
	behind  int       // of them those that a FlushBehind is to make durable
	held    []held
}

// landed asks whether the last FlushBehind is done; what came before it then cannot come back.
func (m *model) landed() {
	busy, err := m.s.Busy()
	must(m.t, err)
	if !busy && m.behind > 0 {
		m.history, m.behind = m.history[m.behind-1:], 0
	}
}

func (m *model) last() version { return m.history[len(m.history)-1] }

// key is one of few, of three stores, so that operations meet.
func (m *model) key() []byte {
	b := []byte{0, 0, 0, byte(1 + m.r.IntN(3)), byte(m.r.IntN(12))}
	for range m.r.IntN(3) {
		b = append(b, []byte{0, 1, 0xff}[m.r.IntN(3)])
	}
	return b
}

// bound is a key, nothing, or something outside of all stores.
func (m *model) bound() []byte {
	switch m.r.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{0, 0, 0, byte(m.r.IntN(5))}
	default:
		return m.key()
	}
}

func in(key string, lo, hi []byte) bool { return key >= string(lo) && (hi == nil || key < string(hi)) }

func (m *model) commit() {
	kv := maps.Clone(m.last().kv)
	b := m.s.NewBatch()
	for range m.r.IntN(12) {
		switch x := m.r.IntN(10); {
		case x < 6:
			key := m.key()
			value := fmt.Sprintf("%d/%d", m.step, m.r.IntN(100))
			if m.r.IntN(20) == 0 {
				value = ""
			}
			if m.r.IntN(50) == 0 {
				value = string(make([]byte, 300_000))
			}
			b.Set(key, []byte(value))
			kv[string(key)] = value
		case x < 8:
			key := m.key()
			b.Delete(key)
			delete(kv, string(key))
		default:
			lo, hi := m.bound(), m.bound()
			b.DeleteRange(lo, hi)
			maps.DeleteFunc(kv, func(key, _ string) bool { return in(key, lo, hi) })
		}
	}
	if m.r.IntN(10) == 0 {
		b.Discard()
		return
	}
	meta := statestore.Meta{Epoch: uint64(m.step + 1), EpochRecord: fmt.Append(nil, m.step), Positions: []int64{m.r.Int64()}}
	if err := b.Commit(meta); err != nil {
		m.t.Fatalf("step %d: %v", m.step, err)
	}
	m.history = append(m.history, version{meta, true, kv})
}

func (m *model) get() {
	key := m.key()
	want, ok := m.last().kv[string(key)]
	got, gotOK, err := m.s.Get(key)
	if err != nil || gotOK != ok || string(got) != want {
		m.t.Fatalf("step %d: get %x: %.40q %v %v; want %.40q %v", m.step, key, got, gotOK, err, want, ok)
	}
}

func entries(v version, lo, hi []byte) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(v.kv)) {
		if in(key, lo, hi) {
			out = append(out, entry(key, v.kv[key]))
		}
	}
	return out
}

func entry(key, value string) string { return fmt.Sprintf("%x=%s", key, value) }

func (m *model) open(lo, hi []byte) statestore.Iterator {
	it, err := m.s.Scan(lo, hi)
	if err != nil {
		m.t.Fatalf("step %d: scan: %v", m.step, err)
	}
	return it
}

func (m *model) scan() {
	lo, hi := m.bound(), m.bound()
	h := held{m.open(lo, hi), entries(m.last(), lo, hi)}
	for m.next(&h) {
	}
	m.close(h)
}

// next reads one entry and compares it.
func (m *model) next(h *held) bool {
	ok := h.it.Next()
	if !ok {
		if err := h.it.Err(); err != nil || len(h.want) > 0 {
			m.t.Fatalf("step %d: the scan ends (%v) before %.60q", m.step, err, h.want)
		}
		return false
	}
	got := entry(string(h.it.Key()), string(h.it.Value()))
	if len(h.want) == 0 || got != h.want[0] {
		m.t.Fatalf("step %d: the scan has %.60q, want %.60q", m.step, got, h.want)
	}
	h.want = h.want[1:]
	return true
}

func (m *model) close(h held) {
	if err := h.it.Close(); err != nil {
		m.t.Fatalf("step %d: close of a scan: %v", m.step, err)
	}
}

func (m *model) hold() {
	if len(m.held) < 5 {
		lo, hi := m.bound(), m.bound()
		m.held = append(m.held, held{m.open(lo, hi), entries(m.last(), lo, hi)})
	}
}

// pull moves a held iterator on, and closes it at its end.
func (m *model) pull() {
	if len(m.held) == 0 {
		return
	}
	i := m.r.IntN(len(m.held))
	for range m.r.IntN(10) {
		if !m.next(&m.held[i]) {
			m.close(m.held[i])
			m.held = slices.Delete(m.held, i, i+1)
			return
		}
	}
}

func (m *model) release() {
	for _, h := range m.held {
		m.close(h)
	}
	m.held = nil
}

// recover opens the store again: it is one of the versions since the last flush, and the model goes on from there.
func (m *model) recover() {
	m.d, m.s = open(m.t, m.w)
	meta, ok := m.s.Meta()
	i := slices.IndexFunc(m.history, func(v version) bool { return v.has == ok && sameMeta(v.meta, meta) })
	if i < 0 {
		m.t.Fatalf("step %d: meta %v %v after reopen is none of those since the last flush", m.step, meta, ok)
	}
	// What was found is on disk: it cannot be lost any more.
	m.history, m.behind = m.history[i:i+1], 0
	m.same(m.last())
}

func (m *model) same(v version) {
	h := held{m.open(nil, nil), entries(v, nil, nil)}
	for m.next(&h) {
	}
	m.close(h)
}
