package cli

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/millrace-stream/millrace/doctor"
)

func TestDoctor(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(4, "in"), kfake.SeedTopics(2, "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	args := []string{"doctor", "--app.id=app", "--brokers=" + strings.Join(k.ListenAddrs(), ","), "--state.dir=" + t.TempDir()}
	code, stdout, stderr := millrace(t, nil, append(args, "--keyed-input=in", "--output-topic=out")...)
	if code != exitOK || !strings.Contains(stdout, "sub-topology 0 (in 4 partitions): parallelism 4") || !strings.Contains(stdout, " 0 fail, ") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = millrace(t, nil, append(args, "--input=nothere", "-o", "json")...)
	var report doctor.Report
	if err := json.Unmarshal([]byte(stdout), &report); code != exitFailed || err != nil || !report.Failed() || !strings.Contains(stderr, "a check failed") {
		t.Errorf("code %d, %v\n%s%s", code, err, stdout, stderr)
	}
}

func TestDoctorUsage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"doctor", exitUsage, "app.id is not set"},
		{"doctor --app.id=a extra", exitUsage, `unexpected argument "extra"`},
		{"doctor --app.id=a -o xml", exitUsage, `unknown output "xml"`},
		{"doctor --help", exitOK, "--keyed-input"},
		{"doctor --app.id=a --request.timeout=1s --brokers=" + addr, exitFailed, "check that the brokers run"},
	} {
		code, stdout, stderr := millrace(t, nil, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("millrace %s: code %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
}
