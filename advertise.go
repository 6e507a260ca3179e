package millrace

import (
	"net"
	"os"
)

// advertised is where other members find the HTTP server of this one, from the options advertise and listen; "" if nobody
// else can.
func advertised(cfg Config) string {
	if cfg.Advertise != "" || cfg.Listen == "" || cfg.Listen == "off" {
		return cfg.Advertise
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil || port == "0" || host == "localhost" {
		return ""
	}
	ip := net.ParseIP(host)
	switch {
	case ip != nil && ip.IsLoopback():
		return ""
	case host == "" || ip != nil && ip.IsUnspecified():
		if host, err = os.Hostname(); err != nil {
			return ""
		}
	}
	return net.JoinHostPort(host, port)
}
