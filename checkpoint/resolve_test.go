package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// at is the offset up to which epoch e was written.
func at(epoch uint64) []int64 { return []int64{int64(epoch) * 10_000} }

// view is one in which everything is usable: epoch e was written at second e; now it is second 1000.
func view() View {
	found := func(epoch uint64) Found {
		m := sample()
		m.App, m.ClusterID, m.Incarnation, m.Subtask, m.Changelogs = testApp, "cluster-1", 2, "0_0", []string{"topic-a"}
		m.Epoch, m.Positions, m.WallTime = epoch, at(epoch), int64(epoch)*1000
		return Found{Key: manifestKey(Prefix(m.Identity()), epoch), Epoch: epoch, Manifest: m}
	}
	return View{
		Now: 1_000_000, Identity: testIdentity("0_0"),
		Changelogs:  []Changelog{{Topic: "orders-0-changelog", Low: 0, High: 10_000_000, DeleteRetention: 900 * time.Second}},
		Local:       &Local{Meta: statestore.Meta{Epoch: 950, Positions: at(950)}, WallTime: 950_000},
		Checkpoints: []Found{found(200), found(900), found(800)},
		Reads:       func(string) bool { return true },
	}
}

// short writes options as "local 950, checkpoint 900, !changelog".
func short(options []Option) string {
	var words []string
	for _, o := range options {
		w := o.Way.String()
		if o.Epoch > 0 {
			w += fmt.Sprintf(" %d", o.Epoch)
		}
		if o.Refused != "" {
			w = "!" + w
		}
		words = append(words, w)
	}
	return strings.Join(words, ", ")
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(v *View)
		want   string
		says   []string // some reason each
	}{
		{"all usable", func(*View) {},
			"local store 950, checkpoint 900, checkpoint 800, checkpoint 200, changelog", nil},
		{"nothing on disk", func(v *View) { v.Local = nil },
			"checkpoint 900, checkpoint 800, checkpoint 200, changelog", nil},
		{"nothing at all", func(v *View) { v.Local, v.Checkpoints = nil, nil; v.Changelogs[0].High = 0 }, "changelog", nil},
		{"little state: its changelog is read faster than a checkpoint", func(v *View) {
			v.Local, v.Changelogs[0].High = nil, 10_000
			for _, f := range v.Checkpoints {
				f.Manifest.Positions[0] /= 1000
			}
		},
			"changelog, checkpoint 900, checkpoint 800, checkpoint 200", nil},
		{"a local store that was away for long", func(v *View) {
			v.Local.Meta, v.Local.WallTime = statestore.Meta{Epoch: 150, Positions: at(150)}, 150_000
		},
			"checkpoint 900, checkpoint 800, checkpoint 200, local store 150, changelog", nil},
		{"stale", func(v *View) { v.Changelogs[0].DeleteRetention = 150 * time.Second },
			"local store 950, checkpoint 900, changelog, !checkpoint 800, !checkpoint 200", []string{"3m20s old", "2m30s", "delete.retention.ms"}},
		{"stale, but nothing came since", func(v *View) {
			v.Changelogs[0].DeleteRetention = time.Second
			v.Changelogs[0].High = 9_500_001
		}, "local store 950, changelog, !checkpoint 900, !checkpoint 800, !checkpoint 200", nil},
		{"tombstones are kept for ever", func(v *View) { v.Changelogs[0].DeleteRetention = 0; v.Now = 1 << 50 },
			"local store 950, checkpoint 900, checkpoint 800, checkpoint 200, changelog", nil},
		{"a clock that is behind", func(v *View) { v.Now = 100 },
			"local store 950, checkpoint 900, checkpoint 800, checkpoint 200, changelog", nil},
		{"committed records are gone", func(v *View) { v.Changelogs[0].High = 8_500_000 },
			"checkpoint 800, checkpoint 200, changelog, !local store 950, !checkpoint 900", []string{"offset 9500000", "8500000", "unclean"}},
		{"the log was cut in front", func(v *View) { v.Changelogs[0].Low = 8_500_000 },
			"local store 950, checkpoint 900, changelog, !checkpoint 800, !checkpoint 200", []string{"offset 8000000", "starts at 8500000"}},
		{"damaged local store", func(v *View) { v.Local.Err = statestore.ErrCorrupt; v.Local.Meta = statestore.Meta{} },
			"checkpoint 900, checkpoint 800, checkpoint 200, changelog, !local store", []string{"damaged"}},
		{"bucket out of reach", func(v *View) { v.Checkpoints, v.FindErr = nil, errors.New("no route to host") },
			"local store 950, changelog, !checkpoint", []string{"no route to host"}},
		{"an unreadable manifest", func(v *View) { v.Checkpoints[1].Manifest, v.Checkpoints[1].Err = nil, ErrCorrupt },
			"local store 950, checkpoint 800, checkpoint 200, changelog, !checkpoint 900", []string{"damaged"}},
		{"a manifest under another's key", func(v *View) { v.Checkpoints[1].Manifest = v.Checkpoints[2].Manifest },
			"local store 950, checkpoint 800, checkpoint 200, changelog, !checkpoint 900", []string{"says epoch 800"}},
		{"a changelog that was made again", func(v *View) { v.Identity.Changelogs = []string{"topic-z"} },
			"local store 950, changelog, !checkpoint 900, !checkpoint 800, !checkpoint 200", []string{"topic-z"}},
		{"files of another kind of store", func(v *View) { v.Reads = func(f string) bool { return f != "pebble-24" } },
			"local store 950, changelog, !checkpoint 900, !checkpoint 800, !checkpoint 200", []string{"pebble-24"}},
		{"positions of two changelogs", func(v *View) { v.Local.Meta.Positions = []int64{1, 2} },
			"checkpoint 900, checkpoint 800, checkpoint 200, changelog, !local store 950", []string{"2 changelogs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view()
			c.change(&v)
			options := Resolve(v)
			if got := short(options); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, says := range c.says {
				if !slices.ContainsFunc(options, func(o Option) bool { return strings.Contains(o.Refused, says) }) {
					t.Errorf("no reason says %q: %v", says, options)
				}
			}
		})
	}
}

func TestResolveSaysWhatToQuarantine(t *testing.T) {
	find := func(v View, way Way, epoch uint64) Option {
		for _, o := range Resolve(v) {
			if o.Way == way && o.Epoch == epoch {
				return o
			}
		}
		t.Fatalf("no %v of epoch %d", way, epoch)
		return Option{}
	}
	v := view()
	v.Changelogs[0].High = 8_500_000
	if o := find(v, FromLocal, 950); !o.Ahead || !o.Quarantine {
		t.Errorf("a local store that is ahead: %+v", o)
	}
	if o := find(v, FromCheckpoint, 900); !o.Ahead || o.Manifest == nil {
		t.Errorf("a checkpoint that is ahead: %+v", o)
	}
	if o := find(v, FromCheckpoint, 800); o.Ahead || o.Records != 500_000 || o.Bytes != 21 {
		t.Errorf("a checkpoint that is not: %+v", o)
	}
	v = view()
	v.Local.Err = statestore.ErrCorrupt
	if o := find(v, FromLocal, 950); !o.Quarantine || o.Ahead {
		t.Errorf("a damaged local store: %+v", o)
	}
	v = view()
	v.Changelogs[0].DeleteRetention = time.Second
	if o := find(v, FromLocal, 950); o.Quarantine || o.Refused == "" {
		t.Errorf("a stale local store: %+v", o)
	}
}
