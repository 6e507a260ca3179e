package engine

import (
	"maps"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/txn"
)

// ownTopics are the internal topics of an app with their ids, of all incarnations, as its control state tells (pure): the
// dead-letter and the control topic, which outlive incarnations, are not among them.
func ownTopics(app string, s txn.ControlState) map[string]string {
	own := maps.Clone(s.Old)
	was, err := parseTopology(s.Topology)
	if err != nil {
		return own // no start goes on with such a state
	}
	for _, name := range was.internalTopics(app, s.Incarnation) {
		if id, ok := s.TopicIDs[name]; ok {
			if own == nil {
				own = map[string]string{}
			}
			own[name] = id
		}
	}
	return own
}

// kinds of internal topics, by the end of their names.
const (
	kindChangelog   = "changelog"
	kindExpiring    = "changelog-expiring"
	kindRepartition = "repartition"
)

// internalTopic is what the name of an internal topic of an app says.
type internalTopic struct {
	incarnation uint64
	kind        string
	sub         int    // of a changelog
	id          string // of a repartition topic
}

// parseInternal lists the ways in which a name can be that of an internal topic of an app (pure): there is none, or one,
// but i2-by-user-repartition is that of operator by-user in incarnation 2, or of operator i2-by-user in the first.
func parseInternal(app, name string) []internalTopic {
	rest, ok := strings.CutPrefix(name, app+"-")
	if !ok {
		return nil
	}
	var ways []internalTopic
	parse := func(incarnation uint64, rest string) {
		for _, kind := range []string{kindChangelog, kindExpiring} {
			if sub, ok := strings.CutSuffix(rest, "-"+kind); ok {
				if n, err := strconv.Atoi(sub); err == nil && n >= 0 && strconv.Itoa(n) == sub {
					ways = append(ways, internalTopic{incarnation: incarnation, kind: kind, sub: n})
				}
			}
		}
		if id, ok := strings.CutSuffix(rest, "-"+kindRepartition); ok && id != "" {
			ways = append(ways, internalTopic{incarnation: incarnation, kind: kindRepartition, id: id})
		}
	}
	parse(1, rest)
	if mark, rest, ok := strings.Cut(rest, "-"); ok && strings.HasPrefix(mark, "i") {
		if n, err := strconv.ParseUint(mark[1:], 10, 64); err == nil && n > 1 && strconv.FormatUint(n, 10) == mark[1:] {
			parse(n, rest)
		}
	}
	return ways
}
