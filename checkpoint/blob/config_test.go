package blob_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
)

// noEnvironment removes what a developer's machine may say about AWS.
func noEnvironment(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // so that it is set again at the end
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// jsonCredentials as containers and machines get them.
var jsonCredentials = fmt.Sprintf(`{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":%q,"Token":"t","Expiration":%q}`,
	blobtest.FakeAccessKey, blobtest.FakeSecretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))

// TestCredentials: each source of credentials and region that the documentation names.
func TestCredentials(t *testing.T) {
	profile := fmt.Sprintf("[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[team]\naws_access_key_id = %s\naws_secret_access_key = %s\nregion = %s\n",
		blobtest.FakeAccessKey, blobtest.FakeSecretKey, blobtest.FakeRegion)
	serve := func(t *testing.T, answer func(r *http.Request) string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := answer(r)
			if text == "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
			_, _ = io.WriteString(w, text)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	for name, prepare := range map[string]func(t *testing.T, o *blob.Options){
		"static": func(_ *testing.T, o *blob.Options) {
			o.AccessKey, o.SecretKey, o.Region = blobtest.FakeAccessKey, blobtest.FakeSecretKey, blobtest.FakeRegion
		},
		"static beats the environment": func(t *testing.T, o *blob.Options) {
			o.AccessKey, o.SecretKey, o.Region = blobtest.FakeAccessKey, blobtest.FakeSecretKey, blobtest.FakeRegion
			t.Setenv("AWS_ACCESS_KEY_ID", "wrong")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
			t.Setenv("AWS_REGION", "us-west-2")
		},
		"environment": func(t *testing.T, _ *blob.Options) {
			t.Setenv("AWS_ACCESS_KEY_ID", blobtest.FakeAccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", blobtest.FakeSecretKey)
			t.Setenv("AWS_REGION", blobtest.FakeRegion)
		},
		"profile": func(t *testing.T, o *blob.Options) {
			t.Setenv("AWS_CONFIG_FILE", write(t, "config", strings.Replace(profile, "[team]", "[profile team]", 1)))
			o.Profile = "team"
		},
		"profile of the environment": func(t *testing.T, o *blob.Options) {
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", write(t, "credentials", profile))
			t.Setenv("AWS_PROFILE", "team")
			o.Region = blobtest.FakeRegion
		},
		"web identity": func(t *testing.T, o *blob.Options) {
			token := write(t, "token", "web-token")
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/checkpoints")
			t.Setenv("AWS_ENDPOINT_URL_STS", serve(t, func(r *http.Request) string {
				if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("WebIdentityToken") != "web-token" {
					return ""
				}
				return fmt.Sprintf(`<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
					blobtest.FakeAccessKey, blobtest.FakeSecretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
			}))
			o.Region = blobtest.FakeRegion
		},
		"EKS pod identity": func(t *testing.T, o *blob.Options) {
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write(t, "token", "pod-token"))
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", serve(t, func(r *http.Request) string {
				if r.Header.Get("Authorization") != "pod-token" {
					return ""
				}
				return jsonCredentials
			})+"/v1/credentials")
			o.Region = blobtest.FakeRegion
		},
		"instance role": func(t *testing.T, o *blob.Options) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", serve(t, func(r *http.Request) string {
				switch {
				case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
					return "imds-token"
				case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "imds-token":
					return ""
				case strings.HasSuffix(r.URL.Path, "/checkpoints"):
					return jsonCredentials
				case strings.Contains(r.URL.Path, "security-credentials"):
					return "checkpoints"
				}
				return ""
			}))
			o.Region = blobtest.FakeRegion
		},
		"endpoint of the environment": func(t *testing.T, o *blob.Options) {
			o.AccessKey, o.SecretKey, o.Region = blobtest.FakeAccessKey, blobtest.FakeSecretKey, blobtest.FakeRegion
			t.Setenv("AWS_ENDPOINT_URL_S3", o.Endpoint)
			o.Endpoint = ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			noEnvironment(t)
			f := blobtest.NewFake(t)
			o := blob.Options{Endpoint: f.Options().Endpoint, PathStyle: true, Retries: -1}
			prepare(t, &o)
			s := openTest(t, f.URL("app"), o)
			if err := s.Put(t.Context(), "k", blob.Bytes(nil)); err != nil {
				t.Error(err)
			}
			if got := s.String(); got != "s3://fake-bucket/app" {
				t.Errorf("String: %s", got)
			}
		})
	}
}

// TestConfigurationSaysWhatIsMissing holds the messages as a user reads them.
func TestConfigurationSaysWhatIsMissing(t *testing.T) {
	noEnvironment(t)
	open := func(o blob.Options) error {
		s, err := blob.Open(t.Context(), "s3://bucket/app", o)
		if err == nil {
			err = s.Put(t.Context(), "k", blob.Bytes(nil))
		}
		return err
	}
	f := blobtest.NewFake(t)
	says(t, open(blob.Options{}), `open s3://bucket/app: no region is set; set checkpoint.s3.region or AWS_REGION to the region of the bucket`)
	err := open(blob.Options{Endpoint: f.Options().Endpoint, PathStyle: true, Retries: -1})
	if !blob.IsDenied(err) {
		t.Error("not denied")
	}
	says(t, err, `put blob "k" in s3://bucket/app: get credentials: access disabled to EC2 IMDS via client option, or "AWS_EC2_METADATA_DISABLED" environment variable; set checkpoint.s3.access-key and checkpoint.s3.secret-key, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or give this machine, container or pod a role`)
	says(t, open(blob.Options{Profile: "team", Region: "x"}), `open s3://bucket/app: failed to get shared config profile, team; look at the AWS_* variables and the AWS configuration files of this user`)
	says(t, open(blob.Options{AccessKey: "a"}), `open s3://bucket/app: of access key and secret key only one is set`)
	says(t, open(blob.Options{SSE: "aes"}), `open s3://bucket/app: the encryption "aes" is none of AES256 and aws:kms`)
	says(t, open(blob.Options{KMSKeyID: "k"}), `open s3://bucket/app: a KMS key is set, but the encryption is not aws:kms`)
	says(t, open(blob.Options{PartSize: 1}), `open s3://bucket/app: the part size of 1 bytes is not between 5 MiB and 1 GiB`)
	says(t, open(blob.Options{Endpoint: "s3.example.com:9000"}), `open s3://bucket/app: the endpoint must be a URL such as https://s3.example.com:9000`)
}

// amazon stands for Amazon's S3: it records the hosts that are spoken to and hands requests to the fake.
type amazon struct {
	f *blobtest.Fake

	mu   sync.Mutex
	seen []*http.Request
}

func (a *amazon) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.seen = append(a.seen, r)
	a.mu.Unlock()
	in := r.Clone(r.Context())
	in.RequestURI = ""
	bucket, _, _ := strings.Cut(r.URL.Host, ".")
	in.URL.Path = "/" + bucket + r.URL.Path
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	a.f.ServeHTTP(w, in)
	return w.Result(), nil
}

// TestAmazon: without an endpoint it is Amazon's, by host names of buckets and with checksums that it keeps; with one,
// nothing is sent that other servers refuse.
func TestAmazon(t *testing.T) {
	noEnvironment(t)
	for _, own := range []bool{true, false} {
		f := blobtest.NewFake(t)
		a := &amazon{f: f}
		o := f.Options()
		o.Transport, o.PathStyle = a, false
		o.Endpoint = map[bool]string{true: "", false: "https://s3.example.com"}[own]
		o.SSE, o.KMSKeyID = "aws:kms", "key-1"
		s := openTest(t, f.URL("app"), o)
		for _, c := range calls[:3] {
			if err := cmpOr(func() error { return c.call(t.Context(), s) }, func() error { return c.after(t.Context(), s) }); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if err := s.Delete(t.Context(), "nothing"); err != nil {
			t.Error(err)
		}
		host := map[bool]string{true: "fake-bucket.s3.eu-central-1.amazonaws.com", false: "fake-bucket.s3.example.com"}[own]
		sums := 0
		for _, r := range a.seen {
			if r.URL.Host != host || r.URL.Scheme != "https" {
				t.Errorf("request to %s, want %s", r.URL, host)
			}
			for name := range r.Header {
				low := strings.ToLower(name)
				switch {
				case low == "x-amz-checksum-sha256":
					sums++
				case strings.Contains(low, "checksum") && !strings.Contains(r.URL.RawQuery, "delete") && !own, low == "x-amz-trailer":
					t.Errorf("%s %s has %s", r.Method, r.URL, name)
				}
			}
		}
		if want := map[bool]int{true: 1 + 2 + 1, false: 0}[own]; sums != want {
			t.Errorf("%d checksums of payloads, want %d", sums, want)
		}
		for _, key := range []string{"app/small", "app/big", "app/m"} {
			if got := f.Encryption(key); got != "aws:kms key-1" {
				t.Errorf("encryption of %s: %q", key, got)
			}
		}
	}
}

// TestBandwidthLimit: a call for which the limit leaves too little time ends at once and leaves nothing.
func TestBandwidthLimit(t *testing.T) {
	f := blobtest.NewFake(t)
	o := f.Options()
	o.BytesPerSecond = 1000
	dir := "file://" + t.TempDir()
	for _, url := range []string{f.URL("app"), dir} {
		s := openTest(t, url, o)
		for name, call := range map[string]func(context.Context) error{
			"put":    func(ctx context.Context) error { return s.Put(ctx, "x", blob.Bytes(big[:1<<20])) },
			"large":  func(ctx context.Context) error { return s.Put(ctx, "x", blob.Bytes(big)) },
			"create": func(ctx context.Context) error { return s.Create(ctx, "x", big[:1<<20]) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := call(ctx)
			if ctx.Err() != nil {
				t.Errorf("%s: waited in vain", name)
			}
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !blob.IsRetryable(err) || !strings.Contains(err.Error(), "the limit of 1000 bytes a second leaves too little time") {
				t.Errorf("%s %s: %v", url, name, err)
			}
		}
		for info, err := range s.List(t.Context(), "") {
			t.Errorf("left %+v, %v", info, err)
		}
		if err := s.Put(t.Context(), "small", blob.Bytes(small)); err != nil {
			t.Error(err)
		}
	}
}

// TestSlowUploadIsNoStall: the wait for the bandwidth limit does not count as a stall.
func TestSlowUploadIsNoStall(t *testing.T) {
	f := blobtest.NewFake(t)
	o := f.Options()
	o.BytesPerSecond = 32 << 10 // the second 64 KiB come after two seconds
	o.Timeout, o.Retries = time.Second, -1
	if err := openTest(t, f.URL("app"), o).Put(t.Context(), "x", blob.Bytes(big[:128<<10])); err != nil {
		t.Error(err)
	}
}

// sink answers every request of an upload and keeps nothing.
type sink struct{}

func (sink) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	body := ""
	switch {
	case r.Method == http.MethodPost && strings.Contains(r.URL.RawQuery, "uploads"):
		body = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
	case r.Method == http.MethodPost:
		body = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
	}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Etag": {`"e"`}, "Content-Type": {"application/xml"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// zeros is a body that costs no memory.
type zeros struct{ *io.SectionReader }

func (zeros) Close() error { return nil }

type zeroReader struct{}

func (zeroReader) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

// TestMemoryIsBounded: many large uploads at once hold Concurrency parts, not more.
func TestMemoryIsBounded(t *testing.T) {
	f := blobtest.NewFake(t)
	o := f.Options()
	o.Transport, o.Concurrency = sink{}, 2
	s := openTest(t, f.URL("app"), o)
	const size = 60 << 20
	sum := blob.Bytes(make([]byte, size)).SHA256
	put := func() error {
		return s.Put(t.Context(), "x", blob.Body{Size: size, SHA256: sum, Open: func() (io.ReadSeekCloser, error) {
			return zeros{io.NewSectionReader(zeroReader{}, 0, size)}, nil
		}})
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := put(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	// 240 MiB went through two buffers of 5 MiB; the rest is the client's.
	if got := after.TotalAlloc - before.TotalAlloc; got > 30<<20 {
		t.Errorf("allocated %d MiB for 240 MiB of uploads", got>>20)
	}
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]blob.URL{
		"file:///var/lib/ckpt":                 {Dir: "/var/lib/ckpt"},
		"file:///var/lib/ckpt/":                {Dir: "/var/lib/ckpt"},
		"file:///a%20b/../c":                   {Dir: "/c"},
		"file://localhost/x":                   {Dir: "/x"},
		"s3://bucket":                          {Bucket: "bucket"},
		"s3://bucket/":                         {Bucket: "bucket"},
		"s3://my.bucket-1/a/b_c=d/":            {Bucket: "my.bucket-1", Prefix: "a/b_c=d"},
		"s3://Old_Bucket/x":                    {Bucket: "Old_Bucket", Prefix: "x"},
		"s3://abc/" + strings.Repeat("x", 200): {Bucket: "abc", Prefix: strings.Repeat("x", 200)},
	} {
		if got, err := blob.ParseURL(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{
		"":                       "it has no scheme; write file:///absolute/path or s3://bucket/prefix",
		"/var/ckpt":              "it has no scheme",
		"ckpt":                   "it has no scheme",
		"file://var/ckpt":        `"var" stands where a host would; a path has three slashes before it: file:///absolute/path`,
		"file:var":               "the path must be absolute",
		"file:///":               "it names no folder",
		"file://":                "it names no folder",
		"file:///a%00b":          "the path has a zero byte",
		"s3://":                  "it names no bucket",
		"s3:///x":                "it names no bucket",
		"s3:bucket":              "it names no bucket",
		"s3://host:9000/bucket":  `"host:9000" is no name of a bucket; an S3 server's address goes into the endpoint`,
		"s3://ab/x":              `"ab" is no name of a bucket`,
		"s3://bucket/a//b":       "it has an empty part",
		"s3://bucket/a/../b":     `it has the part ".."`,
		"s3://bucket/a b":        "the character at byte 1 is none of letters",
		"s3://bucket/a?x=1":      "it has a query or a fragment",
		"s3://bucket/a#x":        "it has a query or a fragment",
		"s3a://bucket/x":         "the scheme is written s3 here",
		"gs://bucket/x":          `the scheme "gs" is not known`,
		"s3://id:hush@bucket/x":  "it holds credentials",
		"s3://id:hush@ bucket/x": "invalid character",
		"s3://bucket/" + strings.Repeat("x/", 112) + "x": "the prefix is longer than 223 bytes",
	} {
		_, err := blob.ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}

// FuzzParseURL: what is read prints as a URL that reads as the same, and no text makes it panic or leave its folder.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"file:///a/b", "file:///a%2fb", "file:///%2e%2e/x", "s3://bucket/prefix", "s3://b/..", "s3://u:p@b/x", "file://h/x", "s3://bucket/a%2Fb", "::", "s3://[::1]/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := blob.ParseURL(raw)
		if err != nil {
			return
		}
		again, err := blob.ParseURL(u.String())
		if err != nil || again != u {
			t.Errorf("%q is %+v, printed %q, which is %+v, %v", raw, u, u, again, err)
		}
		if (u.Dir == "") == (u.Bucket == "") || u.Dir != "" && (!filepath.IsAbs(u.Dir) || filepath.Clean(u.Dir) != u.Dir || u.Dir == "/") {
			t.Errorf("%q is %+v", raw, u)
		}
	})
}

// FuzzCheckKey: a good key is one path below a folder, and a URL that needs no escapes.
func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../a", "a//b", "a/.", "...", "\x00", "a/~b", strings.Repeat("x", 300), base64.StdEncoding.EncodeToString([]byte("abc"))} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if blob.CheckKey(key) != nil {
			return
		}
		joined := filepath.Join("/root", key)
		if joined != "/root/"+key || len(key) > 800 || !filepath.IsLocal(key) {
			t.Errorf("%q is a key", key)
		}
		for _, b := range []byte(key) {
			if b <= ' ' || b > '~' || bytes.IndexByte([]byte("~%+*?<>|:\"\\#&@$!"), b) >= 0 {
				t.Errorf("%q is a key", key)
			}
		}
	})
}
