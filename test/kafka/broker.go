package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	readyTimeout = 90 * time.Second // a loaded machine with two cores may take half of it
	stopTimeout  = 30 * time.Second
	portTries    = 3 // a port that was free a moment ago may be taken
)

// Broker is a running Kafka broker. Its methods may be called from several goroutines, but Stop, Kill and Restart
// only from one.
type Broker struct {
	access
	opts       *options
	site       site
	node       int      // its id, and its place among voters
	voters     []string // addresses of the controllers of the cluster
	ports      []int    // internal, client, controller
	dir        string   // everything that belongs to it
	advertised string   // address of the client listener as clients are told it
	certs      *Certs

	childMu sync.Mutex
	child   *child // nil when stopped
}

// site is what a machine must have to run brokers.
type site struct{ java, libs string }

// The one broker of this test binary that Shared hands out.
var shared struct {
	once   sync.Once
	broker *Broker
	err    error
}

// Start starts a broker that belongs to this test: it is killed at the test's end. Its data and log stay when the test
// failed, and the test's output names the folder.
func Start(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	skip(t)
	b, err := start(collect(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.dispose(t.Failed()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("Kafka's data and log are kept in %s", b.dir)
		}
	})
	return b
}

// Shared returns the test binary's common broker with default settings, started at the first call. Tests keep apart
// by random topic names, groups and app ids, and must not stop it. The package's TestMain must call Main.
func Shared(t testing.TB) *Broker {
	t.Helper()
	skip(t)
	shared.once.Do(func() { shared.broker, shared.err = start(collect(nil)) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	if !shared.broker.Running() {
		t.Fatalf("the shared Kafka broker has ended:\n%s", shared.broker.logTail())
	}
	return shared.broker
}

func stopShared(failed bool) error {
	if shared.broker == nil {
		return nil
	}
	if failed {
		fmt.Fprintln(os.Stderr, "Kafka's data and log are kept in", shared.broker.dir)
	}
	return shared.broker.dispose(failed)
}

// start retries with other ports: between choosing a free one and the broker's bind, another process may take it.
func start(o *options) (*Broker, error) {
	bs, err := startNodes(o, 1)
	if err != nil {
		return nil, err
	}
	return bs[0], nil
}

func startNodes(o *options, n int) ([]*Broker, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("start Kafka %s: Java is missing: %w; install a runtime 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set %s=1 to leave out the tests on real brokers", o.version, err, SkipEnv)
	}
	libs, err := Jars(o.version)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		bs, err := startOnce(o, site{java, libs}, n)
		if err == nil {
			return bs, nil
		}
		if try == portTries || !strings.Contains(err.Error(), "Address already in use") {
			return nil, err
		}
	}
}

// startOnce starts the nodes of a cluster, all at the same time: none is ready before most are there.
func startOnce(o *options, s site, n int) (_ []*Broker, err error) {
	var bs []*Broker
	defer func() {
		if err != nil {
			for _, b := range bs {
				err = errors.Join(err, b.dispose(false))
			}
		}
	}()
	ports, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	var voters []string
	for i := range n {
		voters = append(voters, loopback(ports[3*i+2]))
	}
	for i := range n {
		dir, err := os.MkdirTemp("", "millrace-kafka-")
		if err != nil {
			return nil, fmt.Errorf("create the broker's folder: %w", err)
		}
		b := &Broker{opts: o, site: s, dir: dir, node: i + 1, voters: voters, ports: ports[3*i : 3*i+3]}
		b.seeds, b.advertised = []string{loopback(b.ports[0])}, loopback(b.ports[1])
		if o.advertise != nil {
			b.advertised = o.advertise(b.advertised)
		}
		bs = append(bs, b)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i, b := range bs {
		wg.Go(func() { failed[i] = b.setUp(base64.RawURLEncoding.EncodeToString(id[:])) })
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return bs, bs[0].addUsers()
}

// setUp writes the broker's files and starts it.
func (b *Broker) setUp(clusterID string) error {
	if b.opts.tls {
		var err error
		if b.certs, err = newCerts(b.dir); err != nil {
			return err
		}
	}
	if err := os.WriteFile(b.path("server.properties"), []byte(b.properties()), 0o600); err != nil {
		return fmt.Errorf("write the broker's properties: %w", err)
	}
	if err := b.format(clusterID); err != nil {
		return err
	}
	return b.launch()
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }

// properties of the broker, one per line.
func (b *Broker) properties() string {
	o := b.opts
	var voters []string
	for i, addr := range b.voters {
		voters = append(voters, strconv.Itoa(i+1)+"@"+addr)
	}
	replicas, minISR := strconv.Itoa(len(b.voters)), strconv.Itoa(len(b.voters)/2+1) // 1 of 1, 2 of 3
	p := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(b.node),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      "INTERNAL://" + loopback(b.ports[0]) + ",CLIENT://" + loopback(b.ports[1]) + ",CONTROLLER://" + loopback(b.ports[2]),
		"advertised.listeners":           "INTERNAL://" + loopback(b.ports[0]) + ",CLIENT://" + b.advertised,
		"listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:" + o.protocol(),
		"inter.broker.listener.name":     "INTERNAL",
		"log.dirs":                       b.path("data"),

		// What was acknowledged is never lost, as long as one broker at a time is down.
		"default.replication.factor":               replicas,
		"min.insync.replicas":                      minISR,
		"unclean.leader.election.enable":           "false",
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            minISR,
		// Leaders move when a test moves them.
		"auto.leader.rebalance.enable": "false",

		// Quick to start: few partitions and threads, small buffers.
		"offsets.topic.num.partitions":         "4",
		"transaction.state.log.num.partitions": "4",
		"num.network.threads":                  "2",
		"num.io.threads":                       "4",
		"background.threads":                   "2",
		"log.cleaner.dedupe.buffer.size":       "16777216",

		// Tests wait for these.
		"group.initial.rebalance.delay.ms":                            "0",
		"broker.session.timeout.ms":                                   "4000", // until then a killed broker is not let in again (default 9000)
		"broker.heartbeat.interval.ms":                                "500",
		"group.min.session.timeout.ms":                                "500",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
		// A misspelt topic is an error, not a new topic.
		"auto.create.topics.enable": "false",
		// Tests write event times of years ago, and retention goes by them.
		"log.retention.ms": "-1",
	}
	if o.version != V3 {
		p["share.coordinator.state.topic.replication.factor"] = replicas
		p["share.coordinator.state.topic.min.isr"] = minISR
		p["share.coordinator.state.topic.num.partitions"] = "1"
	}
	if o.tls {
		p["ssl.keystore.type"], p["ssl.keystore.location"] = "PEM", b.certs.server
		p["ssl.truststore.type"], p["ssl.truststore.location"] = "PEM", b.certs.CA
		if o.mutual {
			p["listener.name.client.ssl.client.auth"] = "required"
		}
	}
	if len(o.users) > 0 {
		var plain strings.Builder
		for _, name := range o.userNames() {
			fmt.Fprintf(&plain, " user_%s=%q", name, o.users[name])
		}
		p["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
		p["listener.name.client.plain.sasl.jaas.config"] = "org.apache.kafka.common.security.plain.PlainLoginModule required" + plain.String() + ";"
		for _, m := range []string{"scram-sha-256", "scram-sha-512"} {
			p["listener.name.client."+m+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
	if o.acls {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		// Everyone on the internal and the controller listener is ANONYMOUS. On the client listener a client is that only
		// if it does not authenticate, so ACLs make sense with User or MutualTLS only.
		p["super.users"] = "User:ANONYMOUS"
	}
	maps.Copy(p, o.config)
	var s strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&s, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	return s.String()
}

// jvm is a command that runs a class of the broker's jars; its output goes to the log.
func (b *Broker) jvm(log *os.File, class string, args ...string) *exec.Cmd {
	level := os.Getenv("MILLRACE_KAFKA_LOG")
	if level == "" {
		level = "warn"
	}
	cmd := exec.Command(b.site.java, append([]string{
		// The broker lives a minute or two on a machine that does other work: the first compiler only, one GC thread.
		"-Xms" + strconv.Itoa(b.opts.heap*2/3) + "m", "-Xmx" + strconv.Itoa(b.opts.heap) + "m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=" + level, "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-cp", filepath.Join(b.site.libs, "*"), class,
	}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, log, log
	return cmd
}

func (b *Broker) openLog() (*os.File, error) {
	f, err := os.OpenFile(b.path("kafka.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the broker's log: %w", err)
	}
	return f, nil
}

func (b *Broker) logTail() string {
	log, err := os.ReadFile(b.path("kafka.log"))
	if err != nil {
		return err.Error()
	}
	return tail(string(log), 8192)
}

// format prepares the storage: the cluster id and the feature levels.
func (b *Broker) format(clusterID string) error {
	log, err := b.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// With an equals sign, since an id may begin with a dash.
	args := []string{"format", "--cluster-id=" + clusterID, "-c", b.path("server.properties")}
	for _, f := range b.opts.features {
		args = append(args, "--feature", f)
	}
	c, err := startChild(b.jvm(log, "kafka.tools.StorageTool", args...))
	if err != nil {
		return err
	}
	if err := c.wait(readyTimeout); err != nil {
		return errors.Join(fmt.Errorf("format Kafka's storage: %w", err), c.kill())
	}
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("format Kafka's storage: %s\n%s", c.cmd.ProcessState, b.logTail())
	}
	return nil
}

// launch starts the broker process on its ports and data and waits until it serves.
func (b *Broker) launch() error {
	log, err := b.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	c, err := startChild(b.jvm(log, "kafka.Kafka", b.path("server.properties")))
	if err != nil {
		return err
	}
	b.childMu.Lock()
	b.child = c
	b.childMu.Unlock()
	if err := b.waitReady(c); err != nil {
		return errors.Join(fmt.Errorf("start Kafka %s: %w\n%s", b.opts.version, err, b.logTail()), b.Kill())
	}
	return nil
}

// waitReady asks for the broker list until the broker itself is in it: then it is registered, unfenced and answers.
func (b *Broker) waitReady(c *child) error {
	deadline := time.Now().Add(readyTimeout)
	for {
		err := b.probe()
		if err == nil {
			return nil
		}
		if !c.running() {
			return fmt.Errorf("it ended: %s", c.cmd.ProcessState)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w", readyTimeout, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *Broker) probe() error {
	for _, port := range b.ports[:2] {
		conn, err := net.DialTimeout("tcp", loopback(port), time.Second)
		if err != nil {
			return fmt.Errorf("reach the broker: %w", err)
		}
		_ = conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := b.adminClient(); err != nil {
		return err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	// This very broker: another one would count it in for some time after it was killed.
	resp, err := req.RequestWith(ctx, b.admin.SeedBrokers()[0])
	if err != nil {
		return fmt.Errorf("ask for the broker list: %w", err)
	}
	if !slices.ContainsFunc(resp.Brokers, func(m kmsg.MetadataResponseBroker) bool { return int(m.NodeID) == b.node }) {
		return errors.New("the broker is not registered yet")
	}
	return nil
}

// addUsers makes the SCRAM credentials; those of PLAIN are in the properties.
func (b *Broker) addUsers() error {
	if len(b.opts.users) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	adm, err := b.adminClient()
	if err != nil {
		return err
	}
	// One request per mechanism: Kafka refuses two credentials of one user in one request.
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		var upserts []kadm.UpsertSCRAM
		for _, name := range b.opts.userNames() {
			upserts = append(upserts, kadm.UpsertSCRAM{User: name, Mechanism: mechanism, Iterations: 4096, Password: b.opts.users[name]})
		}
		// A broker passes this request on to its controller, and closes the client's connection when it does not know the
		// controller's versions yet, which can be after it has answered probe. Adding a user twice does no harm.
		for {
			altered, err := adm.AlterUserSCRAMs(ctx, nil, upserts)
			if err == nil {
				err = altered.Error()
			}
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("add users for %s: %w", mechanism, err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// Brokers are the bootstrap addresses of the client listener, which has the security that the options ask for.
func (b *Broker) Brokers() []string { return []string{b.advertised} }

// Node is the broker's id.
func (b *Broker) Node() int32 { return int32(b.node) }

// Certs are the certificate files of a broker with TLS, else nil.
func (b *Broker) Certs() *Certs { return b.certs }

// DataDir is the folder of its log segments and metadata, to be copied or replaced while it is stopped in order.
func (b *Broker) DataDir() string { return b.path("data") }

// Pid of the broker's process, 0 when it is stopped.
func (b *Broker) Pid() int {
	b.childMu.Lock()
	defer b.childMu.Unlock()
	if b.child == nil {
		return 0
	}
	return b.child.cmd.Process.Pid
}

// Running says whether the broker's process is alive.
func (b *Broker) Running() bool {
	b.childMu.Lock()
	defer b.childMu.Unlock()
	return b.child != nil && b.child.running()
}

// Stop shuts the broker down in order (SIGTERM).
func (b *Broker) Stop() error { return b.end(syscall.SIGTERM, stopTimeout) }

// Kill ends the broker as a crash would (SIGKILL).
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL, 10*time.Second) }

func (b *Broker) end(sig syscall.Signal, timeout time.Duration) error {
	b.childMu.Lock()
	c := b.child
	b.child = nil
	b.childMu.Unlock()
	if c == nil {
		return nil
	}
	err := c.signal(sig)
	if err == nil {
		err = c.wait(timeout)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("stop Kafka: %w", err), c.kill())
	}
	return nil
}

// Restart starts a stopped or killed broker again, with the same ports and data; a running one is stopped first.
func (b *Broker) Restart() error {
	if err := b.Stop(); err != nil {
		return err
	}
	return b.launch()
}

// dispose ends the broker for good. Its folder is removed unless it is to be kept.
func (b *Broker) dispose(keep bool) error {
	err := b.Kill() // nobody needs the data any more
	b.close()
	if !keep {
		if rerr := os.RemoveAll(b.dir); rerr != nil {
			err = errors.Join(err, fmt.Errorf("remove the broker's folder: %w", rerr))
		}
	}
	return err
}

// FreePort is a loopback port that was free just now.
func FreePort(t testing.TB) int {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// freePorts finds n ports that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	var open []net.Listener
	for range n {
		// All stay open until the last is found, so that they differ.
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		open = append(open, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range open {
		_ = l.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("find free ports: %w", err)
	}
	return ports, nil
}
