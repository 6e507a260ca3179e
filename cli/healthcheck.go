package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newHealthcheckCommand asks a running program whether it is ready, for containers without a shell.
func newHealthcheckCommand() *cobra.Command {
	var target string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running program whether it is ready; exit code 0 or 1",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u, err := url.Parse(target); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return usageError{fmt.Errorf("read --url %q: http://host:port/path is wanted", target)}
			}
			if timeout <= 0 {
				return usageError{fmt.Errorf("read --timeout %s: more than 0 is wanted", timeout)}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return checkHealth(ctx, target)
		},
	}
	cmd.Flags().StringVar(&target, "url", "http://127.0.0.1:9644/readyz", "address to ask")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "longest wait for the answer")
	return cmd
}

// checkHealth returns nil if the address answers 200; else the error holds the beginning of the answer, which says why.
func checkHealth(ctx context.Context, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", target, err)
	}
	// A transport of its own, so that no proxy from the environment stands in between and no connection is left open.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err // without the address, which is in the message already
		}
		return fmt.Errorf("ask %s: %w; is the program running, with this address as listen?", target, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s answers %s: %s", target, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
