package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func printed(t *testing.T, l *Loaded, form string) string {
	t.Helper()
	var b bytes.Buffer
	if err := l.Print(&b, form); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrint(t *testing.T) {
	environ := []string{"MILLRACE_SECURITY_SASL_PASSWORD=hush", "MILLRACE_ADMIN_TOKEN=hush"}
	l := load(t, LoadOptions{
		Environ: environ,
		Args: []string{"--security.sasl.mechanism=PLAIN", "--security.sasl.username=true", "--brokers=a:1,b:2", "--commit.max-bytes=1GB",
			"--state.write-behind.interval=36h", "--app.id=007", "--rack=a # b"},
	})
	forms := map[string]string{}
	for _, form := range []string{FormTable, FormYAML, FormJSON} {
		forms[form] = printed(t, l, form)
		if strings.Contains(forms[form], "hush") {
			t.Errorf("%s shows a secret:\n%s", form, forms[form])
		}
		for _, r := range forms[form] {
			if r > '~' {
				t.Errorf("%s: %q", form, r)
			}
		}
	}

	lines := strings.Split(strings.TrimSpace(forms[FormTable]), "\n")
	if len(lines) != len(keys())+1 {
		t.Errorf("%d lines, want one for each of %d keys and the head", len(lines), len(keys()))
	}
	squeezed := map[string]bool{}
	for _, line := range lines {
		squeezed[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"KEY VALUE ORIGIN",
		"security.sasl.password ******** environment MILLRACE_SECURITY_SASL_PASSWORD",
		"brokers a:1,b:2 flag --brokers",
		"state.write-behind.interval 1d12h flag --state.write-behind.interval",
		`group.instance-id "" default`,
		`rack "a # b" flag --rack`,
		"commit.max-bytes 1GB flag --commit.max-bytes",
	} {
		if !squeezed[want] {
			t.Errorf("%q is not in\n%s", want, forms[FormTable])
		}
	}

	// YAML can be loaded again, with the secrets from where they came.
	again := load(t, LoadOptions{Environ: environ, File: write(t, "again.yaml", forms[FormYAML])})
	if !reflect.DeepEqual(again.Config, l.Config) {
		t.Errorf("loaded again it differs:\n%s\n%+v\n%+v", forms[FormYAML], again.Config, l.Config)
	}
	for _, want := range []string{"  max-latency: 100ms # default\n", "brokers: ['a:1', 'b:2'] # flag --brokers\n", "token: '' # a secret of environment MILLRACE_ADMIN_TOKEN, not shown\n"} {
		if !strings.Contains(forms[FormYAML], want) {
			t.Errorf("%q is not in\n%s", want, forms[FormYAML])
		}
	}

	var parsed map[string]struct {
		Value  any
		Origin string
	}
	if err := json.Unmarshal([]byte(forms[FormJSON]), &parsed); err != nil {
		t.Fatal(err)
	}
	if len(parsed) != len(keys()) {
		t.Errorf("%d members, want %d", len(parsed), len(keys()))
	}
	for key, want := range map[string]any{"admin.token": mask, "group.static": true, "parallelism": 0.0, "commit.quiet": "25ms", "brokers": []any{"a:1", "b:2"}, "app.id": "007"} {
		if got := parsed[key].Value; !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
	if got := parsed["rack"].Origin; got != "flag --rack" {
		t.Errorf("origin %q", got)
	}

	var f *Faults
	if err := l.Print(&bytes.Buffer{}, "xml"); !errors.As(err, &f) {
		t.Errorf("%v, want *Faults", err)
	}
	broken := errors.New("broken pipe")
	if err := l.Print(failingWriter{broken}, FormTable); !errors.Is(err, broken) {
		t.Errorf("%v, want the writer's error", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestSecretNeverShows prints a Config by everything that prints.
func TestSecretNeverShows(t *testing.T) {
	c := Default()
	c.Security.SASL.Password = "hush"
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10.3s", "%t"} {
		fmt.Fprintf(&out, verb+"\n", c)
		fmt.Fprintf(&out, verb+"\n", &c.Security.SASL)
		fmt.Fprintf(&out, verb+"\n", c.Security.SASL.Password)
		fmt.Fprintf(&out, verb+"\n", []Secret{c.Security.SASL.Password})
	}
	fmt.Fprintln(&out, c, c.Security.SASL.Password)
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	marshalled, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(marshalled)
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("start", "config", c, "password", c.Security.SASL.Password, "sasl", c.Security.SASL)
	}
	for _, shown := range []string{"hush", "68757368", "104 117"} {
		if strings.Contains(strings.ToLower(out.String()), shown) {
			t.Errorf("the secret shows as %q:\n%s", shown, out.String())
		}
	}
	if !strings.Contains(out.String(), mask) {
		t.Error("no mask is printed at all")
	}
	if got := c.Security.SASL.Password.Reveal(); got != "hush" {
		t.Errorf("Reveal() = %q", got)
	}
	if got := fmt.Sprintf("%v|%q", Secret(""), Secret("")); got != `|""` {
		t.Errorf("no secret is printed as %q", got)
	}
}

func TestSlogLevel(t *testing.T) {
	for name, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		if got := (Log{Level: name}).SlogLevel(); got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
}
