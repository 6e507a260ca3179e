package kafka

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/internal/near"
)

// properties are what a table says to Kafka's client and is no key of our configuration.
type properties struct {
	group string // group.id
	reset string // auto.offset.reset: earliest, latest, none or ""
}

// taken are the properties that are keys of our configuration under other names.
var taken = map[string]string{
	"bootstrap.servers":         "brokers",
	"client.rack":               "rack",
	"compression.type":          "output.compression",
	"fetch.max.bytes":           "fetch.max-bytes",
	"fetch.min.bytes":           "fetch.min-bytes",
	"max.partition.fetch.bytes": "fetch.max-partition-bytes",
}

// looked are the properties that are looked at one by one.
var looked = []string{"group.id", "auto.offset.reset", "security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.type",
	"ssl.truststore.location", "ssl.truststore.password", "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.endpoint.identification.algorithm"}

// idle are the properties that tune the Java client, or Flink, and have no effect here.
var idle = []string{"acks", "allow.auto.create.topics", "auto.commit.interval.ms", "batch.size", "buffer.memory", "check.crcs", "client.dns.lookup", "client.id", "client.id.prefix",
	"commit.offsets.on.checkpoint", "connections.max.idle.ms", "default.api.timeout.ms", "delivery.timeout.ms", "enable.auto.commit", "enable.idempotence", "enable.metrics.push",
	"exclude.internal.topics", "fetch.max.wait.ms", "flink.partition-discovery.interval-millis", "heartbeat.interval.ms", "isolation.level", "linger.ms", "max.block.ms",
	"max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records", "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms",
	"metadata.recovery.strategy", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "partition.discovery.interval.ms",
	"partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
	"register.consumer.metrics", "request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
	"send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "ssl.enabled.protocols", "ssl.protocol",
	"transaction.timeout.ms"}

// kept are the values of idle properties that say what is so in any case.
var kept = map[string]string{"acks": "all", "allow.auto.create.topics": "false", "check.crcs": "true", "enable.auto.commit": "false", "enable.idempotence": "true",
	"exclude.internal.topics": "true", "isolation.level": "read_committed"}

// noEffect are the properties that have none.
func noEffect(props map[string]string) []connector.Unused {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if slices.Contains(idle, name) && kept[name] != props[name] {
			names = append(names, "'properties."+name+"'")
		}
	}
	if names == nil {
		return nil
	}
	return []connector.Unused{{Option: strings.Join(names, ", "), Why: "the Java client is not used; see the configuration"}}
}

// readProperties reads the options that begin with properties., without that. settings are keys of our configuration.
func readProperties(props map[string]string) (p properties, settings map[string]string, err error) {
	settings = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if key, ok := taken[name]; ok {
			settings[key] = props[name]
			continue
		}
		if slices.Contains(looked, name) || slices.Contains(idle, name) {
			continue
		}
		if strings.HasSuffix(name, ".serializer") || strings.HasSuffix(name, ".deserializer") || strings.HasSuffix(name, ".class") || strings.HasSuffix(name, ".classes") {
			return p, nil, fmt.Errorf("option 'properties.%s' names a class of Java, and there is none here; leave it out", name)
		}
		all := slices.Concat(slices.Collect(maps.Keys(taken)), looked, idle)
		slices.Sort(all)
		if n, ok := near.Word(name, all); ok {
			return p, nil, fmt.Errorf("option 'properties.%s' is unknown; did you mean 'properties.%s'?", name, n)
		}
		return p, nil, fmt.Errorf("option 'properties.%s' is no property that is understood here; leave it out", name)
	}
	p.group, p.reset = props["group.id"], props["auto.offset.reset"]
	if brokers := settings["brokers"]; brokers != "" {
		list := strings.Split(brokers, ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		settings["brokers"] = strings.Join(list, ",")
	}
	if err := oneOf(props, "auto.offset.reset", "earliest", "latest", "none"); err != nil {
		return p, nil, err
	}
	return p, settings, readSecurity(props, settings)
}

func oneOf(props map[string]string, name string, values ...string) error {
	if v, ok := props[name]; ok && !slices.Contains(values, v) {
		return fmt.Errorf("option 'properties.%s' = '%s': must be %s", name, v, strings.Join(values, ", "))
	}
	return nil
}

var credential = regexp.MustCompile(`(?i)\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))`)

// readSecurity turns what Java's client calls security into keys of our configuration.
func readSecurity(props, settings map[string]string) error {
	if err := oneOf(props, "security.protocol", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"); err != nil {
		return err
	}
	protocol := props["security.protocol"]
	if protocol == "SSL" || protocol == "SASL_SSL" {
		settings["security.tls.enabled"] = "true"
	}
	if strings.HasPrefix(protocol, "SASL") {
		if err := oneOf(props, "sasl.mechanism", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"); err != nil {
			return err
		}
		mechanism, ok := props["sasl.mechanism"]
		if !ok {
			return fmt.Errorf("option 'properties.security.protocol' = '%s' needs 'properties.sasl.mechanism': PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", protocol)
		}
		settings["security.sasl.mechanism"] = mechanism
		for _, m := range credential.FindAllStringSubmatch(props["sasl.jaas.config"], -1) {
			v := m[4]
			if quoted := m[2] + m[3]; quoted != "" {
				v = regexp.MustCompile(`\\(.)`).ReplaceAllString(quoted, "$1")
			}
			settings["security.sasl."+strings.ToLower(m[1])] = v
		}
		if settings["security.sasl.username"] == "" || settings["security.sasl.password"] == "" {
			if _, ok := props["sasl.jaas.config"]; ok {
				return fmt.Errorf(`option 'properties.sasl.jaas.config' has no username="..." and password="..."`)
			}
		}
	}
	for _, store := range []string{"truststore", "keystore"} {
		file, ok := props["ssl."+store+".location"]
		if !ok {
			continue
		}
		if kind := strings.ToUpper(props["ssl."+store+".type"]); kind != "PEM" {
			return fmt.Errorf("option 'properties.ssl.%s.location': a store of Java cannot be read; convert it to PEM (keytool -importkeystore to PKCS12, then openssl pkcs12) and set 'properties.ssl.%s.type' = 'PEM'", store, store)
		}
		if store == "truststore" {
			settings["security.tls.ca-file"] = file
		} else {
			settings["security.tls.cert-file"], settings["security.tls.key-file"] = file, file
		}
	}
	if props["ssl.key.password"] != "" {
		return fmt.Errorf("option 'properties.ssl.key.password': a key that is encrypted cannot be read; decrypt it with openssl pkey")
	}
	if err := oneOf(props, "ssl.endpoint.identification.algorithm", "https"); err != nil {
		return fmt.Errorf("%w: the name of a broker is always checked; for tests there is security.tls.insecure-skip-verify in the configuration", err)
	}
	return nil
}
