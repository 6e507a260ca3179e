// Package configs is the configuration of a Millrace program as one typed value.
//
// It comes from four layers, each stronger than the one before: defaults, a YAML file, MILLRACE_* environment
// variables, flags. One table (keys.go) names every key with its default, form, limits and doc; loading, help, the
// printed form and docs/configuration.md all follow from it.
//
// Load refuses what it does not know or understand and names all faults at once. Secrets are kept byte for byte and are
// masked wherever they are printed.
package configs

import (
	"fmt"
	"log/slog"
	"time"
)

// Config is the configuration of a program. Load makes one from file, environment and flags; programs that configure
// themselves start from Default, change fields and call Validate. What the fields mean stands in keys.go.
type Config struct {
	App         App
	Brokers     []string // host:port
	State       State
	Standby     Standby
	Checkpoint  Checkpoint
	Savepoint   Savepoint
	Listen      string // host:port of the HTTP server; ListenOff = none
	Advertise   string // where other members find it, host:port; "" = from Listen
	Admin       Admin
	Log         Log
	Parallelism int // 0 = chosen from the partition counts of the inputs
	Commit      Commit
	Memory      Memory
	Group       Group
	Transaction Transaction
	Request     Request
	Shutdown    Shutdown
	Restart     Restart
	Start       Start
	Internal    Internal
	Output      Output
	Errors      Errors
	Fetch       Fetch
	Rack        string
	Security    Security
}

// ListenOff as Config.Listen turns the HTTP server off.
const ListenOff = "off"

// App identifies the application.
type App struct {
	ID string // consumer group id and prefix of topics and transactional ids; "" until the program or its user names it
}

// State says where state is kept.
type State struct {
	Dir         string
	Store       string // pebble or memory
	WriteBehind WriteBehind
	Restore     Restore
	Cleanup     Cleanup
}

// Cleanup says how long state stays on the disk that is not used any more.
type Cleanup struct {
	Delay time.Duration // 0 = for ever
}

// Standby says how many copies of state are kept up to date.
type Standby struct {
	Replicas int // besides the owner's
}

// Restore says how state is brought back.
type Restore struct {
	Concurrency int // files that are downloaded at once
}

// Savepoint bounds the savepoints of a running app.
type Savepoint struct {
	AlignTimeout time.Duration
}

// Checkpoint says when checkpoints are taken and where they are kept.
type Checkpoint struct {
	URL               string // s3://bucket/prefix or file:///absolute/path; "" = none
	Interval          time.Duration
	MinPause          time.Duration
	Timeout           time.Duration
	Retain            int
	MaxBytesPerSecond int64 // 0 = no limit
	Concurrency       int
	S3                S3
}

// S3 is how the server of an s3:// URL is spoken to.
type S3 struct {
	Endpoint       string // "" = Amazon's
	Region         string
	PathStyle      bool
	AccessKey      string // "" = the AWS SDK's chain of credentials
	SecretKey      Secret
	SessionToken   Secret
	Profile        string
	SSE            string // "" = the bucket's default, AES256 or aws:kms
	KMSKeyID       string
	PartSize       int64
	RequestTimeout time.Duration
}

// WriteBehind says when committed state goes to the local store.
type WriteBehind struct {
	Interval time.Duration
	Bytes    int64
}

// Admin guards the calls of the HTTP server that change something.
type Admin struct {
	Token Secret
}

// Log says what is logged, and how.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// SlogLevel is Level as slog's.
func (l Log) SlogLevel() slog.Level {
	switch l.Level {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// Commit says when an epoch is due.
type Commit struct {
	MaxLatency time.Duration
	Quiet      time.Duration
	MaxBytes   int64
}

// Memory is the budget of the process.
type Memory struct {
	Limit int64 // bytes; 0 = the limit of the cgroup
}

// Group is the membership in the consumer group.
type Group struct {
	SessionTimeout    time.Duration
	HeartbeatInterval time.Duration
	RebalanceTimeout  time.Duration
	Static            bool
	InstanceID        string // "" with Static = the one kept in State.Dir
	LeaveOnStop       bool
}

// Transaction holds limits of Kafka transactions.
type Transaction struct {
	Timeout time.Duration
}

// Request holds limits of requests to brokers.
type Request struct {
	Timeout time.Duration
}

// Shutdown holds limits of a graceful stop.
type Shutdown struct {
	Timeout time.Duration
}

// Restart says how a failed subtask is started again.
type Restart struct {
	BackoffMin  time.Duration
	BackoffMax  time.Duration
	MaxAttempts int
}

// Start decides what a start does when it would otherwise refuse.
type Start struct {
	Mode              string // latest, fresh or savepoint:<path>
	Nonce             string
	Offsets           string // "", state or group
	AllowDroppedState bool
}

// Internal holds settings of changelog, repartition and control topics.
type Internal struct {
	ReplicationFactor int    // -1 = the broker's default
	Compression       string // compression.type of the topics
}

// Output holds settings of what is written.
type Output struct {
	Compression string // of the producer
}

// Errors holds the policies for bad input.
type Errors struct {
	Decode     string // fail, skip or dead-letter
	OutOfRange string // fail or earliest
}

// Fetch paces and bounds reading.
type Fetch struct {
	MaxBytes          int64
	MaxPartitionBytes int64
	MinBytes          int64
	MaxWait           time.Duration
}

// Security is how brokers are spoken to.
type Security struct {
	TLS  TLS
	SASL SASL
}

// TLS to the brokers. TLSConfig reads the files.
type TLS struct {
	Enabled            bool
	CAFile             string
	CertFile           string
	KeyFile            string
	ServerName         string
	InsecureSkipVerify bool
}

// SASL are the credentials for the brokers.
type SASL struct {
	Mechanism string // "" = none, PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	Username  string
	Password  Secret
}

// mask stands for a secret wherever one would be printed. It does not tell the length.
const mask = "********"

// Secret is a value that fmt, slog and encoders print masked. Reveal returns it.
type Secret string

// Reveal returns the secret itself, byte for byte as it was given.
func (s Secret) Reveal() string { return string(s) }

// String returns a mask, or "" for no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// Format masks the secret for every verb of fmt.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		_, _ = fmt.Fprintf(f, "%q", s.String())
		return
	}
	_, _ = f.Write([]byte(s.String()))
}

// MarshalText masks the secret for encoding/json and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue masks the secret for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
