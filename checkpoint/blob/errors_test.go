package blob_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/test/s3"
)

// masked are the parts of a message that differ from run to run.
var masked = regexp.MustCompile(`request id [A-Za-z0-9-]+|127\.0\.0\.1:\d+|blob "check/[A-Z0-9]+"`)

// says compares an error's text.
func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %s", want)
		return
	}
	got := masked.ReplaceAllStringFunc(err.Error(), func(s string) string {
		switch {
		case strings.HasPrefix(s, "request id"):
			return "request id ..."
		case strings.HasPrefix(s, "blob"):
			return `blob "check/..."`
		default:
			return "HOST"
		}
	})
	if got != want {
		t.Errorf("\n got %s\nwant %s", strings.ReplaceAll(got, "\n", " | "), want)
	}
}

// TestDenied: every right that is missing is named by the operation that needs it, and by Check.
func TestDenied(t *testing.T) {
	for _, c := range []struct {
		action string
		call   func(context.Context, blob.Store) error
		want   string
		check  string
	}{
		{"s3:PutObject", func(ctx context.Context, s blob.Store) error { return s.Put(ctx, "a", blob.Bytes(nil)) },
			`put blob "a" in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:PutObject on arn:aws:s3:::fake-bucket/app/*`,
			`create blob "check/..." in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:PutObject on arn:aws:s3:::fake-bucket/app/*`},
		{"s3:GetObject", func(ctx context.Context, s blob.Store) error { _, err := s.Get(ctx, "a"); return err },
			`get blob "a" in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:GetObject on arn:aws:s3:::fake-bucket/app/*; without s3:ListBucket on the bucket this is also the answer for what is not there`,
			`get blob "check/..." in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:GetObject on arn:aws:s3:::fake-bucket/app/*; without s3:ListBucket on the bucket this is also the answer for what is not there`},
		{"s3:GetObject", func(ctx context.Context, s blob.Store) error { _, err := s.Stat(ctx, "a"); return err },
			`stat blob "a" in s3://fake-bucket/app: 403 Forbidden: Forbidden (request id ...); allow the credentials s3:GetObject on arn:aws:s3:::fake-bucket/app/*; without s3:ListBucket on the bucket this is also the answer for what is not there`, ""},
		{"s3:ListBucket", func(ctx context.Context, s blob.Store) error {
			for _, err := range s.List(ctx, "a") {
				return err
			}
			return nil
		},
			`list blob "a" in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:ListBucket on arn:aws:s3:::fake-bucket`,
			`list blob "check/..." in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:ListBucket on arn:aws:s3:::fake-bucket`},
		{"s3:DeleteObject", func(ctx context.Context, s blob.Store) error { return s.Delete(ctx, "a", "b") },
			`delete blob "a" in s3://fake-bucket/app: AccessDenied: Access Denied; allow the credentials s3:DeleteObject on arn:aws:s3:::fake-bucket/app/*`,
			`delete blob "check/..." in s3://fake-bucket/app: AccessDenied: Access Denied; allow the credentials s3:DeleteObject on arn:aws:s3:::fake-bucket/app/*`},
		{"s3:ListBucketMultipartUploads", func(ctx context.Context, s blob.Store) error { _, err := s.AbortUploads(ctx, "", 0); return err },
			`list unfinished uploads of s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:ListBucketMultipartUploads on arn:aws:s3:::fake-bucket`,
			`list unfinished uploads of blob "check/..." in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:ListBucketMultipartUploads on arn:aws:s3:::fake-bucket`},
		{"s3:AbortMultipartUpload", func(ctx context.Context, s blob.Store) error { return s.Check(ctx) },
			`abort upload of blob "check/upload" in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:AbortMultipartUpload on arn:aws:s3:::fake-bucket/app/*`, ""},
	} {
		f := blobtest.NewFake(t)
		s := openTest(t, f.URL("app"), f.Options())
		f.Deny(c.action)
		err := c.call(t.Context(), s)
		says(t, err, c.want)
		if !blob.IsDenied(err) || blob.IsRetryable(err) || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%s: not denied: %#v", c.action, err)
		}
		if c.check != "" {
			says(t, s.Check(t.Context()), c.check)
		}
	}
}

// TestS3SaysWhatIsWrong holds the messages as a user reads them.
func TestS3SaysWhatIsWrong(t *testing.T) {
	f := blobtest.NewFake(t)
	get := func(url string, change func(*blob.Options)) error {
		o := f.Options()
		o.Retries = -1
		change(&o)
		s := openTest(t, url, o)
		_, err := s.Get(t.Context(), "k")
		return err
	}
	says(t, get(f.URL("app"), plain), `get blob "k" in s3://fake-bucket/app: 404 NoSuchKey: there is no such blob (request id ...)`)
	says(t, get(f.URL(""), plain), `get blob "k" in s3://fake-bucket: 404 NoSuchKey: there is no such blob (request id ...)`)
	says(t, get("s3://nowhere/app", plain), `get blob "k" in s3://nowhere/app: 404 NoSuchBucket: there is no bucket "nowhere" (request id ...); create it, or correct checkpoint.url`)
	says(t, get(f.URL("app"), func(o *blob.Options) { o.AccessKey = "other" }),
		`get blob "k" in s3://fake-bucket/app: 403 InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records (request id ...); the server does not know these credentials: correct checkpoint.s3.access-key and checkpoint.s3.secret-key, or what the AWS_* variables, profile or role give`)
	says(t, get(f.URL("app"), func(o *blob.Options) { o.Region = "us-west-2" }),
		`get blob "k" in s3://fake-bucket/app: 400 AuthorizationHeaderMalformed: the bucket is in region eu-central-1, not in us-west-2 (request id ...); set checkpoint.s3.region to eu-central-1`)
	says(t, get(f.URL("app"), faulty(t, blobtest.Always(blobtest.SlowDown))),
		`get blob "k" in s3://fake-bucket/app: 503 SlowDown: Please reduce your request rate (request id ...); the store is overloaded: lower checkpoint.max-bytes-per-second, or take checkpoints less often`)
	says(t, get(f.URL("app"), func(o *blob.Options) { faulty(t, blobtest.Always(blobtest.Refuse))(o); o.Retries = 2 }),
		`get blob "k" in s3://fake-bucket/app: connection reset by the test (after 3 attempts); look whether http://HOST can be reached from here (checkpoint.s3.endpoint)`)
	says(t, get(f.URL("app"), func(o *blob.Options) {
		faulty(t, blobtest.Always(blobtest.Hang))(o)
		o.Timeout = 20 * time.Millisecond
	}), `get blob "k" in s3://fake-bucket/app: no progress for 20ms; look whether http://HOST can be reached from here (checkpoint.s3.endpoint)`)
	says(t, get(f.URL("app"), func(o *blob.Options) { o.Endpoint = "http://s3.invalid:9000" }),
		`get blob "k" in s3://fake-bucket/app: there is no host s3.invalid; correct checkpoint.s3.endpoint or checkpoint.s3.region`)
	says(t, get(f.URL("app"), func(o *blob.Options) { o.Endpoint, o.PathStyle = "http://s3.invalid:9000", false }),
		`get blob "k" in s3://fake-bucket/app: there is no host fake-bucket.s3.invalid; correct checkpoint.s3.endpoint, or set checkpoint.s3.path-style to true if the server has no host names for buckets`)
	says(t, get(f.URL("app"), func(o *blob.Options) { o.Endpoint = strings.Replace(o.Endpoint, "http:", "https:", 1) }),
		`get blob "k" in s3://fake-bucket/app: http: server gave HTTP response to HTTPS client; write http:// in checkpoint.s3.endpoint if the server has no TLS`)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, get(f.URL("app"), func(o *blob.Options) { o.Endpoint = "http://" + ln.Addr().String() }),
		`get blob "k" in s3://fake-bucket/app: dial tcp HOST: connect: connection refused; look whether http://HOST can be reached from here (checkpoint.s3.endpoint)`)

	secure := httptest.NewUnstartedServer(f)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	defer secure.Close()
	says(t, get(f.URL("app"), func(o *blob.Options) { o.Endpoint = secure.URL }),
		`get blob "k" in s3://fake-bucket/app: tls: failed to verify certificate: x509: certificate signed by unknown authority; name the authority's certificate by AWS_CA_BUNDLE`)

	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>a web page</html>")) }))
	defer web.Close()
	o := f.Options()
	o.Endpoint, o.Retries = web.URL, -1
	for _, err := range openTest(t, f.URL("app"), o).List(t.Context(), "") {
		if err == nil {
			t.Error("a web page is a listing")
		}
		t.Log(err)
	}

	// The time for the call, and its end.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o = f.Options()
	faulty(t, blobtest.Always(blobtest.Hang))(&o)
	err = openTest(t, f.URL("app"), o).Put(ctx, "k", blob.Bytes(nil))
	says(t, err, `put blob "k" in s3://fake-bucket/app: context deadline exceeded (it may have been done all the same); the store is slow, or the time for this call is too short`)
	if !blob.IsRetryable(err) {
		t.Error("not retryable")
	}

}

// TestRealS3SaysWhatIsWrong is the same for a real server, which verifies signatures.
func TestRealS3SaysWhatIsWrong(t *testing.T) {
	server := s3.Start(t)
	real := func(url string, change func(*blob.Options)) error {
		o := realOptions(server)
		o.Retries = -1
		change(&o)
		s := openTest(t, url, o)
		_, err := s.Stat(t.Context(), "k")
		if _, e := s.Get(t.Context(), "k"); (e == nil) != (err == nil) || errors.Is(e, blob.ErrNotFound) != errors.Is(err, blob.ErrNotFound) || blob.IsDenied(e) != blob.IsDenied(err) {
			t.Errorf("get: %v, stat: %v", e, err)
		}
		return s.Create(t.Context(), "k/l", nil)
	}
	says(t, real("s3://nowhere-here/app", plain), `create blob "k/l" in s3://nowhere-here/app: 404 NoSuchBucket: there is no bucket "nowhere-here" (request id ...); create it, or correct checkpoint.url`)
	says(t, real("s3://"+s3.Bucket+"/app", func(o *blob.Options) { o.SecretKey = "wrong" }),
		`create blob "k/l" in s3://millrace-test/app: 403 SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method (request id ...); the server does not know these credentials: correct checkpoint.s3.access-key and checkpoint.s3.secret-key, or what the AWS_* variables, profile or role give`)
	says(t, real("s3://"+s3.Bucket+"/app", func(o *blob.Options) { o.AccessKey = "wrong" }),
		`create blob "k/l" in s3://millrace-test/app: 404 XAdminUserNotFound: No user exists with the provided access key ID (request id ...); the server does not know these credentials: correct checkpoint.s3.access-key and checkpoint.s3.secret-key, or what the AWS_* variables, profile or role give`)
	says(t, real("s3://"+s3.Bucket+"/app", func(o *blob.Options) { o.Region = "us-west-2" }),
		`create blob "k/l" in s3://millrace-test/app: 400 AuthorizationHeaderMalformed: The authorization header is malformed; the region "us-west-2" is wrong; expecting "eu-central-1" (request id ...); set checkpoint.s3.region to the region of the bucket`)
	if err := real("s3://"+s3.Bucket+"/app", plain); err != nil {
		t.Error(err)
	}
	s := openTest(t, "s3://"+s3.Bucket+"/app", realOptions(server))
	says(t, s.Put(t.Context(), "k/l/m", blob.Bytes(nil)), `put blob "k/l/m" in s3://millrace-test/app: 409 ObjectParentIsFile: Object parent already exists as a file (request id ...); the server keeps objects as files, and where this key wants a folder is a file, or the reverse: remove what Millrace did not write`)
	says(t, s.Put(t.Context(), "k", blob.Bytes(nil)), `put blob "k" in s3://millrace-test/app: 409 ExistingObjectIsDirectory: Existing Object is a directory (request id ..., after 9 attempts); the server keeps objects as files, and where this key wants a folder is a file, or the reverse: remove what Millrace did not write`)
}

// TestMissingBucketIsNoMissingBlob: to take one for the other would lose all checkpoints from sight.
func TestMissingBucketIsNoMissingBlob(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		missingBucket(t, openTest(t, "s3://nowhere/x", blobtest.NewFake(t).Options()))
	})
	t.Run("real", func(t *testing.T) {
		missingBucket(t, openTest(t, "s3://not-here/x", realOptions(s3.Start(t))))
	})
}

func missingBucket(t *testing.T, s blob.Store) {
	_, getErr := s.Get(t.Context(), "k")
	_, statErr := s.Stat(t.Context(), "k")
	_, openErr := s.Open(t.Context(), "k", 5)
	_, upErr := s.AbortUploads(t.Context(), "", 0)
	var listErr error
	for _, listErr = range s.List(t.Context(), "") {
	}
	for op, err := range map[string]error{"get": getErr, "stat": statErr, "open": openErr, "list": listErr, "uploads": upErr, "check": s.Check(t.Context()),
		"put": s.Put(t.Context(), "k", blob.Bytes(nil)), "large put": s.Put(t.Context(), "k", blob.Bytes(big)), "delete": s.Delete(t.Context(), "k")} {
		if err == nil || errors.Is(err, blob.ErrNotFound) || blob.IsRetryable(err) || !strings.Contains(err.Error(), "there is no bucket") || !strings.Contains(err.Error(), "create it, or correct checkpoint.url") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestClockSkew: requests are signed with the server's time once it is known.
func TestClockSkew(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -48 * time.Hour} {
		f := blobtest.NewFake(t)
		f.Skew(skew)
		s := openTest(t, f.URL("app"), f.Options())
		for _, c := range calls[:3] {
			if err := cmpOr(func() error { return c.call(t.Context(), s) }, func() error { return c.after(t.Context(), s) }); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		// Only the first request of the store has to be repeated.
		if all := f.Requests(); len(all) < 3 || all[0] != all[1] || all[1] == all[2] {
			t.Errorf("requests %q", all)
		}
		// Ages are by the server's clock.
		o := f.Options()
		o.Retries = 1
		faulty(t, blobtest.First(2, blobtest.LostReply, "POST", "uploads"))(&o)
		lost := openTest(t, f.URL("app"), o)
		if _, err := lost.Stat(t.Context(), "big"); err != nil { // learns the time
			t.Fatal(err)
		}
		if err := lost.Put(t.Context(), "lost", blob.Bytes(big)); err == nil {
			t.Fatal("no error")
		}
		if found, err := s.Uploads(t.Context(), "", 10*time.Minute); err != nil || len(found) != 0 {
			t.Errorf("older than 10 minutes: %+v, %v", found, err)
		}
		if found, err := s.Uploads(t.Context(), "", 0); err != nil || len(found) == 0 {
			t.Errorf("all: %+v, %v", found, err)
		}
	}
	f := blobtest.NewFake(t)
	f.Skew(time.Hour)
	o := f.Options()
	o.Retries = -1
	says(t, openTest(t, f.URL("app"), o).Put(t.Context(), "k", blob.Bytes(nil)),
		`put blob "k" in s3://fake-bucket/app: 403 RequestTimeTooSkewed: The difference between the request time and the current time is too large (request id ...); the clocks of this machine and of the server differ by more than the server allows (15 minutes): set them, for example by NTP`)
}

// TestCheckFindsServersThatDoNotDo tests what only Check can find.
func TestCheckFindsServersThatDoNotDo(t *testing.T) {
	f := blobtest.NewFake(t)
	s := openTest(t, f.URL("app"), f.Options())
	f.FreezeListings()
	says(t, s.Check(t.Context()), `check blob "check/..." in s3://fake-bucket/app: the listing does not show it; take a server whose listings show what was written before: by them the newest checkpoint is found`)
	// Everything else does not depend on listings.
	for _, c := range calls[:3] {
		if err := cmpOr(func() error { return c.call(t.Context(), s) }, func() error { return c.after(t.Context(), s) }); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := s.Stat(t.Context(), "big"); err != nil {
		t.Error(err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("listed %+v, %v", info, err)
	}
	f.ThawListings()
	f.IgnoreConditions()
	says(t, s.Check(t.Context()), `check blob "check/..." in s3://fake-bucket/app: it was created twice: the server ignores the condition, and two owners of a subtask could both publish a checkpoint; take a server that supports conditional writes (If-None-Match)`)
}

func TestDeleteWithoutBulkRequests(t *testing.T) {
	f := blobtest.NewFake(t)
	f.RefuseBulkDelete()
	s := openTest(t, f.URL("app"), f.Options())
	for _, key := range []string{"a", "b", "c"} {
		if err := s.Put(t.Context(), key, blob.Bytes(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), "a", "absent", "b"); err != nil {
		t.Error(err)
	}
	f.Deny("s3:DeleteObject")
	says(t, s.Delete(t.Context(), "c", "d"), `delete blob "c" in s3://fake-bucket/app: 403 AccessDenied: Access Denied (request id ...); allow the credentials s3:DeleteObject on arn:aws:s3:::fake-bucket/app/*`)
}

func TestBusyDeletesAreRepeated(t *testing.T) {
	f := blobtest.NewFake(t)
	o := f.Options()
	o.Retries = 2
	s := openTest(t, f.URL("app"), o)
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		if err := s.Put(t.Context(), key, blob.Bytes(nil)); err != nil {
			t.Fatal(err)
		}
	}
	f.BusyDeletes(5) // three keys, then two of them
	if err := s.Delete(t.Context(), keys...); err != nil {
		t.Error(err)
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("left %+v, %v", info, err)
	}
	f.BusyDeletes(100)
	err := s.Delete(t.Context(), keys...)
	says(t, err, `delete blob "a" in s3://fake-bucket/app: SlowDown: Please reduce your request rate (it may have been done all the same); the store is overloaded: lower checkpoint.max-bytes-per-second, or take checkpoints less often`)
	if !blob.IsRetryable(err) {
		t.Error("not retryable")
	}
}

func TestDamagedBlobIsFoundByItsHash(t *testing.T) {
	f := blobtest.NewFake(t)
	s := openTest(t, f.URL("app"), f.Options())
	b := blob.Bytes(big)
	if err := s.Put(t.Context(), "big", b); err != nil {
		t.Fatal(err)
	}
	f.Damage("app/big")
	r, err := s.Open(t.Context(), "big", 0)
	if err != nil {
		t.Fatal(err)
	}
	v := blob.Verify(r, b.Size, b.SHA256)
	defer v.Close()
	buf := make([]byte, 1<<20)
	for err == nil {
		_, err = v.Read(buf)
	}
	if !errors.Is(err, blob.ErrCorrupt) {
		t.Error(err)
	}
}
