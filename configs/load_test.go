package configs

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// evil is the password of a field report: shells, YAML and templates all want to change it.
const evil = `##%'#a"$@`

// write a file for a test and return its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load what must load.
func load(t *testing.T, o LoadOptions) *Loaded {
	t.Helper()
	l, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDefaults(t *testing.T) {
	l := load(t, LoadOptions{})
	if !reflect.DeepEqual(l.Config, Default()) {
		t.Errorf("Load of nothing = %+v\nDefault() = %+v", l.Config, Default())
	}
	if err := l.Config.Validate(); err != nil {
		t.Error(err)
	}
	c := l.Config
	if c.Commit.MaxLatency != 100*time.Millisecond || c.Fetch.MinBytes != 64<<10 || !c.Group.Static || c.Internal.ReplicationFactor != -1 ||
		!slices.Equal(c.Brokers, []string{"localhost:9092"}) || c.Errors.Decode != "dead-letter" {
		t.Errorf("defaults differ from the documented ones: %+v", c)
	}
	if o := l.Origin("brokers"); o != "default" {
		t.Errorf("origin %q, want default", o)
	}
}

func TestLayers(t *testing.T) {
	path := write(t, "m.yaml", `
brokers: [a:1, "b:2"]
app: {id: from-file}
commit:
  max-latency: 200ms
  quiet: 30ms
commit.max-bytes: 1GB
state.write-behind: {interval: 1d}
`)
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	std := flag.NewFlagSet("", flag.ContinueOnError)
	rate, loud := std.Int("rate", 1, ""), std.Bool("loud", false, "")
	own.AddGoFlagSet(std)
	l := load(t, LoadOptions{
		Args:     []string{"--config", path, "--rate=7", "one", "--commit.quiet", "40ms", "--loud", "--group.static=false", "--start.allow-dropped-state", "two", "--", "--three"},
		Environ:  []string{"MILLRACE_APP_ID=from-env", "MILLRACE_COMMIT_QUIET=35ms", "HOME=/", "MILLRACE_SECURITY_TLS_ENABLED=true", "nonsense"},
		File:     "not-this-one.yaml",
		Flags:    own,
		Defaults: map[string]any{"app.id": "from-program", "rack": "r1", "parallelism": 4, "fetch.max-wait": 20 * time.Millisecond, "request.timeout": "3s"},
	})
	c := l.Config
	for _, check := range []struct {
		key, origin string
		got, want   any
	}{
		{"brokers", "file " + path + ":2", c.Brokers, []string{"a:1", "b:2"}},
		{"app.id", "environment MILLRACE_APP_ID", c.App.ID, "from-env"},
		{"commit.max-latency", "file " + path + ":5", c.Commit.MaxLatency, 200 * time.Millisecond},
		{"commit.quiet", "flag --commit.quiet", c.Commit.Quiet, 40 * time.Millisecond},
		{"commit.max-bytes", "file " + path + ":7", c.Commit.MaxBytes, int64(1e9)},
		{"state.write-behind.interval", "file " + path + ":8", c.State.WriteBehind.Interval, day},
		{"group.static", "flag --group.static", c.Group.Static, false},
		{"start.allow-dropped-state", "flag --start.allow-dropped-state", c.Start.AllowDroppedState, true},
		{"security.tls.enabled", "environment MILLRACE_SECURITY_TLS_ENABLED", c.Security.TLS.Enabled, true},
		{"rack", "program", c.Rack, "r1"},
		{"parallelism", "program", c.Parallelism, 4},
		{"fetch.max-wait", "program", c.Fetch.MaxWait, 20 * time.Millisecond},
		{"request.timeout", "program", c.Request.Timeout, 3 * time.Second},
		{"shutdown.timeout", "default", c.Shutdown.Timeout, 10 * time.Second},
	} {
		if !reflect.DeepEqual(check.got, check.want) || l.Origin(check.key) != check.origin {
			t.Errorf("%s = %v from %q, want %v from %q", check.key, check.got, l.Origin(check.key), check.want, check.origin)
		}
	}
	if want := []string{"one", "two", "--three"}; !slices.Equal(l.Args, want) {
		t.Errorf("args %q, want %q", l.Args, want)
	}
	if *rate != 7 || !*loud {
		t.Errorf("own flags: rate %d, loud %v", *rate, *loud)
	}
}

func TestWhichFile(t *testing.T) {
	a, b, c := write(t, "a.yaml", "rack: a"), write(t, "b.yaml", "rack: b"), write(t, "c.yaml", "rack: c")
	for _, check := range []struct {
		o    LoadOptions
		want string
	}{
		{LoadOptions{File: a}, "a"},
		{LoadOptions{File: a, Environ: []string{"MILLRACE_CONFIG=" + b}}, "b"},
		{LoadOptions{File: a, Environ: []string{"MILLRACE_CONFIG=" + b}, Args: []string{"--config=" + c}}, "c"},
		{LoadOptions{File: a, Args: []string{"--config="}}, ""},
		{LoadOptions{File: write(t, "empty.yaml", "")}, ""},
		{LoadOptions{File: write(t, "comments.yaml", "# rack: x\n#${NOT_SET}\n---\n")}, ""},
	} {
		if got := load(t, check.o).Config.Rack; got != check.want {
			t.Errorf("%+v: rack %q, want %q", check.o, got, check.want)
		}
	}
}

func TestListsFromEverywhere(t *testing.T) {
	want := []string{"a:1", "[::1]:2"}
	for name, o := range map[string]LoadOptions{
		"YAML list":     {File: write(t, "m.yaml", "brokers:\n- a:1\n- '[::1]:2'\n")},
		"YAML text":     {File: write(t, "m.yaml", "brokers: 'a:1, [::1]:2'\n")},
		"environment":   {Environ: []string{"MILLRACE_BROKERS=a:1,[::1]:2"}},
		"flag":          {Args: []string{"--brokers", "a:1, [::1]:2"}},
		"flag repeated": {Args: []string{"--brokers", "a:1", "--brokers=[::1]:2"}},
		"program":       {Defaults: map[string]any{"brokers": want}},
		"program text":  {Defaults: map[string]any{"brokers": "a:1,[::1]:2"}},
	} {
		if got := load(t, o).Config.Brokers; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestSecretsAreByteExact(t *testing.T) {
	sasl := []string{"MILLRACE_SECURITY_SASL_MECHANISM=PLAIN", "MILLRACE_SECURITY_SASL_USERNAME=u"}
	for _, secret := range []string{evil, "0123", "1e3", "true", "no", "null", "~", "0x1F", "2024-01-01", " leading and trailing ", "a,b", "$HOME ${HOME} $$", "*x", "&x", "!x", "{a: b}", `back\slash`, "caf\u00e9", "%s%d", "--app.id=x", mask} {
		quoted := "'" + strings.ReplaceAll(secret, "'", "''") + "'"
		for name, o := range map[string]LoadOptions{
			"file":          {Environ: sasl, File: write(t, "m.yaml", "security: {sasl: {password: "+quoted+"}}\n")},
			"environment":   {Environ: append(slices.Clone(sasl), "MILLRACE_SECURITY_SASL_PASSWORD="+secret)},
			"secret file":   {Environ: append(slices.Clone(sasl), "MILLRACE_SECURITY_SASL_PASSWORD_FILE="+write(t, "pw", secret+"\n"))},
			"no line end":   {Environ: append(slices.Clone(sasl), "MILLRACE_SECURITY_SASL_PASSWORD_FILE="+write(t, "pw", secret))},
			"CRLF":          {Environ: append(slices.Clone(sasl), "MILLRACE_SECURITY_SASL_PASSWORD_FILE="+write(t, "pw", secret+"\r\n"))},
			"flag":          {Environ: sasl, Args: []string{"--security.sasl.password", secret}},
			"flag with =":   {Environ: sasl, Args: []string{"--security.sasl.password=" + secret}},
			"program":       {Environ: sasl, Defaults: map[string]any{"security.sasl.password": secret}},
			"program typed": {Environ: sasl, Defaults: map[string]any{"security.sasl.password": Secret(secret)}},
		} {
			if got := load(t, o).Config.Security.SASL.Password.Reveal(); got != secret {
				t.Errorf("%s: %q became %q", name, secret, got)
			}
		}
	}
	// Without quotes the literal text holds, whatever YAML thinks that it is.
	for _, plain := range []string{"0123", "1e3", "true", "no", "0x1F", "2024-01-01", "1.50", "on", "a#b", "${X}"} {
		l := load(t, LoadOptions{Environ: sasl, File: write(t, "m.yaml", "security.sasl.password: "+plain+" # comment ${NOT_SET}\n")})
		if got := l.Config.Security.SASL.Password.Reveal(); got != plain {
			t.Errorf("without quotes %q became %q", plain, got)
		}
	}
	// Only one line end is ours to take.
	l := load(t, LoadOptions{Environ: append(sasl, "MILLRACE_SECURITY_SASL_PASSWORD_FILE="+write(t, "pw", "x\n\n"))})
	if got := l.Config.Security.SASL.Password.Reveal(); got != "x\n" {
		t.Errorf("%q, want one of two line ends gone", got)
	}
}

func TestPlainTextStaysText(t *testing.T) {
	l := load(t, LoadOptions{File: write(t, "m.yaml", "app.id: 007\nrack: 1e3\nlisten: off\nparallelism: '4'\ngroup.static: true\n")})
	if c := l.Config; c.App.ID != "007" || c.Rack != "1e3" || c.Listen != ListenOff || c.Parallelism != 4 {
		t.Errorf("%+v", c)
	}
}

// TestFaults has one case for each thing that is refused. No message may show "hush", which stands for secrets.
func TestFaults(t *testing.T) {
	type opts = LoadOptions
	file := func(content string) opts { return opts{File: write(t, "m.yaml", content)} }
	env := func(kv ...string) opts { return opts{Environ: kv} }
	args := func(a ...string) opts { return opts{Args: a} }
	missing := filepath.Join(t.TempDir(), "missing")
	sasl := []string{"--security.sasl.mechanism=PLAIN", "--security.sasl.username=u"}
	for _, c := range []struct {
		o    opts
		want []string // each in the message
	}{
		// Unknown names.
		{file("commit:\n  max-latncy: hush\n"), []string{"commit.max-latncy (file ", "m.yaml:2): unknown key; did you mean commit.max-latency?"}},
		{file("securty:\n  sasl: {password: hush}\n"), []string{"securty (file ", ":1): unknown key; did you mean security?"}},
		{file("security: {sasl: {pasword: hush}}\n"), []string{"security.sasl.pasword", "did you mean security.sasl.password?"}},
		{file("Brokers: a:1\n"), []string{"Brokers", "did you mean brokers?"}},
		{file("bootstrap.servers: a:1\n"), []string{"did you mean brokers?"}},
		{file("rack: {a: hush}\n"), []string{"rack", "a value is wanted, not keys below it"}},
		{file("weather: hush\n"), []string{"weather", "unknown key; --help lists all"}},
		{env("MILLRACE_COMMIT_MAX_LATNCY=hush"), []string{"MILLRACE_COMMIT_MAX_LATNCY (environment): unknown variable; did you mean MILLRACE_COMMIT_MAX_LATENCY?"}},
		{env("MILLRACE_RACK_FILE=hush"), []string{"MILLRACE_RACK_FILE", "unknown variable; did you mean MILLRACE_RACK?"}},
		{env("MILLRACE_PORT=hush"), []string{"MILLRACE_PORT"}},
		{args("--commit.max-latncy=hush"), []string{"--commit.max-latncy (flag): unknown flag; did you mean --commit.max-latency?"}},
		{args("-config", "hush"), []string{"-config (flag): unknown flag; did you mean --config?"}},
		{args("-x"), []string{"-x (flag): unknown flag"}},
		{opts{Defaults: map[string]any{"app.name": "hush"}}, []string{"app.name (program): unknown key; did you mean app.id?"}},
		// Syntax of the file.
		{opts{File: missing}, []string{"(file " + missing + "): read the file: no such file or directory"}},
		{file("brokers: [a:1\n"), []string{"read YAML: line 1: "}},
		{file("app:\n\tid: x\n"), []string{"read YAML: line 2: "}},
		{file("- a\n"), []string{"m.yaml:1): keys with values are wanted"}},
		{file("hush\n"), []string{"keys with values are wanted"}},
		{file("rack: a\n---\nrack: b\n"), []string{"one YAML document is wanted"}},
		{file("rack: a\nrack: b\n"), []string{"rack (file ", "m.yaml:2): is given already in file ", "m.yaml:1"}},
		{file("app: {id: a}\napp.id: b\n"), []string{"app.id", "m.yaml:2): is given already in"}},
		{file("commit: 5s\n"), []string{"commit", "is a section: the keys below it are commit.max-latency, commit.quiet, commit.max-bytes"}},
		{file("rack: [a]\n"), []string{"rack", "one value is wanted, not a list"}},
		{file("brokers: [a:1, [b:2]]\n"), []string{"brokers", "plain values are wanted"}},
		{file("brokers: [a:1, ~]\n"), []string{"brokers", "there is no value"}},
		{file("rack: #hush\n"), []string{"rack", "there is no value", "begins with '#' wants quotes"}},
		{file("admin.token: *hush\n"), []string{"a value without quotes must not begin with '*'"}},
		{file("rack: &r a\nadmin.token: *r\n"), []string{"aliases are not supported", "anchors are not supported"}},
		{file("admin.token: !hush x\n"), []string{"tags are not supported"}},
		{file("admin.token: !!binary aHVzaA==\n"), []string{"tags are not supported"}},
		{file("app: &a {id: x}\n<<: *a\n"), []string{"plain keys are wanted"}},
		{file("app: &a {x: *a}\n"), []string{"app.x"}},
		{file("? [a, b]\n: c\n"), []string{"plain keys are wanted"}},
		// Flags.
		{args("--rack"), []string{"flag needs an argument: --rack"}},
		{opts{Args: []string{"--n=x"}, Flags: intFlag("n")}, []string{"--n (flag): ", "invalid"}},
		{opts{Flags: intFlag("brokers")}, []string{"--brokers: the program defines a flag with the name of a key"}},
		// Secrets from files.
		{opts{Args: sasl, Environ: []string{"MILLRACE_SECURITY_SASL_PASSWORD=hush", "MILLRACE_SECURITY_SASL_PASSWORD_FILE=" + missing}},
			[]string{"security.sasl.password (environment MILLRACE_SECURITY_SASL_PASSWORD): MILLRACE_SECURITY_SASL_PASSWORD_FILE is set, too"}},
		{env("MILLRACE_ADMIN_TOKEN_FILE=" + missing), []string{"admin.token (environment MILLRACE_ADMIN_TOKEN_FILE): read the secret from " + missing + ": no such file"}},
		{env("MILLRACE_ADMIN_TOKEN_FILE=" + write(t, "pw", "\n")), []string{"is empty"}},
		// Forms of values.
		{args("--commit.quiet=5"), []string{`commit.quiet = 5 (flag --commit.quiet): a duration has units`}},
		{env("MILLRACE_COMMIT_QUIET="), []string{`commit.quiet = "" (environment MILLRACE_COMMIT_QUIET): a duration has units`}},
		{args("--commit.max-bytes=1.5GiB"), []string{"commit.max-bytes = 1.5GiB", "a size is whole bytes"}},
		{args("--parallelism=many"), []string{"parallelism = many", "a whole number is wanted"}},
		{args("--parallelism=99999999999"), []string{"a whole number is wanted"}},
		{file("group.static: yes\n"), []string{"group.static = yes", "true or false is wanted"}},
		{args("--log.level=loud"), []string{`log.level = "loud"`, "debug, info, warn or error is wanted"}},
		{args("--log.format=xml"), []string{"text or json is wanted"}},
		{args("--state.store=rocksdb"), []string{"pebble or memory is wanted"}},
		{args("--start.mode=earliest"), []string{"latest, fresh or savepoint:<path> is wanted"}},
		{args("--start.mode=savepoint:"), []string{"latest, fresh or savepoint:<path> is wanted"}},
		{args("--start.offsets=latest"), []string{`"", state or group is wanted`}},
		{args("--internal.compression=none"), []string{"producer, uncompressed, gzip"}},
		{args("--output.compression=producer"), []string{"none, gzip, snappy, lz4 or zstd is wanted"}},
		{args("--errors.decode=ignore"), []string{"fail, skip or dead-letter is wanted"}},
		// Limits.
		{args("--parallelism=-1"), []string{"parallelism = -1", "0 to 4096 is allowed"}},
		{args("--commit.quiet=0"), []string{"commit.quiet = 0s", "1ms to 24d20h31m23.647s is allowed"}},
		{args("--commit.quiet=-5s"), []string{"commit.quiet = -5s"}},
		{args("--memory.limit=512"), []string{"memory.limit = 512", "0, or at least 32MiB is allowed"}},
		{args("--restart.max-attempts=0"), []string{"at least 1 is allowed"}},
		{args("--fetch.max-wait=9ms"), []string{"fetch.max-wait", "10ms to "}},
		{args("--fetch.max-bytes=1GiB"), []string{"fetch.max-bytes", "1KiB to 100MiB is allowed"}},
		{args("--internal.replication-factor=0"), []string{"internal.replication-factor = 0", "-1 (the broker's default) or at least 1"}},
		{args("--internal.replication-factor", "-2"), []string{"internal.replication-factor = -2"}},
		{args("--rack=" + strings.Repeat("r", 513)), []string{"at most 512 bytes"}},
		// Names and addresses.
		{args("--app.id=a b"), []string{`app.id = "a b"`, "only ASCII letters, digits"}},
		{args("--app.id=.."), []string{"only ASCII letters"}},
		{args("--app.id=caf\u00e9"), []string{`app.id = "caf\u00e9"`, "only ASCII letters"}},
		{args("--app.id=" + strings.Repeat("a", 201)), []string{"at most 200 characters are allowed, these are 201"}},
		{args("--group.instance-id=a/b"), []string{"group.instance-id", "only ASCII letters"}},
		{args("--brokers="), []string{`brokers = ""`, "each broker is host:port"}},
		{file("brokers: []\n"), []string{"brokers", "at least one is wanted"}},
		{args("--brokers=a:1,,b:2"), []string{`brokers = a:1,,b:2`, `"": each broker is host:port`}},
		{args("--brokers=localhost"), []string{`"localhost": each broker is host:port`}},
		{args("--brokers=a:0"), []string{"each broker is host:port"}},
		{args("--brokers=a:65536"), []string{"each broker is host:port"}},
		{args("--brokers=:9092"), []string{"each broker is host:port"}},
		{args("--brokers=kafka://a:1"), []string{"without a scheme"}},
		{args("--brokers=a:1,a:1"), []string{`"a:1" is given twice`}},
		{args("--listen=9644"), []string{"listen", "host:port is wanted"}},
		{args("--listen="), []string{`listen = ""`, "or off"}},
		{args("--admin.token=hush hush"), []string{"admin.token = " + mask, "printable ASCII without spaces"}},
		{args("--state.dir="), []string{"state.dir", "a folder is wanted"}},
		// How values go together.
		{args("--commit.quiet=200ms"), []string{"commit.quiet = 200ms (flag --commit.quiet): must not be above commit.max-latency, which is 100ms (default)"}},
		{args("--transaction.timeout=100ms"), []string{"transaction.timeout = 100ms", "must be above commit.max-latency, which is 100ms (default)"}},
		{args("--group.heartbeat-interval=4s"), []string{"group.heartbeat-interval = 4s", "at most half of group.session-timeout, which is 6s (default)"}},
		{args("--restart.backoff-min=11s"), []string{"must not be above restart.backoff-max, which is 10s"}},
		{args("--fetch.min-bytes=17MiB"), []string{"must not be above fetch.max-bytes, which is 16MiB"}},
		{args("--fetch.max-partition-bytes=17MiB"), []string{"must not be above fetch.max-bytes"}},
		{args("--group.instance-id=a", "--group.static=false"), []string{"group.instance-id = \"a\"", "only a static member has a name"}},
		{args("--security.tls.ca-file=ca.pem"), []string{"security.tls.ca-file", "has no effect without TLS"}},
		{args("--security.tls.insecure-skip-verify"), []string{"security.tls.insecure-skip-verify = true", "has no effect without TLS"}},
		{args("--security.tls.enabled", "--security.tls.cert-file=c.pem"), []string{"security.tls.cert-file", "needs security.tls.key-file, too"}},
		{args("--security.tls.enabled", "--security.tls.key-file=k.pem"), []string{"security.tls.key-file", "needs security.tls.cert-file, too"}},
		{args("--security.sasl.mechanism=PLAIN"), []string{"PLAIN needs a user name", "PLAIN needs a password"}},
		{args("--security.sasl.username=u", "--security.sasl.password=hush"), []string{`security.sasl.username = "u"`, "security.sasl.password = " + mask + " (flag --security.sasl.password): has no effect without security.sasl.mechanism"}},
		{args("--security.sasl.mechanism=OAUTHBEARER"), []string{"OAUTHBEARER (KIP-255) is not supported yet"}},
		{args("--security.sasl.mechanism=AWS_MSK_IAM"), []string{"AWS_MSK_IAM is not supported yet"}},
		{args("--security.sasl.mechanism=GSSAPI"), []string{"not supported"}},
		{args("--security.sasl.mechanism=plain"), []string{"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 is wanted"}},
		// Object storage.
		{args("--checkpoint.url=/var/ckpt"), []string{`checkpoint.url = "/var/ckpt"`, "s3://bucket/prefix or file:///absolute/path is wanted"}},
		{args("--checkpoint.url=file://relative"), []string{"file:///absolute/path is wanted"}},
		{args("--checkpoint.url=file:///"), []string{"file:///absolute/path is wanted"}},
		{args("--checkpoint.url=s3://"), []string{"s3://bucket/prefix or file:///absolute/path is wanted"}},
		{args("--checkpoint.url=gs://bucket"), []string{"is wanted"}},
		{args("--checkpoint.url=s3a://bucket/x"), []string{"the scheme is written s3 here"}},
		{args("--checkpoint.url=s3://key:hush@bucket/x"), []string{`checkpoint.url = "...@bucket/x"`, "a URL holds no credentials"}},
		{args("--checkpoint.retain=0"), []string{"checkpoint.retain = 0", "1 to 1000 is allowed"}},
		{args("--checkpoint.max-bytes-per-second=1KiB"), []string{"0, or at least 64KiB is allowed"}},
		{args("--checkpoint.s3.endpoint=s3.example.com"), []string{"checkpoint.s3.endpoint", "a URL is wanted, such as https://s3.example.com:9000"}},
		{args("--checkpoint.s3.sse=AES"), []string{"AES256 or aws:kms is wanted"}},
		{args("--checkpoint.s3.part-size=1MiB"), []string{"5MiB to 1GiB is allowed"}},
		{args("--checkpoint.s3.access-key=id"), []string{`checkpoint.s3.access-key = "id"`, "needs checkpoint.s3.secret-key, too"}},
		{args("--checkpoint.s3.secret-key=hush", "--checkpoint.s3.session-token=hush"),
			[]string{"checkpoint.s3.secret-key = " + mask, "has no effect without checkpoint.s3.access-key", "checkpoint.s3.session-token = " + mask}},
		{args("--checkpoint.s3.kms-key-id=k"), []string{"has no effect without aws:kms as checkpoint.s3.sse"}},
		{file("state.checkpoints.dir: s3://b/p\ns3.path.style.access: true\n"), []string{"did you mean checkpoint.url?", "did you mean checkpoint.s3.path-style?"}},
		{opts{Defaults: map[string]any{"rack": []string{"a"}}}, []string{"rack", "(program): one value is wanted"}},
	} {
		_, err := Load(c.o)
		var f *Faults
		if !errors.As(err, &f) || !IsFaults(err) {
			t.Errorf("%+v: %v, want *Faults", c.o, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v:\n got %s\nwant %s", c.o, err, want)
			}
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: the message shows what may be a secret:\n%s", c.o, err)
		}
	}
}

func intFlag(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.Int(name, 0, "")
	return fs
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Load(LoadOptions{
		File:    write(t, "m.yaml", "rak: a\ncommit: {quiet: soon, max-latency: 1h}\nlisten: nowhere\nadmin: {token: 'hush hush'}\n"),
		Environ: []string{"MILLRACE_LOG_LEVEL=loud", "MILLRACE_APPID=x"},
		Args:    []string{"--nope=1", "--parallelism", "x", "--neither", "--security.sasl.mechanism=PLAIN", "--own=a"},
		Flags:   intFlag("own"),
	})
	var f *Faults
	if !errors.As(err, &f) {
		t.Fatalf("%v, want *Faults", err)
	}
	var got []string
	for _, fault := range f.List {
		got = append(got, fault.Key)
	}
	want := []string{"rak", "--nope", "--neither", "--own", "MILLRACE_APPID", "parallelism", "commit.quiet",
		"listen", "admin.token", "log.level", "transaction.timeout", "security.sasl.username", "security.sasl.password"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q\n%v", got, want, err)
	}
	if !strings.HasPrefix(err.Error(), "configuration: 13 faults\n  rak (file ") {
		t.Errorf("message begins otherwise:\n%v", err)
	}
}

// TestNoFaultOfAFault: a value that is wrong by itself is not also compared with others.
func TestNoFaultOfAFault(t *testing.T) {
	for _, arg := range []string{"--transaction.timeout=soon", "--transaction.timeout=0", "--commit.max-latency=1000d", "--group.session-timeout=x", "--fetch.max-bytes=-1",
		"--security.sasl.mechanism=GSSAPI", "--app.id=" + strings.Repeat("#", 9999)} {
		_, err := Load(LoadOptions{Args: []string{arg}})
		var f *Faults
		if !errors.As(err, &f) || len(f.List) != 1 || len(err.Error()) > 600 {
			t.Errorf("%s: %v, want one fault", arg, err)
		}
	}
}

// FuzzFile: no file makes the reader panic, and what it returns is known.
func FuzzFile(f *testing.F) {
	for _, name := range []string{"minimal", "tls-scram", "production"} {
		content, err := os.ReadFile(filepath.Join("examples", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, s := range []string{"", "---\n...\n", "app: &a {x: *a}", "<<: {rack: a}", "? {a: b}\n: c", "brokers: [a, [b]]", "%YAML 1.2\n---\nrack: a", "\xef\xbb\xbfrack: a", "\"a\\x1b\": b", "rack: |\n  a\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		values, list := parseFile("m.yaml", content)
		for name := range values {
			if _, ok := find(name); !ok {
				t.Errorf("%q is no key", name)
			}
		}
		for _, fault := range list {
			if line := fault.String(); strings.ContainsAny(line, "\n\x1b") {
				t.Errorf("a fault has line ends or escapes: %q", line)
			}
		}
	})
}

func TestVariablesThatAreNotOurs(t *testing.T) {
	load(t, LoadOptions{Environ: []string{
		"MILLRACE_FAILPOINT=x", "MILLRACE_SKIP_KAFKA=1", "MILLRACE_TEST_CACHE=x", "MILLRACE_KAFKA_LOG=debug", "MILLRACE=x", "millrace_app_id=a b",
		// A Kubernetes service called millrace, and one called millrace-admin.
		"MILLRACE_SERVICE_HOST=10.0.0.1", "MILLRACE_SERVICE_PORT=9644", "MILLRACE_SERVICE_PORT_HTTP=9644", "MILLRACE_PORT=tcp://10.0.0.1:9644",
		"MILLRACE_PORT_9644_TCP=tcp://10.0.0.1:9644", "MILLRACE_PORT_9644_TCP_PROTO=tcp", "MILLRACE_PORT_9644_TCP_PORT=9644",
		"MILLRACE_PORT_9644_TCP_ADDR=10.0.0.1", "MILLRACE_ADMIN_SERVICE_HOST=10.0.0.2", "MILLRACE_ADMIN_PORT=tcp://10.0.0.2:1",
	}})
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"--brokers", "a:1", "x", "--help"}, {"--nope", "--help"}, {"--parallelism=x", "-h"}} {
		if _, err := Load(LoadOptions{Args: args}); !errors.Is(err, pflag.ErrHelp) {
			t.Errorf("%q: %v, want ErrHelp", args, err)
		}
	}
	// Not when it is a value, or behind --.
	if l := load(t, LoadOptions{Args: []string{"--rack", "--help", "--", "-h"}}); l.Config.Rack != "--help" || !slices.Equal(l.Args, []string{"-h"}) {
		t.Errorf("%+v", l)
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.Int("rate", 5, "records a second")
	help := Usage("order-counts", own)
	for _, want := range []string{"Usage: order-counts [flags]", "--rate int", "--config file", "MILLRACE_CONFIG"} {
		if !strings.Contains(help, want) {
			t.Errorf("%q is not in\n%s", want, help)
		}
	}
	for _, g := range table {
		if !strings.Contains(help, "\n"+g.title+":\n") {
			t.Errorf("group %s is not in the help", g.title)
		}
		for _, k := range g.keys {
			if !strings.Contains(help, "\n  --"+k.name+" "+k.kind()) {
				t.Errorf("%s is not in the help", k.name)
			}
		}
	}
}

func TestValidateOfOwnConfig(t *testing.T) {
	c := Default()
	c.App.ID = "x"
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Brokers = nil
	c.Commit.Quiet = time.Hour
	c.Log.Level = ""
	want := "configuration: 3 faults\n" +
		"  brokers = \"\": at least one is wanted\n" +
		"  commit.quiet = 1h: must not be above commit.max-latency, which is 100ms"
	err := c.Validate()
	if err == nil || !strings.Contains(err.Error(), `log.level = "": debug, info, warn or error is wanted`) {
		t.Errorf("got %v", err)
	}
	for line := range strings.Lines(want) {
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(line)) {
			t.Errorf("%q is not in\n%v", line, err)
		}
	}
	var zero Config
	if err := zero.Validate(); err == nil {
		t.Error("the zero Config passes")
	}
}

// TestPrecedence puts random values of random keys into random layers: each key has the value of the strongest layer.
func TestPrecedence(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 40 {
		precedence(t, rnd)
	}
}

func precedence(t *testing.T, rnd *rand.Rand) {
	o := LoadOptions{Defaults: map[string]any{}}
	var yaml strings.Builder
	want, origin := map[string]string{}, map[string]string{}
	for _, k := range keys() {
		want[k.name], origin[k.name] = k.def, "default"
		layer := func(where string) (string, bool) {
			if rnd.IntN(3) > 0 {
				return "", false
			}
			want[k.name], origin[k.name] = randomText(rnd, k), where
			return want[k.name], true
		}
		if v, ok := layer("program"); ok {
			o.Defaults[k.name] = v
		}
		if v, ok := layer("file "); ok {
			fmt.Fprintf(&yaml, "%s: '%s'\n", k.name, strings.ReplaceAll(v, "'", "''"))
		}
		if v, ok := layer("environment " + k.env()); ok {
			if k.secret() && v != "" && rnd.IntN(2) == 0 {
				o.Environ = append(o.Environ, k.env()+"_FILE="+write(t, "secret", v+"\n"))
			} else {
				o.Environ = append(o.Environ, k.env()+"="+v)
			}
		}
		if v, ok := layer("flag --" + k.name); ok {
			if rnd.IntN(2) == 0 && k.kind() != "bool" {
				o.Args = append(o.Args, "--"+k.name, v)
			} else {
				o.Args = append(o.Args, "--"+k.name+"="+v)
			}
		}
	}
	o.File = write(t, "m.yaml", yaml.String())
	rnd.Shuffle(len(o.Environ), func(i, j int) { o.Environ[i], o.Environ[j] = o.Environ[j], o.Environ[i] })
	l, bad, list, err := resolve(o)
	if err != nil || len(bad) > 0 || len(list) > 0 {
		t.Fatalf("resolve: %v %v %v", err, bad, list)
	}
	for _, k := range keys() {
		var c Config
		if err := set(k.at(&c), want[k.name]); err != nil {
			t.Fatal(err)
		}
		if got, want := k.at(&l.Config), k.at(&c); !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %q, want %q", k.name, text(got), text(want))
		}
		if !strings.HasPrefix(l.Origin(k.name), origin[k.name]) {
			t.Errorf("%s comes from %q, want %q", k.name, l.Origin(k.name), origin[k.name])
		}
	}
}

// randomText is a text of the key's kind, for texts and secrets with all that shells, YAML and templates like to change.
func randomText(rnd *rand.Rand, k key) string {
	switch k.kind() {
	case "bool":
		return fmt.Sprint(rnd.IntN(2) == 0)
	case "int":
		return fmt.Sprint(rnd.IntN(10) - 1)
	case "size":
		return fmt.Sprint(rnd.IntN(100)) + []string{"", "KiB", "MB"}[rnd.IntN(3)]
	case "duration":
		return []string{"1d", "250ms", "3d12h", "0"}[rnd.IntN(4)]
	case "list":
		return []string{"a:1", "a:1,b:2", "a:1, b:2"}[rnd.IntN(3)]
	}
	const alphabet = "#%'\"$@{}[]*&!|>=,:;-~`\\/?<>().^ 0123456789abcdefABCDEF"
	b := make([]byte, rnd.IntN(12))
	for i := range b {
		b[i] = alphabet[rnd.IntN(len(alphabet))]
	}
	return string(b)
}

// TestShortFlags: some keys have another flag, with the same meaning and origin.
func TestShortFlags(t *testing.T) {
	for _, args := range [][]string{{"--allow-dropped-state"}, {"--allow-dropped-state=true"}, {"--start.allow-dropped-state"}} {
		l := load(t, LoadOptions{Args: args})
		if !l.Config.Start.AllowDroppedState || l.Origin("start.allow-dropped-state") != "flag --start.allow-dropped-state" {
			t.Errorf("%v: %v from %q", args, l.Config.Start.AllowDroppedState, l.Origin("start.allow-dropped-state"))
		}
	}
}
