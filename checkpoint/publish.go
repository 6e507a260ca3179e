package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/statestore"
)

// Options of a Publisher. Those without a default must be set.
type Options struct {
	Blobs    blob.Store
	Identity statestore.Identity // of the stores that are published
	Owner    string              // who publishes, for people
	Version  string              // of the program, for people
	// WallTime reads when an epoch record was written, ms since the epoch.
	WallTime func(epochRecord []byte) (int64, error)
	// Timeout bounds one Publish, hashing and uploads included: 10 minutes if 0. All members of an app need the same.
	Timeout time.Duration
	// Grace is how long a blob stays at least that no manifest names, and a manifest that is not retained: Timeout + 5 minutes
	// if 0. It must exceed the sum of Timeout and the time by which listings of the store lag behind.
	Grace time.Duration
	// Retain is how many checkpoints are kept: 3 if 0.
	Retain int
	// Parallel is how many files are uploaded at once: 4 if 0.
	Parallel int
	// Inline is the size in bytes up to which a file travels in the manifest: 4 KiB if 0, empty files only if negative.
	Inline int64
	// Now and Random make a simulation repeatable; nil = time.Now and crypto/rand.
	Now    func() time.Time
	Random func() string // 26 letters and digits, each time others
}

const (
	defaultTimeout  = 10 * time.Minute
	defaultGrace    = 5 * time.Minute // beyond the time-out
	defaultRetain   = 3
	defaultParallel = 4
)

func (o *Options) setDefaults() {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Grace <= 0 {
		o.Grace = o.Timeout + defaultGrace
	}
	if o.Retain <= 0 {
		o.Retain = defaultRetain
	}
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	switch {
	case o.Inline == 0:
		o.Inline = maxInline
	case o.Inline < 0:
		o.Inline = 0
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = randomText
	}
}

func randomText() string { return strings.ToLower(rand.Text()) }

// Publisher publishes the checkpoints of one subtask and removes those that are not needed any more. One may be kept over
// several stores of the subtask. It is used by one goroutine at a time.
type Publisher struct {
	o      Options
	prefix string
	start  time.Time

	// hashes of the Fixed files of a store instance, by name.
	instance string
	hashes   map[string]content
	// uploaded are blobs of attempts that failed later on; a next attempt may name them for a while.
	uploaded map[content]upload
	gc       *collector
	aborted  time.Duration // when unfinished uploads were last looked for
}

type upload struct {
	blob string
	at   time.Time // before it began
}

// NewPublisher returns a Publisher. It does nothing yet.
func NewPublisher(o Options) *Publisher {
	o.setDefaults()
	return &Publisher{o: o, prefix: Prefix(o.Identity), start: o.Now(), hashes: map[string]content{}, uploaded: map[content]upload{},
		gc: newCollector(o.Retain, o.Grace), aborted: -o.Grace}
}

// Published tells what a Publish did.
type Published struct {
	Key           string // of the manifest
	Epoch         uint64
	Files         int
	Bytes         int64 // of all files
	UploadedFiles int
	UploadedBytes int64 // with the manifest
	Took          time.Duration
}

// SupersededError says that a checkpoint of the same or a later epoch is there already: somebody else publishes for the
// subtask, or did before us. Nothing was published.
type SupersededError struct {
	Epoch, Newest uint64
	Owner         string // of the newest; "" = not known
}

func (e *SupersededError) Error() string {
	owner := ""
	if e.Owner != "" {
		owner = " by " + e.Owner
	}
	return fmt.Sprintf("publish checkpoint of epoch %d: epoch %d was published already%s", e.Epoch, e.Newest, owner)
}

// ForeignError says that the newest checkpoint of the subtask is that of an app of the same name on another cluster, which may be
// alive. Nothing was published.
type ForeignError struct {
	Key, Store string // of its manifest
	App        string
	Theirs     string // ids of the clusters
	Ours       string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the newest checkpoint in %s, %s, was made on cluster %s, but this is cluster %s: two clusters must not share a prefix, since epochs on both mean other states; "+
		"set checkpoint.url to one that is used here alone, or delete the folder %s in it if nobody needs it any more, with its savepoints", e.Store, e.Key, e.Theirs, e.Ours, e.App)
}

// Publish uploads the files of a snapshot that are not in the newest checkpoint, and then the manifest. The snapshot stays
// open. After an error nothing is published, but for an error of which blob.Error.Unknown says so; what was uploaded is
// used by the next attempt, or removed by Collect. Errors: *SupersededError, *ForeignError, those of the blob store.
func (p *Publisher) Publish(ctx context.Context, snap statestore.Snapshot, specs []statestore.Spec) (Published, error) {
	began := p.o.Now()
	meta := snap.Meta()
	fail := func(err error) (Published, error) {
		return Published{}, fmt.Errorf("publish checkpoint of subtask %s, epoch %d: %w", p.o.Identity.Subtask, meta.Epoch, err)
	}
	if diff := snap.Identity().Diff(p.o.Identity); diff != "" {
		return fail(errors.New("the snapshot belongs to another state: " + diff))
	}
	wall, err := p.o.WallTime(meta.EpochRecord)
	if err != nil {
		return fail(err)
	}
	tooLong := fmt.Errorf("it took longer than %s; raise checkpoint.timeout, or the bandwidth (%w)", p.o.Timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, p.o.Timeout, tooLong)
	defer cancel()

	have, err := p.known(ctx, meta.Epoch)
	if err != nil {
		return fail(explain(ctx, err))
	}
	files, err := p.hash(ctx, snap)
	if err != nil {
		return fail(explain(ctx, err))
	}
	// The manifest must be there within the time-out of the oldest upload that it names; the others give way to new ones.
	deadline := began.Add(p.o.Timeout)
	for c, u := range p.uploaded {
		if began.Sub(u.at) > p.o.Timeout/2 {
			delete(p.uploaded, c)
			continue
		}
		if _, ok := have[c]; !ok {
			have[c] = u.blob
			if d := u.at.Add(p.o.Timeout); d.Before(deadline) {
				deadline = d
			}
		}
	}
	attempt := p.o.Random()
	all, missing := planUpload(files, have, attempt)
	if err := p.upload(ctx, snap, missing); err != nil {
		return fail(explain(ctx, err))
	}
	m := &Manifest{
		Format: Format, Kind: KindCheckpoint,
		App: p.o.Identity.App, ClusterID: p.o.Identity.ClusterID, Incarnation: p.o.Identity.Incarnation,
		Subtask: p.o.Identity.Subtask, Changelogs: p.o.Identity.Changelogs,
		Epoch: meta.Epoch, Positions: meta.Positions, WallTime: wall, EpochRecord: meta.EpochRecord,
		Created: p.o.Now().UnixMilli(), Owner: p.o.Owner, Version: p.o.Version, Attempt: attempt,
		StoreFormat: snap.Format(), Stores: StoresOf(specs), Files: all,
	}
	data, err := m.Encode()
	if err != nil {
		return fail(err)
	}
	if err := failpoint.Hit(failpoint.BeforeManifest); err != nil {
		return fail(err)
	}
	key := manifestKey(p.prefix, meta.Epoch)
	left := deadline.Sub(p.o.Now())
	mctx, mcancel := context.WithTimeoutCause(ctx, left, tooLong)
	defer mcancel()
	if err := p.o.Blobs.Create(mctx, key, data); err != nil {
		if !errors.Is(err, blob.ErrExists) {
			return fail(explain(mctx, err))
		}
		return Published{}, superseded(meta.Epoch, read(mctx, p.o.Blobs, p.prefix, meta.Epoch))
	}
	if err := failpoint.Hit(failpoint.AfterManifest); err != nil {
		return fail(err)
	}
	clear(p.uploaded)
	done := Published{Key: key, Epoch: meta.Epoch, Files: len(all), Bytes: m.Bytes(), UploadedFiles: len(missing),
		UploadedBytes: int64(len(data)), Took: p.o.Now().Sub(began)}
	for _, f := range missing {
		done.UploadedBytes += f.Size
	}
	return done, nil
}

// explain names the time-out when that is why something failed.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

func superseded(epoch uint64, newest Found) error {
	e := &SupersededError{Epoch: epoch, Newest: newest.Epoch}
	if newest.Manifest != nil {
		e.Owner = newest.Manifest.Owner
	}
	return e
}

// known are the blobs that a new manifest may name: those of the newest one, if that can be read.
func (p *Publisher) known(ctx context.Context, epoch uint64) (map[content]string, error) {
	epochs, err := epochs(ctx, p.o.Blobs, p.prefix)
	if err != nil {
		return nil, err
	}
	have := map[content]string{}
	if len(epochs) == 0 {
		return have, nil
	}
	newest := epochs[0]
	f := read(ctx, p.o.Blobs, p.prefix, newest)
	switch {
	case f.Manifest != nil && f.Manifest.ClusterID != p.o.Identity.ClusterID:
		return nil, &ForeignError{f.Key, p.o.Blobs.String(), p.o.Identity.App, f.Manifest.ClusterID, p.o.Identity.ClusterID}
	case newest >= epoch:
		return nil, superseded(epoch, f)
	case f.Manifest != nil:
		for _, file := range f.Manifest.Files {
			if file.Blob != "" {
				have[content{file.SHA256, file.Size}] = file.Blob
			}
		}
	case errors.Is(f.Err, ErrCorrupt), errors.Is(f.Err, ErrFormat), errors.Is(f.Err, ErrMissing):
		// Everything is uploaded anew.
	default:
		return nil, f.Err
	}
	return have, nil
}

// hash reads the files of a snapshot whose contents are not known.
func (p *Publisher) hash(ctx context.Context, snap statestore.Snapshot) ([]local, error) {
	if p.instance != snap.Instance() {
		p.instance = snap.Instance()
		clear(p.hashes)
	}
	before := p.hashes
	p.hashes = make(map[string]content, len(before)) // of what is gone nothing is kept
	var files []local
	for _, f := range snap.Files() {
		if c, ok := before[f.Name]; ok && f.Fixed && f.Size > p.o.Inline {
			p.hashes[f.Name] = c
			files = append(files, local{name: f.Name, content: c})
			continue
		}
		l, err := hashFile(ctx, snap, f, p.o.Inline)
		if err != nil {
			p.hashes = before
			return nil, fmt.Errorf("hash file %s of the snapshot: %w", f.Name, err)
		}
		if f.Fixed {
			p.hashes[f.Name] = l.content
		}
		files = append(files, l)
	}
	return files, nil
}

func hashFile(ctx context.Context, snap statestore.Snapshot, f statestore.SnapshotFile, inline int64) (local, error) {
	r, err := snap.Open(f.Name)
	if err != nil {
		return local{}, err
	}
	defer r.Close()
	l := local{name: f.Name, content: content{size: f.Size}}
	if f.Size <= inline {
		l.data = make([]byte, f.Size)
		if _, err := io.ReadFull(r, l.data); err != nil {
			return local{}, err
		}
		l.hash = sha256.Sum256(l.data)
		return l, nil
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, stopper{ctx, r}, make([]byte, copyBuffer))
	if err != nil {
		return local{}, err
	}
	if n != f.Size {
		return local{}, fmt.Errorf("it has %d bytes, not %d", n, f.Size)
	}
	h.Sum(l.hash[:0])
	return l, nil
}

const copyBuffer = 256 << 10

// stopper ends reading when the context does.
type stopper struct {
	ctx context.Context
	r   io.Reader
}

func (s stopper) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	runtime.Gosched() // where cores are few, processing goes first
	return s.r.Read(p)
}

// upload puts blobs, some at once. After the first error no other is begun.
func (p *Publisher) upload(ctx context.Context, snap statestore.Snapshot, missing []File) error {
	var mu sync.Mutex
	return parallel(ctx, p.o.Parallel, missing, func(ctx context.Context, f File) error {
		at := p.o.Now()
		err := p.o.Blobs.Put(ctx, blobKey(p.prefix, f.Blob), blob.Body{Size: f.Size, SHA256: f.SHA256,
			Open: func() (io.ReadSeekCloser, error) { return snap.Open(f.Name) }})
		if err != nil {
			return fmt.Errorf("upload file %s: %w", f.Name, err)
		}
		mu.Lock()
		p.uploaded[content{f.SHA256, f.Size}] = upload{f.Blob, at}
		mu.Unlock()
		return failpoint.Hit(failpoint.AfterUploadBlob)
	})
}

// parallel runs fn for each item, n at once. The first error ends the context of the others, and is returned when all have
// ended.
func parallel[T any](ctx context.Context, n int, items []T, fn func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan T)
	var wg sync.WaitGroup
	for range min(n, len(items)) {
		wg.Go(func() {
			for item := range todo {
				if err := fn(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		select {
		case todo <- item:
		case <-ctx.Done():
		}
	}
	close(todo)
	wg.Wait()
	return context.Cause(ctx)
}

// Collected tells what a Collect did.
type Collected struct {
	Manifests, Blobs, Uploads int // removed
	Waiting                   int // manifests and blobs that nobody needs and that are not yet removed
	// Unreadable are manifests that cannot be read. As long as they are among the retained ones no blob is removed.
	Unreadable []Found
}

// Collect removes checkpoints beyond Retain, blobs that no manifest names, and unfinished uploads. What it finds is removed by a
// later call: when the grace time is over, and when committed, which gives the last epoch that the subtask has committed in
// this process, shows that the subtask was still ours. It is to be called now and then, as after a Publish.
func (p *Publisher) Collect(ctx context.Context, committed func() uint64) (Collected, error) {
	var done Collected
	fail := func(err error) (Collected, error) {
		return done, fmt.Errorf("collect garbage of the checkpoints of subtask %s: %w", p.o.Identity.Subtask, err)
	}
	began := p.now()
	var l listing
	var found []uint64
	for info, err := range p.o.Blobs.List(ctx, p.prefix+"/") {
		if err != nil {
			return fail(err)
		}
		kind, name, _ := strings.Cut(strings.TrimPrefix(info.Key, p.prefix+"/"), "/")
		switch kind {
		case "blobs":
			l.blobs = append(l.blobs, name)
		case "manifests":
			if epoch, ok := epochOf(name); ok {
				found = append(found, epoch)
			}
		}
	}
	for _, f := range readAll(ctx, p.o.Blobs, p.prefix, found) {
		switch {
		case f.Manifest != nil:
			l.manifests = append(l.manifests, listed{epoch: f.Epoch, blobs: f.Manifest.Blobs()})
		case errors.Is(f.Err, ErrCorrupt), errors.Is(f.Err, ErrFormat):
			l.manifests = append(l.manifests, listed{epoch: f.Epoch, bad: true})
			done.Unreadable = append(done.Unreadable, f)
		case errors.Is(f.Err, ErrMissing): // removed meanwhile
		default:
			return fail(f.Err)
		}
	}
	now := committed()
	p.gc.see(l, began, p.now(), now)
	manifests, blobs := p.gc.due(now)
	var keys []string
	for _, epoch := range manifests {
		keys = append(keys, manifestKey(p.prefix, epoch))
	}
	if err := p.remove(ctx, keys); err != nil {
		return fail(err)
	}
	p.gc.deleted(manifests, nil)
	done.Manifests = len(manifests)
	keys = keys[:0]
	for _, name := range blobs {
		keys = append(keys, blobKey(p.prefix, name))
	}
	if err := p.remove(ctx, keys); err != nil {
		return fail(err)
	}
	p.gc.deleted(nil, blobs)
	done.Blobs = len(blobs)
	done.Waiting = len(p.gc.manifests) + len(p.gc.blobs)
	if p.now()-p.aborted >= p.o.Grace {
		p.aborted = p.now()
		uploads, err := p.o.Blobs.AbortUploads(ctx, p.prefix+"/", p.o.Grace)
		done.Uploads = len(uploads)
		if err != nil {
			return fail(err)
		}
	}
	return done, nil
}

func (p *Publisher) now() time.Duration { return p.o.Now().Sub(p.start) }

// removeAtOnce is how many keys one call deletes, so that a crash in between is a case that tests can make.
const removeAtOnce = 100

func (p *Publisher) remove(ctx context.Context, keys []string) error {
	for some := range slices.Chunk(keys, removeAtOnce) {
		if err := failpoint.Hit(failpoint.MidCollect); err != nil {
			return err
		}
		if err := p.o.Blobs.Delete(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// Found is a manifest in the blob store.
type Found struct {
	Key      string
	Epoch    uint64
	Manifest *Manifest // nil if Err is not
	Err      error     // why it cannot be read: ErrCorrupt, ErrFormat, ErrMissing, or the blob store's
}

// findTries bounds how often Find looks again.
const findTries = 5

// Find returns the checkpoints of a subtask, newest first. It may run while others publish and remove: when the newest of a
// listing are gone before they are read, newer ones are there (see the package comment), and it lists again, some times at
// most. Errors: those of the blob store when it is listed.
func Find(ctx context.Context, blobs blob.Store, id statestore.Identity) ([]Found, error) {
	for try := 1; ; try++ {
		epochs, err := epochs(ctx, blobs, Prefix(id))
		if err != nil {
			return nil, fmt.Errorf("find checkpoints of subtask %s: %w", id.Subtask, err)
		}
		found := readAll(ctx, blobs, Prefix(id), epochs)
		if len(found) == 0 || !errors.Is(found[0].Err, ErrMissing) || try == findTries {
			return found, nil
		}
	}
}

// epochs lists the epochs of manifests, newest first.
func epochs(ctx context.Context, blobs blob.Store, prefix string) ([]uint64, error) {
	var all []uint64
	for info, err := range blobs.List(ctx, prefix+"/manifests/") {
		if err != nil {
			return nil, err
		}
		if epoch, ok := epochOf(strings.TrimPrefix(info.Key, prefix+"/manifests/")); ok {
			all = append(all, epoch)
		}
	}
	slices.Reverse(all)
	return all, nil
}

func epochOf(name string) (uint64, bool) {
	epoch, err := strconv.ParseUint(name, 10, 64)
	return epoch, err == nil && len(name) == 20
}

// readAll reads manifests, some at once.
func readAll(ctx context.Context, blobs blob.Store, prefix string, epochs []uint64) []Found {
	found := make([]Found, len(epochs))
	indexes := make([]int, len(epochs))
	for i := range indexes {
		indexes[i] = i
	}
	_ = parallel(ctx, defaultParallel, indexes, func(ctx context.Context, i int) error {
		found[i] = read(ctx, blobs, prefix, epochs[i])
		return nil
	})
	for i := range found {
		if found[i].Key == "" {
			found[i] = Found{Key: manifestKey(prefix, epochs[i]), Epoch: epochs[i], Err: context.Cause(ctx)}
		}
	}
	return found
}

func read(ctx context.Context, blobs blob.Store, prefix string, epoch uint64) Found {
	f := Found{Key: manifestKey(prefix, epoch), Epoch: epoch}
	data, err := blobs.Get(ctx, f.Key)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		f.Err = fmt.Errorf("read %s: %w: %w", f.Key, ErrMissing, err)
	case err != nil:
		f.Err = fmt.Errorf("read %s: %w", f.Key, err)
	default:
		f.Manifest, err = DecodeManifest(data)
		if err != nil {
			f.Err = fmt.Errorf("read %s: %w", f.Key, err)
		}
	}
	return f
}

// Reject puts a checkpoint aside that is ahead of its changelog (Option.Ahead): its epoch number will be used again, for
// another state. Only the owner of the subtask may call it, when it has committed an epoch.
func Reject(ctx context.Context, blobs blob.Store, f Found) error {
	if f.Manifest == nil {
		return fmt.Errorf("reject checkpoint %s: its manifest was not read", f.Key)
	}
	data, err := f.Manifest.Encode()
	if err != nil {
		return err
	}
	aside := Prefix(f.Manifest.Identity()) + "/rejected/" + f.Manifest.Attempt
	if err := blobs.Create(ctx, aside, data); err != nil && !errors.Is(err, blob.ErrExists) {
		return fmt.Errorf("reject checkpoint %s: %w", f.Key, err)
	}
	// Not if another one has taken its place.
	now, err := blobs.Get(ctx, f.Key)
	if errors.Is(err, blob.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reject checkpoint %s: %w", f.Key, err)
	}
	if !bytes.Equal(now, data) {
		return nil
	}
	if err := blobs.Delete(ctx, f.Key); err != nil {
		return fmt.Errorf("reject checkpoint %s: %w", f.Key, err)
	}
	return nil
}

// Entry is a checkpoint as a list shows it.
type Entry struct {
	Incarnation uint64
	Subtask     string
	Epoch       uint64
	Key         string
	Modified    time.Time
}

// List returns all checkpoints of an app, of all its incarnations, sorted by incarnation, subtask as text, and epoch.
func List(ctx context.Context, blobs blob.Store, app string) ([]Entry, error) {
	var all []Entry
	for info, err := range blobs.List(ctx, app+"/") {
		if err != nil {
			return nil, fmt.Errorf("list checkpoints of app %s: %w", app, err)
		}
		parts := strings.Split(strings.TrimPrefix(info.Key, app+"/"), "/")
		if len(parts) != 4 || parts[2] != "manifests" {
			continue
		}
		incarnation, err := strconv.ParseUint(parts[0], 10, 64)
		epoch, ok := epochOf(parts[3])
		if err == nil && ok {
			all = append(all, Entry{incarnation, parts[1], epoch, info.Key, info.Modified})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		if a.Incarnation != b.Incarnation {
			if a.Incarnation < b.Incarnation {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Key, b.Key)
	})
	return all, nil
}

// Usage of an incarnation, or of a savepoint.
type Usage struct {
	Blobs int
	Bytes int64
}

// Incarnations says how much each incarnation of an app takes up.
func Incarnations(ctx context.Context, blobs blob.Store, app string) (map[uint64]Usage, error) {
	all := map[uint64]Usage{}
	for info, err := range blobs.List(ctx, app+"/") {
		if err != nil {
			return nil, fmt.Errorf("list incarnations of app %s: %w", app, err)
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(info.Key, app+"/"), "/")
		if n, err := strconv.ParseUint(first, 10, 64); err == nil {
			u := all[n]
			all[n] = Usage{u.Blobs + 1, u.Bytes + info.Size}
		}
	}
	return all, nil
}

// DeleteIncarnation removes all checkpoints of an incarnation. Savepoints made from it stay whole. If the incarnation is in use
// its checkpoints are gone, but its changelogs are not.
func DeleteIncarnation(ctx context.Context, blobs blob.Store, app string, incarnation uint64) (Usage, error) {
	u, err := deletePrefix(ctx, blobs, fmt.Sprintf("%s/%d/", app, incarnation), func(key string) int {
		if strings.Contains(key, "/manifests/") {
			return 0
		}
		return 1
	})
	if err != nil {
		return u, fmt.Errorf("delete incarnation %d of app %s: %w", incarnation, app, err)
	}
	return u, nil
}

const keep = -1

// deletePrefix removes what is below a prefix: order says what goes first (0), so that nothing names what is missing, what
// goes then (1), and what stays (keep).
func deletePrefix(ctx context.Context, blobs blob.Store, prefix string, order func(key string) int) (Usage, error) {
	sizes := map[string]int64{}
	var keys [2][]string
	for info, err := range blobs.List(ctx, prefix) {
		if err != nil {
			return Usage{}, err
		}
		if i := order(info.Key); i != keep {
			keys[i] = append(keys[i], info.Key)
			sizes[info.Key] = info.Size
		}
	}
	var done Usage
	for some := range slices.Chunk(slices.Concat(keys[0], keys[1]), removeAtOnce) {
		if err := failpoint.Hit(failpoint.MidDelete); err != nil {
			return done, err
		}
		if err := blobs.Delete(ctx, some...); err != nil {
			return done, err
		}
		for _, key := range some {
			done = Usage{done.Blobs + 1, done.Bytes + sizes[key]}
		}
	}
	_, err := blobs.AbortUploads(ctx, prefix, 0)
	return done, err
}
