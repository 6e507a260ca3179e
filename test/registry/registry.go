// Package registry brings a real schema registry to tests: Apicurio Registry, with its interface like Confluent's. Maven
// fetches it once into the cache folder of the tests; it runs as a child process on a free loopback port and keeps all in
// memory. It needs Java 17.
//
// Its absence fails a test; only MILLRACE_SKIP_REGISTRY=1 turns these tests off, and then each says so.
//
// What differs from Confluent's: no compatibility is checked unless a subject's level is set, and why a schema is refused
// is said in other words.
package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
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

// SkipEnv turns the tests on a real schema registry off when it is set to 1.
const SkipEnv = "MILLRACE_SKIP_REGISTRY"

// Version of Apicurio Registry.
const Version = "2.6.13.Final"

//go:embed pom.xml
var pom []byte

const (
	fetchTimeout = 10 * time.Minute // 140 MB
	startTimeout = 2 * time.Minute
)

// Server is a running registry.
type Server struct {
	proc *kafka.Proc
	port int
}

// Start an empty registry, stopped at the test's end.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(SkipEnv) == "1" {
		t.Skipf("NOT TESTED: needs a real schema registry and %s=1 is set", SkipEnv)
	}
	dir, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{port: kafka.FreePort(t)}
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	s.proc = kafka.Run(t, java, []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=" + strconv.Itoa(s.port), "-jar", filepath.Join(dir, "apicurio-registry-app-"+Version+"-runner.jar")})
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	testutil.Eventually(t, startTimeout, func() error {
		resp, err := client.Get(s.URL() + "/subjects")
		if err != nil {
			return fmt.Errorf("ask the schema registry (running: %t): %w", s.proc.Running(), err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("ask the schema registry: HTTP status %d", resp.StatusCode)
		}
		return nil
	})
	return s
}

// URL is that of the interface that is like Confluent's.
func (s *Server) URL() string {
	return "http://127.0.0.1:" + strconv.Itoa(s.port) + "/apis/ccompat/v7"
}

// SetLevel sets the compatibility level of a subject, such as BACKWARD.
func (s *Server) SetLevel(t testing.TB, subject, level string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL()+"/config/"+subject, strings.NewReader(`{"compatibility":"`+level+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("set the compatibility level of %s: HTTP status %d: %s", subject, resp.StatusCode, b)
	}
}

// Kill ends the registry with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.proc.Kill(t)
}

// Program returns the folder of the registry's program, and fetches it when it is not there yet.
func Program() (string, error) {
	return kafka.Cached("apicurio-"+Version, func(dir string) error {
		if err := fetch(dir); err != nil {
			return fmt.Errorf("fetch the schema registry Apicurio %s: %w; set %s=1 to leave out the tests on a real registry", Version, err, SkipEnv)
		}
		return nil
	})
}

// fetch lets Maven copy the archive and unpacks it into a new folder, which is moved at the end: dir is complete or absent.
func fetch(dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("maven is missing: %w; install it (Debian: apt-get install maven)", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, mvn, "-B", "-q", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+tmp).CombinedOutput()
	if err != nil {
		text := bytes.TrimSpace(out)
		return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-4096):])
	}
	files := filepath.Join(tmp, "files")
	if err := unpack(filepath.Join(tmp, "apicurio-registry-app-"+Version+"-all.tar.gz"), files); err != nil {
		return err
	}
	return os.Rename(files, dir)
}

// unpack unpacks a .tar.gz, of which it takes regular files.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(filepath.FromSlash(h.Name)) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := writeFile(name, r); err != nil {
			return err
		}
	}
}

func writeFile(name string, r io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, r); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
