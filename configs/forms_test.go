package configs

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"7d12h": 7*day + 12*time.Hour, "1d": day, "0d": 0, "0": 0, "250ms": 250 * time.Millisecond, "1m30s": 90 * time.Second,
		"1.5s": 1500 * time.Millisecond, "1d1ns": day + 1, "-5s": -5 * time.Second, "106751d": 106751 * day,
	}
	for in, want := range good {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "5", "d", "-1d", "1.5d", "1d-1h", "1d+1h", "1d1d", "1d 2h", "106752d", "106751d24h", "9999999999d", "5 s", "1h2d", "x", "99999999999999999h"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Hour: "1h", time.Minute: "1m", 10 * time.Minute: "10m", 70 * time.Minute: "1h10m", time.Hour + time.Second: "1h0m1s",
		7*day + 12*time.Hour: "7d12h", 2 * day: "2d", 100 * time.Millisecond: "100ms", 10*time.Hour + 10*time.Minute: "10h10m", -day: "-24h",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	good := map[string]int64{
		"0": 0, "65536": 65536, "64MiB": 64 << 20, "64 MiB": 64 << 20, "1GB": 1e9, "1gb": 1e9, "1KiB": 1024, "1kB": 1000, "7B": 7, "8388607TiB": 8388607 << 40,
		"9223372036854775807": math.MaxInt64,
	}
	for in, want := range good {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "B", "MiB", "-1", "-1MiB", "+1", "1.5GiB", "64M", "64Mi", "1 000", "1_000", "0x10", "8388608TiB", "9223372036854775808", "1MiBs", "MiB1", "1e3"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", in, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 1: "1", 1023: "1023", 1024: "1KiB", 16 << 20: "16MiB", 1e9: "1GB", 1500: "1500", 3 << 40: "3TiB", 1e9 + 1: "1000000001"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

// FuzzForms: what is printed reads as what it was, and no text makes the readers panic.
func FuzzForms(f *testing.F) {
	for _, s := range []string{"7d12h", "16MiB", "1GB", "0", "106751d23h", "-5s", "d", "99999999999999999999d", "1 KiB"} {
		f.Add(s, int64(len(s)))
	}
	f.Add("", int64(math.MaxInt64))
	f.Add("", int64(math.MinInt64))
	f.Add("", 9*int64(day)+1)
	f.Fuzz(func(t *testing.T, s string, n int64) {
		if d, err := ParseDuration(s); err == nil {
			n = int64(d)
		}
		if got, err := ParseDuration(FormatDuration(time.Duration(n))); err != nil || got != time.Duration(n) {
			t.Errorf("ParseDuration(FormatDuration(%d) = %q) = %d, %v", n, FormatDuration(time.Duration(n)), got, err)
		}
		if size, err := ParseSize(s); err == nil {
			n = size
		}
		if n < 0 {
			return
		}
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Errorf("ParseSize(FormatSize(%d) = %q) = %d, %v", n, FormatSize(n), got, err)
		}
	})
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"abc", "abcd", 1}, {"kitten", "sitting", 3}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := editDistance(c.b, c.a); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestSuggest(t *testing.T) {
	for in, want := range map[string]string{
		"commit.max-latncy":      "commit.max-latency",
		"commit.maxLatency":      "commit.max-latency",
		"commit.max_latency":     "commit.max-latency",
		"bootstrap.servers":      "brokers",
		"tls.ca-file":            "security.tls.ca-file",
		"Brokers":                "brokers",
		"--bootstrap.servers":    "--brokers",
		"MILLRACE_APPID":         "MILLRACE_APP_ID",
		"MILLRACE_STATE-DIR":     "MILLRACE_STATE_DIR",
		"weather":                "",
		strings.Repeat("x", 100): "",
	} {
		known := keyNames()
		switch {
		case strings.HasPrefix(in, "MILLRACE"):
			known = []string{"MILLRACE_APP_ID", "MILLRACE_STATE_DIR"}
		case strings.HasPrefix(in, "--"):
			known = []string{"--brokers"}
		}
		wantText := "; did you mean " + want + "?"
		if want == "" {
			wantText = "; --help lists all"
		}
		if got := suggest(in, known); got != wantText {
			t.Errorf("suggest(%q) = %q, want %q", in, got, wantText)
		}
	}
}
