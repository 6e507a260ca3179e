package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// crew are members of one app whose status can be asked for.
type crew struct {
	j     *job
	dirs  []string
	addrs []string
	procs []*kafka.Proc
}

func (j *job) crew(n int) *crew {
	c := &crew{j: j}
	for range n {
		c.dirs = append(c.dirs, j.t.TempDir())
		c.addrs = append(c.addrs, freeAddr(j.t))
		c.procs = append(c.procs, nil)
	}
	return c
}

func (c *crew) start(i int) *kafka.Proc {
	c.procs[i] = c.j.worker(c.dirs[i], "MILLRACE_LISTEN="+c.addrs[i])
	return c.procs[i]
}

func (c *crew) status(i int) (st engine.Status, err error) {
	resp, err := http.Get("http://" + c.addrs[i] + "/api/v1/status")
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// atRest waits until all subtasks run, on members of which none has two more than another, and each of them has a standby
// on another one that follows. It returns who runs what.
func (c *crew) atRest(members ...int) map[int][]string {
	c.j.t.Helper()
	has := map[int][]string{}
	testutil.Eventually(c.j.t, patience, func() error {
		has = map[int][]string{}
		running, standbys := 0, 0
		for _, i := range members {
			st, err := c.status(i)
			if err != nil {
				return err
			}
			for _, s := range st.Subtasks {
				if s.State != engine.SubtaskRunning {
					return fmt.Errorf("subtask %s is %s on member %d", s.ID, s.State, i)
				}
				has[i] = append(has[i], s.ID)
			}
			for _, s := range st.Standbys {
				if s.State != engine.StandbyFollowing || s.WarmUp {
					return fmt.Errorf("standby %+v of member %d", s, i)
				}
				standbys++
			}
			if n := len(st.Subtasks); n < partitions/len(members) || n > (partitions+len(members)-1)/len(members) {
				return fmt.Errorf("member %d has %d subtasks", i, n)
			}
			running += len(st.Subtasks)
		}
		if running != partitions || standbys != min(partitions, partitions*(len(members)-1)) {
			return fmt.Errorf("%d subtasks run, %d standbys follow", running, standbys)
		}
		return nil
	})
	return has
}

// generation is the last one of the group that the coordinator has written.
func (j *job) generation() int32 {
	j.t.Helper()
	const offsets = "__consumer_offsets"
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	ends, err := j.b.Admin(j.t).ListEndOffsets(ctx, offsets)
	if err != nil {
		j.t.Fatal(err)
	}
	at, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			at[o.Partition], left[o.Partition] = kgo.NewOffset().AtStart(), o.Offset
		}
	})
	cl := j.b.Client(j.t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{offsets: at}), kgo.KeepControlRecords())
	generation := int32(-1)
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			j.t.Fatalf("read %s: %v", offsets, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			var key kmsg.GroupMetadataKey
			if r.Attrs.IsControl() || len(r.Value) == 0 || len(r.Key) < 2 || r.Key[1] != 2 || key.ReadFrom(r.Key) != nil || key.Group != j.app {
				return
			}
			var value kmsg.GroupMetadataValue
			if err := value.ReadFrom(r.Value); err != nil {
				j.t.Fatalf("group metadata of %s: %v", j.app, err)
			}
			generation = value.Generation
		})
	}
	return generation
}

// pauses watches the committed output: stop returns the longest time in which a partition brought nothing.
func (j *job) pauses() (stop func() map[int32]time.Duration) {
	at := map[int32]kgo.Offset{}
	for p := range j.parts {
		at[p] = kgo.NewOffset().AtEnd()
	}
	cl := j.b.Client(j.t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.out: at}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	last, longest := map[int32]time.Time{}, map[int32]time.Duration{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			now := time.Now()
			fs.EachPartition(func(p kgo.FetchTopicPartition) {
				if len(p.Records) == 0 {
					return
				}
				if was, ok := last[p.Partition]; ok {
					longest[p.Partition] = max(longest[p.Partition], now.Sub(was))
				}
				last[p.Partition] = now
			})
		}
	})
	j.t.Cleanup(cancel)
	return func() map[int32]time.Duration {
		cancel()
		wg.Wait()
		return longest
	}
}

var restoredLine = regexp.MustCompile(`(?m)msg="state restored".*$`)

// restored are the restores that a process logged: changelog records read by subtask, those of takeovers and of standbys,
// and the takeovers that did not begin with what was on the disk.
func restored(t *testing.T, output string) (takeovers, standbys map[string]int, anew []string) {
	t.Helper()
	field := func(line, name string) string {
		m := regexp.MustCompile(name + `="?([^" ]+)`).FindStringSubmatch(line)
		if m == nil {
			return ""
		}
		return m[1]
	}
	takeovers, standbys = map[string]int{}, map[string]int{}
	for _, line := range restoredLine.FindAllString(output, -1) {
		n, err := strconv.Atoi(field(line, "records"))
		if err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		id := field(line, "subtask")
		if field(line, "standby") == "true" {
			standbys[id] += n
			continue
		}
		takeovers[id] += n
		if field(line, "way") != "local" { // of "local store"
			anew = append(anew, id)
		}
	}
	return takeovers, standbys, anew
}

// TestRollingRestartOfThree restarts three members with standbys, one after the other and under load, that do not leave
// the group when they stop: nothing moves, the group does not rebalance, and nothing but the last moments is restored.
func TestRollingRestartOfThree(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_GROUP_LEAVE_ON_STOP=false", "MILLRACE_STANDBY_REPLICAS=1"}
	j.produce(20_000)
	c := j.crew(3)
	stopFeed := j.feed(20)
	for i := range c.procs {
		c.start(i).WaitOutput(t, "worker starts", patience)
	}
	has := c.atRest(0, 1, 2)
	before := j.generation()
	stopWatch := j.pauses()
	j.progress()
	for i := range c.procs {
		stop(t, c.procs[i])
		c.start(i)
		if now := c.atRest(0, 1, 2); !maps.EqualFunc(has, now, slices.Equal[[]string]) {
			t.Errorf("the restart of member %d moved subtasks: %v, before %v", i, now, has)
		}
		j.progress()
		read, standbys, anew := restored(t, c.procs[i].Output())
		if len(anew) > 0 {
			t.Errorf("the restart of member %d did not use the state on its disk: %v", i, anew)
		}
		for id, n := range read {
			if n > 20 {
				t.Errorf("the restart of member %d read %d changelog records of subtask %s, which it had brought to the disk before it ended", i, n, id)
			}
		}
		t.Logf("member %d read again: %v, and for its standbys: %v", i, read, standbys)
	}
	longest := stopWatch()
	if len(longest) != partitions {
		t.Errorf("output came on %d partitions only", len(longest))
	}
	t.Logf("longest pause of a partition in a rolling restart of three: %v", slices.Max(slices.Collect(maps.Values(longest))).Round(time.Millisecond))
	if after := j.generation(); before < 1 || after != before {
		t.Errorf("the group went from generation %d to %d", before, after)
	}
	stopFeed()
	j.committed(c.procs...)
	stop(t, c.procs...)
	j.check()
}

// TestStandbyTakesOverFromTheKilled kills one of two members with -9, under load. The survivor had come with an empty disk:
// it takes over what its standbys have, and reads only the tail of the changelogs.
func TestStandbyTakesOverFromTheKilled(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_STANDBY_REPLICAS=1"}
	c := j.crew(2)
	first := c.start(0)
	j.produce(20_000)
	j.committed(first)
	second := c.start(1)
	stopFeed := j.feed(10)
	has := c.atRest(0, 1)
	stopWatch := j.pauses()
	j.progress()
	first.Kill(t)
	testutil.Eventually(t, patience, func() error {
		st, err := c.status(1)
		if err != nil {
			return err
		}
		for _, s := range st.Subtasks {
			if s.State != engine.SubtaskRunning {
				return fmt.Errorf("subtask %s is %s", s.ID, s.State)
			}
		}
		if len(st.Subtasks) != partitions {
			return fmt.Errorf("the survivor runs %d subtasks", len(st.Subtasks))
		}
		return nil
	})
	j.progress()
	t.Logf("longest pause of a partition when its owner is killed, session time-out of 6 s included: %v", slices.Max(slices.Collect(maps.Values(stopWatch()))).Round(time.Millisecond))
	stopFeed()
	j.committed(second)
	stop(t, second)
	read, standbys, anew := restored(t, second.Output())
	if len(anew) > 0 {
		t.Errorf("takeovers did not begin with the state of a standby: %v", anew)
	}
	for _, id := range has[0] {
		// A standby follows within moments. The whole changelog is what it had to read at its start.
		if standbys[id] < 100 || read[id] > standbys[id]/4 {
			t.Errorf("the takeover of subtask %s read %d changelog records, its standby %d", id, read[id], standbys[id])
		}
	}
	t.Logf("the takeovers read %v records, the standbys before them %v", read, standbys)
	j.check()
}

// TestMeasureStandby measures how long a partition is silent when its owner goes, with 1,000,000 keys, with and without a
// standby. It is a measurement: MILLRACE_TEST_MEASURE=1 on a machine that does nothing else.
func TestMeasureStandby(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_MEASURE") == "" {
		t.Skip("a measurement: MILLRACE_TEST_MEASURE=1 runs it")
	}
	const keys = 1_000_000
	load := func(j *job) {
		cl := j.b.Client(t, kgo.ProducerBatchCompression(kgo.SnappyCompression()))
		for i := range keys {
			e := event{user: fmt.Sprintf("k%07d", i), cents: int64(i % 10_000), ts: baseTS}
			cl.Produce(t.Context(), &kgo.Record{Topic: j.in, Key: []byte(e.user), Value: e.value()}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	longest := func(p map[int32]time.Duration) time.Duration {
		return slices.Max(slices.Collect(maps.Values(p))).Round(time.Millisecond)
	}
	runs := func(c *crew, i, want int) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			st, err := c.status(i)
			if err != nil {
				return err
			}
			n := 0
			for _, s := range st.Subtasks {
				if s.State == engine.SubtaskRunning {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("member %d runs %d subtasks, want %d", i, n, want)
			}
			for _, s := range st.Standbys {
				if s.State != engine.StandbyFollowing || s.WarmUp {
					return fmt.Errorf("standby %+v", s)
				}
			}
			return nil
		})
	}
	for _, standbys := range []int{0, 1} {
		for _, how := range []string{"kill -9", "SIGTERM"} {
			for round := range 2 {
				t.Run(fmt.Sprintf("%s, standby.replicas=%d, %d", how, standbys, round+1), func(t *testing.T) {
					j := newJob(t, kafka.Shared(t), totalJob)
					j.src = newSource(7, keys)
					j.env = []string{fmt.Sprint("MILLRACE_STANDBY_REPLICAS=", standbys)}
					c := j.crew(2)
					first := c.start(0)
					load(j)
					j.committed(first)
					c.start(1)
					runs(c, 1, partitions/2)
					runs(c, 0, partitions/2)
					stopFeed := j.feed(20)
					j.progress()
					stopWatch := j.pauses()
					j.progress()
					if how == "SIGTERM" {
						first.Signal(t, sigterm)
					} else {
						first.Kill(t)
					}
					runs(c, 1, partitions)
					j.progress()
					t.Logf("longest pause of a partition: %v", longest(stopWatch()))
					stopFeed()
					read, _, _ := restored(t, c.procs[1].Output())
					t.Logf("changelog records that takeovers read: %v", read)
					stop(t, c.procs[1])
				})
			}
		}
	}
	for _, standbys := range []int{0, 1} {
		t.Run(fmt.Sprintf("rolling restart of three, standby.replicas=%d", standbys), func(t *testing.T) {
			j := newJob(t, kafka.Shared(t), totalJob)
			j.src = newSource(7, keys)
			j.env = []string{fmt.Sprint("MILLRACE_STANDBY_REPLICAS=", standbys), "MILLRACE_GROUP_LEAVE_ON_STOP=false"}
			c := j.crew(3)
			load(j)
			has := make([]int, 3)
			for i := range c.procs {
				c.start(i)
			}
			testutil.Eventually(t, patience, func() error {
				total := 0
				for i := range c.procs {
					st, err := c.status(i)
					if err != nil {
						return err
					}
					if len(st.Subtasks) == 0 {
						return fmt.Errorf("member %d has nothing", i)
					}
					has[i] = len(st.Subtasks)
					total += has[i]
				}
				if total != partitions {
					return fmt.Errorf("%d subtasks", total)
				}
				return nil
			})
			j.committed(c.procs...)
			for i := range c.procs {
				runs(c, i, has[i])
			}
			stopFeed := j.feed(20)
			j.progress()
			before := j.generation()
			stopWatch := j.pauses()
			j.progress()
			for i := range c.procs {
				stop(t, c.procs[i])
				c.start(i)
				runs(c, i, has[i])
				j.progress()
			}
			t.Logf("longest pause of a partition: %v; generation %d, before %d", longest(stopWatch()), j.generation(), before)
			stopFeed()
			stop(t, c.procs...)
		})
	}
}
