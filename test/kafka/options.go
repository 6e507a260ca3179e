package kafka

import (
	"maps"
	"slices"
)

// Option changes the broker that Start makes.
type Option func(*options)

type options struct {
	version  string
	features []string          // name=level, for the storage tool
	config   map[string]string // of the broker, over the defaults
	users    map[string]string // name to password; any: SASL on the client listener
	tls      bool
	mutual   bool
	acls     bool
	heap     int // MiB
	// advertise turns the address of the client listener into the one that clients are told.
	advertise func(addr string) string
}

func collect(opts []Option) *options {
	o := &options{version: V4, heap: 384, config: map[string]string{}, users: map[string]string{}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// Version39 takes Kafka 3.9 instead of 4.
func Version39() Option { return func(o *options) { o.version = V3 } }

// TransactionVersion1 formats the cluster with transaction.version=1, as one that was upgraded from 3.x has it.
func TransactionVersion1() Option { return Feature("transaction.version=1") }

// Feature formats the cluster with a feature level ("transaction.version=1").
func Feature(nameLevel string) Option {
	return func(o *options) { o.features = append(o.features, nameLevel) }
}

// Config sets a broker property.
func Config(key, value string) Option { return func(o *options) { o.config[key] = value } }

// Heap bounds the JVM's heap, in MiB.
func Heap(mib int) Option { return func(o *options) { o.heap = mib } }

// Advertise makes clients connect to another address than that of the client listener: to a proxy, for example. f is
// called with the listener's address before the broker starts, and gives the address that clients are told. It may be
// called again with another one, if the first was taken by somebody else.
func Advertise(f func(addr string) string) Option { return func(o *options) { o.advertise = f } }

// TLS makes the client listener speak TLS with a certificate that Broker.CA signed.
func TLS() Option { return func(o *options) { o.tls = true } }

// MutualTLS is TLS where clients must show a certificate (Broker.ClientCert); its principal is "User:CN=client".
func MutualTLS() Option { return func(o *options) { o.tls, o.mutual = true, true } }

// User turns SASL on at the client listener and adds a user, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
func User(name, password string) Option {
	return func(o *options) { o.users[name] = password }
}

// ACLs turns on Kafka's StandardAuthorizer: on the client listener nothing is allowed without an ACL. Broker.Client and
// Broker.Admin use another listener, whose user may do everything.
func ACLs() Option { return func(o *options) { o.acls = true } }

// protocol of the client listener, in Kafka's words.
func (o *options) protocol() string {
	switch {
	case o.tls && len(o.users) > 0:
		return "SASL_SSL"
	case o.tls:
		return "SSL"
	case len(o.users) > 0:
		return "SASL_PLAINTEXT"
	}
	return "PLAINTEXT"
}

// userNames in a stable order.
func (o *options) userNames() []string { return slices.Sorted(maps.Keys(o.users)) }
