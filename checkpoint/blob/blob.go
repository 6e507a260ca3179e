// Package blob is object storage as checkpoints need it: immutable blobs in a flat space of keys, behind one interface
// with two implementations, a local (or mounted) directory and the S3 API of any vendor.
//
// A blob appears whole or not at all. Put may be repeated, because whoever puts under one key puts the same contents;
// Create is the one operation that decides between writers, by creating a blob only where there is none. What a call did
// whose answer was lost is found out by reading back; where even that fails, the error says so, and the blob may or may
// not be there.
//
// Listings of some stores lag behind. A blob that a listing does not name may exist: ask Stat, or Get.
package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// Store is a space of immutable blobs. Keys are slash-separated paths of the characters [A-Za-z0-9._=-], see CheckKey; no
// key may be a folder of another ("a" and "a/b"), which directories cannot hold. Methods are safe for concurrent use. Each
// ends when its context does, and by itself when the store does not answer (Options.Timeout, Options.Retries). Errors are
// *Error; of all of them IsRetryable and IsDenied tell what they call for.
type Store interface {
	// Put creates a blob, or overwrites one of equal contents. A body whose bytes do not hash to Body.SHA256 is
	// refused with ErrCorrupt.
	Put(ctx context.Context, key string, b Body) error
	// Create makes a blob of at most MaxSmall bytes if there is none under the key; else ErrExists. Of concurrent
	// callers, in whatever processes, one succeeds. Data should name its writer: after a lost answer a blob that holds
	// exactly data counts as created by this call.
	Create(ctx context.Context, key string, data []byte) error
	// Get reads a whole blob of at most MaxSmall bytes; ErrNotFound if there is none.
	Get(ctx context.Context, key string) ([]byte, error)
	// Open streams a blob from an offset (0 to its size) to its end; ErrNotFound if there is none. A connection that
	// breaks is replaced and reading goes on where it was. The caller closes the reader; ctx bounds reading, too.
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error)
	// Stat tells what is known of a blob; ErrNotFound if there is none.
	Stat(ctx context.Context, key string) (Info, error)
	// List yields the blobs whose keys start with prefix ("" = all; any text, not only folders), in the byte order of
	// keys. An error ends it. Blobs that come or go meanwhile may be missing or named.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes blobs. Absent ones are fine. All are tried; the error is the first.
	Delete(ctx context.Context, keys ...string) error
	// Uploads lists what Put and Create, of any process, have begun under prefix longer than olderThan ago and not
	// finished. It takes up room and no listing shows it.
	Uploads(ctx context.Context, prefix string, olderThan time.Duration) ([]Upload, error)
	// AbortUploads removes what Uploads lists, except uploads that this Store itself is busy with, and returns what it
	// removed. olderThan must exceed the longest upload of any process.
	AbortUploads(ctx context.Context, prefix string, olderThan time.Duration) ([]Upload, error)
	// Check proves by blobs under "check/" that the store can be reached and that all of the above is allowed and works:
	// conditional creation, reading, listing, multipart uploads, deleting.
	Check(ctx context.Context) error
	// Close releases connections. Calls that run may fail.
	Close() error
	// String is the URL, without secrets.
	String() string
}

// MaxSmall is the most bytes of a blob that Create makes and Get reads: 64 MiB.
const MaxSmall = 64 << 20

// Body is the contents of a blob to be put.
type Body struct {
	Size   int64    // bytes
	SHA256 [32]byte // of all bytes
	// Open starts reading from the first byte. It is called once or, after a failure, again; each reader is closed.
	Open func() (io.ReadSeekCloser, error)
}

// Bytes is a Body of data, which must not change until Put returned.
func Bytes(data []byte) Body {
	return Body{Size: int64(len(data)), SHA256: sha256.Sum256(data), Open: func() (io.ReadSeekCloser, error) {
		return nopCloser{bytes.NewReader(data)}, nil
	}}
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// Info is what a store knows of a blob.
type Info struct {
	Key      string
	Size     int64     // bytes
	Modified time.Time // by the clock of the store
}

// Upload is an unfinished upload.
type Upload struct {
	Key     string
	ID      string    // the store's name of it
	Started time.Time // by the clock of the store; of a directory, when it was last written to
}

// Options of a store. The zero value is that of every default.
type Options struct {
	// Endpoint is the URL of an S3 server that is not Amazon's; empty is Amazon's, or what AWS_ENDPOINT_URL_S3 says.
	Endpoint string
	// Region of the bucket. Empty is what the environment and the profile say; with an endpoint, else "us-east-1".
	Region string
	// PathStyle puts the bucket into the path of URLs, not into the host's name: what most servers but Amazon's want.
	PathStyle bool
	// AccessKey, SecretKey and SessionToken are static credentials. Without them the chain of the AWS SDK is asked:
	// environment, profile, web identity, container and EKS pod identity, instance role.
	AccessKey, SecretKey, SessionToken string
	// Profile of the shared AWS configuration files; empty is AWS_PROFILE, else "default".
	Profile string
	// SSE is the encryption that the server is asked for: "" (the bucket's default), "AES256" or "aws:kms".
	SSE string
	// KMSKeyID is the key for "aws:kms"; empty is the account's default key.
	KMSKeyID string

	// BytesPerSecond bounds what Put and Create send, all calls of the store together; 0 = no bound.
	BytesPerSecond int64
	// PartSize of multipart uploads, and up to which a blob goes in one piece: 16 MiB if 0; S3 wants at least 5 MiB. A
	// blob of more than 10,000 parts gets larger parts.
	PartSize int64
	// Concurrency is how many parts are sent at once, all calls of the store together: 4 if 0. Each holds PartSize of
	// memory.
	Concurrency int
	// Timeout is how long one request may make no progress: 30 s if 0.
	Timeout time.Duration
	// Retries of a request that may succeed when repeated: 8 if 0, none if negative.
	Retries int
	// Backoff is the longest wait before the first retry, 100 ms if 0. It doubles with each, up to 10 s; the wait is
	// random below it. When the server asks to slow down it begins ten times as high.
	Backoff time.Duration

	Logger    *slog.Logger      // nil = none
	Transport http.RoundTripper // for tests; nil = a client of its own
}

func (o Options) withDefaults() Options {
	o.PartSize = cmp.Or(o.PartSize, 16<<20)
	o.Concurrency = cmp.Or(o.Concurrency, 4)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Retries = max(0, cmp.Or(o.Retries, 8))
	o.Backoff = cmp.Or(o.Backoff, 100*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Open returns the store behind a URL: file:///absolute/path (the folder is created) or s3://bucket/prefix (the bucket must
// exist). It reads configuration and credential files but sends no request: Store.Check does.
func Open(ctx context.Context, rawURL string, o Options) (Store, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if u.Dir != "" {
		return openDir(u, o)
	}
	return openS3(ctx, u, o)
}

// Verify returns a reader of r that ends with ErrCorrupt, in place of io.EOF, when what it read is not size bytes with the
// given hash. Closing it closes r.
func Verify(r io.ReadCloser, size int64, sum [32]byte) io.ReadCloser {
	return &verifier{r: r, size: size, sum: sum, h: sha256.New()}
}

type verifier struct {
	r    io.ReadCloser
	size int64
	sum  [32]byte
	h    hash.Hash
	n    int64
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	_, _ = v.h.Write(p[:n]) // a hash takes everything
	v.n += int64(n)
	if v.n > v.size {
		return n, fmt.Errorf("read blob: more than the %d bytes that it should have: %w", v.size, ErrCorrupt)
	}
	if errors.Is(err, io.EOF) {
		if problem := differs(v.n, v.h.Sum(nil), v.size, v.sum); problem != nil {
			return n, fmt.Errorf("read blob: %w", problem)
		}
	}
	return n, err
}

func (v *verifier) Close() error { return v.r.Close() }

// differs says how contents differ from what they should be; nil = they do not.
func differs(size int64, sum []byte, wantSize int64, wantSum [32]byte) error {
	switch {
	case size != wantSize:
		return fmt.Errorf("%d bytes, not %d: %w", size, wantSize, ErrCorrupt)
	case !bytes.Equal(sum, wantSum[:]):
		return fmt.Errorf("SHA-256 is %x, not %x: %w", sum, wantSum, ErrCorrupt)
	default:
		return nil
	}
}

// limiter paces writing; nil does not.
type limiter struct{ l *rate.Limiter }

// chunk is how many bytes pass at once: small enough to be smooth, large enough to cost nothing.
const chunk = 64 << 10

func newLimiter(bytesPerSecond int64) *limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &limiter{rate.NewLimiter(rate.Limit(bytesPerSecond), chunk)}
}

// cut returns as much of p as may pass at once.
func (l *limiter) cut(p []byte) []byte {
	if l == nil {
		return p
	}
	return p[:min(len(p), chunk)]
}

// wait until n bytes may pass.
func (l *limiter) wait(ctx context.Context, n int) error {
	if l == nil || n == 0 {
		return nil
	}
	err := l.l.WaitN(ctx, n)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the limit of %.0f bytes a second leaves too little time: %w", float64(l.l.Limit()), context.DeadlineExceeded)
	}
	return err
}
