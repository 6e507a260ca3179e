package kafka

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed 4.4.0/pom.xml 3.9.1/pom.xml
var poms embed.FS

// fetchTimeout bounds one run of Maven: about 45 MB.
const fetchTimeout = 10 * time.Minute

// CacheDir is where the jars are kept.
func CacheDir() (string, error) {
	if dir := os.Getenv("MILLRACE_TEST_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w; set MILLRACE_TEST_CACHE to a folder for Kafka's jars", err)
	}
	return filepath.Join(dir, "millrace-test"), nil
}

// Jars returns the folder with the jars of a version and fetches them through Maven when they are not there yet.
// Processes that call it at the same time wait for each other.
func Jars(version string) (string, error) {
	pom, err := poms.ReadFile(version + "/pom.xml")
	if err != nil {
		return "", fmt.Errorf("find the pom of Kafka %s: %w; there are %s and %s", version, err, V4, V3)
	}
	// The pom's hash is in the name, so that a changed pom is fetched anew and two checkouts do not disturb each other.
	sum := sha256.Sum256(pom)
	return Cached("kafka-"+version+"-"+hex.EncodeToString(sum[:4]), func(dir string) error { return fetch(version, pom, dir) })
}

// Cached is the path of a file or folder in CacheDir. If it is not there yet, get makes it, whole or not at all: processes that
// call it at the same time wait for each other.
func Cached(name string, get func(path string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("create the cache of test programs: %w", err)
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process made it while we waited
	}
	return path, get(path)
}

// fetch lets Maven copy the jars into a new folder and renames it to dir at the end: dir is complete or absent.
func fetch(version string, pom []byte, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("fetch the jars of Kafka %s into %s: Maven is missing: %w; install it (Debian: apt-get install maven), or set %s=1 to leave out the tests on real brokers", version, dir, err, SkipEnv)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return fmt.Errorf("create a folder for Kafka's jars: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return fmt.Errorf("write the pom of Kafka %s: %w", version, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	libs := filepath.Join(tmp, "libs")
	cmd := exec.CommandContext(ctx, mvn, "-B", "-q", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+libs, "-DincludeScope=runtime")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch the jars of Kafka %s with Maven: %w\n%s", version, err, tail(string(out), 4096))
	}
	if err := os.Rename(libs, dir); err != nil {
		return fmt.Errorf("move the jars of Kafka %s into place: %w", version, err)
	}
	return nil
}

// lockFile waits for an exclusive lock on path. The file stays: removing it would let two processes hold two locks.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	deadline := time.Now().Add(fetchTimeout)
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing releases the lock
		}
		if time.Now().After(deadline) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: another process holds it since %s: %w", path, fetchTimeout, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// tail is the end of s, at most n bytes.
func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		return "... " + s[len(s)-n:]
	}
	return s
}
