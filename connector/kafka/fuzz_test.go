package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// FuzzOptions reads the texts within options: offsets of partitions, and credentials of a JAAS configuration.
func FuzzOptions(f *testing.F) {
	f.Add("partition:0,offset:42;partition:1,offset:300", `org.apache.kafka.common.security.plain.PlainLoginModule required username="a\"b" password='c';`)
	f.Add("partition:0,offset:-1", "username=x password=y;")
	f.Add(";;", `username=""`)
	f.Fuzz(func(t *testing.T, offsets, jaas string) {
		if by, err := parseOffsets(offsets); err == nil {
			var parts []string
			for _, p := range slices.Sorted(maps.Keys(by)) {
				parts = append(parts, fmt.Sprintf("partition:%d,offset:%d", p, by[p]))
			}
			again, err := parseOffsets(strings.Join(parts, ";"))
			if err != nil || !maps.Equal(by, again) {
				t.Fatalf("%q is %v, and then %v (%v)", offsets, by, again, err)
			}
		}
		settings := map[string]string{}
		err := readSecurity(map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, settings)
		if err == nil && (settings["security.sasl.username"] == "" || settings["security.sasl.password"] == "") {
			t.Fatalf("%q has no user or no password, and that is no error", jaas)
		}
	})
}
