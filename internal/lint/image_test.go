package lint

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestStaticBinary builds the command as make build and the Dockerfile do: it must run in an empty image.
func TestStaticBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("links a binary")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "build", "BIN="+bin, "VERSION=v0.0.0-lint")
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	binary := filepath.Join(bin, "millrace")
	needs, err := dynamic(binary)
	if err != nil {
		t.Fatal(err)
	}
	if needs != "" {
		t.Errorf("the binary is not static: it needs %s", needs)
	}
	out, err := exec.CommandContext(t.Context(), binary, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v0.0.0-lint") {
		t.Errorf("millrace version: %v\n%s\nwant the version given to make build", err, out)
	}
}

// dynamic tells what a program needs of the system it runs on, "" if it is static.
func dynamic(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read program: %w", err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "a dynamic loader", nil
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return "", fmt.Errorf("read program's libraries: %w", err)
	}
	return strings.Join(libs, ", "), nil
}

// TestStaticCheckCanFail: a shell is linked against the C library.
func TestStaticCheckCanFail(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no dynamic program to look at")
	}
	if needs, err := dynamic(sh); err != nil || needs == "" {
		t.Errorf("dynamic(%s) = %q, %v; want a loader", sh, needs, err)
	}
}

var goVersion = regexp.MustCompile(`(?m)^go (\d+\.\d+)`)

// TestDockerfile checks what can be checked without a container engine.
func TestDockerfile(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	dockerfile, makefile, gomod := read("Dockerfile"), read("Makefile"), read("go.mod")
	for _, flag := range []string{"-trimpath", "-s -w -X " + module + ".version=", "./cmd/millrace"} {
		if !strings.Contains(dockerfile, flag) || !strings.Contains(makefile, flag) {
			t.Errorf("%q is not in both Dockerfile and Makefile: the image's binary is not the one tested here", flag)
		}
	}
	if v := goVersion.FindStringSubmatch(gomod); v == nil || !strings.Contains(dockerfile, "FROM golang:"+v[1]+" AS") {
		t.Errorf("the Dockerfile's Go is not go.mod's: %v", v)
	}
	for _, want := range []string{"\nUSER 65532:65532\n", "\nHEALTHCHECK ", "\nVOLUME ", "\nFROM scratch AS base\n", "CGO_ENABLED=0 go build"} {
		if !strings.Contains(dockerfile, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	example := regexp.MustCompile(`EXAMPLE[=:] ?([a-z-]+)`).FindAllStringSubmatch(dockerfile+read("compose.yaml"), -1)
	if len(example) == 0 {
		t.Error("no example is named")
	}
	for _, e := range example {
		if _, err := os.Stat(filepath.Join(root(t), "examples", e[1], "main.go")); err != nil {
			t.Errorf("Dockerfile or compose.yaml names an example that is not there: %v", err)
		}
	}
}
