package kafka

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func TestMain(m *testing.M) { Main(m) }

// transactionVersion is the cluster's finalized level, 0 if it has none.
func transactionVersion(t *testing.T, b *Broker) int16 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, b.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel
		}
	}
	return 0
}

// transact writes one committed and one aborted transaction and wants the reader to see only the first.
func transact(t *testing.T, b *Broker) {
	t.Helper()
	topic := b.CreateTopic(t, 2, nil)
	cl := b.Client(t, kgo.TransactionalID(RandomName("txn")))
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	for _, step := range []struct {
		value string
		how   kgo.TransactionEndTry
	}{{"committed", kgo.TryCommit}, {"aborted", kgo.TryAbort}} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c"} {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(step.value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(ctx, step.how); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range b.Read(t, topic) {
		got = append(got, string(r.Key)+"="+string(r.Value))
	}
	slices.Sort(got)
	if want := []string{"a=committed", "b=committed", "c=committed"}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func TestSharedBroker(t *testing.T) {
	start := time.Now()
	b := Shared(t)
	t.Logf("ready after %s", time.Since(start).Round(10*time.Millisecond))
	if again := Shared(t); again != b {
		t.Error("Shared gave two brokers")
	}
	if v := transactionVersion(t, b); v != 2 {
		t.Errorf("transaction.version is %d, want 2", v)
	}
	transact(t, b)
	// auto.create.topics.enable=false
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	err := b.Client(t, kgo.UnknownTopicRetries(1)).ProduceSync(ctx, &kgo.Record{Topic: RandomName("missing")}).FirstErr()
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("write to a missing topic: %v, want UNKNOWN_TOPIC_OR_PARTITION", err)
	}
}

func TestVersion39(t *testing.T) {
	start := time.Now()
	b := Start(t, Version39())
	t.Logf("ready after %s", time.Since(start).Round(10*time.Millisecond))
	if v := transactionVersion(t, b); v != 0 {
		t.Errorf("transaction.version is %d, want none", v)
	}
	transact(t, b)
}

// TestRestartTransactionVersion1: data, ports and features stay over a stop and over a crash.
func TestRestartTransactionVersion1(t *testing.T) {
	b := Start(t, TransactionVersion1())
	topic := b.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	brokers := b.Brokers()
	for i, end := range []func() error{b.Stop, b.Kill} {
		b.Produce(t, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("v")})
		start := time.Now()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		t.Logf("ended after %s", time.Since(start).Round(10*time.Millisecond))
		if b.Running() || b.Pid() != 0 {
			t.Fatal("the broker still runs")
		}
		start = time.Now()
		if err := b.Restart(); err != nil {
			t.Fatal(err)
		}
		t.Logf("ready again after %s", time.Since(start).Round(10*time.Millisecond))
		if got := len(b.Read(t, topic)); got != i+1 {
			t.Errorf("%d records after the restart, want %d", got, i+1)
		}
	}
	if !slices.Equal(b.Brokers(), brokers) {
		t.Errorf("addresses changed from %v to %v", brokers, b.Brokers())
	}
	if v := transactionVersion(t, b); v != 1 {
		t.Errorf("transaction.version is %d, want 1", v)
	}
	transact(t, b)
}

func TestTLSAndSASL(t *testing.T) {
	b := Start(t, TLS(), User("ann", "ann's secret"))
	tlsConfig, err := b.Certs().ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	good := scram.Auth{User: "ann", Pass: "ann's secret"}
	for _, c := range []struct {
		name    string
		opts    []kgo.Opt
		refused bool
	}{
		{"PLAIN", []kgo.Opt{kgo.DialTLSConfig(tlsConfig), kgo.SASL(plain.Auth{User: good.User, Pass: good.Pass}.AsMechanism())}, false},
		{"SCRAM-SHA-256", []kgo.Opt{kgo.DialTLSConfig(tlsConfig), kgo.SASL(good.AsSha256Mechanism())}, false},
		{"SCRAM-SHA-512", []kgo.Opt{kgo.DialTLSConfig(tlsConfig), kgo.SASL(good.AsSha512Mechanism())}, false},
		{"wrong password", []kgo.Opt{kgo.DialTLSConfig(tlsConfig), kgo.SASL(scram.Auth{User: "ann", Pass: "no"}.AsSha512Mechanism())}, true},
		{"no SASL", []kgo.Opt{kgo.DialTLSConfig(tlsConfig)}, true},
		{"no TLS", []kgo.Opt{kgo.SASL(good.AsSha512Mechanism())}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := ping(t, append(c.opts, kgo.SeedBrokers(b.Brokers()...))); (err != nil) != c.refused {
				t.Errorf("refused is %t, want %t: %v", err != nil, c.refused, err)
			}
		})
	}
	transact(t, b)
}

func ping(t *testing.T, opts []kgo.Opt) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(append(opts, kgo.DisableClientMetrics(), kgo.RequestRetries(0))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.Ping(ctx)
}

func TestAuthorizer(t *testing.T) {
	b := Start(t, ACLs(), User("ann", "secret"))
	topic := b.CreateTopic(t, 1, nil)
	ann := b.Client(t, kgo.SeedBrokers(b.Brokers()...), kgo.SASL(plain.Auth{User: "ann", Pass: "secret"}.AsMechanism()))
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	write := func() error { return ann.ProduceSync(ctx, &kgo.Record{Topic: topic}).FirstErr() }
	if err := write(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatalf("write without an ACL: %v, want TOPIC_AUTHORIZATION_FAILED", err)
	}
	acl := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpWrite, kadm.OpDescribe).Allow("User:ann").AllowHosts()
	if _, err := b.Admin(t).CreateACLs(ctx, acl); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("write with an ACL: %v", err)
	}
}

func TestMutualTLS(t *testing.T) {
	b := Start(t, MutualTLS())
	config, err := b.Certs().ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(t, []kgo.Opt{kgo.SeedBrokers(b.Brokers()...), kgo.DialTLSConfig(config)}); err != nil {
		t.Errorf("with a client certificate: %v", err)
	}
	config.Certificates = nil
	if err := ping(t, []kgo.Opt{kgo.SeedBrokers(b.Brokers()...), kgo.DialTLSConfig(config)}); err == nil {
		t.Error("a client without certificate was let in")
	}
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		name, want string
		path       string
	}{
		{"no java", "openjdk-17-jre-headless", empty},
		{"no mvn", "apt-get install maven", pathWith(t, "java")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv("MILLRACE_TEST_CACHE", t.TempDir())
			_, err := start(collect(nil))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), SkipEnv) {
				t.Errorf("error is %v, want one that names %q and %s", err, c.want, SkipEnv)
			}
		})
	}
}

// pathWith is a folder that holds a link to one program only.
func pathWith(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink("/bin/true", filepath.Join(dir, program)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestStartShowsTheBrokersLog: a broker that cannot start fails at once with its own words.
func TestStartShowsTheBrokersLog(t *testing.T) {
	skip(t)
	b, err := start(collect([]Option{Config("num.io.threads", "none")}))
	if err == nil {
		_ = b.dispose(false)
		t.Fatal("a broker with a bad property started")
	}
	if !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("error does not name the bad property: %v", err)
	}
}

// TestLockFile: of many that want the lock at once, one at a time has it.
func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, worst int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			unlock, err := lockFile(path)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			worst = max(worst, inside)
			mu.Unlock()
			mu.Lock()
			inside--
			mu.Unlock()
			unlock()
		})
	}
	wg.Wait()
	if worst != 1 {
		t.Errorf("%d held the lock at once", worst)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	ports, err := freePorts(9)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 9 {
		t.Errorf("ports %v are not nine", ports)
	}
}
