package millrace

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// OpenBlobs opens the object storage of checkpoints and savepoints, checkpoint.url; nil = none is configured. It does not
// ask whether the storage can be used: blob.Store.Check does. The caller closes it.
func OpenBlobs(ctx context.Context, cfg Config, log *slog.Logger) (blob.Store, error) {
	c := cfg.Checkpoint
	if c.URL == "" {
		return nil, nil
	}
	blobs, err := blob.Open(ctx, c.URL, blob.Options{
		Endpoint: c.S3.Endpoint, Region: c.S3.Region, PathStyle: c.S3.PathStyle, AccessKey: c.S3.AccessKey, SecretKey: c.S3.SecretKey.Reveal(),
		SessionToken: c.S3.SessionToken.Reveal(), Profile: c.S3.Profile, SSE: c.S3.SSE, KMSKeyID: c.S3.KMSKeyID,
		BytesPerSecond: c.MaxBytesPerSecond, PartSize: c.S3.PartSize, Concurrency: c.Concurrency, Timeout: c.S3.RequestTimeout, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open checkpoint.url: %w", err)
	}
	return blobs, nil
}

// openBlobsAt opens another store than that of checkpoint.url, in the same way.
func openBlobsAt(ctx context.Context, cfg Config, url string, log *slog.Logger) (blob.Store, error) {
	cfg.Checkpoint.URL = url
	blobs, err := OpenBlobs(ctx, cfg, log)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", url, err)
	}
	return blobs, nil
}

// blobCheckTimeout bounds the check of the object storage at the start.
const blobCheckTimeout = 10 * time.Second

// openBlobs also proves that the storage can be used: a wrong bucket or key should be noticed at the start, not when a
// disk is lost.
func openBlobs(ctx context.Context, cfg Config, log *slog.Logger) (blob.Store, error) {
	blobs, err := OpenBlobs(ctx, cfg, log)
	if err != nil || blobs == nil {
		return nil, err
	}
	cctx, cancel := context.WithTimeout(ctx, blobCheckTimeout)
	defer cancel()
	if err := blobs.Check(cctx); err != nil {
		if !blob.IsRetryable(err) {
			_ = blobs.Close()
			return nil, fmt.Errorf("check checkpoint.url: %w", err)
		}
		log.Warn("the object storage of checkpoints does not answer; processing starts without it", "error", err)
	}
	return blobs, nil
}
