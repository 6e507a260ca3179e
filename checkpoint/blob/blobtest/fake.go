package blobtest

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// What the fake's bucket is called, and who may use it.
const (
	FakeBucket    = "fake-bucket"
	FakeRegion    = "eu-central-1"
	FakeAccessKey = "fake-access-key"
	FakeSecretKey = "fake-secret-key"
)

// Fake is an S3 server in this process, for faults that a real one does not make on demand. It is stricter than S3 where
// other servers are: it refuses chunked encodings of payloads, and completes an upload once only.
//
// It differs from S3 in that it looks at the access key but does not verify signatures (it does verify the hash of every
// payload), has one bucket, path-style URLs only, no versions, and parts of any size.
type Fake struct {
	server *httptest.Server

	mu       sync.Mutex
	objects  map[string]object
	uploads  map[string]*upload
	listing  map[string]object // what listings show; nil = objects
	denied   map[string]bool
	skew     time.Duration
	pageSize int
	noBulk   bool
	busy     int
	blind    bool // If-None-Match is ignored
	requests []string
	nextID   int
}

type object struct {
	data     []byte
	modified time.Time
	sse      string
	etag     string
}

type upload struct {
	key     string
	started time.Time
	parts   map[int]object
	sse     string
}

// NewFake starts a fake, stopped at the test's end.
func NewFake(t testing.TB) *Fake {
	f := &Fake{objects: map[string]object{}, uploads: map[string]*upload{}, denied: map[string]bool{}, pageSize: 1000}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// URL of a prefix in the fake's bucket.
func (f *Fake) URL(prefix string) string { return "s3://" + FakeBucket + "/" + prefix }

// Options to open the fake with: its endpoint and credentials, and no long waits.
func (f *Fake) Options() blob.Options {
	return blob.Options{Endpoint: f.server.URL, Region: FakeRegion, PathStyle: true, AccessKey: FakeAccessKey, SecretKey: FakeSecretKey,
		PartSize: 5 << 20, Timeout: 10 * time.Second, Backoff: time.Millisecond}
}

// Deny an action, for example "s3:DeleteObject".
func (f *Fake) Deny(actions ...string) {
	f.set(func() {
		for _, a := range actions {
			f.denied[a] = true
		}
	})
}

// Skew sets the fake's clock ahead of ours, or back. Requests that are more than 15 minutes off are refused.
func (f *Fake) Skew(d time.Duration) { f.set(func() { f.skew = d }) }

// PageSize of listings.
func (f *Fake) PageSize(n int) { f.set(func() { f.pageSize = n }) }

// FreezeListings lets listings show what is there now, whatever happens, until ThawListings.
func (f *Fake) FreezeListings() { f.set(func() { f.listing = maps.Clone(f.objects) }) }

// ThawListings ends FreezeListings.
func (f *Fake) ThawListings() { f.set(func() { f.listing = nil }) }

// RefuseBulkDelete makes DeleteObjects an unknown request, as some servers have it.
func (f *Fake) RefuseBulkDelete() { f.set(func() { f.noBulk = true }) }

// BusyDeletes lets the next n keys of bulk deletes fail with "SlowDown", each by itself.
func (f *Fake) BusyDeletes(n int) { f.set(func() { f.busy = n }) }

// IgnoreConditions makes the fake overwrite what If-None-Match protects, as some servers do.
func (f *Fake) IgnoreConditions() { f.set(func() { f.blind = true }) }

// Requests that came so far, such as "PUT key" and "POST key?uploads".
func (f *Fake) Requests() (all []string) {
	f.set(func() { all = slices.Clone(f.requests) })
	return all
}

// Encryption that an object was stored with.
func (f *Fake) Encryption(key string) (sse string) {
	f.set(func() { sse = f.objects[key].sse })
	return sse
}

// Damage changes a byte of an object.
func (f *Fake) Damage(key string) {
	f.set(func() {
		o := f.objects[key]
		o.data = slices.Clone(o.data)
		o.data[len(o.data)/2] ^= 1
		f.objects[key] = o
	})
}

func (f *Fake) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// request being answered.
type request struct {
	f    *Fake
	w    http.ResponseWriter
	r    *http.Request
	key  string
	q    url.Values
	body []byte
}

// ServeHTTP answers a request.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // torn: nothing is stored, and nobody is there to be answered
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := &request{f, w, r, key, r.URL.Query(), body}
	q.q.Del("x-id")
	f.requests = append(f.requests, strings.TrimSuffix(r.Method+" "+key+"?"+q.q.Encode(), "?"))
	w.Header().Set("Date", time.Now().Add(f.skew).UTC().Format(http.TimeFormat))
	f.nextID++
	w.Header().Set("X-Amz-Request-Id", fmt.Sprintf("FAKE%04d", f.nextID))
	switch {
	case !q.authorized(body):
	case bucket != FakeBucket:
		q.fail(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
	case key == "":
		q.serveBucket()
	default:
		q.serveObject()
	}
}

// authorized checks everything that a signature covers, but not the signature.
func (q *request) authorized(body []byte) bool {
	auth := q.r.Header.Get("Authorization")
	_, scope, _ := strings.Cut(auth, "Credential=")
	parts := strings.Split(scope, "/") // key, date, region, service
	signed, err := time.Parse("20060102T150405Z", q.r.Header.Get("X-Amz-Date"))
	hash := q.r.Header.Get("X-Amz-Content-Sha256")
	sum := sha256.Sum256(body)
	want := base64.StdEncoding.EncodeToString(sum[:])
	switch {
	case len(parts) < 4 || err != nil:
		q.fail(http.StatusForbidden, "AccessDenied", "Access Denied.")
	case parts[0] != FakeAccessKey:
		q.fail(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	case parts[2] != FakeRegion:
		q.w.Header().Set("X-Amz-Bucket-Region", FakeRegion)
		q.fail(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed; the region '"+parts[2]+"' is wrong; expecting '"+FakeRegion+"'")
	case signed.Sub(time.Now().Add(q.f.skew)).Abs() > 15*time.Minute:
		q.fail(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	case strings.HasPrefix(hash, "STREAMING-"):
		q.fail(http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented.")
	case hash != hex.EncodeToString(sum[:]):
		q.fail(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
	case q.r.Header.Get("X-Amz-Checksum-Sha256") != "" && q.r.Header.Get("X-Amz-Checksum-Sha256") != want:
		q.fail(http.StatusBadRequest, "BadDigest", "The SHA256 you specified did not match the calculated checksum.")
	default:
		return true
	}
	return false
}

func (q *request) fail(status int, code, message string) {
	q.w.Header().Set("Content-Type", "application/xml")
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		q.xml(struct {
			XMLName xml.Name `xml:"Error"`
			Code    string
			Message string
		}{Code: code, Message: message})
	}
}

func (q *request) xml(v any) {
	out, err := xml.Marshal(v)
	if err != nil {
		panic(err) // of a struct above
	}
	_, _ = q.w.Write(append([]byte(xml.Header), out...))
}

// may says whether an action is allowed, and answers if it is not.
func (q *request) may(action string) bool {
	if q.f.denied[action] {
		q.fail(http.StatusForbidden, "AccessDenied", "Access Denied")
		return false
	}
	return true
}

func (q *request) has(name string) bool { _, ok := q.q[name]; return ok }

func (q *request) serveBucket() {
	switch {
	case q.r.Method == http.MethodHead:
	case q.has("list-type") && q.may("s3:ListBucket"):
		q.list()
	case q.has("uploads") && q.may("s3:ListBucketMultipartUploads"):
		q.listUploads()
	case q.has("delete"):
		q.deleteObjects()
	}
}

func (q *request) list() {
	objects := q.f.objects
	if q.f.listing != nil {
		objects = q.f.listing
	}
	type entry struct {
		Key          string
		Size         int
		LastModified string
	}
	out := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []entry
	}{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasPrefix(key, q.q.Get("prefix")) || key <= q.q.Get("continuation-token") {
			continue
		}
		if len(out.Contents) == q.f.pageSize {
			out.IsTruncated, out.NextContinuationToken = true, out.Contents[len(out.Contents)-1].Key
			break
		}
		o := objects[key]
		out.Contents = append(out.Contents, entry{key, len(o.data), o.modified.UTC().Format(time.RFC3339)})
	}
	q.xml(out)
}

func (q *request) listUploads() {
	type entry struct{ Key, UploadId, Initiated string }
	out := struct {
		XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
		IsTruncated        bool
		NextKeyMarker      string `xml:",omitempty"`
		NextUploadIdMarker string `xml:",omitempty"`
		Upload             []entry
	}{}
	for _, id := range slices.Sorted(maps.Keys(q.f.uploads)) {
		u := q.f.uploads[id]
		if !strings.HasPrefix(u.key, q.q.Get("prefix")) || id <= q.q.Get("upload-id-marker") {
			continue
		}
		if len(out.Upload) == q.f.pageSize {
			last := out.Upload[len(out.Upload)-1]
			out.IsTruncated, out.NextKeyMarker, out.NextUploadIdMarker = true, last.Key, last.UploadId
			break
		}
		out.Upload = append(out.Upload, entry{u.key, id, u.started.UTC().Format(time.RFC3339)})
	}
	q.xml(out)
}

func (q *request) deleteObjects() {
	if q.f.noBulk {
		q.fail(http.StatusNotImplemented, "NotImplemented", "The requested functionality is not implemented.")
		return
	}
	var in struct{ Object []struct{ Key string } }
	if err := xml.Unmarshal(q.body, &in); err != nil || len(in.Object) > 1000 {
		q.fail(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed.")
		return
	}
	type failure struct{ Key, Code, Message string }
	out := struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Error   []failure
	}{}
	for _, o := range in.Object {
		switch {
		case q.f.denied["s3:DeleteObject"]:
			out.Error = append(out.Error, failure{o.Key, "AccessDenied", "Access Denied"})
		case q.f.busy > 0:
			q.f.busy--
			out.Error = append(out.Error, failure{o.Key, "SlowDown", "Please reduce your request rate."})
		default:
			delete(q.f.objects, o.Key)
		}
	}
	q.xml(out)
}

func (q *request) serveObject() {
	o, exists := q.f.objects[q.key]
	switch {
	case q.r.Method == http.MethodPost && q.has("uploads") && q.may("s3:PutObject"):
		q.f.nextID++
		id := fmt.Sprintf("upload-%06d", q.f.nextID)
		q.f.uploads[id] = &upload{key: q.key, started: q.now(), parts: map[int]object{}, sse: q.sse()}
		q.xml(struct {
			XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key, UploadId string
		}{Bucket: FakeBucket, Key: q.key, UploadId: id})
	case q.has("uploadId"):
		q.serveUpload()
	case q.r.Method == http.MethodPut && q.may("s3:PutObject"):
		if exists && q.r.Header.Get("If-None-Match") == "*" && !q.f.blind {
			q.fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
			return
		}
		q.f.objects[q.key] = object{q.body, q.now(), q.sse(), etag(q.body)}
		q.w.Header().Set("ETag", q.f.objects[q.key].etag)
	case q.r.Method == http.MethodDelete && q.may("s3:DeleteObject"):
		delete(q.f.objects, q.key)
		q.w.WriteHeader(http.StatusNoContent)
	case (q.r.Method == http.MethodGet || q.r.Method == http.MethodHead) && q.may("s3:GetObject"):
		if !exists {
			q.fail(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
			return
		}
		q.get(o)
	}
}

func (q *request) now() time.Time { return time.Now().Add(q.f.skew) }

func (q *request) sse() string {
	return strings.TrimSuffix(q.r.Header.Get("X-Amz-Server-Side-Encryption")+" "+q.r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"), " ")
}

func etag(data []byte) string {
	sum := md5.Sum(data)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (q *request) get(o object) {
	h := q.w.Header()
	h.Set("ETag", o.etag)
	h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	data, status := o.data, http.StatusOK
	if text, ok := strings.CutPrefix(q.r.Header.Get("Range"), "bytes="); ok {
		from, err := strconv.Atoi(strings.TrimSuffix(text, "-"))
		if err != nil || from >= len(data) {
			q.fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable")
			return
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		data, status = data[from:], http.StatusPartialContent
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	q.w.WriteHeader(status)
	if q.r.Method == http.MethodGet {
		_, _ = q.w.Write(data)
	}
}

func (q *request) serveUpload() {
	id := q.q.Get("uploadId")
	u, ok := q.f.uploads[id]
	if !ok || u.key != q.key {
		q.fail(http.StatusNotFound, "NoSuchUpload", "The specified multipart upload does not exist.")
		return
	}
	switch {
	case q.r.Method == http.MethodPut && q.may("s3:PutObject"):
		n, err := strconv.Atoi(q.q.Get("partNumber"))
		if err != nil || n < 1 || n > 10000 {
			q.fail(http.StatusBadRequest, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
			return
		}
		u.parts[n] = object{data: q.body, etag: etag(q.body)}
		q.w.Header().Set("ETag", u.parts[n].etag)
	case q.r.Method == http.MethodDelete && q.may("s3:AbortMultipartUpload"):
		delete(q.f.uploads, id)
		q.w.WriteHeader(http.StatusNoContent)
	case q.r.Method == http.MethodPost && q.may("s3:PutObject"):
		var in struct {
			Part []struct {
				PartNumber int
				ETag       string
			}
		}
		if err := xml.Unmarshal(q.body, &in); err != nil {
			q.fail(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed.")
			return
		}
		var data []byte
		for i, p := range in.Part {
			part, ok := u.parts[p.PartNumber]
			if !ok || p.PartNumber != i+1 || part.etag != p.ETag {
				q.fail(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found.")
				return
			}
			data = append(data, part.data...)
		}
		q.f.objects[q.key] = object{data, q.now(), u.sse, etag(data)}
		delete(q.f.uploads, id)
		q.xml(struct {
			XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
			Bucket, Key, ETag string
		}{Bucket: FakeBucket, Key: q.key, ETag: etag(data)})
	}
}
