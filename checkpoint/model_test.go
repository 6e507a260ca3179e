package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
)

// seedVar is the environment variable that repeats one run of TestModel, runsVar that which says how many there are.
const (
	seedVar = "CHECKPOINT_SEED"
	runsVar = "CHECKPOINT_RUNS"
)

// TestModel lets owners and zombies of one subtask publish, collect and restore at random, on a store that is slow, stalls, loses
// answers, does late what a caller gave up, and lists what it had a while ago. Time is that of a bubble. Always: a
// manifest that appears names blobs that are there; a blob that goes is named by none; the newest checkpoint can be
// restored, and is the state that was committed at its epoch.
func TestModel(t *testing.T) {
	first, runs := uint64(time.Now().UnixNano()), uint64(4)
	if s := os.Getenv(runsVar); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		runs = n
	}
	if s := os.Getenv(seedVar); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		first, runs = n, 1
	}
	var sum modelStats
	for seed := first; seed < first+runs; seed++ {
		synctest.Test(t, func(t *testing.T) { // it ends the test when something failed in it
			defer tell(t, fmt.Sprintf("%s=%d", seedVar, seed))
			sum.add(runModel(t, seed))
		})
	}
	t.Logf("%+v", sum)
	// Far below what any few runs reach, since each of these tests takes other seeds.
	if runs > 1 && (sum.Published < 20 || sum.Superseded == 0 || sum.TimedOut == 0 || sum.Restored < 10 || sum.RemovedBlobs < 5 ||
		sum.RemovedManifests < 10 || sum.Reused == 0) {
		t.Error("the runs did not reach what they are for")
	}
}

type modelStats struct {
	Published, Superseded, TimedOut, Failed, Reused, Restored, RemovedManifests, RemovedBlobs int
}

func (s *modelStats) add(o modelStats) {
	s.Published += o.Published
	s.Superseded += o.Superseded
	s.TimedOut += o.TimedOut
	s.Failed += o.Failed
	s.Reused += o.Reused
	s.Restored += o.Restored
	s.RemovedManifests += o.RemovedManifests
	s.RemovedBlobs += o.RemovedBlobs
}

const (
	modelTime    = 3 * time.Hour
	modelLag     = 30 * time.Second // of listings
	modelLate    = 30 * time.Second // by which the store does what a caller gave up
	modelTimeout = 3 * time.Minute
	modelGrace   = modelTimeout + modelLag + modelLate + time.Second
)

type model struct {
	t     *testing.T
	ctx   context.Context
	blobs *blobtest.Memory
	named map[string]map[string]bool // keys of the blobs that a manifest names, by its key; guarded by the store's lock
	wg    sync.WaitGroup

	mu      sync.Mutex
	r       *rand.Rand
	owner   int
	epoch   uint64
	history map[uint64]map[string]string
	gone    map[string]time.Time // when a key was deleted
	stats   modelStats
}

func (m *model) rand(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.r.IntN(n)
}

func runModel(t *testing.T, seed uint64) modelStats {
	ctx, cancel := context.WithTimeout(t.Context(), modelTime)
	defer cancel()
	m := &model{t: t, ctx: ctx, blobs: blobtest.NewMemory(), r: rand.New(rand.NewPCG(seed, 3)), history: map[uint64]map[string]string{},
		gone: map[string]time.Time{}, named: map[string]map[string]bool{}}
	m.blobs.Hook = m.call
	m.blobs.OnList = m.listed
	m.blobs.OnDelete = m.deleted
	m.blobs.OnCreate = m.created
	for i := range 4 {
		m.wg.Go(func() { m.member(i) })
	}
	m.wg.Go(m.reader)
	m.wg.Wait()
	return m.stats
}

// call is the store's way of doing a call.
func (m *model) call(ctx context.Context, op, _ string, do func() error) error {
	wait := time.Duration(m.rand(2000)) * time.Millisecond
	stalls := 60
	switch op {
	case "create", "put": // the time between finding and naming a blob
		stalls = 12
	case "get": // the time between finding and reading a manifest
		stalls = 20
	}
	if m.rand(stalls) == 0 {
		wait = time.Duration(m.rand(600)) * time.Second
	}
	if m.rand(40) == 0 {
		return errBroken
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		if m.rand(2) == 0 && (op == "put" || op == "create" || op == "delete") {
			late := time.Duration(m.rand(int(modelLate/time.Second))) * time.Second
			m.wg.Go(func() { // the request was on its way
				<-time.After(late)
				_ = do()
			})
		}
		return ctx.Err()
	}
	if err := do(); err != nil {
		return err
	}
	if m.rand(40) == 0 {
		return errBroken // the answer is lost
	}
	return nil
}

// listed is a listing that lags behind.
func (m *model) listed(keys []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(keys)
	var all []string
	for _, key := range keys {
		if time.Since(m.blobs.Times[key]) < modelLag && m.r.IntN(2) == 0 {
			continue
		}
		all = append(all, key)
	}
	for _, key := range slices.Sorted(maps.Keys(m.gone)) {
		if time.Since(m.gone[key]) < modelLag && !slices.Contains(keys, key) && m.r.IntN(2) == 0 {
			all = append(all, key)
		}
	}
	return all
}

// created and deleted are called with the store's lock held.
func (m *model) created(key string, data []byte) {
	if !strings.Contains(key, "/manifests/") {
		return
	}
	man, err := DecodeManifest(data)
	if err != nil {
		m.t.Errorf("created a manifest: %v", err)
		return
	}
	m.named[key] = map[string]bool{}
	for _, b := range man.Blobs() {
		bk := blobKey(Prefix(man.Identity()), b)
		m.named[key][bk] = true
		if _, ok := m.blobs.Blobs[bk]; !ok {
			m.t.Errorf("%s by %s names blob %s, which is not there", key, man.Owner, b)
		}
	}
}

func (m *model) deleted(key string) {
	m.mu.Lock()
	m.gone[key] = time.Now()
	m.mu.Unlock()
	delete(m.named, key)
	for manifest, blobs := range m.named {
		if blobs[key] {
			m.t.Errorf("%s is deleted, which %s names", key, manifest)
		}
	}
}

// own says whether a member owns the subtask; now and then ownership moves.
func (m *model) own(i int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.r.IntN(40) == 0 {
		m.owner = m.r.IntN(4)
	}
	return m.owner == i
}

// member is a process: an owner sometimes, a zombie that does not know it yet at other times.
func (m *model) member(i int) {
	d := newDisk(m.t, "0_0")
	id := d.id
	var p *Publisher
	restart := func() {
		p = NewPublisher(Options{Blobs: m.blobs, Identity: id, Owner: fmt.Sprintf("member %d", i), WallTime: wallTime,
			Parallel: 1 + m.rand(3), Retain: 1 + m.rand(3), Timeout: modelTimeout, Grace: modelGrace})
	}
	restart()
	var mine uint64 // the last epoch of ours
	for m.ctx.Err() == nil {
		after(m.ctx, time.Duration(m.rand(30))*time.Second)
		if m.rand(30) == 0 {
			restart()
		}
		if m.own(i) {
			m.mu.Lock()
			m.epoch++
			epoch := m.epoch
			next := maps.Clone(m.history[epoch-1])
			if next == nil {
				next = map[string]string{}
			}
			// Few keys and values, so that files get contents again that they had.
			for range m.r.IntN(3) {
				next[fmt.Sprintf("%02d", m.r.IntN(6))] = large(fmt.Sprint(m.r.IntN(3)))
			}
			if m.r.IntN(5) == 0 {
				delete(next, fmt.Sprintf("%02d", m.r.IntN(6)))
			}
			m.history[epoch] = next
			m.mu.Unlock()
			if mine != epoch-1 {
				// Somebody else was the owner: take over. The state is that of the last epoch, from wherever.
				if m.rand(2) == 0 {
					restart()
				}
				m.restore(d)
			}
			var kv []string
			now := d.content()
			for _, k := range slices.Sorted(maps.Keys(now)) {
				if _, ok := next[k]; !ok {
					kv = append(kv, k, "")
				}
			}
			for _, k := range slices.Sorted(maps.Keys(next)) {
				if now[k] != next[k] {
					kv = append(kv, k, next[k])
				}
			}
			d.commit(epoch, kv...)
			mine = epoch
		}
		if mine == 0 {
			continue
		}
		m.publish(p, d)
		if m.rand(3) > 0 {
			// A zombie collects as well: what keeps it from deleting must not be all that keeps the blobs.
			fenced := m.rand(2) == 0
			done, err := p.Collect(m.ctx, func() uint64 {
				if fenced {
					return mine
				}
				return 1 << 60
			})
			m.mu.Lock()
			m.stats.RemovedManifests += done.Manifests
			m.stats.RemovedBlobs += done.Blobs
			m.mu.Unlock()
			if err != nil && !errors.Is(err, errBroken) && m.ctx.Err() == nil {
				m.t.Errorf("collect: %v", err)
			}
		}
	}
}

func (m *model) publish(p *Publisher, d *disk) {
	reused := len(p.uploaded) > 0
	_, err := p.Publish(m.ctx, d.snapshot(), nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	var e *SupersededError
	switch {
	case err == nil:
		m.stats.Published++
		if reused {
			m.stats.Reused++
		}
	case errors.As(err, &e):
		m.stats.Superseded++
	case errors.Is(err, context.DeadlineExceeded):
		m.stats.TimedOut++
	case errors.Is(err, errBroken):
		m.stats.Failed++
	case m.ctx.Err() == nil:
		m.t.Errorf("publish: %v", err)
	}
}

// restore takes the newest checkpoint, and nothing that fails by itself may keep it from that.
func (m *model) restore(d *disk) {
	for m.ctx.Err() == nil {
		found, err := Find(m.ctx, m.blobs, d.id)
		if err != nil {
			continue
		}
		if len(found) == 0 {
			return
		}
		f := found[0]
		if f.Err != nil {
			if IsUnusable(f.Err) {
				m.t.Errorf("the newest checkpoint: %v", f.Err)
				return
			}
			continue
		}
		switch err := d.restore(m.ctx, m.blobs, f.Manifest); {
		case err == nil:
			m.mu.Lock()
			m.stats.Restored++
			want := m.history[f.Epoch]
			m.mu.Unlock()
			if !maps.Equal(d.content(), want) {
				m.t.Errorf("the checkpoint of epoch %d holds another state", f.Epoch)
			}
			return
		case IsUnusable(err):
			m.t.Errorf("restore: %v", err)
			return
		}
	}
}

// reader restores now and then, as a standby does.
func (m *model) reader() {
	d := newDisk(m.t, "0_0")
	for m.ctx.Err() == nil {
		after(m.ctx, time.Duration(m.rand(600))*time.Second)
		m.restore(d)
	}
}
