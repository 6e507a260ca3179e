package configs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is one thing wrong with a configuration.
type Fault struct {
	Key     string // as in the file; for an unknown key or variable what was given; "" when it is about no single key
	Value   string // as given, masked if it is a secret; "" when there is none to show
	Origin  string // where it came from, as Loaded.Origin; "" when the program made the Config itself
	Problem string // what is wrong and what is allowed
}

// String is the fault in one line.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(plain(f.Key))
	if f.Value != "" {
		fmt.Fprintf(&b, " = %s", f.Value)
	}
	if f.Origin != "" {
		fmt.Fprintf(&b, " (%s)", f.Origin)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(f.Problem)
	return b.String()
}

// Faults is everything wrong with a configuration, at once. Programs end with exit code 2 on it.
type Faults struct {
	List []Fault // never empty
}

// Error has a line for each fault.
func (f *Faults) Error() string {
	if len(f.List) == 1 {
		return "configuration: " + f.List[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d faults", len(f.List))
	for _, fault := range f.List {
		b.WriteString("\n  ")
		b.WriteString(fault.String())
	}
	return b.String()
}

// Default returns the configuration without file, environment and flags. Only App.ID is missing.
func Default() Config {
	var c Config
	for _, k := range keys() {
		if err := set(k.at(&c), k.def); err != nil {
			panic("default of " + k.name + ": " + err.Error()) // a test loads every default
		}
	}
	return c
}

// Validate returns *Faults with all that is wrong, or nil. An empty App.ID is not a fault here: the program may add it.
func (c *Config) Validate() error {
	return faults(c.faults(nil, func(string) string { return "" }))
}

func faults(list []Fault) error {
	if len(list) == 0 {
		return nil
	}
	return &Faults{List: list}
}

// faults checks each value and then how they go together. Keys in bad have a fault already and are left out.
func (c *Config) faults(bad map[string]bool, origin func(key string) string) []Fault {
	var list []Fault
	failed := map[string]bool{}
	fault := func(name, format string, args ...any) {
		k, _ := find(name)
		list = append(list, Fault{Key: name, Value: shown(k, text(k.at(c))), Origin: origin(name), Problem: fmt.Sprintf(format, args...)})
	}
	for _, k := range keys() {
		if failed[k.name] = bad[k.name]; failed[k.name] {
			continue
		}
		for _, problem := range k.problems(k.at(c)) {
			failed[k.name] = true
			fault(k.name, "%s", problem)
		}
	}
	// together reports a problem of its first key, unless one of the keys has a fault of its own.
	together := func(wrong bool, names []string, format string, args ...any) {
		if wrong && !slices.ContainsFunc(names, func(n string) bool { return failed[n] }) {
			fault(names[0], format, args...)
		}
	}
	notAbove := func(low, high string, lowValue, highValue int64) {
		k, _ := find(high)
		together(lowValue > highValue, []string{low, high}, "must not be above %s, which is %s%s", high, text(k.at(c)), from(origin(high)))
	}

	together(c.Commit.MaxLatency >= c.Transaction.Timeout, []string{"transaction.timeout", "commit.max-latency"},
		"must be above commit.max-latency, which is %s%s, or the broker aborts what is still running",
		FormatDuration(c.Commit.MaxLatency), from(origin("commit.max-latency")))
	notAbove("commit.quiet", "commit.max-latency", int64(c.Commit.Quiet), int64(c.Commit.MaxLatency))
	notAbove("fetch.max-partition-bytes", "fetch.max-bytes", c.Fetch.MaxPartitionBytes, c.Fetch.MaxBytes)
	notAbove("fetch.min-bytes", "fetch.max-bytes", c.Fetch.MinBytes, c.Fetch.MaxBytes)
	notAbove("restart.backoff-min", "restart.backoff-max", int64(c.Restart.BackoffMin), int64(c.Restart.BackoffMax))
	together(c.Group.HeartbeatInterval > c.Group.SessionTimeout/2, []string{"group.heartbeat-interval", "group.session-timeout"},
		"must be at most half of group.session-timeout, which is %s%s, or one lost heartbeat costs the membership",
		FormatDuration(c.Group.SessionTimeout), from(origin("group.session-timeout")))
	together(c.Group.InstanceID != "" && !c.Group.Static, []string{"group.instance-id", "group.static"},
		"only a static member has a name: set group.static to true, or leave this empty")
	together(c.State.Dir == "", []string{"state.dir"}, "a folder is wanted")

	s3 := c.Checkpoint.S3
	together(s3.AccessKey != "" && s3.SecretKey == "", []string{"checkpoint.s3.access-key", "checkpoint.s3.secret-key"}, "needs checkpoint.s3.secret-key, too")
	together(s3.SecretKey != "" && s3.AccessKey == "", []string{"checkpoint.s3.secret-key", "checkpoint.s3.access-key"}, "has no effect without checkpoint.s3.access-key")
	together(s3.SessionToken != "" && s3.AccessKey == "", []string{"checkpoint.s3.session-token", "checkpoint.s3.access-key"}, "has no effect without checkpoint.s3.access-key")
	together(s3.KMSKeyID != "" && s3.SSE != "aws:kms", []string{"checkpoint.s3.kms-key-id", "checkpoint.s3.sse"}, "has no effect without aws:kms as checkpoint.s3.sse")

	tls := c.Security.TLS
	for name, isSet := range tlsDetails(tls) {
		together(isSet && !tls.Enabled, []string{name, "security.tls.enabled"}, "has no effect without TLS: set security.tls.enabled to true, or remove this")
	}
	together(tls.CertFile != "" && tls.KeyFile == "", []string{"security.tls.cert-file"}, "needs security.tls.key-file, too")
	together(tls.KeyFile != "" && tls.CertFile == "", []string{"security.tls.key-file"}, "needs security.tls.cert-file, too")

	sasl := c.Security.SASL
	together(sasl.Mechanism != "" && sasl.Username == "", []string{"security.sasl.username", "security.sasl.mechanism"}, "%s needs a user name", sasl.Mechanism)
	together(sasl.Mechanism != "" && sasl.Password == "", []string{"security.sasl.password", "security.sasl.mechanism"}, "%s needs a password", sasl.Mechanism)
	together(sasl.Mechanism == "" && sasl.Username != "", []string{"security.sasl.username", "security.sasl.mechanism"}, "has no effect without security.sasl.mechanism")
	together(sasl.Mechanism == "" && sasl.Password != "", []string{"security.sasl.password", "security.sasl.mechanism"}, "has no effect without security.sasl.mechanism")

	slices.SortStableFunc(list, func(a, b Fault) int { return position(a.Key) - position(b.Key) })
	return list
}

// tlsDetails says which settings of TLS are set that mean nothing when it is off.
func tlsDetails(tls TLS) map[string]bool {
	return map[string]bool{
		"security.tls.ca-file":              tls.CAFile != "",
		"security.tls.cert-file":            tls.CertFile != "",
		"security.tls.key-file":             tls.KeyFile != "",
		"security.tls.server-name":          tls.ServerName != "",
		"security.tls.insecure-skip-verify": tls.InsecureSkipVerify,
	}
}

// from puts an origin in brackets behind a value.
func from(origin string) string {
	if origin == "" {
		return ""
	}
	return " (" + origin + ")"
}

// position of a key in the table.
func position(name string) int {
	return slices.IndexFunc(keys(), func(k key) bool { return k.name == name })
}

// shown is a value for messages: quoted unless it is a plain number, masked if it is a secret.
func shown(k key, value string) string {
	switch {
	case k.secret() && value != "":
		return mask
	case k.name == "checkpoint.url" && strings.Contains(value, "@"):
		return strconv.QuoteToASCII("..." + value[strings.LastIndex(value, "@"):]) // what stands before may be a secret
	case len(value) > maxShown:
		return strconv.QuoteToASCII(value[:maxShown]) + "..."
	case k.kind() == "string" || k.kind() == "secret" || value == "":
		return strconv.QuoteToASCII(value)
	default:
		return plain(value)
	}
}

// maxShown is the most bytes of a value that a message repeats.
const maxShown = 250

// plain quotes a text that does not print as it is.
func plain(s string) string {
	if strings.TrimFunc(s, isPlain) != "" {
		return strconv.QuoteToASCII(s)
	}
	return s
}

func isPlain(r rune) bool { return r > ' ' && r <= '~' && r != '"' }

// problems of one value by itself.
func (k key) problems(at any) []string {
	var out []string
	within := func(n int64, format func(int64) string) {
		if k.zero && n == 0 || k.max == 0 || n >= k.min && n <= k.max {
			return
		}
		allowed := fmt.Sprintf("%s to %s", format(k.min), format(k.max))
		if k.max == maxOf(at) {
			allowed = "at least " + format(k.min)
		}
		if k.zero {
			allowed = "0, or " + allowed
		}
		out = append(out, allowed+" is allowed")
	}
	switch p := at.(type) {
	case *int:
		within(int64(*p), func(n int64) string { return strconv.FormatInt(n, 10) })
	case *int64:
		within(*p, FormatSize)
	case *time.Duration:
		within(int64(*p), func(n int64) string { return FormatDuration(time.Duration(n)) })
	case *string:
		if k.oneOf != nil && !slices.Contains(k.oneOf, *p) {
			out = append(out, orList(k.oneOf)+" is wanted")
		}
	case *[]string:
		if len(*p) == 0 {
			out = append(out, "at least one is wanted")
		}
		seen := map[string]bool{}
		for _, item := range *p {
			if problem := k.check(item); problem != "" {
				return append(out, fmt.Sprintf("%q: %s", item, problem))
			}
			if seen[item] {
				out = append(out, fmt.Sprintf("%q is given twice", item))
			}
			seen[item] = true
		}
		return out
	}
	if k.check != nil {
		if problem := k.check(text(at)); problem != "" {
			out = append(out, problem)
		}
	}
	return out
}

// orList joins allowed values: "a, b or c".
func orList(values []string) string {
	shown := make([]string, len(values))
	for i, v := range values {
		if shown[i] = v; v == "" {
			shown[i] = `""`
		}
	}
	last := len(shown) - 1
	if last == 0 {
		return shown[0]
	}
	return strings.Join(shown[:last], ", ") + " or " + shown[last]
}

// IsFaults says whether err is about the configuration: exit code 2.
func IsFaults(err error) bool {
	var f *Faults
	return errors.As(err, &f)
}
