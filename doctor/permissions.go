package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// need is a permission of the app.
type need struct {
	resource string // kafka-acls.sh: topic, group, transactional-id
	name     string
	prefix   bool // the name is a prefix
	ops      []kmsg.ACLOperation
}

// needs are all permissions that the app must have.
func (r *run) needs() []need {
	app := r.in.Kafka.AppID
	out := []need{
		{"group", app, false, []kmsg.ACLOperation{kmsg.ACLOperationRead}},
		{"transactional-id", app + "-", true, []kmsg.ACLOperation{kmsg.ACLOperationWrite}},
		{"topic", app + "-", true, []kmsg.ACLOperation{
			kmsg.ACLOperationCreate, kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDelete,
			kmsg.ACLOperationDescribeConfigs,
		}},
	}
	for _, t := range r.inputs() {
		out = append(out, need{"topic", t.Name, false, []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs}})
	}
	for _, n := range r.outputs() {
		out = append(out, need{"topic", n, false, []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs}})
	}
	return out
}

// camel writes an operation as kafka-acls.sh wants it: DESCRIBE_CONFIGS is DescribeConfigs.
func camel(op kmsg.ACLOperation) string {
	var sb strings.Builder
	for word := range strings.SplitSeq(op.String(), "_") {
		sb.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return sb.String()
}

// command is how to grant n.
func (r *run) command(n need) string {
	principal := "<principal>"
	if r.in.Kafka.SASL.Username != "" {
		principal = "User:" + r.in.Kafka.SASL.Username
	}
	var sb strings.Builder
	fmt.Fprintf(&sb, "kafka-acls.sh --bootstrap-server %s --add --allow-principal %s", strings.Join(r.in.Kafka.Brokers, ","), principal)
	for _, op := range n.ops {
		sb.WriteString(" --operation " + camel(op))
	}
	fmt.Fprintf(&sb, " --%s %s", n.resource, n.name)
	if n.prefix {
		sb.WriteString(" --resource-pattern-type prefixed")
	}
	return sb.String()
}

// permissions asks the brokers what we may do, and tries what they do not tell.
func (r *run) permissions(ctx context.Context) {
	var denied, do, unknown []string
	for _, n := range r.needs() {
		lacks, err := r.lacks(ctx, n)
		if err != nil {
			unknown = append(unknown, err.Error())
			continue
		}
		if len(lacks) == 0 {
			continue
		}
		var ops []string
		for _, op := range lacks {
			ops = append(ops, camel(op))
		}
		name := n.name
		if n.prefix {
			name += "*"
		}
		denied = append(denied, fmt.Sprintf("%s on %s %s", strings.Join(ops, ", "), n.resource, name))
		do = append(do, r.command(n))
	}
	if len(denied) > 0 {
		r.add(checkPermissions, Fail, strings.Join(append([]string{"not allowed: " + strings.Join(denied, "; ")}, unknown...), "; "), do...)
		return
	}
	if len(unknown) > 0 {
		r.add(checkPermissions, Warn, "cannot tell: "+strings.Join(unknown, "; "), "run the doctor again; a new cluster needs a "+
			"moment to make its own topics")
		return
	}
	r.add(checkPermissions, OK, fmt.Sprintf("group %s, transactional ids and topics %s-*, %d inputs, %d outputs", r.in.Kafka.AppID,
		r.in.Kafka.AppID, len(r.inputs()), len(r.outputs())))
}

// lacks returns the operations of n that we may not do.
func (r *run) lacks(ctx context.Context, n need) ([]kmsg.ACLOperation, error) {
	switch {
	case n.resource == "group":
		return r.groupLacks(ctx, n)
	case n.resource == "transactional-id":
		return r.transactionLacks(ctx, n)
	case n.prefix:
		return r.createLacks(ctx, n)
	default:
		return r.topicLacks(ctx, n)
	}
}

// missing compares wanted operations with a bit field of allowed ones (KIP-430). Brokers that do not tell send the
// lowest number.
func missing(want []kmsg.ACLOperation, allowed int32) []kmsg.ACLOperation {
	if allowed == -1<<31 {
		return nil
	}
	var out []kmsg.ACLOperation
	for _, op := range want {
		if allowed&(1<<op) == 0 {
			out = append(out, op)
		}
	}
	return out
}

func (r *run) groupLacks(ctx context.Context, n need) ([]kmsg.ACLOperation, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{n.name}, true
	resp, err := r.cluster.Request(ctx, req)
	if errors.Is(err, kerr.GroupAuthorizationFailed) { // already the question for its coordinator
		return n.ops, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe group %s: %w", n.name, err)
	}
	for _, g := range resp.(*kmsg.DescribeGroupsResponse).Groups {
		if errors.Is(kerr.ErrorForCode(g.ErrorCode), kerr.GroupAuthorizationFailed) {
			return n.ops, nil
		}
		// A group that does not exist yet is answered without its operations; joining will tell.
		if g.AuthorizedOperations != 0 {
			return missing(n.ops, g.AuthorizedOperations), nil
		}
	}
	return nil, nil
}

func (r *run) transactionLacks(ctx context.Context, n need) ([]kmsg.ACLOperation, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	id := n.name + "doctor"
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 1000
	resp, err := r.cluster.Request(ctx, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	}
	switch {
	case err == nil, errors.Is(err, kerr.ConcurrentTransactions):
		return nil, nil
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return n.ops, nil
	default:
		return nil, fmt.Errorf("try transactional id %s: %w", id, err)
	}
}

// createLacks validates the creation of a topic of the app without making it, and looks at those that exist.
func (r *run) createLacks(ctx context.Context, n need) ([]kmsg.ACLOperation, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly, req.TimeoutMillis = true, 5000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = n.name+"doctor", 1, 1
	req.Topics = append(req.Topics, t)
	resp, err := r.cluster.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("try to create a topic %s*: %w", n.name, err)
	}
	var out []kmsg.ACLOperation
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
			out = append(out, kmsg.ACLOperationCreate)
		}
	}
	rest := need{ops: slices.DeleteFunc(slices.Clone(n.ops), func(op kmsg.ACLOperation) bool { return op == kmsg.ACLOperationCreate })}
	for _, name := range r.in.Internal {
		rest.name = name
		l, err := r.topicLacks(ctx, rest)
		if err != nil {
			return nil, err
		}
		out = append(out, l...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (r *run) topicLacks(ctx context.Context, n need) ([]kmsg.ACLOperation, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &n.name
	req.Topics = append(req.Topics, t)
	resp, err := r.cluster.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("describe topic %s: %w", n.name, err)
	}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			return missing(n.ops, t.AuthorizedOperations), nil
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return n.ops, nil
		}
	}
	return nil, nil // missing topics are another check's
}
