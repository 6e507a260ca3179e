package blob_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/test/s3"
)

func TestFakeS3(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		f := blobtest.NewFake(t)
		f.PageSize(17)
		return func() (blob.Store, error) { return blob.Open(t.Context(), f.URL("app/state"), f.Options()) }
	})
}

// realOptions for a server of test/s3.
func realOptions(s *s3.Server) blob.Options {
	return blob.Options{Endpoint: s.Endpoint(), Region: s3.Region, PathStyle: true, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey,
		PartSize: 5 << 20, Timeout: 10 * time.Second, Backoff: time.Millisecond}
}

func TestRealS3(t *testing.T) {
	server := s3.Start(t)
	n := 0
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		n++
		url := fmt.Sprintf("s3://%s/app-%d", s3.Bucket, n)
		return func() (blob.Store, error) { return blob.Open(t.Context(), url, realOptions(server)) }
	})
}
