package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/statestore"
)

var update = flag.Bool("update", false, "write the fixtures of the current format version that are missing")

// sample is a manifest with something in every field.
func sample() *Manifest {
	data := []byte("small file\n")
	hash := Hash(sha256.Sum256([]byte("large file")))
	return &Manifest{
		Format: Format, Kind: KindCheckpoint,
		App: "orders", ClusterID: "cluster-1", Incarnation: 2, Subtask: "0_3", Changelogs: []string{"topic-a", "topic-b"},
		Epoch: 1 << 60, Positions: []int64{1234567890123, -1}, WallTime: 1_800_000_000_123, EpochRecord: []byte{1, 0, 255, 'x'},
		Created: 1_800_000_000_456, Owner: "worker-1", Version: "0.3.0", Attempt: "k3j4h5",
		StoreFormat: "pebble-24", Stores: StoresOf([]statestore.Spec{
			{Name: "count/total", ID: 9, Kind: statestore.KindTable, KeyType: "string", ValType: "struct{n int64}"},
			{Name: "by-day/windows", ID: 7, Kind: statestore.KindWindows, KeyType: "string", ValType: "int64", Expiring: true},
		}),
		Files: []File{
			{Name: "000004.sst", Size: 10, SHA256: hash, Blob: blobName(hash, "k3j4h5")},
			{Name: "MANIFEST-000001", Size: int64(len(data)), SHA256: sha256.Sum256(data), Data: data},
			{Name: "marker.format-version.000001.024", SHA256: sha256.Sum256(nil)},
		},
	}
}

func TestManifestRoundTrip(t *testing.T) {
	m := sample()
	data, err := m.Encode()
	must(t, err)
	got, err := DecodeManifest(data)
	must(t, err)
	if !reflect.DeepEqual(got, m) {
		t.Fatalf("%+v\nbecame %+v", m, got)
	}
	again, err := got.Encode()
	must(t, err)
	if !bytes.Equal(again, data) {
		t.Fatal("equal manifests have different bytes")
	}
	if m.Bytes() != 21 || len(m.Blobs()) != 1 || m.Stores[0].Name != "by-day/windows" {
		t.Fatalf("%d bytes, blobs %v, stores %v", m.Bytes(), m.Blobs(), m.Stores)
	}
}

func TestDamagedManifestIsRefused(t *testing.T) {
	data, err := sample().Encode()
	must(t, err)
	for n := range data {
		if _, err := DecodeManifest(data[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
		flipped := bytes.Clone(data)
		flipped[n] ^= 1
		if _, err := DecodeManifest(flipped); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", n, err)
		}
	}
	if _, err := DecodeManifest(append(data, '\n')); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a byte too many: %v", err)
	}
}

// TestUntrustworthyManifestIsRefused: its checksum is right, what it says is not.
func TestUntrustworthyManifestIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *Manifest)
	}{
		{"folder in the name of a file", func(m *Manifest) { m.Files[0].Name = "../../etc/passwd" }},
		{"parent as the name of a file", func(m *Manifest) { m.Files[0].Name = ".." }},
		{"no name of a file", func(m *Manifest) { m.Files[0].Name = "" }},
		{"folder in the name of a blob", func(m *Manifest) { m.Files[0].Blob = m.Files[0].SHA256.String() + "-a/../../x" }},
		{"blob of other contents", func(m *Manifest) { m.Files[0].Blob = Hash{}.String() + "-k3j4h5" }},
		{"blob without an attempt", func(m *Manifest) { m.Files[0].Blob = m.Files[0].SHA256.String() }},
		{"blob and contents", func(m *Manifest) { m.Files[0].Data = []byte("large file") }},
		{"contents that do not match", func(m *Manifest) { m.Files[1].Data[0] ^= 1 }},
		{"neither blob nor contents", func(m *Manifest) { m.Files[0].Blob = "" }},
		{"negative size", func(m *Manifest) { m.Files[0].Size = -1 }},
		{"sizes that overflow", func(m *Manifest) { m.Files[0].Size = 1<<63 - 1 }},
		{"a file twice", func(m *Manifest) { m.Files[1].Name = m.Files[0].Name }},
		{"no app", func(m *Manifest) { m.App = "" }},
		{"bad subtask", func(m *Manifest) { m.Subtask = "0" }},
		{"too few positions", func(m *Manifest) { m.Positions = m.Positions[:1] }},
		{"unknown kind", func(m *Manifest) { m.Kind = "standby" }},
		{"savepoint in the format of a store", func(m *Manifest) { m.Kind = KindSavepoint }},
		{"entries that do not add up", func(m *Manifest) { m.Entries = 1 }},
		{"format 0", func(m *Manifest) { m.Format = 0 }},
	} {
		m := sample()
		c.change(m)
		data, err := seal("manifest", m)
		must(t, err)
		if _, err := DecodeManifest(data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := m.Encode(); err == nil {
			t.Errorf("%s: encoded", c.name)
		}
	}
	m := sample()
	m.Format = Format + 1
	data, err := seal("manifest", m)
	must(t, err)
	_, err = DecodeManifest(data)
	wantErr(t, err, ErrFormat, "newer")
}

func TestManifestMayHaveFieldsOfLaterVersions(t *testing.T) {
	data, err := sample().Encode()
	must(t, err)
	var fields map[string]any
	text := data[:bytes.LastIndex(data, []byte(sumPrefix))]
	must(t, json.Unmarshal(text, &fields))
	fields["note"] = "of a later version"
	fields["epoch"] = json.Number("1152921504606846976")
	data, err = seal("manifest", fields)
	must(t, err)
	if _, err := DecodeManifest(data); err != nil {
		t.Fatal(err)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	data, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		// As it is, and as text that somebody has put a right checksum behind.
		sum := sha256.Sum256(data)
		for _, d := range [][]byte{data, fmt.Appendf(bytes.Clone(data), "%s%x\n", sumPrefix, sum)} {
			m, err := DecodeManifest(d)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
					t.Fatalf("error of no kind: %v", err)
				}
				continue
			}
			again, err := m.Encode()
			if err != nil {
				t.Fatalf("what was decoded cannot be encoded: %v", err)
			}
			back, err := DecodeManifest(again)
			if err != nil {
				t.Fatal(err)
			}
			if third, err := back.Encode(); err != nil || !bytes.Equal(again, third) {
				t.Fatalf("encoded again it differs: %v", err)
			}
		}
	})
}

// TestFixtures opens what earlier versions have written: testdata/v<format>/ is what one checkpoint and one savepoint leave in a
// directory. Fixtures are only added, never changed.
func TestFixtures(t *testing.T) {
	current := filepath.Join("testdata", fmt.Sprintf("v%d", Format))
	if _, err := os.Stat(current); *update && os.IsNotExist(err) {
		makeFixture(t, current)
	}
	versions, err := filepath.Glob("testdata/v*")
	must(t, err)
	if len(versions) != Format {
		t.Fatalf("fixtures %v, there are %d format versions", versions, Format)
	}
	want := map[string]string{"a": "1", "b": large("2")}
	for _, folder := range versions {
		ctx, blobs := t.Context(), blobtest.NewMemory()
		must(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			blobs.Blobs[strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(folder)+"/")] = data
			return err
		}))
		d := newDisk(t, "0_0")
		found, err := Find(ctx, blobs, d.id)
		must(t, err)
		if len(found) != 1 || found[0].Err != nil {
			t.Fatalf("%s: found %+v", folder, found)
		}
		must(t, d.restore(ctx, blobs, found[0].Manifest))
		if got := d.content(); !maps.Equal(got, want) {
			t.Fatalf("%s: the checkpoint holds %v", folder, got)
		}
		sps := NewSavepoints(blobs, testApp, nil, nil)
		sp, err := sps.Verify(ctx, "before-upgrade", nil)
		must(t, err)
		got := map[string]string{}
		must(t, sps.Load(ctx, sp, "0_0", nil, func(key, value []byte) error {
			got[string(key[4:])] = string(value)
			return nil
		}))
		if !maps.Equal(got, want) {
			t.Fatalf("%s: the savepoint holds %v", folder, got)
		}
	}
}

func makeFixture(t *testing.T, folder string) {
	ctx, blobs := context.Background(), blobtest.NewMemory()
	d := newDisk(t, "0_0")
	d.commit(3, "a", "1", "b", large("2"))
	_, err := publisher(blobs, "0_0", "worker-1").Publish(ctx, d.snapshot(), []statestore.Spec{{Name: "op/state", ID: 7, Kind: statestore.KindTable, KeyType: "string", ValType: "string"}})
	must(t, err)
	sps := NewSavepoints(blobs, testApp, nil, nil)
	sp, err := sps.Begin(ctx, Savepoint{Name: "before-upgrade", ClusterID: "cluster-1", Incarnation: 2, Expected: []string{"0_0"}, Deadline: 1 << 60, Owner: "worker-1"})
	must(t, err)
	_, err = sps.Write(ctx, sp, d.snapshot(), WriteOptions{WallTime: wallTime, Owner: "worker-1"})
	must(t, err)
	_, err = sps.Complete(ctx, sp)
	must(t, err)
	for key, data := range blobs.Blobs {
		path := filepath.Join(folder, filepath.FromSlash(key))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, data, 0o644))
	}
}
