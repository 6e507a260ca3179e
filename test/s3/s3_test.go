package s3

import (
	"net/http"
	"os"
	"testing"

	"github.com/millrace-stream/millrace/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// TestServerSurvivesAKill checks that what tests of crashes rely on.
func TestServerSurvivesAKill(t *testing.T) {
	s := Start(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		resp, err := client.Get(s.Endpoint() + "/" + Bucket)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("unsigned request: %s", resp.Status)
		}
		s.Kill(t)
		if resp, err := client.Get(s.Endpoint()); err == nil {
			_ = resp.Body.Close()
			t.Error("the killed server answers")
		}
		s.Restart(t)
	}
	if _, err := os.Stat(s.Object("")); err != nil {
		t.Error(err)
	}
}
