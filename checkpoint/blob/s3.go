package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
)

const (
	maxParts       = 10_000 // of one upload, by S3's rules
	maxDelete      = 1000   // keys in one DeleteObjects
	maxBackoff     = 10 * time.Second
	cleanupTimeout = 10 * time.Second // for what is tried after the caller's context may have ended
)

// s3store is a Store in a bucket.
//
// What is sent is checked by the server: requests are signed with the SHA-256 of their payload. Amazon's S3 also gets it
// as the object's checksum, which it keeps; other servers do not, because some of them refuse that header.
//
// Whole blobs and parts are read into memory before they are sent, in at most Concurrency buffers of PartSize: their hash
// is known before their last byte leaves, and a repeated request sends the same bytes whatever became of the file.
type s3store struct {
	url       URL
	prefix    string // of keys: "" or with a slash at its end
	o         Options
	c         *s3.Client
	transport *http.Transport // nil if the user's
	checksums bool            // the server keeps SHA-256 checksums
	bufs      chan []byte     // free buffers; nil ones are made when they are needed

	mu   sync.Mutex
	busy map[string]bool // ids of the uploads that we are busy with
}

func openS3(ctx context.Context, u URL, o Options) (Store, error) {
	fail := func(err error, next string) (Store, error) {
		return nil, &Error{Op: "open", Store: u.String(), Err: err, Next: next}
	}
	if err := checkOptions(o); err != nil {
		return fail(err, "")
	}
	// What asks for credentials does so rarely: it keeps no connections, and is bound by time-outs of its own.
	client := awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
		tr.DisableKeepAlives = true
		tr.ResponseHeaderTimeout = o.Timeout
	})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client), config.WithLogger(logging.Nop{}),
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(o.Profile))
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(o.AccessKey, o.SecretKey, o.SessionToken)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return fail(err, "look at the AWS_* variables and the AWS configuration files of this user")
	}
	s := &s3store{url: u, o: o, busy: map[string]bool{}, bufs: make(chan []byte, o.Concurrency)}
	if u.Prefix != "" {
		s.prefix = u.Prefix + "/"
	}
	for range o.Concurrency {
		s.bufs <- nil
	}
	base := &http.Client{Transport: o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if o.Transport == nil {
		s.transport = transportOf(cfg.HTTPClient)
		s.transport.DisableKeepAlives = false
		s.transport.MaxIdleConnsPerHost = o.Concurrency + 4
		base.Transport = s.transport
	}
	s.c = s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.HTTPClient = &client3{base: base, timeout: o.Timeout, lim: newLimiter(o.BytesPerSecond)}
		so.UsePathStyle = o.PathStyle
		so.Retryer = newRetryer(o)
		so.DisableLogOutputChecksumValidationSkipped = true
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(o.Endpoint)
		}
		custom := so.BaseEndpoint != nil
		if so.Region == "" && custom {
			so.Region = "us-east-1"
		}
		s.checksums = !custom
	})
	if s.c.Options().Region == "" {
		return fail(errors.New("no region is set"), "set checkpoint.s3.region or AWS_REGION to the region of the bucket")
	}
	return s, nil
}

// transportOf returns a copy of what the SDK made of our transport: with the authorities of AWS_CA_BUNDLE, for example.
func transportOf(c aws.HTTPClient) *http.Transport {
	if b, ok := c.(*awshttp.BuildableClient); ok {
		return b.GetTransport()
	}
	return &http.Transport{}
}

func checkOptions(o Options) error {
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return fmt.Errorf("the endpoint must be a URL such as https://s3.example.com:9000")
		}
	}
	switch {
	case (o.AccessKey == "") != (o.SecretKey == ""):
		return errors.New("of access key and secret key only one is set")
	case o.SSE != "" && o.SSE != string(types.ServerSideEncryptionAes256) && o.SSE != string(types.ServerSideEncryptionAwsKms):
		return fmt.Errorf("the encryption %q is none of AES256 and aws:kms", o.SSE)
	case o.KMSKeyID != "" && o.SSE != string(types.ServerSideEncryptionAwsKms):
		return errors.New("a KMS key is set, but the encryption is not aws:kms")
	case o.PartSize < 5<<20 || o.PartSize > 1<<30:
		return fmt.Errorf("the part size of %d bytes is not between 5 MiB and 1 GiB", o.PartSize)
	case o.Concurrency < 1:
		return fmt.Errorf("the concurrency is %d", o.Concurrency)
	}
	return nil
}

// newRetryer repeats what may succeed when repeated. The SDK's quota of retries is off: it would end an upload early for
// what others had to repeat.
func newRetryer(o Options) aws.Retryer {
	return retry.NewStandard(func(so *retry.StandardOptions) {
		so.MaxAttempts = 1 + o.Retries
		so.Backoff = retry.BackoffDelayerFunc(func(attempt int, err error) (time.Duration, error) {
			return o.backoff(attempt, codeOf(err) == "SlowDown"), nil
		})
		so.RateLimiter = ratelimit.None
		so.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(retryable)}, so.Retryables...)
	})
}

// backoff before a retry; attempt counts from 1.
func (o Options) backoff(attempt int, throttled bool) time.Duration {
	d := o.Backoff
	if throttled {
		d *= 10
	}
	return rand.N(min(maxBackoff, d<<min(attempt-1, 10)))
}

// pause before a repetition of our own; false if the context ended.
func (o Options) pause(ctx context.Context, attempt int) bool {
	t := time.NewTimer(o.backoff(attempt, false))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retryable decides what the SDK decides otherwise.
func retryable(err error) aws.Ternary {
	switch code := codeOf(err); {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrCorrupt):
		return aws.FalseTernary
	case code == "ConditionalRequestConflict" || code == "OperationAborted":
		return aws.TrueTernary // two writers at the same moment: the next answer will be clear
	case code == "ExistingObjectIsDirectory":
		return aws.TrueTernary // versitygw lost a folder to a delete beside it
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errStalled):
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

func (s *s3store) String() string { return s.url.String() }

func (s *s3store) Close() error {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return nil
}

func (s *s3store) bucket() *string { return &s.url.Bucket }

func (s *s3store) key(key string) *string { return aws.String(s.prefix + key) }

// tally counts the requests of one call.
type tally struct {
	mu   sync.Mutex
	sent int
	last string // what became of the last request that failed
}

type tallyKey struct{}

func (t *tally) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent++
}

func (t *tally) failed(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = what
}

func (t *tally) attempts() (int, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent, t.last
}

// call makes one call of the API, with the SDK's retries.
func call[In, Out any](ctx context.Context, s *s3store, op, key string, api func(context.Context, *In, ...func(*s3.Options)) (*Out, error), in *In, options ...func(*s3.Options)) (*Out, *Error) {
	t := new(tally)
	out, err := api(context.WithValue(ctx, tallyKey{}, t), in, options...)
	sent, last := t.attempts()
	if err != nil {
		return nil, s.fail(ctx, op, key, sent, err)
	}
	if sent > 1 {
		s.o.Logger.Info("object storage answered after retries", "op", op, "key", key, "store", s.String(), "attempts", sent, "last_failure", last)
	}
	return out, nil
}

// signed puts the hash of a payload into the signature, so that the server verifies it. The SDK leaves it out over TLS.
func signed(sum [32]byte) func(*s3.Options) {
	set := middleware.FinalizeMiddlewareFunc("MillracePayloadHash", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		return next.HandleFinalize(v4.SetPayloadHash(ctx, hex.EncodeToString(sum[:])), in)
	})
	return func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Finalize.Add(set, middleware.Before) })
	}
}

// orNil keeps a nil *Error from becoming an error.
func orNil(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// take waits for a buffer of n bytes, at most PartSize or that of one part of a very large blob.
func (s *s3store) take(ctx context.Context, n int64) ([]byte, error) {
	select {
	case b := <-s.bufs:
		if int64(cap(b)) < n {
			b = make([]byte, n)
		}
		return b[:n], nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *s3store) give(b []byte) { s.bufs <- b }

func (s *s3store) Put(ctx context.Context, key string, b Body) error {
	if err := CheckKey(key); err != nil {
		return s.local("put", key, err)
	}
	in, err := b.Open()
	if err != nil {
		return s.local("put", key, err)
	}
	defer in.Close()
	if b.Size <= s.o.PartSize {
		return s.putWhole(ctx, key, b, in)
	}
	return s.putParts(ctx, key, b, in)
}

// local wraps what went wrong before anything was sent.
func (s *s3store) local(op, key string, err error) error {
	e := &Error{Op: op, Key: key, Store: s.String(), Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.kind = kindRetryable
	}
	return e
}

func (s *s3store) putWhole(ctx context.Context, key string, b Body, in io.Reader) error {
	buf, err := s.take(ctx, b.Size)
	if err != nil {
		return s.local("put", key, err)
	}
	defer s.give(buf)
	if _, err := io.ReadFull(in, buf); err != nil {
		return s.local("put", key, short(err))
	}
	sum := sha256.Sum256(buf)
	if err := cmp.Or(ends(in, b.Size), differs(b.Size, sum[:], b.Size, b.SHA256)); err != nil {
		return s.local("put", key, err)
	}
	_, e := call(ctx, s, "put", key, s.c.PutObject, s.putInput(key, buf, sum), signed(sum))
	return orNil(e)
}

func (s *s3store) putInput(key string, data []byte, sum [32]byte) *s3.PutObjectInput {
	in := &s3.PutObjectInput{Bucket: s.bucket(), Key: s.key(key), Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		ServerSideEncryption: types.ServerSideEncryption(s.o.SSE), SSEKMSKeyId: nonEmpty(s.o.KMSKeyID)}
	if s.checksums {
		in.ChecksumSHA256 = b64(sum)
	}
	return in
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func b64(sum [32]byte) *string { return aws.String(base64.StdEncoding.EncodeToString(sum[:])) }

// short says that a body had fewer bytes than it said.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the contents end early: %w", ErrCorrupt)
	}
	return fmt.Errorf("read the contents: %w", err)
}

// ends says that a body has more bytes than it said.
func ends(in io.Reader, size int64) error {
	switch _, err := io.ReadFull(in, make([]byte, 1)); {
	case err == nil:
		return fmt.Errorf("the contents have more than %d bytes: %w", size, ErrCorrupt)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("read the contents: %w", err)
	default:
		return nil
	}
}

// putParts sends a blob in parts of equal size (some servers want that), the last one excepted, several at a time.
func (s *s3store) putParts(ctx context.Context, key string, b Body, in io.Reader) error {
	size := s.o.PartSize
	for size*maxParts < b.Size {
		size *= 2
	}
	create := &s3.CreateMultipartUploadInput{Bucket: s.bucket(), Key: s.key(key),
		ServerSideEncryption: types.ServerSideEncryption(s.o.SSE), SSEKMSKeyId: nonEmpty(s.o.KMSKeyID)}
	if s.checksums {
		create.ChecksumAlgorithm = types.ChecksumAlgorithmSha256
	}
	up, e := call(ctx, s, "begin upload of", key, s.c.CreateMultipartUpload, create)
	if e != nil {
		return e
	}
	id := aws.ToString(up.UploadId)
	s.setBusy(id, true)
	defer s.setBusy(id, false)
	parts, err := s.sendParts(ctx, key, id, size, b, in)
	if err == nil {
		err = s.complete(ctx, key, id, parts, b.Size)
	}
	if err != nil {
		s.abort(ctx, key, id)
	}
	return err
}

func (s *s3store) setBusy(id string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.busy[id] = true
	} else {
		delete(s.busy, id)
	}
}

// sendParts reads the contents from front to back and sends each part as soon as it is read. The last part is sent only
// when the hash of the whole is right. After a failure no more parts begin, but those under way end: an upload that is
// aborted under a running part may stay behind.
func (s *s3store) sendParts(ctx context.Context, key, id string, size int64, b Body, in io.Reader) ([]types.CompletedPart, error) {
	parts := make([]types.CompletedPart, (b.Size+size-1)/size)
	whole := sha256.New()
	var wg sync.WaitGroup
	var failure atomic.Pointer[Error] // of a part
	var err error
	for i := range parts {
		var buf []byte
		if buf, err = s.take(ctx, min(size, b.Size-int64(i)*size)); err != nil {
			break
		}
		if failure.Load() == nil {
			err = readPart(in, buf, whole, b, i == len(parts)-1)
		}
		if err != nil || failure.Load() != nil {
			s.give(buf)
			break
		}
		wg.Go(func() {
			defer s.give(buf)
			part, e := s.sendPart(ctx, key, id, int32(i+1), buf)
			if e != nil {
				failure.CompareAndSwap(nil, e)
			}
			parts[i] = part
		})
	}
	wg.Wait()
	switch e := failure.Load(); {
	case e != nil:
		return nil, e
	case err != nil:
		return nil, s.local("put", key, err)
	default:
		return parts, nil
	}
}

// readPart fills buf and, when it is the last part, verifies the whole.
func readPart(in io.Reader, buf []byte, whole hash.Hash, b Body, last bool) error {
	if _, err := io.ReadFull(in, buf); err != nil {
		return short(err)
	}
	_, _ = whole.Write(buf)
	if !last {
		return nil
	}
	return cmp.Or(ends(in, b.Size), differs(b.Size, whole.Sum(nil), b.Size, b.SHA256))
}

func (s *s3store) sendPart(ctx context.Context, key, id string, number int32, buf []byte) (types.CompletedPart, *Error) {
	in := &s3.UploadPartInput{Bucket: s.bucket(), Key: s.key(key), UploadId: &id, PartNumber: &number,
		Body: bytes.NewReader(buf), ContentLength: aws.Int64(int64(len(buf)))}
	sum := sha256.Sum256(buf)
	if s.checksums {
		in.ChecksumSHA256 = b64(sum)
	}
	out, e := call(ctx, s, "upload part "+strconv.Itoa(int(number))+" of", key, s.c.UploadPart, in, signed(sum))
	if e != nil {
		return types.CompletedPart{}, e
	}
	return types.CompletedPart{ETag: out.ETag, PartNumber: &number, ChecksumSHA256: in.ChecksumSHA256}, nil
}

// complete makes the blob of its parts. A repeated request after a lost answer may find no upload any more: then the blob
// tells.
func (s *s3store) complete(ctx context.Context, key, id string, parts []types.CompletedPart, size int64) error {
	_, e := call(ctx, s, "complete upload of", key, s.c.CompleteMultipartUpload, &s3.CompleteMultipartUploadInput{
		Bucket: s.bucket(), Key: s.key(key), UploadId: &id, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	if e == nil {
		return nil
	}
	if e.Code == "NoSuchUpload" || e.Unknown {
		if info, err := s.Stat(ctx, key); err == nil && info.Size == size {
			return nil
		}
	}
	return e
}

// abort an upload, as well as it goes: what stays is found by AbortUploads.
func (s *s3store) abort(ctx context.Context, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := s.abortUpload(ctx, key, id); err != nil {
		s.o.Logger.Warn("unfinished upload stays until it is aborted", "key", key, "store", s.String(), "upload_id", id, "error", err)
	}
}

func (s *s3store) abortUpload(ctx context.Context, key, id string) error {
	_, e := call(ctx, s, "abort upload of", key, s.c.AbortMultipartUpload,
		&s3.AbortMultipartUploadInput{Bucket: s.bucket(), Key: s.key(key), UploadId: &id})
	if e == nil || e.Code == "NoSuchUpload" {
		return nil
	}
	return e
}

func (s *s3store) Create(ctx context.Context, key string, data []byte) error {
	if err := cmp.Or(CheckKey(key), checkSmall(int64(len(data)))); err != nil {
		return s.local("create", key, err)
	}
	sum := sha256.Sum256(data)
	in := s.putInput(key, data, sum)
	in.IfNoneMatch = aws.String("*")
	_, e := call(ctx, s, "create", key, s.c.PutObject, in, signed(sum))
	if e == nil {
		return nil
	}
	exists := e.Code == "PreconditionFailed" || e.Status == http.StatusPreconditionFailed
	if exists && e.Attempts <= 1 {
		e.Err, e.kind = ErrExists, kindOther
		return e
	}
	if !exists && !e.Unknown {
		return e
	}
	// An earlier request may have created it although we did not hear of that.
	got, err := s.Get(ctx, key)
	switch {
	case err == nil && bytes.Equal(got, data):
		return nil
	case err == nil:
		e.Err, e.kind, e.Unknown, e.Next = ErrExists, kindOther, false, ""
	default:
		e.Unknown = true // not there now does not say that the request is not still on its way
	}
	return e
}

func (s *s3store) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := s.open(ctx, "get", key, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := checkSmall(r.size); err != nil {
		return nil, s.local("get", key, err)
	}
	data := make([]byte, r.size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return data, nil
}

func (s *s3store) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	return s.open(ctx, "open", key, offset)
}

func (s *s3store) open(ctx context.Context, op, key string, offset int64) (*s3reader, error) {
	if err := CheckKey(key); err != nil {
		return nil, s.local(op, key, err)
	}
	if offset < 0 {
		return nil, s.local(op, key, fmt.Errorf("offset %d is negative", offset))
	}
	r := &s3reader{ctx: ctx, s: s, op: op, key: key, pos: offset, size: -1}
	if err := r.connect(); err != nil {
		return nil, err
	}
	return r, nil
}

// s3reader reads a blob and goes on where it was when a connection breaks.
type s3reader struct {
	ctx       context.Context
	s         *s3store
	op, key   string
	pos, size int64
	body      io.ReadCloser // nil = not connected
	failures  int           // since the last byte
	err       error         // ends it
}

// connect asks for the rest of the blob.
func (r *s3reader) connect() error {
	in := &s3.GetObjectInput{Bucket: r.s.bucket(), Key: r.s.key(r.key)}
	if r.pos > 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", r.pos))
	}
	out, e := call(r.ctx, r.s, r.op, r.key, r.s.c.GetObject, in)
	if e != nil {
		if e.Status == http.StatusRequestedRangeNotSatisfiable {
			return r.atEnd()
		}
		return e
	}
	size := aws.ToInt64(out.ContentLength)
	if r.pos > 0 {
		from, to, total, ok := parseContentRange(aws.ToString(out.ContentRange))
		if !ok || from != r.pos || to != total-1 {
			_ = out.Body.Close()
			return r.s.local(r.op, r.key, fmt.Errorf("asked for the bytes from %d on, the server answers with the range %q", r.pos, aws.ToString(out.ContentRange)))
		}
		size = total
	}
	if r.size >= 0 && size != r.size {
		_ = out.Body.Close()
		return r.s.local(r.op, r.key, fmt.Errorf("it was replaced while it was read: %d bytes, not %d: %w", size, r.size, ErrCorrupt))
	}
	r.size, r.body = size, out.Body
	return nil
}

// atEnd: the server has no byte at the offset. That is right at the very end.
func (r *s3reader) atEnd() error {
	info, err := r.s.Stat(r.ctx, r.key)
	if err != nil {
		return err
	}
	if err := checkOffset(r.pos, info.Size); err != nil {
		return r.s.local(r.op, r.key, err)
	}
	r.size = info.Size
	return nil
}

// parseContentRange reads "bytes 5-9/10".
func parseContentRange(s string) (from, to, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	fromTo, totalText, ok2 := strings.Cut(s, "/")
	fromText, toText, ok3 := strings.Cut(fromTo, "-")
	var errs [3]error
	from, errs[0] = strconv.ParseInt(fromText, 10, 64)
	to, errs[1] = strconv.ParseInt(toText, 10, 64)
	total, errs[2] = strconv.ParseInt(totalText, 10, 64)
	return from, to, total, ok && ok2 && ok3 && errors.Join(errs[:]...) == nil
}

func (r *s3reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil {
		if r.pos == r.size {
			return 0, io.EOF
		}
		if r.body == nil {
			if err := r.connect(); err != nil {
				r.err = err
				break
			}
		}
		n, err := r.body.Read(p)
		r.pos += int64(n)
		if r.pos > r.size {
			r.err = r.s.local("read", r.key, fmt.Errorf("the server sends more than the %d bytes that it announced", r.size))
			break
		}
		if n > 0 {
			r.failures = 0
		}
		if err != nil && r.pos < r.size {
			r.broken(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// broken drops a connection and waits a little before the next one.
func (r *s3reader) broken(err error) {
	_ = r.body.Close()
	r.body = nil
	r.failures++
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if r.failures > r.s.o.Retries || r.ctx.Err() != nil {
		r.err = r.s.fail(r.ctx, "read", r.key, r.failures, err)
		return
	}
	r.s.o.pause(r.ctx, r.failures)
}

func (r *s3reader) Close() error {
	r.err = cmp.Or(r.err, errors.New("read blob: the reader is closed"))
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}

func (s *s3store) Stat(ctx context.Context, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, s.local("stat", key, err)
	}
	for try := 0; ; try++ {
		out, e := call(ctx, s, "stat", key, s.c.HeadObject, &s3.HeadObjectInput{Bucket: s.bucket(), Key: s.key(key)})
		if e == nil {
			return Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}, nil
		}
		if e.Status < 400 || e.Status >= 500 {
			return Info{}, e
		}
		// An answer to HEAD has no body that says why: the bucket may be missing, the credentials wrong, the clock.
		_, why := call(ctx, s, "stat", key, s.c.ListObjectsV2, &s3.ListObjectsV2Input{Bucket: s.bucket(), Prefix: s.key(key), MaxKeys: aws.Int32(1)})
		switch {
		case why != nil && why.Code != "AccessDenied":
			return Info{}, why
		case why == nil && !errors.Is(e, ErrNotFound) && try == 0:
			// The SDK may have learned the server's time from that answer.
		default:
			return Info{}, e
		}
	}
}

func (s *s3store) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Info{}, s.local("list", prefix, err))
			return
		}
		last := ""
		var token *string
		for {
			out, e := call(ctx, s, "list", prefix, s.c.ListObjectsV2, &s3.ListObjectsV2Input{Bucket: s.bucket(), Prefix: s.key(prefix), ContinuationToken: token})
			if e != nil {
				yield(Info{}, e)
				return
			}
			for _, o := range out.Contents {
				key, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
				if !ok || !strings.HasPrefix(key, prefix) || CheckKey(key) != nil {
					continue // not ours
				}
				if key <= last {
					yield(Info{}, s.local("list", prefix, fmt.Errorf("%q comes after %q: the server does not list in the order of keys", key, last)))
					return
				}
				last = key
				if !yield(Info{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			if token = out.NextContinuationToken; token == nil {
				yield(Info{}, s.local("list", prefix, errors.New("the server says that there is more, but not how to go on")))
				return
			}
		}
	}
}

func (s *s3store) Delete(ctx context.Context, keys ...string) error {
	var first error
	var good []string
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			first = cmp.Or(first, s.local("delete", key, err))
		} else {
			good = append(good, key)
		}
	}
	for batch := range slices.Chunk(good, maxDelete) {
		first = cmp.Or(first, s.deleteBatch(ctx, batch))
		if ctx.Err() != nil {
			return cmp.Or(first, s.local("delete", batch[0], ctx.Err()))
		}
	}
	return first
}

// deleteBatch deletes keys in one request, and again those that the server was too busy for.
func (s *s3store) deleteBatch(ctx context.Context, keys []string) error {
	for try := 0; ; try++ {
		var ids []types.ObjectIdentifier
		for _, key := range keys {
			ids = append(ids, types.ObjectIdentifier{Key: s.key(key)})
		}
		out, e := call(ctx, s, "delete", keys[0], s.c.DeleteObjects, &s3.DeleteObjectsInput{Bucket: s.bucket(), Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
		if e != nil {
			if e.Status == http.StatusNotImplemented || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusBadRequest {
				return s.deleteEach(ctx, keys) // not every server knows the request, or this form of it
			}
			return e
		}
		var again []string
		var first *Error
		for _, failed := range out.Errors {
			key := strings.TrimPrefix(aws.ToString(failed.Key), s.prefix)
			code := aws.ToString(failed.Code)
			if code == "NoSuchKey" {
				continue
			}
			e := s.classify(&Error{Op: "delete", Key: key, Store: s.String(), Code: code, Err: errors.New(cmp.Or(strings.TrimSuffix(aws.ToString(failed.Message), "."), code))})
			if e.kind == kindRetryable {
				again = append(again, key)
			}
			if first == nil || first.kind == kindRetryable && e.kind != kindRetryable {
				first = e // rather one that no retry helps
			}
		}
		if first == nil {
			return nil
		}
		if first.kind != kindRetryable || try >= s.o.Retries || !s.o.pause(ctx, try+1) {
			return first
		}
		keys = again
	}
}

func (s *s3store) deleteEach(ctx context.Context, keys []string) error {
	var first error
	for _, key := range keys {
		_, e := call(ctx, s, "delete", key, s.c.DeleteObject, &s3.DeleteObjectInput{Bucket: s.bucket(), Key: s.key(key)})
		if e != nil && !errors.Is(e, ErrNotFound) && first == nil {
			first = e
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}

func (s *s3store) Uploads(ctx context.Context, prefix string, olderThan time.Duration) ([]Upload, error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, s.local("list unfinished uploads of", prefix, err)
	}
	var all []Upload
	in := &s3.ListMultipartUploadsInput{Bucket: s.bucket(), Prefix: s.key(prefix)}
	for {
		out, e := call(ctx, s, "list unfinished uploads of", prefix, s.c.ListMultipartUploads, in)
		if e != nil {
			return nil, e
		}
		// The server's clock made the times; ours may be wrong. It tells the time in whole seconds, rounded down.
		now := serverTime(out.ResultMetadata).Add(time.Second)
		for _, u := range out.Uploads {
			key, ok := strings.CutPrefix(aws.ToString(u.Key), s.prefix)
			if ok && strings.HasPrefix(key, prefix) && now.Sub(aws.ToTime(u.Initiated)) >= olderThan {
				all = append(all, Upload{Key: key, ID: aws.ToString(u.UploadId), Started: aws.ToTime(u.Initiated)})
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextKeyMarker) == "" {
			return all, nil
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
}

func serverTime(m middleware.Metadata) time.Time {
	if t, ok := awsmiddleware.GetServerTime(m); ok && !t.IsZero() {
		return t
	}
	return time.Now()
}

func (s *s3store) AbortUploads(ctx context.Context, prefix string, olderThan time.Duration) ([]Upload, error) {
	found, err := s.Uploads(ctx, prefix, olderThan)
	if err != nil {
		return nil, err
	}
	var aborted []Upload
	for _, u := range found {
		s.mu.Lock()
		busy := s.busy[u.ID]
		s.mu.Unlock()
		if busy {
			continue
		}
		if err := s.abortUpload(ctx, u.Key, u.ID); err != nil {
			return aborted, err
		}
		aborted = append(aborted, u)
	}
	return aborted, nil
}

func (s *s3store) Check(ctx context.Context) error {
	if err := check(ctx, s); err != nil {
		return err
	}
	key := "check/upload"
	up, e := call(ctx, s, "begin upload of", key, s.c.CreateMultipartUpload, &s3.CreateMultipartUploadInput{Bucket: s.bucket(), Key: s.key(key),
		ServerSideEncryption: types.ServerSideEncryption(s.o.SSE), SSEKMSKeyId: nonEmpty(s.o.KMSKeyID)})
	if e != nil {
		return e
	}
	if err := s.abortUpload(ctx, key, aws.ToString(up.UploadId)); err != nil {
		return err
	}
	// Of a member that was killed right here its own stays. Nobody needs any of them, not even who is at it now.
	_, err := s.AbortUploads(ctx, "check/", 0)
	return err
}
