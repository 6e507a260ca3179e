package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/txn"
)

// TestSavepointDeleteOnAGuardedCluster: with an authorizer, whoever may not see whether an app still begins from a savepoint does not
// delete it, and is told the right that is missing, one after the other; who may see it is told.
func TestSavepointDeleteOnAGuardedCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	b := kafka.Start(t, kafka.ACLs(), kafka.User("ops", "secret"))
	const app, changelog = "orders", "orders-0-changelog"
	folder := t.TempDir()
	blobs, err := blob.Open(t.Context(), "file://"+folder, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	makeSavepoint(t, blobs, app, "one")
	sp, err := checkpoint.NewSavepoints(blobs, app, nil, nil).Show(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	adm := b.Admin(t)
	right := func(acl *kadm.ACLBuilder, ops ...kadm.ACLOperation) *kadm.ACLBuilder {
		return acl.ResourcePatternType(kadm.ACLPatternLiteral).Operations(ops...).Allow("User:ops").AllowHosts()
	}
	grant := func(acl *kadm.ACLBuilder) {
		t.Helper()
		rs, err := adm.CreateACLs(t.Context(), acl)
		if err != nil || len(rs) == 0 || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
	}
	all := []*kadm.ACLBuilder{right(kadm.NewACLs().Topics("*"), kadm.OpAll), right(kadm.NewACLs().TransactionalIDs("*"), kadm.OpAll)}
	for _, acl := range all {
		grant(acl)
	}
	b.CreateTopicNamed(t, changelog, 1, nil)
	// The app begins from the savepoint, and no subtask of it has an epoch yet.
	c, err := txn.Connect(t.Context(), txn.Options{AppID: app, Brokers: b.Brokers(), SASL: txn.SASL{Mechanism: "PLAIN", Username: "ops", Password: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	control, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = control.Update(t.Context(), func(s txn.ControlState) (txn.ControlState, error) {
		s.ClusterID, s.Incarnation, s.Parallelism, s.TopicIDs = c.ID(), 1, []int{1}, map[string]string{changelog: "an id"}
		s.Base = &txn.Base{App: app, Name: "one", ID: sp.ID, URL: blobs.String()}
		return s, nil
	})
	control.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, acl := range all {
		if _, err := adm.DeleteACLs(t.Context(), acl); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"MILLRACE_SECURITY_SASL_MECHANISM=PLAIN", "MILLRACE_SECURITY_SASL_USERNAME=ops", "MILLRACE_SECURITY_SASL_PASSWORD=secret"}
	refused := func(says ...string) {
		t.Helper()
		testutil.Eventually(t, patience, func() error { // a broker hears of rights a moment later
			code, _, stderr := millrace(t, environ, "savepoint", "delete", "one", "--yes", "--app.id="+app, "--checkpoint.url=file://"+folder, "--brokers="+strings.Join(b.Brokers(), ","))
			for _, want := range append(says, "--force") {
				if code != exitFailed || !strings.Contains(stderr, want) {
					return fmt.Errorf("code %d, want %q: %s", code, want, stderr)
				}
			}
			return nil
		})
		if _, err := os.Stat(filepath.Join(folder, app, "savepoints/one/manifest")); err != nil {
			t.Fatalf("it is gone all the same: %v", err)
		}
	}
	const unknown = "whether an app still begins from it cannot be asked"
	refused(unknown, "not authorized", app+"-control")
	grant(right(kadm.NewACLs().Topics(app+"-control"), kadm.OpDescribe, kadm.OpRead))
	refused(unknown, "not authorized", "grant Describe", changelog)
	grant(right(kadm.NewACLs().Topics(changelog), kadm.OpDescribe))
	refused("app orders begins from it with incarnation 1, and of 1 subtasks 1 have not taken over their state (0_0)")
	b.Produce(t, &kgo.Record{Topic: changelog, Key: statestore.MetaKey(), Value: []byte("an epoch")})
	refused(unknown, "not authorized", "grant Read", changelog)
	grant(right(kadm.NewACLs().Topics(changelog), kadm.OpRead))
	testutil.Eventually(t, patience, func() error {
		code, stdout, stderr := millrace(t, environ, "savepoint", "delete", "one", "--yes", "--app.id="+app, "--checkpoint.url=file://"+folder, "--brokers="+strings.Join(b.Brokers(), ","))
		if code != exitOK || !strings.Contains(stdout, "Savepoint one is deleted") {
			return fmt.Errorf("code %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
}
