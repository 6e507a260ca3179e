package millrace

import (
	"os"
	"testing"

	"github.com/millrace-stream/millrace/configs"
)

func TestAdvertised(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ listen, advertise, want string }{
		{"127.0.0.1:9644", "", ""},
		{"[::1]:9644", "", ""},
		{"localhost:9644", "", ""},
		{"off", "", ""},
		{"", "", ""},
		{"10.0.0.1:0", "", ""},
		{"10.0.0.1:9644", "", "10.0.0.1:9644"},
		{"worker-1:9644", "", "worker-1:9644"},
		{":9644", "", name + ":9644"},
		{"0.0.0.0:9644", "", name + ":9644"},
		{"[::]:9644", "", name + ":9644"},
		{"127.0.0.1:9644", "worker-2:80", "worker-2:80"},
	} {
		cfg := configs.Default()
		cfg.Listen, cfg.Advertise = c.listen, c.advertise
		if got := advertised(cfg); got != c.want {
			t.Errorf("listen %q, advertise %q: %q, want %q", c.listen, c.advertise, got, c.want)
		}
	}
}
