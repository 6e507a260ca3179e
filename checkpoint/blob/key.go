package blob

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// Limits of keys: S3 takes 1024 bytes with the prefix of the store, file systems 255 in each part, of which a temporary
// file's name needs some.
const (
	maxKey  = 800
	maxPart = 200
)

// CheckKey says what is wrong with a key: it must be one or more parts of the characters [A-Za-z0-9._=-], joined by slashes,
// each of 1 to 200 bytes and none of them "." or "..", and of at most 800 bytes.
func CheckKey(key string) error {
	switch problem := checkPath(key); {
	case problem != "":
		return fmt.Errorf("check key %q: %s", key, problem)
	case len(key) > maxKey:
		return fmt.Errorf("check key %q: longer than %d bytes", key, maxKey)
	default:
		return nil
	}
}

func checkPath(p string) string {
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "":
			return "it has an empty part"
		case part == "." || part == "..":
			return fmt.Sprintf("it has the part %q", part)
		case len(part) > maxPart:
			return fmt.Sprintf("a part is longer than %d bytes", maxPart)
		}
	}
	if i := strings.IndexFunc(p, func(r rune) bool { return r != '/' && !keyRune(r) }); i >= 0 {
		return fmt.Sprintf("the character at byte %d is none of letters, digits, dot, underscore, equals sign and hyphen", i)
	}
	return ""
}

func keyRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '=' || r == '-'
}

// checkPrefix: what a key can start with.
func checkPrefix(prefix string) error {
	if prefix == "" || CheckKey(prefix) == nil || CheckKey(prefix+"x") == nil {
		return nil
	}
	return fmt.Errorf("check prefix %q: no key starts with it: %w", prefix, CheckKey(prefix+"x"))
}

// URL says where a store is: Dir, or Bucket and Prefix.
type URL struct {
	Dir    string // absolute path of a folder
	Bucket string
	Prefix string // of keys in the bucket, without slashes at its ends; may be empty
}

// String is the URL as text.
func (u URL) String() string {
	if u.Dir != "" {
		return (&url.URL{Scheme: "file", Path: filepath.ToSlash(u.Dir)}).String()
	}
	return "s3://" + path.Join(u.Bucket, u.Prefix)
}

// ParseURL reads file:///absolute/path or s3://bucket/prefix.
func ParseURL(raw string) (URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The error of package url repeats the text, and the text may hold a secret by mistake.
		return URL{}, fmt.Errorf("read URL of object storage: %w; write file:///absolute/path or s3://bucket/prefix", errors.Unwrap(err))
	}
	fail := func(format string, args ...any) (URL, error) {
		return URL{}, fmt.Errorf("read URL of object storage %q: %s", u.Redacted(), fmt.Sprintf(format, args...))
	}
	switch {
	case u.User != nil:
		return fail("it holds credentials; give them by the keys for credentials, or leave them to the environment")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fail("it has a query or a fragment; settings have keys of their own")
	}
	switch u.Scheme {
	case "file":
		return parseFile(u, fail)
	case "s3":
		return parseS3(u, fail)
	case "s3a", "s3n", "s3p":
		return fail("the scheme is written s3 here")
	case "":
		return fail("it has no scheme; write file:///absolute/path or s3://bucket/prefix")
	default:
		return fail("the scheme %q is not known; write file:///absolute/path or s3://bucket/prefix", u.Scheme)
	}
}

type failer func(format string, args ...any) (URL, error)

func parseFile(u *url.URL, fail failer) (URL, error) {
	dir := filepath.Clean(filepath.FromSlash(u.Path))
	switch {
	case u.Opaque != "":
		return fail("the path must be absolute: file:///absolute/path")
	case u.Host != "" && u.Host != "localhost":
		return fail("%q stands where a host would; a path has three slashes before it: file:///absolute/path", u.Host)
	case !strings.HasPrefix(u.Path, "/") || dir == "/":
		return fail("it names no folder; write file:///absolute/path")
	case strings.ContainsRune(u.Path, 0):
		return fail("the path has a zero byte")
	}
	return URL{Dir: dir}, nil
}

func parseS3(u *url.URL, fail failer) (URL, error) {
	if u.Opaque != "" || u.Host == "" {
		return fail("it names no bucket; write s3://bucket/prefix")
	}
	if strings.Contains(u.Host, ":") {
		return fail("%q is no name of a bucket; an S3 server's address goes into the endpoint, not into the URL", u.Host)
	}
	if n := len(u.Host); n < 3 || n > 255 || checkPath(strings.ToLower(u.Host)) != "" && n <= maxPart {
		return fail("%q is no name of a bucket", u.Host)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix == "" {
		return URL{Bucket: u.Host}, nil
	}
	if problem := checkPath(prefix); problem != "" {
		return fail("prefix %q: %s", prefix, problem)
	}
	if len(prefix) > 1024-1-maxKey {
		return fail("the prefix is longer than %d bytes", 1024-1-maxKey)
	}
	return URL{Bucket: u.Host, Prefix: prefix}, nil
}
