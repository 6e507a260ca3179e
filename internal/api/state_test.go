package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

const secret = "a-token-for-tests"

// shelf answers for some subtasks of store op/v, of which there are three with two entries each.
type shelf struct {
	mine  map[int]bool
	owner txn.Owner // of the others
	err   error     // for all that is asked
}

func (s *shelf) StateStores() []engine.StoreStatus {
	return []engine.StoreStatus{{Store: "op/v", Operator: "op", State: "v", Kind: "table", KeyType: "string", ValueType: "int64", Subtasks: 3}}
}

func (s *shelf) StateSubtasks(store string) (ids []record.SubtaskID, err error) {
	if store != "" && store != "op/v" {
		return nil, engine.ErrNoStore
	}
	for k := range 3 {
		ids = append(ids, record.SubtaskID{SubTopology: 0, Index: k})
	}
	return ids, nil
}

func (s *shelf) here(k int) error {
	switch {
	case s.err != nil:
		return s.err
	case !s.mine[k]:
		return &engine.NotHereError{Subtask: record.SubtaskID{Index: k}, Owner: s.owner}
	}
	return nil
}

// StateGet: keys are k<subtask>; what follows a comma does not exist.
func (s *shelf) StateGet(_ context.Context, k engine.StateKey, emit func([]byte) error) (engine.StateAnswer, error) {
	if k.Store != "op/v" {
		return engine.StateAnswer{}, engine.ErrNoStore
	}
	n := int(k.Key[1] - '0')
	a := engine.StateAnswer{Subtask: fmt.Sprint("0_", n), Epoch: 7}
	if err := s.here(n); err != nil {
		return a, err
	}
	if strings.Contains(k.Key, ",") {
		return a, nil
	}
	return a, emit(fmt.Appendf(nil, `{"store":"op/v","key":%q,"value":%d}`, k.Key, 10+n))
}

func (s *shelf) StateScan(_ context.Context, o engine.StateScan, emit func([]byte) error) (engine.StateAnswer, error) {
	a := engine.StateAnswer{Subtask: o.Subtask.String(), Epoch: 7}
	if err := s.here(o.Subtask.Index); err != nil {
		return a, err
	}
	for i := range 2 {
		if o.Limit > 0 && a.Entries == o.Limit {
			a.CutOff = true
			break
		}
		if err := emit(fmt.Appendf(nil, `{"store":"op/v","subtask":"%s","index":%d}`, o.Subtask, i)); err != nil {
			return a, err
		}
		a.Entries++
	}
	return a, nil
}

func serve(t *testing.T, state api.StateReader, token string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(api.Handler(api.Options{Status: func() engine.Status { return engine.Status{} }, Metrics: http.NotFoundHandler(), State: state, Token: token}))
	t.Cleanup(s.Close)
	return s
}

// ask sends a request with the token and returns the answer.
func ask(t *testing.T, url string) (code int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (code int, body string, header http.Header) {
	t.Helper()
	cl := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := cl.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func addrOf(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

func TestStateOverHTTP(t *testing.T) {
	b := &shelf{mine: map[int]bool{1: true}}
	other := serve(t, b, secret)
	a := &shelf{mine: map[int]bool{0: true, 2: true}, owner: txn.Owner{Member: "m-b", Host: "/10.0.0.2", Address: addrOf(other)}}
	b.owner = txn.Owner{Member: "m-a", Host: "/10.0.0.1"}
	here := serve(t, a, secret)
	state := here.URL + "/api/v1/state"
	for _, c := range []struct {
		url  string
		code int
		want string
	}{
		{state, 200, `{"stores":[{"store":"op/v","operator":"op","state":"v","kind":"table","key_type":"string","value_type":"int64","expiring":false,"sub_topology":0,"subtasks":3}]}`},
		{state + "/op/v?key=k0", 200, `{"subtask":"0_0","epoch":7,"cut_off":false,"entries":[{"store":"op/v","key":"k0","value":10}]}`},
		{state + "/op/v?key=k1", 200, `{"subtask":"0_1","epoch":7,"cut_off":false,"entries":[{"store":"op/v","key":"k1","value":11}]}`}, // sent on
		{state + "/op/v?key=k0,", 404, `{"subtask":"0_0","epoch":7,"cut_off":false,"entries":[]}`},
		{state + "/op/v?key=k1,", 404, `{"subtask":"0_1","epoch":7,"cut_off":false,"entries":[]}`},
		{state + "/op/w?key=k0", 404, `{"error":"the app has no such store; GET /api/v1/state lists all"}`},
		{state + "/op/v", 400, `{"error":"the question cannot be understood: the parameter key is missing"}`},
		{state + "/op/v?key=k0&window=soon", 400, `window=\"soon\"`},
		{state + "/op/v/scan?limit=-1", 400, `limit=\"-1\"`},
		{state + "/op/v/scan?subtask=x", 400, `subtask=\"x\"`},
		{other.URL + "/api/v1/state/op/v?key=k0", 421, `{"error":"subtask 0_0 is not here, member m-a at /10.0.0.1 owns it, which does not say where it can be asked: set its option advertise, or ask it directly","subtask":"0_0","member":"m-a","host":"/10.0.0.1"}`},
		{state + "/op/v/scan", 200, `{"store":"op/v","subtask":"0_0","index":0}
{"store":"op/v","subtask":"0_0","index":1}
{"store":"op/v","subtask":"0_1","index":0}
{"store":"op/v","subtask":"0_1","index":1}
{"store":"op/v","subtask":"0_2","index":0}
{"store":"op/v","subtask":"0_2","index":1}
{"end":{"entries":6,"cut_off":false,"epochs":{"0_0":7,"0_1":7,"0_2":7}}}`},
		{state + "/op/v/scan?limit=3", 200, `{"store":"op/v","subtask":"0_0","index":0}
{"store":"op/v","subtask":"0_0","index":1}
{"store":"op/v","subtask":"0_1","index":0}
{"end":{"entries":3,"cut_off":true,"epochs":{"0_0":7,"0_1":7}}}`},
		{state + "/export?subtask=0_1", 200, `{"store":"op/v","subtask":"0_1","index":0}
{"store":"op/v","subtask":"0_1","index":1}
{"end":{"entries":2,"cut_off":false,"epochs":{"0_1":7}}}`},
		{other.URL + "/api/v1/state/op/v/scan?limit=0", 200, `{"store":"op/v","subtask":"0_1","index":0}
{"store":"op/v","subtask":"0_1","index":1}
{"end":{"entries":2,"cut_off":false,"epochs":{"0_1":7},"failed":{"0_0":"subtask 0_0 is not here, member m-a at /10.0.0.1 owns it","0_2":"subtask 0_2 is not here, member m-a at /10.0.0.1 owns it"}}}`},
	} {
		code, body, h := ask(t, c.url)
		if body = strings.TrimSuffix(body, "\n"); code != c.code || body != c.want && (code != 400 || !strings.Contains(body, c.want)) {
			t.Errorf("%s: %d %s\nwant %d %s", c.url, code, body, c.code, c.want)
		}
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", c.url, h)
		}
	}
	a.err = &engine.UnavailableError{Reason: "subtask 0_0 is restoring", Retry: 1500 * time.Millisecond}
	for _, path := range []string{"/op/v?key=k0", "/op/v/scan"} {
		if code, body, h := ask(t, state+path); code != 503 || h.Get("Retry-After") != "2" || !strings.Contains(body, "restoring") {
			t.Errorf("%s: %d %s %v", path, code, body, h)
		}
	}
	// Two members that each believe the other to be the owner do not send a request back and forth.
	a.err, b.owner.Address = nil, addrOf(here)
	b.mine = nil
	if code, body, h := ask(t, state+"/op/v?key=k1"); code != 503 || h.Get("Retry-After") == "" {
		t.Errorf("%d %s", code, body)
	}
	other.Close()
	if code, body, _ := ask(t, state+"/op/v?key=k1"); code != 502 || !strings.Contains(body, `"member":"m-b"`) || !strings.Contains(body, a.owner.Address) {
		t.Errorf("%d %s", code, body)
	}
	if code, body, _ := ask(t, state+"/op/v/scan"); code != 200 || !strings.Contains(body, `"failed":{"0_1":`) || strings.Count(body, "\n") != 5 {
		t.Errorf("%d %s", code, body)
	}
}

// TestStateIsNotOpen: no path of it answers without the token, and the token never goes to another member.
func TestStateIsNotOpen(t *testing.T) {
	paths := []string{"/api/v1/state", "/api/v1/state/export", "/api/v1/state/op/v?key=k0", "/api/v1/state/op/v/scan"}
	s := &shelf{mine: map[int]bool{0: true, 1: true, 2: true}}
	for token, want := range map[string]int{"": 403, secret: 401} {
		srv := serve(t, s, token)
		for _, p := range paths {
			for _, header := range []string{"", "1.00", fmt.Sprintf("%d.00", time.Now().Unix())} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+p, nil)
				if err != nil {
					t.Fatal(err)
				}
				if header != "" {
					req.Header.Set("Millrace-Forwarded", header)
				}
				if code, body, _ := do(t, req); code != want || strings.Contains(body, "op/v") {
					t.Errorf("token %q, %s, %q: %d %s", token, p, header, code, body)
				}
			}
		}
	}
	var seen []*http.Request
	spy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r) }))
	defer spy.Close()
	front := serve(t, &shelf{owner: txn.Owner{Member: "m", Address: addrOf(spy)}}, secret)
	ask(t, front.URL+"/api/v1/state/op/v?key=k0")
	if len(seen) != 1 || seen[0].Header.Get("Authorization") != "" || seen[0].Header.Get("Millrace-Forwarded") == "" {
		t.Fatalf("%v", seen)
	}
	// What was signed for one question opens no other, and not for ever.
	back := serve(t, s, secret)
	try := func(path, header string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, back.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Millrace-Forwarded", header)
		code, _, _ := do(t, req)
		return code
	}
	sig := seen[0].Header.Get("Millrace-Forwarded")
	if code := try("/api/v1/state/op/v?key=k0", sig); code != 200 {
		t.Errorf("%d", code)
	}
	if code := try("/api/v1/state/op/v?key=k1", sig); code != 401 {
		t.Errorf("%d", code)
	}
	_, mac, _ := strings.Cut(sig, ".")
	if code := try("/api/v1/state/op/v?key=k0", fmt.Sprintf("%d.%s", time.Now().Add(-time.Hour).Unix(), mac)); code != 401 {
		t.Errorf("%d", code)
	}
}

type word struct {
	Text string `json:"text"`
}

// TestTwoMembersAnswerForEachOther starts two workers on an embedded broker: each answers for every key and every subtask.
func TestTwoMembersAnswerForEachOther(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in", "out"), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	ctx, cancel := context.WithCancel(context.Background())
	var urls []string
	var ended []chan error
	for range 2 {
		top := processor.New()
		words := processor.FromKeyed[int64](top, nil, processor.Topic[word]{Name: "in"})
		processor.ToTopic(processor.RunningAggregate(words, "count", processor.Count[word](), func(_, n int64, _ word) int64 { return n }), "out")
		plan, err := top.Plan()
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewUnstartedServer(nil)
		worker := engine.New(engine.Options{Plan: plan, Dir: memstore.NewDir("two"), Advertise: srv.Listener.Addr().String(), CommitQuiet: time.Millisecond, LeaveOnStop: true,
			Kafka: txn.Options{AppID: "two", Brokers: fake.ListenAddrs(), SessionTimeout: 2 * time.Second, HeartbeatInterval: 100 * time.Millisecond}})
		srv.Config.Handler = api.Handler(api.Options{Status: worker.Status, Metrics: http.NotFoundHandler(), State: worker, Token: secret})
		srv.Start()
		t.Cleanup(srv.Close)
		urls = append(urls, srv.URL+"/api/v1/state")
		end := make(chan error, 1)
		ended = append(ended, end)
		go func() { end <- worker.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for _, end := range ended {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const keys = 12
	for k := range byte(keys) {
		for range k + 1 {
			cl.Produce(ctx, &kgo.Record{Topic: "in", Key: []byte{0, 0, 0, 0, 0, 0, 0, k}, Value: []byte(`{"text":"x"}`)}, nil)
		}
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	all := func() error {
		for _, u := range urls {
			for k := range keys {
				code, body, _ := ask(t, u+"/count/value?key="+url.QueryEscape(fmt.Sprint(k)))
				if !strings.Contains(body, fmt.Sprintf(`{"store":"count/value","subtask":"0_%d","key":%d,"value":%d}`, subtaskIn(body), k, k+1)) {
					return fmt.Errorf("key %d: %d %s", k, code, body)
				}
			}
			code, body, _ := ask(t, u+"/count/value/scan")
			lines := strings.Split(strings.TrimSpace(body), "\n")
			var end struct {
				End struct {
					Entries int               `json:"entries"`
					Epochs  map[string]uint64 `json:"epochs"`
					Failed  map[string]string `json:"failed"`
				} `json:"end"`
			}
			if code != 200 {
				return fmt.Errorf("%d %s", code, body)
			}
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil {
				return fmt.Errorf("%w in %s", err, body)
			}
			if end.End.Entries != keys || len(lines) != keys+1 || len(end.End.Epochs) != 4 || len(end.End.Failed) > 0 {
				return errors.New(body)
			}
		}
		return nil
	}
	shared := func() error { // both own something
		for _, u := range urls {
			code, body, _ := ask(t, strings.TrimSuffix(u, "/state")+"/status")
			var s engine.Status
			if err := json.NewDecoder(bufio.NewReader(strings.NewReader(body))).Decode(&s); err != nil || len(s.Subtasks) != 2 {
				return fmt.Errorf("%d %s", code, body)
			}
		}
		return nil
	}
	testutil.Eventually(t, 30*time.Second, func() error { return errors.Join(shared(), all()) })
}

// subtaskIn is the index of the subtask that an answer names.
func subtaskIn(body string) (index int) {
	var a struct {
		Subtask string `json:"subtask"`
	}
	if json.Unmarshal([]byte(body), &a) == nil {
		_, _ = fmt.Sscanf(a.Subtask, "0_%d", &index)
	}
	return index
}
