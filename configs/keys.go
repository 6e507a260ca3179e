package configs

import (
	"math"
	"slices"
	"strings"
	"time"
)

// key is one row of the table. The kind of the value is that of the field at points to.
type key struct {
	name  string // as in the file and in flags
	def   string // text form of the default
	doc   string // whole sentences
	at    func(*Config) any
	oneOf []string // the allowed values of a string; nil = any
	// The limits of numbers, durations (nanoseconds) and sizes (bytes), both included. zero lets 0 in below min.
	min, max int64
	zero     bool
	check    func(string) string // what is wrong with a string, "" = nothing
}

// group of keys, for help and docs.
type group struct {
	title string
	keys  []key
}

const (
	ms   = int64(time.Millisecond)
	hour = int64(time.Hour)
	// Kafka's protocol has milliseconds and most byte counts as int32.
	maxWireTime = int64(math.MaxInt32) * ms
	kib         = int64(1) << 10
	mib         = int64(1) << 20
	// The Kafka client reads no response above this size, and refuses to fetch more.
	maxResponse = 100 * mib
)

// table of all keys, in the order in which they are printed. Keys of one section of the file stand together.
var table = []group{
	{"Application", []key{
		{name: "app.id", def: "", at: func(c *Config) any { return &c.App.ID }, check: checkKafkaName(200, true),
			doc: "Name of the application: the consumer group, and the prefix of its internal topics and transactional ids. Changing it starts a new application without state."},
		{name: "parallelism", def: "0", at: func(c *Config) any { return &c.Parallelism }, max: 4096,
			doc: "Subtasks of every part of the topology that names no number itself. 0 takes the largest common divisor of the partition counts of its inputs that is at most 16."},
		{name: "listen", def: "127.0.0.1:9644", at: func(c *Config) any { return &c.Listen }, check: checkListen,
			doc: "Address of the HTTP server with health, metrics and status, as host:port; \"off\" is none."},
		{name: "advertise", def: "", at: func(c *Config) any { return &c.Advertise }, check: checkAdvertise,
			doc: "Where the other members find the HTTP server of this one, as host:port, so that they can send it questions about keys that it owns. Empty takes listen, with the name of this host for an address of all networks, or nothing if listen is a loopback address."},
		{name: "admin.token", def: "", at: func(c *Config) any { return &c.Admin.Token }, check: checkToken,
			doc: "Bearer token that the HTTP server asks for before it takes, shows or deletes savepoints, stops or resumes the app, or shows any of its state: who has it can do all of that. Without one these paths answer 403. All members need the same."},
		{name: "log.level", def: "info", at: func(c *Config) any { return &c.Log.Level }, oneOf: []string{"debug", "info", "warn", "error"},
			doc: "Lowest level that is logged."},
		{name: "log.format", def: "text", at: func(c *Config) any { return &c.Log.Format }, oneOf: []string{"text", "json"},
			doc: "Form of a log line."},
		{name: "shutdown.timeout", def: "10s", at: func(c *Config) any { return &c.Shutdown.Timeout }, min: ms, max: hour,
			doc: "Longest time that a graceful stop takes: the last commit, and leaving the group."},
		{name: "memory.limit", def: "0", at: func(c *Config) any { return &c.Memory.Limit }, min: 32 * mib, max: math.MaxInt64, zero: true,
			doc: "Memory of the process, from which caches and Go's memory limit follow. 0 takes the limit of the cgroup."},
	}},
	{"Kafka", []key{
		{name: "brokers", def: "localhost:9092", at: func(c *Config) any { return &c.Brokers }, check: checkBroker,
			doc: "Brokers to connect to first, each as host:port. The others are found through them."},
		{name: "rack", def: "", at: func(c *Config) any { return &c.Rack }, check: checkRack,
			doc: "Rack of this process. Brokers with a rack-aware replica selector then let it fetch from a replica in the same rack."},
		{name: "request.timeout", def: "10s", at: func(c *Config) any { return &c.Request.Timeout }, min: 100 * ms, max: maxWireTime,
			doc: "Longest time of one administrative or transactional call, retries included."},
		{name: "fetch.max-bytes", def: "16MiB", at: func(c *Config) any { return &c.Fetch.MaxBytes }, min: kib, max: maxResponse,
			doc: "Most bytes of one fetch from one broker."},
		{name: "fetch.max-partition-bytes", def: "512KiB", at: func(c *Config) any { return &c.Fetch.MaxPartitionBytes }, min: kib, max: maxResponse,
			doc: "Most bytes of one partition in a fetch. A larger batch still arrives, alone."},
		{name: "fetch.min-bytes", def: "64KiB", at: func(c *Config) any { return &c.Fetch.MinBytes }, min: 1, max: maxResponse,
			doc: "Bytes for which a broker waits before it answers a fetch, for fetch.max-wait at most."},
		{name: "fetch.max-wait", def: "10ms", at: func(c *Config) any { return &c.Fetch.MaxWait }, min: 10 * ms, max: maxWireTime,
			doc: "Longest time that a broker waits for fetch.min-bytes. It adds to the latency of quiet streams."},
		{name: "output.compression", def: "none", at: func(c *Config) any { return &c.Output.Compression }, oneOf: []string{"none", "gzip", "snappy", "lz4", "zstd"},
			doc: "Compression of what is produced."},
		{name: "internal.replication-factor", def: "-1", at: func(c *Config) any { return &c.Internal.ReplicationFactor }, check: checkReplication,
			doc: "Replication factor of internal topics when they are created. -1 is the broker's default."},
		{name: "internal.compression", def: "producer", at: func(c *Config) any { return &c.Internal.Compression },
			oneOf: []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"},
			doc:   "compression.type of internal topics when they are created. \"producer\" keeps what output.compression made."},
	}},
	{"Commits", []key{
		{name: "commit.max-latency", def: "100ms", at: func(c *Config) any { return &c.Commit.MaxLatency }, min: ms, max: maxWireTime,
			doc: "A commit is due when the oldest input that is not committed is this old. Output becomes visible with the commit."},
		{name: "commit.quiet", def: "25ms", at: func(c *Config) any { return &c.Commit.Quiet }, min: ms, max: maxWireTime,
			doc: "A commit is also due when the inputs are drained and the oldest uncommitted record is this old, so that a job that is not behind commits sooner than commit.max-latency."},
		{name: "commit.max-bytes", def: "2MiB", at: func(c *Config) any { return &c.Commit.MaxBytes }, min: kib, max: math.MaxInt64,
			doc: "A commit is also due when output and changed state of the running epoch reach this size."},
		{name: "transaction.timeout", def: "15s", at: func(c *Config) any { return &c.Transaction.Timeout }, min: ms, max: maxWireTime,
			doc: "Time after which the broker aborts an open transaction, for example that of a member that was cut off. The broker's transaction.max.timeout.ms bounds it."},
	}},
	{"State", []key{
		{name: "state.dir", def: "./state", at: func(c *Config) any { return &c.State.Dir },
			doc: "Folder of the local stores and of the member's name in the group. Each process has its own."},
		{name: "state.store", def: "pebble", at: func(c *Config) any { return &c.State.Store }, oneOf: []string{"pebble", "memory"},
			doc: "Where state lives. \"memory\" is rebuilt from the changelog topics at each start."},
		{name: "state.write-behind.interval", def: "5s", at: func(c *Config) any { return &c.State.WriteBehind.Interval }, min: ms, max: 7 * 24 * hour,
			doc: "Committed state goes to the local store this often. What lies behind it is read again from the changelog after a crash."},
		{name: "state.write-behind.bytes", def: "16MiB", at: func(c *Config) any { return &c.State.WriteBehind.Bytes }, min: kib, max: math.MaxInt64,
			doc: "Committed state goes to the local store earlier when it reaches this size."},
		{name: "state.restore.concurrency", def: "16", at: func(c *Config) any { return &c.State.Restore.Concurrency }, min: 1, max: 1000,
			doc: "Files of checkpoints that are downloaded at once when state is restored, all subtasks of the process together. Those of one subtask go before those of the next, so that the first one works early."},
		{name: "state.cleanup.delay", def: "10m", at: func(c *Config) any { return &c.State.Cleanup.Delay }, min: ms, max: 7 * 24 * hour, zero: true,
			doc: "State of a subtask that another member owns is removed from state.dir after this time, unless it is kept as a standby; and what older incarnations have left, there and as checkpoints, this time after all subtasks of the present one have begun. 0 keeps both."},
		{name: "standby.replicas", def: "0", at: func(c *Config) any { return &c.Standby.Replicas }, max: 100,
			doc: "Members besides the owner that keep a copy of each state up to date, so that one of them takes over without a restore. Each costs the state's disk space once more, and reads its changelog as it grows."},
	}},
	{"Checkpoints", []key{
		{name: "checkpoint.url", def: "", at: func(c *Config) any { return &c.Checkpoint.URL }, check: checkBlobURL,
			doc: "Where checkpoints and savepoints are kept: s3://bucket/prefix, or file:///absolute/path of a folder that all processes share. Empty takes no checkpoints; state whose disk is lost is then rebuilt from the changelog topics."},
		{name: "checkpoint.interval", def: "1m", at: func(c *Config) any { return &c.Checkpoint.Interval }, min: 100 * ms, max: 7 * 24 * hour,
			doc: "Time from the start of one checkpoint of a subtask to the start of the next."},
		{name: "checkpoint.min-pause", def: "10s", at: func(c *Config) any { return &c.Checkpoint.MinPause }, max: 7 * 24 * hour,
			doc: "Least time from the end of one checkpoint of a subtask, also a failed one, to the start of the next."},
		{name: "checkpoint.timeout", def: "10m", at: func(c *Config) any { return &c.Checkpoint.Timeout }, min: ms, max: 7 * 24 * hour,
			doc: "A checkpoint that takes longer is given up. Processing goes on; the failure is counted and logged."},
		{name: "checkpoint.retain", def: "3", at: func(c *Config) any { return &c.Checkpoint.Retain }, min: 1, max: 1000,
			doc: "Newest checkpoints of each subtask that are kept. A restore takes an older one when the newest is damaged."},
		{name: "checkpoint.max-bytes-per-second", def: "0", at: func(c *Config) any { return &c.Checkpoint.MaxBytesPerSecond }, min: 64 * kib, max: math.MaxInt64, zero: true,
			doc: "Most bytes per second that the process uploads for checkpoints and savepoints. 0 is no limit. Restoring is not limited."},
		{name: "checkpoint.concurrency", def: "4", at: func(c *Config) any { return &c.Checkpoint.Concurrency }, min: 1, max: 1000,
			doc: "Pieces that the process uploads at once. Each takes up to checkpoint.s3.part-size of memory."},
		{name: "checkpoint.s3.endpoint", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.Endpoint }, check: checkEndpoint,
			doc: "URL of an S3 server that is not Amazon's, such as https://s3.example.com:9000."},
		{name: "checkpoint.s3.region", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.Region },
			doc: "Region of the bucket. Empty takes AWS_REGION or the profile's; with an endpoint, else us-east-1."},
		{name: "checkpoint.s3.path-style", def: "false", at: func(c *Config) any { return &c.Checkpoint.S3.PathStyle },
			doc: "Puts the bucket into the path of URLs, not before the host's name. Most S3 servers but Amazon's want it."},
		{name: "checkpoint.s3.access-key", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.AccessKey },
			doc: "Access key id. Without one, credentials come from the AWS SDK's chain: AWS_* variables, profile, web identity, container or EKS pod identity, instance role."},
		{name: "checkpoint.s3.secret-key", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.SecretKey },
			doc: "Secret access key of checkpoint.s3.access-key."},
		{name: "checkpoint.s3.session-token", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.SessionToken },
			doc: "Session token of temporary static credentials. They are not renewed: a role is better."},
		{name: "checkpoint.s3.profile", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.Profile },
			doc: "Profile of the AWS configuration files. Empty takes AWS_PROFILE, else default."},
		{name: "checkpoint.s3.sse", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.SSE }, oneOf: []string{"", "AES256", "aws:kms"},
			doc: "Encryption that the server is asked for: AES256 (SSE-S3) or aws:kms (SSE-KMS). Empty leaves it to the bucket's default."},
		{name: "checkpoint.s3.kms-key-id", def: "", at: func(c *Config) any { return &c.Checkpoint.S3.KMSKeyID },
			doc: "Id or ARN of the key for aws:kms. Empty takes the account's default key."},
		{name: "checkpoint.s3.part-size", def: "16MiB", at: func(c *Config) any { return &c.Checkpoint.S3.PartSize }, min: 5 * mib, max: 1024 * mib,
			doc: "Size of the parts in which larger files are uploaded."},
		{name: "checkpoint.s3.request-timeout", def: "30s", at: func(c *Config) any { return &c.Checkpoint.S3.RequestTimeout }, min: 100 * ms, max: hour,
			doc: "Longest time that a request to the S3 server may make no progress. It is then repeated."},
	}},
	{"Savepoints", []key{
		{name: "savepoint.align-timeout", def: "1m", at: func(c *Config) any { return &c.Savepoint.AlignTimeout }, min: 100 * ms, max: 7 * 24 * hour,
			doc: "Longest time that parts of the topology stand still for a savepoint, while what is in repartition topics is processed; it fails then, and processing goes on. Who asks for a savepoint decides: the command, or the member that is asked by HTTP."},
	}},
	{"Group", []key{
		{name: "group.session-timeout", def: "6s", at: func(c *Config) any { return &c.Group.SessionTimeout }, min: 100 * ms, max: maxWireTime,
			doc: "Time without heartbeats after which a member counts as dead and others take over. The broker's group.min.session.timeout.ms (6 s) and group.max.session.timeout.ms bound it."},
		{name: "group.heartbeat-interval", def: "500ms", at: func(c *Config) any { return &c.Group.HeartbeatInterval }, min: ms, max: maxWireTime,
			doc: "Time between heartbeats, at most half of group.session-timeout."},
		{name: "group.rebalance-timeout", def: "1m", at: func(c *Config) any { return &c.Group.RebalanceTimeout }, min: 100 * ms, max: maxWireTime,
			doc: "Time that members have to hand over their subtasks in a rebalance."},
		{name: "group.static", def: "true", at: func(c *Config) any { return &c.Group.Static },
			doc: "Static membership (KIP-345): a process that comes back within group.session-timeout goes on without a rebalance."},
		{name: "group.instance-id", def: "", at: func(c *Config) any { return &c.Group.InstanceID }, check: checkKafkaName(249, true),
			doc: "Name of this static member. When empty, one is made and kept in state.dir."},
		{name: "group.leave-on-stop", def: "true", at: func(c *Config) any { return &c.Group.LeaveOnStop },
			doc: "A graceful stop leaves the group, so that others take over at once. Turn it off for rolling restarts."},
	}},
	{"Failures", []key{
		{name: "errors.decode", def: "dead-letter", at: func(c *Config) any { return &c.Errors.Decode }, oneOf: []string{"fail", "skip", "dead-letter"},
			doc: "What happens to a record that cannot be decoded, has no event time, cannot be encoded or is too large for its topic, where the program says nothing else: stop, count it and go on, or write it to the dead-letter topic and go on."},
		{name: "errors.out-of-range", def: "fail", at: func(c *Config) any { return &c.Errors.OutOfRange }, oneOf: []string{"fail", "earliest"},
			doc: "What happens when retention deleted input before it was read: stop and say how much is gone, or go on with the earliest record that is left and count the skipped offsets. State stays as it is."},
		{name: "restart.backoff-min", def: "200ms", at: func(c *Config) any { return &c.Restart.BackoffMin }, min: ms, max: hour,
			doc: "Wait before the first restart of a failed subtask. It doubles with each."},
		{name: "restart.backoff-max", def: "10s", at: func(c *Config) any { return &c.Restart.BackoffMax }, min: ms, max: hour,
			doc: "Longest wait before a restart."},
		{name: "restart.max-attempts", def: "10", at: func(c *Config) any { return &c.Restart.MaxAttempts }, min: 1, max: math.MaxInt32,
			doc: "Restarts without a commit between them after which the process gives up."},
		{name: "start.mode", def: "latest", at: func(c *Config) any { return &c.Start.Mode }, check: checkStartMode,
			doc: "What the program begins with: \"latest\" goes on with the app's newest state, \"fresh\" begins without state at the start positions of the sources, \"savepoint:<path>\" with the state and the offsets of a savepoint, whatever came after it. The path is the name of a savepoint of this app, <app>/<name>, or the URL of its folder. The last two begin once: members that are started so later join, also after a rescale."},
		{name: "start.nonce", def: "", at: func(c *Config) any { return &c.Start.Nonce },
			doc: "Any text. Another one makes the same start.mode begin again."},
		{name: "start.offsets", def: "", at: func(c *Config) any { return &c.Start.Offsets }, oneOf: []string{"", "state", "group"},
			doc: "Decides when the group's offsets and the state disagree, for example after a reset by hand: empty refuses to start, \"state\" goes on where the state is, \"group\" where the group is."},
		{name: "start.allow-dropped-state", def: "false", at: func(c *Config) any { return &c.Start.AllowDroppedState },
			doc: "Lets a topology start that no longer has a state, or reads a topic, that the last one did: they are given up. The flag may also be written --allow-dropped-state. What a program would give up is shown by its flag --check-state."},
	}},
	{"Security", []key{
		{name: "security.tls.enabled", def: "false", at: func(c *Config) any { return &c.Security.TLS.Enabled },
			doc: "TLS to the brokers."},
		{name: "security.tls.ca-file", def: "", at: func(c *Config) any { return &c.Security.TLS.CAFile },
			doc: "PEM file with the authorities that may sign the brokers' certificates. Empty takes the system's."},
		{name: "security.tls.cert-file", def: "", at: func(c *Config) any { return &c.Security.TLS.CertFile },
			doc: "PEM file with this client's certificate, for mutual TLS."},
		{name: "security.tls.key-file", def: "", at: func(c *Config) any { return &c.Security.TLS.KeyFile },
			doc: "PEM file with the private key of security.tls.cert-file."},
		{name: "security.tls.server-name", def: "", at: func(c *Config) any { return &c.Security.TLS.ServerName },
			doc: "Name that the brokers' certificates must carry. Empty takes the host of each broker."},
		{name: "security.tls.insecure-skip-verify", def: "false", at: func(c *Config) any { return &c.Security.TLS.InsecureSkipVerify },
			doc: "Accepts any certificate. For tests only: anyone in between can read and change the data."},
		{name: "security.sasl.mechanism", def: "", at: func(c *Config) any { return &c.Security.SASL.Mechanism }, check: checkMechanism,
			doc: "SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty is none. PLAIN without TLS sends the password in the clear."},
		{name: "security.sasl.username", def: "", at: func(c *Config) any { return &c.Security.SASL.Username },
			doc: "SASL user name."},
		{name: "security.sasl.password", def: "", at: func(c *Config) any { return &c.Security.SASL.Password },
			doc: "SASL password."},
	}},
}

// hints lead from names of Kafka's own clients and of Flink to ours.
var hints = map[string]string{
	"app.name":              "app.id",
	"application.id":        "app.id",
	"group.id":              "app.id",
	"auto.offset.reset":     "errors.out-of-range",
	"bootstrap.servers":     "brokers",
	"client.rack":           "rack",
	"commit.interval.ms":    "commit.max-latency",
	"compression.type":      "output.compression",
	"heartbeat.interval.ms": "group.heartbeat-interval",
	"num.stream.threads":    "parallelism",
	"replication.factor":    "internal.replication-factor",
	"sasl.mechanism":        "security.sasl.mechanism",
	"security.protocol":     "security.tls.enabled",
	"session.timeout.ms":    "group.session-timeout",
	"state.path":            "state.dir",

	"execution.checkpointing.interval":                     "checkpoint.interval",
	"execution.checkpointing.min-pause":                    "checkpoint.min-pause",
	"execution.checkpointing.timeout":                      "checkpoint.timeout",
	"execution.checkpointing.dir":                          "checkpoint.url",
	"execution.checkpointing.num-retained":                 "checkpoint.retain",
	"state.checkpoints.dir":                                "checkpoint.url",
	"state.checkpoints.num-retained":                       "checkpoint.retain",
	"state.backend.rocksdb.checkpoint.transfer.thread.num": "checkpoint.concurrency",
	"s3.endpoint":          "checkpoint.s3.endpoint",
	"s3.endpoint.region":   "checkpoint.s3.region",
	"s3.path.style.access": "checkpoint.s3.path-style",
	"s3.access-key":        "checkpoint.s3.access-key",
	"s3.secret-key":        "checkpoint.s3.secret-key",
}

// keys returns the whole table without its groups.
func keys() []key {
	var all []key
	for _, g := range table {
		all = append(all, g.keys...)
	}
	return all
}

// Known says whether a key of that name exists.
func Known(name string) bool {
	_, ok := find(name)
	return ok
}

// find the key with this name.
func find(name string) (key, bool) {
	for _, g := range table {
		if i := slices.IndexFunc(g.keys, func(k key) bool { return k.name == name }); i >= 0 {
			return g.keys[i], true
		}
	}
	return key{}, false
}

const (
	envPrefix  = "MILLRACE_"
	envConfig  = "MILLRACE_CONFIG"
	fileSuffix = "_FILE"
	configFlag = "config"
)

// env is the name of the key's environment variable.
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.name))
}

// secret says whether the value is masked.
func (k key) secret() bool {
	_, ok := k.at(new(Config)).(*Secret)
	return ok
}

// list says whether the value has several items.
func (k key) list() bool {
	_, ok := k.at(new(Config)).(*[]string)
	return ok
}

// kind names the form of the value in one word.
func (k key) kind() string {
	switch k.at(new(Config)).(type) {
	case *bool:
		return "bool"
	case *int:
		return "int"
	case *int64:
		return "size"
	case *time.Duration:
		return "duration"
	case *[]string:
		return "list"
	case *Secret:
		return "secret"
	default:
		return "string"
	}
}

// maxOf is the limit that says no more than the type of the field itself.
func maxOf(at any) int64 {
	if _, ok := at.(*int); ok {
		return math.MaxInt32
	}
	return math.MaxInt64
}
