// Package s3 brings a real S3 server to tests: versitygw, which keeps objects as files. It is built from source by the go
// command once, into the cache folder of the tests, and started as a child process on a free loopback port.
//
// Its absence fails a test; only MILLRACE_SKIP_S3=1 turns these tests off, and then each says so.
//
// What it gets wrong: a key cannot be a folder of another (neither can it in our directory store); a put may fail with 409
// ExistingObjectIsDirectory when a delete beside it removes their folder; the time of an upload is that of its last part.
// It makes no faults by itself: put a proxy or a transport with faults before it. Its data folder must be on a file system
// with extended attributes.
package s3

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// SkipEnv turns the tests on a real S3 server off when it is set to 1.
const SkipEnv = "MILLRACE_SKIP_S3"

// What the server's bucket is called, and who may use it.
const (
	Bucket    = "millrace-test"
	Region    = "eu-central-1"
	AccessKey = "test-access-key"
	SecretKey = "test-secret-key"
)

// Version of versitygw.
const Version = "v1.8.0"

const (
	buildTimeout = 15 * time.Minute // three minutes of two cores when nothing is cached
	startTimeout = 30 * time.Second
)

// Server is a running S3 server.
type Server struct {
	bin, dir string
	port     int
	proc     *kafka.Proc
}

// Start a server with an empty bucket of its own, stopped at the test's end.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(SkipEnv) == "1" {
		t.Skipf("NOT TESTED: needs a real S3 server and %s=1 is set", SkipEnv)
	}
	bin, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{bin: bin, dir: t.TempDir()}
	if err := os.MkdirAll(s.path("data", Bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	s.port = kafka.FreePort(t)
	s.Restart(t)
	return s
}

func (s *Server) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// Restart starts the server again, on the same port and the same data, after Kill.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.proc = kafka.Run(t, s.bin, []string{"--port", s.Addr(), "--region", Region, "--quiet", "--keep-alive", "--health", "/health",
		"posix", s.path("data")}, "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	testutil.Eventually(t, startTimeout, func() error {
		resp, err := client.Get(s.Endpoint() + "/health")
		if err != nil {
			return fmt.Errorf("ask the S3 server (running: %t, output: %s): %w", s.proc.Running(), s.proc.Output(), err)
		}
		return resp.Body.Close()
	})
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.proc.Kill(t)
}

// Addr is host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Endpoint is the URL that clients connect to. They use path-style URLs.
func (s *Server) Endpoint() string { return "http://" + s.Addr() }

// Object is the file of an object.
func (s *Server) Object(key string) string { return s.path("data", Bucket, filepath.FromSlash(key)) }

// Program returns the path of the server's program, and builds it when it is not there yet.
func Program() (string, error) {
	return kafka.Cached(filepath.Join("versitygw-"+Version, "versitygw"), func(path string) error { return build(filepath.Dir(path)) })
}

// build the program in a new folder and move it: it is there whole or not at all.
func build(dir string) error {
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return fmt.Errorf("create a folder to build the S3 server in: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", "github.com/versity/versitygw/cmd/versitygw@"+Version)
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "GOBIN="+tmp, "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("build the S3 server versitygw %s: %w; set %s=1 to leave out the tests on a real S3 server\n%s", Version, err, SkipEnv, text[max(0, len(text)-4096):])
	}
	if err := os.Rename(filepath.Join(tmp, "versitygw"), filepath.Join(dir, "versitygw")); err != nil {
		return fmt.Errorf("move the S3 server into place: %w", err)
	}
	return nil
}
