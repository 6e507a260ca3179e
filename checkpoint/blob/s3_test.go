package blob_test

import (
	"testing"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
)

func TestFakeS3(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		f := blobtest.NewFake(t)
		f.PageSize(17)
		return func() (blob.Store, error) { return blob.Open(t.Context(), f.URL("app/state"), f.Options()) }
	})
}
