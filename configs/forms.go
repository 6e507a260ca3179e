package configs

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// errForm means that a text does not have the form of its kind; its message is that form.
type errForm string

func (e errForm) Error() string { return string(e) }

const (
	durationForm = errForm("a duration has units, such as 250ms, 1m30s or 7d12h")
	sizeForm     = errForm("a size is whole bytes, such as 65536, 64KiB, 16MiB or 1GB")
)

// ParseDuration reads a Go duration that may begin with whole days, such as "7d12h".
func ParseDuration(s string) (time.Duration, error) {
	head, rest, ok := strings.Cut(s, "d")
	if !ok {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, durationForm
		}
		return d, nil
	}
	days, err := strconv.ParseUint(head, 10, 32)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, durationForm
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, durationForm
		}
	}
	if days > uint64((math.MaxInt64-d)/day) {
		return 0, errForm("a duration is at most 106751d")
	}
	return time.Duration(days)*day + d, nil
}

// FormatDuration is the inverse of ParseDuration, in its shortest form.
func FormatDuration(d time.Duration) string {
	days, rest := d/day, d%day
	if days <= 0 {
		days, rest = 0, d
	}
	s := rest.String() // 1h0m0s
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	switch {
	case days == 0:
		return s
	case rest == 0:
		return fmt.Sprintf("%dd", days)
	default:
		return fmt.Sprintf("%dd%s", days, s)
	}
}

// units of sizes, the largest of each family first.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// ParseSize reads bytes: "65536", "64KiB" (1024), "1GB" (1000). Case does not matter.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "bBiIkKmMgGtT ")
	unit := strings.TrimLeft(s[len(digits):], " ")
	factor := int64(1)
	if unit != "" {
		i := slices.IndexFunc(units, func(u struct {
			name  string
			bytes int64
		}) bool {
			return strings.EqualFold(u.name, unit)
		})
		if i < 0 {
			return 0, sizeForm
		}
		factor = units[i].bytes
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrRange) || err == nil && n > uint64(math.MaxInt64/factor) {
		return 0, errForm("a size is less than 8388608TiB")
	}
	if err != nil {
		return 0, sizeForm
	}
	return int64(n) * factor, nil
}

// FormatSize is the inverse of ParseSize, in the largest unit that needs no fraction.
func FormatSize(n int64) string {
	for _, u := range units {
		if u.bytes > 1 && n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// set writes a text into the field at points to. A list comes as []string from the file and as a text with commas from
// elsewhere.
func set(at, value any) error {
	if items, ok := at.(*[]string); ok {
		switch v := value.(type) {
		case []string:
			*items = slices.Clone(v)
		case string:
			*items = nil
			for item := range strings.SplitSeq(v, ",") {
				*items = append(*items, strings.TrimSpace(item))
			}
		}
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return errForm("one value is wanted, not a list")
	}
	var err error
	switch p := at.(type) {
	case *string:
		*p = text
	case *Secret:
		*p = Secret(text)
	case *bool:
		if text != "true" && text != "false" {
			return errForm("true or false is wanted")
		}
		*p = text == "true"
	case *int:
		n, parseErr := strconv.ParseInt(text, 10, 32)
		if parseErr != nil {
			return errForm("a whole number is wanted")
		}
		*p = int(n)
	case *int64:
		*p, err = ParseSize(text)
	case *time.Duration:
		*p, err = ParseDuration(text)
	}
	return err
}

// text is the inverse of set.
func text(at any) string {
	switch p := at.(type) {
	case *string:
		return *p
	case *Secret:
		return string(*p)
	case *bool:
		return strconv.FormatBool(*p)
	case *int:
		return strconv.Itoa(*p)
	case *int64:
		return FormatSize(*p)
	case *time.Duration:
		return FormatDuration(*p)
	case *[]string:
		return strings.Join(*p, ",")
	default:
		return ""
	}
}

// checkKafkaName checks a name that Kafka treats as it treats those of topics.
func checkKafkaName(limit int, empty bool) func(string) string {
	return func(s string) string {
		switch {
		case s == "" && empty:
			return ""
		case s == "" || s == "." || s == ".." || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "":
			return "only ASCII letters, digits, '.', '_' and '-' are allowed, and not \".\" or \"..\" alone"
		case len(s) > limit:
			return fmt.Sprintf("at most %d characters are allowed, these are %d", limit, len(s))
		}
		return ""
	}
}

func checkHostPort(s string, lowest uint64) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(s, "/ \t\r\n@") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n >= lowest
}

func checkBroker(s string) string {
	if host, _, _ := net.SplitHostPort(s); host == "" || !checkHostPort(s, 1) {
		return "each broker is host:port, such as kafka-1:9092 or [::1]:9092, without a scheme"
	}
	return ""
}

func checkListen(s string) string {
	if s != ListenOff && !checkHostPort(s, 0) {
		return "host:port is wanted, such as 127.0.0.1:9644 or :9644, or " + ListenOff
	}
	return ""
}

func checkAdvertise(s string) string {
	if s != "" && (strings.HasPrefix(s, ":") || !checkHostPort(s, 1)) {
		return "host:port is wanted, such as worker-1:9644"
	}
	return ""
}

func checkToken(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "a token travels in an HTTP header: printable ASCII without spaces is allowed"
	}
	return ""
}

func checkReplication(s string) string {
	if n, err := strconv.Atoi(s); err != nil || n != -1 && (n < 1 || n > math.MaxInt16) {
		return "-1 (the broker's default) or at least 1 is wanted, and at most 32767"
	}
	return ""
}

func checkRack(s string) string {
	if len(s) > 512 {
		return "at most 512 bytes are allowed"
	}
	return ""
}

func checkMechanism(s string) string {
	const allowed = "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 is wanted, or empty for none"
	switch s {
	case "", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		return ""
	case "OAUTHBEARER":
		return "OAUTHBEARER (KIP-255) is not supported yet: " + allowed
	case "AWS_MSK_IAM":
		return "AWS_MSK_IAM is not supported yet; MSK also offers SCRAM-SHA-512: " + allowed
	case "GSSAPI":
		return "GSSAPI (Kerberos) is not supported: " + allowed
	default:
		return allowed
	}
}

// checkBlobURL looks at the form only; what opens the store reads the rest.
func checkBlobURL(s string) string {
	if s == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case ok && strings.Contains(rest, "@"):
		return "a URL holds no credentials: they have keys of their own (checkpoint.s3.access-key), or come from the environment"
	case ok && (scheme == "s3a" || scheme == "s3p"):
		return "the scheme is written s3 here"
	case !ok || scheme == "s3" && strings.Trim(rest, "/") == "" || scheme == "file" && (!strings.HasPrefix(rest, "/") || rest == "/") || scheme != "s3" && scheme != "file":
		return "s3://bucket/prefix or file:///absolute/path is wanted"
	}
	return ""
}

func checkStartMode(s string) string {
	path, ok := strings.CutPrefix(s, "savepoint:")
	if s == "latest" || s == "fresh" || ok && path != "" {
		return ""
	}
	return "latest, fresh or savepoint:<path> is wanted"
}

func checkEndpoint(s string) string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return "a URL is wanted, such as https://s3.example.com:9000"
	}
	return ""
}
