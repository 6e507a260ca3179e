package txn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// withDefaults fills what is zero.
func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.SessionTimeout, 6*time.Second)
	def(&o.HeartbeatInterval, 500*time.Millisecond)
	def(&o.RebalanceTimeout, 60*time.Second)
	def(&o.TransactionTimeout, 15*time.Second)
	def(&o.RequestTimeout, 10*time.Second)
	def(&o.FetchMaxWait, 10*time.Millisecond)
	def(&o.Linger, 50*time.Millisecond)
	def32 := func(d *int32, v int32) {
		if *d == 0 {
			*d = v
		}
	}
	def32(&o.FetchMaxPartBytes, 512<<10)
	def32(&o.FetchMaxBytes, 16<<20)
	def32(&o.FetchMinBytes, 64<<10)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Features are what the cluster can do, as far as it matters to us.
type Features struct {
	// TransactionVersion is the finalized feature level transaction.version: 2 = KIP-890 part 2 (offsets are added to
	// a transaction implicitly, the producer epoch moves at every commit); 0 when the cluster has no such feature.
	TransactionVersion int
	// Kafka is a guess at the version of the oldest broker by the requests it knows, for example "v4.1".
	Kafka string
	// Highest version of a request that every broker knows, -1 if a broker lacks it.
	TxnOffsetCommit, EndTxn, OffsetFetch int16
}

// Cluster is a connection to one Kafka cluster. It is safe for concurrent use; what is opened from it lives on its own
// clients, so that closing the Cluster does not end them.
type Cluster struct {
	opts     Options
	base     []kgo.Opt // of every client
	cl       *kgo.Client
	adm      *kadm.Client
	id       string
	features Features
}

// Connect checks that brokers answer and what they can do. It takes no longer than Options.RequestTimeout; errors
// wrap ErrUnreachable or ErrCredentials where they apply, name the brokers, the likely cause and what to do.
func Connect(ctx context.Context, o Options) (*Cluster, error) {
	o = o.withDefaults()
	if o.AppID == "" {
		return nil, errors.New("connect to kafka: app id is empty")
	}
	if len(o.Brokers) == 0 {
		return nil, errors.New("connect to kafka: no brokers given")
	}
	c := &Cluster{opts: o}
	var err error
	if c.base, err = c.baseOpts(); err != nil {
		return nil, fmt.Errorf("connect to kafka: %w", err)
	}
	watch := &dialWatch{}
	if c.cl, err = kgo.NewClient(c.clientOpts(kgo.WithHooks(watch))...); err != nil {
		return nil, fmt.Errorf("connect to kafka: %w", err)
	}
	c.adm = kadm.NewClient(c.cl)
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	if err := c.probe(ctx, watch); err != nil {
		c.cl.Close()
		return nil, err
	}
	return c, nil
}

// probe asks for cluster id and features, again and again until ctx ends: brokers may be starting just now. Refused
// credentials and TLS faults do not heal and end it at once.
func (c *Cluster) probe(ctx context.Context, watch *dialWatch) error {
	pause := 100 * time.Millisecond
	for {
		err := c.describe(ctx)
		if err == nil {
			return nil
		}
		cause := watch.last()
		if cause == nil || !isCtxErr(err) && !errors.Is(err, kgo.ErrClientClosed) {
			cause = err
		}
		wrapped, permanent := c.connectError(cause)
		if permanent {
			return wrapped
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return wrapped
		case <-t.C:
		}
		pause = min(2*pause, time.Second)
	}
}

func (c *Cluster) describe(ctx context.Context) error {
	// A ping goes to the seeds first and comes back with the first error, without kgo's own retries.
	if err := c.cl.Ping(ctx); err != nil {
		return err
	}
	meta, err := c.adm.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	c.id = meta.Cluster
	versions, err := c.adm.ApiVersions(ctx)
	if err != nil {
		return err
	}
	f := Features{TxnOffsetCommit: -1, EndTxn: -1, OffsetFetch: -1}
	first := true
	for _, v := range versions.Sorted() {
		if v.Err != nil {
			// A broker that is down now is no reason not to start; the others tell.
			continue
		}
		lowest := func(dst *int16, key int16) {
			m, ok := v.KeyMaxVersion(key)
			if !ok {
				m = -1
			}
			if first || m < *dst {
				*dst = m
			}
		}
		lowest(&f.TxnOffsetCommit, kmsg.TxnOffsetCommit.Int16())
		lowest(&f.EndTxn, kmsg.EndTxn.Int16())
		lowest(&f.OffsetFetch, kmsg.OffsetFetch.Int16())
		for _, ff := range v.Raw().FinalizedFeatures {
			if ff.Name == "transaction.version" {
				f.TransactionVersion = int(ff.MaxVersionLevel)
			}
		}
		if guess := v.VersionGuess(); first || guess < f.Kafka {
			f.Kafka = guess
		}
		first = false
	}
	if first {
		return errors.New("no broker answered ApiVersions")
	}
	c.features = f
	return nil
}

// ID is the cluster id.
func (c *Cluster) ID() string { return c.id }

// Features are what was found on Connect.
func (c *Cluster) Features() Features { return c.features }

// Close ends the Cluster's own connections. Groups, consumers and producers are closed by who opened them.
func (c *Cluster) Close() { c.cl.Close() }

// Request sends one raw request, for diagnosis: what a check wants to know that nothing else here tells.
func (c *Cluster) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	return c.cl.Request(ctx, req)
}

// deadline bounds one administrative call with its retries.
func (c *Cluster) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.opts.RequestTimeout)
}

// clientOpts are the options of every kgo client of this package, then extra.
func (c *Cluster) clientOpts(extra ...kgo.Opt) []kgo.Opt {
	out := make([]kgo.Opt, 0, len(c.base)+len(extra))
	return append(append(out, c.base...), extra...)
}

func (c *Cluster) baseOpts() ([]kgo.Opt, error) {
	o := c.opts
	mech, err := o.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID("millrace-" + o.AppID),
		kgo.WithLogger(newKgoLogger(o.Logger)),
		// With kgo's default of 5 s a produce to a brand-new topic or a moved leader stands still for as long.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.DisableClientMetrics(),
		kgo.RequestTimeoutOverhead(o.RequestTimeout),
		kgo.DialTimeout(min(o.RequestTimeout, 5*time.Second)),
		// A request is not retried past the deadline that its caller has anyway; joins wait for other members.
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			switch kmsg.Key(key) {
			case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat:
				return o.SessionTimeout
			default:
				return o.RequestTimeout
			}
		}),
	}
	if o.TLS != nil && o.Dialer == nil {
		opts = append(opts, kgo.DialTLSConfig(o.TLS))
	}
	if o.Dialer != nil {
		opts = append(opts, kgo.Dialer(c.dial))
	}
	if mech != nil {
		opts = append(opts, kgo.SASL(mech))
	}
	return opts, nil
}

// dial connects by Options.Dialer and speaks TLS over it if asked to.
func (c *Cluster) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := c.opts.Dialer(ctx, network, addr)
	if err != nil || c.opts.TLS == nil {
		return conn, err
	}
	cfg := c.opts.TLS.Clone()
	if cfg.ServerName == "" {
		if cfg.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("broker address %q: %w", addr, err)
		}
	}
	tc := tls.Client(conn, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return tc, nil
}

// connectError explains why no broker could be used. permanent means that trying again cannot help.
func (c *Cluster) connectError(err error) (wrapped error, permanent bool) {
	brokers := strings.Join(c.opts.Brokers, ", ")
	tlsOn := c.opts.TLS != nil
	fail := func(kind error, hint string) error {
		return fmt.Errorf("connect to kafka at %s: %w: %w; %s", brokers, kind, err, hint)
	}
	var (
		recordHeader tls.RecordHeaderError
		certErr      *tls.CertificateVerificationError
		alert        tls.AlertError
		firstEOF     *kgo.ErrFirstReadEOF
		dnsErr       *net.DNSError
		opErr        *net.OpError
	)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fail(ErrCredentials, "check sasl mechanism, username and password"), true
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fail(ErrCredentials, "the brokers do not offer this sasl mechanism"), true
	case errors.Is(err, kerr.IllegalSaslState):
		return fail(ErrCredentials, "the listener wants SASL (or another kind of it): set sasl, or use the right port"), true
	case errors.As(err, &recordHeader):
		return fail(ErrUnreachable, "TLS is on, but the listener speaks plaintext: switch TLS off or use the TLS port"), true
	case errors.As(err, &certErr):
		return fail(ErrUnreachable, "the broker's certificate is not trusted: give the CA that signed it, and a broker "+
			"name that the certificate holds"), true
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls"):
		return fail(ErrUnreachable, "the broker refused the TLS handshake: check the client certificate and key"), true
	case errors.As(err, &firstEOF), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		guess := []string{"wants TLS", "wants SASL"}
		if tlsOn {
			guess[0] = "speaks plaintext"
		}
		if c.opts.SASL.Mechanism != "" {
			guess[1] = "refuses the credentials (check sasl mechanism, username and password)"
		}
		hint := "the broker closed the connection at once: the listener probably " + strings.Join(guess, " or ")
		return fail(ErrUnreachable, hint), false
	case strings.Contains(err.Error(), "invalid large response size"):
		// A TLS alert read as a Kafka response: its first bytes make an absurd length.
		return fail(ErrUnreachable, "the listener wants TLS: switch TLS on, or use the plaintext port"), true
	case errors.As(err, &dnsErr):
		return fail(ErrUnreachable, "the broker's name cannot be resolved: check the brokers setting and DNS"), false
	case isAuthErr(err):
		return authErr("connect to kafka at "+brokers, "cluster", "Describe", err), true
	case errors.As(err, &opErr) && opErr.Op == "dial":
		return fail(ErrUnreachable, "check that the brokers run and that address and port are right"), false
	case isCtxErr(err), errors.Is(err, os.ErrDeadlineExceeded):
		hint := "whether the listener wants TLS"
		if tlsOn {
			hint = "whether TLS is on at the listener"
		}
		return fail(ErrUnreachable, "no answer in time: check address, firewall, and "+hint), false
	default:
		return fail(ErrUnreachable, "check the brokers setting and the listener's security protocol"), false
	}
}

func isCtxErr(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// dialWatch keeps the last dial error, since a request that runs out of time no longer says why.
type dialWatch struct {
	mu  sync.Mutex
	err error
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (d *dialWatch) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || !isCtxErr(err) {
		d.err = err
	}
}

func (d *dialWatch) last() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
