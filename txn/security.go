package txn

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanism builds the SASL mechanism of s, nil when SASL is off. Mechanism names are Kafka's sasl.mechanism values.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	name := strings.ToUpper(strings.TrimSpace(s.Mechanism))
	if name == "" {
		if s.Username != "" || s.Password != "" {
			return nil, fmt.Errorf("sasl: credentials without a mechanism; set PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		}
		return nil, nil
	}
	if s.Username == "" || s.Password == "" {
		return nil, fmt.Errorf("sasl %s: username or password is empty", name)
	}
	switch name {
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER", "AWS_MSK_IAM":
		return nil, fmt.Errorf("sasl %s: not supported yet; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", name)
	default:
		return nil, fmt.Errorf("sasl mechanism %q: unknown; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", s.Mechanism)
	}
}
