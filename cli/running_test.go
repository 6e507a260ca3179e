package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/configs"
	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/txn"
)

// freeAddr is an address on which nobody listens now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestSavepointsOfARunningApp takes savepoints of an app by command and by HTTP, stops it at one, and lets it go on.
func TestSavepointsOfARunningApp(t *testing.T) {
	const app, in, out = "order-counts", "orders", "counts"
	brokers, folder := fakeKafka(t), t.TempDir()
	c, err := txn.Connect(t.Context(), txn.Options{AppID: app, Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopics(t.Context(), []txn.TopicSpec{{Name: out, Partitions: 1, ReplicationFactor: 1}}); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var want []string
	// expect writes a record, and waits for all results so far.
	expect := func(what string) {
		t.Helper()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: in, Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("a=%d", len(want)+1))
		tp := record.TopicPartition{Topic: out}
		testutil.Eventually(t, patience, func() error {
			var got []string
			stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
			if err == nil {
				err = c.ReadCommitted(t.Context(), tp, 0, stable[tp], func(r record.Record) error {
					got = append(got, string(r.Value))
					return nil
				})
			}
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%s: the results are %v, want %v", what, got, want)
			}
			return err
		})
	}
	cfg := configs.Default()
	cfg.App.ID, cfg.Brokers, cfg.State.Dir, cfg.Checkpoint.URL, cfg.Listen, cfg.Admin.Token, cfg.Log.Level = app, brokers, t.TempDir(), "file://"+folder, freeAddr(t), "secret", "error"
	call := func(args ...string) (string, string) {
		t.Helper()
		code, stdout, stderr := millrace(t, nil, append(args, "--app.id="+app, "--brokers="+strings.Join(brokers, ","), "--checkpoint.url="+cfg.Checkpoint.URL)...)
		if code != exitOK {
			t.Fatalf("millrace %v: code %d, %s%s", args, code, stdout, stderr)
		}
		t.Logf("millrace %v\n%s%s", args, stderr, stdout)
		return stdout, stderr
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	send := func(method, path, body string, into any) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+cfg.Listen+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		t.Logf("%s %s %s: %d %s", method, path, body, resp.StatusCode, data)
		if err == nil && into != nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatalf("%s %s: %d %s, %v", method, path, resp.StatusCode, data, err)
		}
		return resp.StatusCode
	}

	stop := runApp(t, cfg, in, out)
	expect("before")
	stdout, stderr := call("savepoint", "create", "one")
	if !strings.HasPrefix(stdout, "Savepoint one is completed after ") || !strings.Contains(stderr, "subtasks have their state in hand") {
		t.Errorf("create: %s%s", stdout, stderr)
	}
	expect("after a savepoint")
	call("savepoint", "verify", "one")
	call("savepoint", "show", "one")

	var begun struct{ Name string }
	if code := send("POST", "/api/v1/savepoints", `{"name":"one"}`, nil); code != http.StatusConflict {
		t.Errorf("a name that is taken: %d", code)
	}
	if code := send("POST", "/api/v1/savepoints", `{}`, &begun); code != http.StatusAccepted || !strings.HasPrefix(begun.Name, app+"-20") {
		t.Errorf("by HTTP: %d %+v", code, begun)
	}
	testutil.Eventually(t, patience, func() error {
		var sp api.Savepoint
		if code := send("GET", "/api/v1/savepoints/"+begun.Name, "", &sp); code != http.StatusOK || sp.Status == checkpoint.StatusFailed {
			t.Fatalf("by HTTP: %d %+v", code, sp)
		} else if sp.Status != checkpoint.StatusCompleted {
			return errors.New("it is " + string(sp.Status))
		}
		return nil
	})
	expect("after a savepoint by HTTP")
	if code := send("DELETE", "/api/v1/savepoints/"+begun.Name, "", nil); code != http.StatusOK {
		t.Errorf("delete by HTTP: %d", code)
	}
	var list struct{ Savepoints []api.Savepoint }
	if code := send("GET", "/api/v1/savepoints", "", &list); code != http.StatusOK || len(list.Savepoints) != 1 || list.Savepoints[0].Name != "one" {
		t.Errorf("list by HTTP: %d %+v", code, list)
	}

	stdout, _ = call("stop", "--savepoint=two")
	if !strings.HasPrefix(stdout, "App order-counts is stopped with savepoint two: ") {
		t.Errorf("stop: %s", stdout)
	}
	if err := stop.wait(); err != nil {
		t.Errorf("the member that was stopped: %v", err)
	}
	call("savepoint", "list")

	stop = runApp(t, cfg, in, out)
	testutil.Eventually(t, patience, func() error {
		resp, err := client.Get("http://" + cfg.Listen + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(data), "stopped")) {
			err = fmt.Errorf("%d %s", resp.StatusCode, data)
		}
		return err
	})
	if code := send("POST", "/api/v1/resume", `{}`, nil); code != http.StatusOK {
		t.Errorf("resume: %d", code)
	}
	expect("resumed")
	if code := send("POST", "/api/v1/stop", `{}`, nil); code != http.StatusOK {
		t.Errorf("stop: %d", code)
	}
	if err := stop.wait(); err != nil {
		t.Errorf("the member that was stopped by HTTP: %v", err)
	}
	call("stop")
	call("resume")
	stop = runApp(t, cfg, in, out)
	expect("resumed by command")
	if err := stop.end(); err != nil {
		t.Error(err)
	}
	call("app", "reset", "--yes", "--savepoints")
	call("app", "delete", "--yes")
}
