package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// millrace runs a command line as the program does.
func millrace(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(t.Context(), Options{}, args, environ, &out, &err)
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args   string
		env    []string
		code   int
		stdout string // in the output
		stderr string // the whole of it without the line end; "" = none
	}{
		{args: "", code: exitOK, stdout: "Usage:"},
		{args: "help", code: exitOK, stdout: "healthcheck"},
		{args: "version", code: exitOK, stdout: "millrace "},
		{args: "version extra", code: exitUsage, stderr: `millrace: unexpected argument "extra"; millrace version --help shows the usage`},
		{args: "version --nope", code: exitUsage, stderr: `millrace: unknown flag: --nope; millrace version --help shows the usage`},
		{args: "version -o xml", code: exitUsage, stderr: `millrace: unknown output "xml": text or json is wanted`},
		{args: "versio", code: exitUsage, stderr: `millrace: unknown command "versio"; did you mean version?`},
		{args: "weather", code: exitUsage, stderr: `millrace: unknown command "weather"; millrace help lists all`},
		{args: "--nope", code: exitUsage, stderr: `millrace: unknown flag: --nope; millrace --help shows the usage`},
		{args: "config", code: exitOK, stdout: "commit.max-latency"},
		{args: "config --help", code: exitOK, stdout: "--commit.max-latency duration (default 100ms)"},
		{args: "config extra", code: exitUsage, stderr: `millrace: unexpected argument "extra"; millrace config --help shows the usage`},
		{args: "config -o xml", code: exitUsage, stderr: `millrace: configuration: form = "xml": table, yaml or json is wanted`},
		{args: "config --commit.quiet=5", code: exitUsage,
			stderr: `millrace: configuration: commit.quiet = 5 (flag --commit.quiet): a duration has units, such as 250ms, 1m30s or 7d12h`},
		{args: "config", env: []string{"MILLRACE_RAK=x"}, code: exitUsage,
			stderr: `millrace: configuration: MILLRACE_RAK (environment): unknown variable; did you mean MILLRACE_RACK?`},
		{args: "healthcheck --url localhost:9644", code: exitUsage, stderr: `millrace: read --url "localhost:9644": http://host:port/path is wanted`},
		{args: "healthcheck --timeout 0s", code: exitUsage, stderr: `millrace: read --timeout 0s: more than 0 is wanted`},
	} {
		code, stdout, stderr := millrace(t, c.env, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || strings.TrimSuffix(stderr, "\n") != c.stderr {
			t.Errorf("millrace %s: code %d, want %d\nstdout %s\nstderr %s", c.args, code, c.code, stdout, stderr)
		}
		if (code == exitOK) != (stderr == "") || code != exitOK && stdout != "" {
			t.Errorf("millrace %s: code %d, %d bytes of stdout, stderr %q", c.args, code, len(stdout), stderr)
		}
	}
}

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte("app: {id: a}\nbrokers: x:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"MILLRACE_BROKERS=y:1", "MILLRACE_ADMIN_TOKEN=hush"}
	for _, args := range [][]string{{"--config", path, "-o", "json"}, {"--output=json", "--config=" + path}} {
		code, stdout, stderr := millrace(t, environ, append([]string{"config", "--rack=r"}, args...)...)
		var got map[string]struct {
			Value  any
			Origin string
		}
		if err := json.Unmarshal([]byte(stdout), &got); code != exitOK || err != nil {
			t.Fatalf("code %d, %v, %s", code, err, stderr)
		}
		for key, want := range map[string]string{
			"app.id": "a file " + path + ":1", "brokers": "[y:1] environment MILLRACE_BROKERS", "rack": "r flag --rack",
			"admin.token": "******** environment MILLRACE_ADMIN_TOKEN", "group.static": "true default",
		} {
			if is := fmt.Sprint(got[key].Value, " ", got[key].Origin); is != want {
				t.Errorf("%s: %s, want %s", key, is, want)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := millrace(t, nil, "version", "-o", "json")
	var v versionInfo
	if err := json.Unmarshal([]byte(stdout), &v); code != exitOK || err != nil {
		t.Fatalf("code %d, %v, %s", code, err, stderr)
	}
	if v.Version == "" || v.Commit == "" || !strings.HasPrefix(v.Go, "go") || !strings.Contains(v.Platform, "/") {
		t.Errorf("%+v", v)
	}

	build := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	for _, c := range []struct {
		version, commit string
		build           *debug.BuildInfo
		want            string
	}{
		{"v1", "abc", build, "v1 abc"}, // what the linker was told holds
		{"v1", "", build, "v1 0123456789ab-dirty"},
		{"", "", build, "v0.2.0 0123456789ab-dirty"},
		{"", "", &debug.BuildInfo{}, "(devel) unknown"},
		{"", "", nil, "(devel) unknown"},
	} {
		v := buildVersion(c.version, c.commit, c.build)
		if got := v.Version + " " + v.Commit; got != c.want {
			t.Errorf("buildVersion(%q, %q) = %s, want %s", c.version, c.commit, got, c.want)
		}
	}
}

func TestHealthcheck(t *testing.T) {
	answer := http.StatusOK
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
			return
		}
		w.WriteHeader(answer)
		fmt.Fprintf(w, "restoring %s\n", strings.Repeat("x", 5000))
	}))
	defer server.Close()
	defer close(release)

	if code, stdout, stderr := millrace(t, nil, "healthcheck", "--url", server.URL+"/readyz"); code != exitOK || stdout+stderr != "" {
		t.Errorf("ready: code %d, %q, %q", code, stdout, stderr)
	}
	answer = http.StatusServiceUnavailable
	code, _, stderr := millrace(t, nil, "healthcheck", "--url", server.URL+"/readyz")
	if code != exitFailed || !strings.Contains(stderr, "answers 503 Service Unavailable: restoring") || len(stderr) > 2000 {
		t.Errorf("not ready: code %d, %d bytes: %.200s", code, len(stderr), stderr)
	}
	code, _, stderr = millrace(t, nil, "healthcheck", "--timeout", "20ms", "--url", server.URL+"/slow")
	if code != exitFailed || !strings.Contains(stderr, "deadline exceeded") {
		t.Errorf("slow: code %d, %s", code, stderr)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	code, _, stderr = millrace(t, nil, "healthcheck", "--url", "http://"+listener.Addr().String())
	if code != exitFailed || strings.Count(stderr, listener.Addr().String()) > 2 || !strings.Contains(stderr, "is the program running") {
		t.Errorf("nobody there: code %d, %s", code, stderr)
	}
}
