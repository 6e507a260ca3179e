package blob

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrExists   = errors.New("the blob exists already")
	ErrNotFound = errors.New("there is no such blob")
	ErrCorrupt  = errors.New("contents do not match their checksum")
)

// Error is a failed call.
type Error struct {
	Op        string // "put", "create", ...
	Key       string // "" for what concerns the store as a whole
	Store     string // URL
	Status    int    // of HTTP; 0 = no answer, or no S3
	Code      string // S3's word, such as AccessDenied
	RequestID string // what the server's log calls the request
	Attempts  int    // requests sent; 0 = not counted
	Unknown   bool   // the call may have had its effect, or may have it later
	Err       error  // the cause
	Next      string // what to do

	kind kind
}

// kind is what an error calls for.
type kind int

const (
	kindOther kind = iota
	kindRetryable
	kindDenied
)

// Error says what failed, where, why and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " blob %q in", e.Key)
	}
	fmt.Fprintf(&b, " %s: ", e.Store)
	switch {
	case e.Status != 0 && e.Code != "":
		fmt.Fprintf(&b, "%d %s: ", e.Status, e.Code)
	case e.Status != 0:
		fmt.Fprintf(&b, "status %d: ", e.Status)
	case e.Code != "":
		fmt.Fprintf(&b, "%s: ", e.Code)
	}
	b.WriteString(e.Err.Error())
	var about []string
	if e.RequestID != "" {
		about = append(about, "request id "+e.RequestID)
	}
	if e.Attempts > 1 {
		about = append(about, fmt.Sprintf("after %d attempts", e.Attempts))
	}
	if e.Unknown {
		about = append(about, "it may have been done all the same")
	}
	if len(about) > 0 {
		b.WriteString(" (" + strings.Join(about, ", ") + ")")
	}
	if e.Next != "" {
		b.WriteString("; " + e.Next)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsRetryable says whether the same call may succeed later without anybody doing anything: the store was busy, slow or out
// of reach, or full.
func IsRetryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.kind == kindRetryable
}

// IsDenied says whether the store refused for reasons of rights or credentials: somebody has to change them.
func IsDenied(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.kind == kindDenied
}
