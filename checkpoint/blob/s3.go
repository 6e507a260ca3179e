package blob

import (
	"context"
	"errors"
)

func openS3(_ context.Context, u URL, _ Options) (Store, error) {
	return nil, &Error{Op: "open", Store: u.String(), Err: errors.New("not built yet")}
}
