package blob

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// codeOf is the error code that the server sent, or "".
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// cause is an error whose text leaves out what the Error around it says already.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

// fail makes an Error of what the SDK returned.
func (s *s3store) fail(ctx context.Context, op, key string, attempts int, err error) *Error {
	e := s.explain(ctx, op, key, attempts, err)
	if action, _ := rights(op); action != "s3:PutObject" && action != "s3:DeleteObject" && action != "s3:AbortMultipartUpload" {
		e.Unknown = false // reading has no effect
	}
	return e
}

func (s *s3store) explain(ctx context.Context, op, key string, attempts int, err error) *Error {
	e := &Error{Op: op, Key: key, Store: s.String(), Attempts: attempts, Err: err}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) && resp.HTTPStatusCode() != 0 {
		e.Status, e.RequestID = resp.HTTPStatusCode(), resp.ServiceRequestID()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code = api.ErrorCode()
		if text := strings.TrimSuffix(strings.TrimSpace(api.ErrorMessage()), "."); text != "" {
			e.Err = &cause{text, err}
		} else {
			e.Err = &cause{strings.ToLower(http.StatusText(e.Status)), err}
		}
	}
	if ctx.Err() != nil {
		// Whatever the last request met, that we stopped is why it was the last.
		e.Err, e.Unknown = ctx.Err(), attempts > 0
		if errors.Is(e.Err, context.DeadlineExceeded) {
			e.kind, e.Next = kindRetryable, "the store is slow, or the time for this call is too short"
		}
		return e
	}
	if region := bucketRegion(resp); e.Status != 0 && region != "" && region != s.c.Options().Region &&
		(e.Status == http.StatusMovedPermanently || e.Status == http.StatusTemporaryRedirect || e.Status == http.StatusBadRequest) {
		e.Err = &cause{"the bucket is in region " + region + ", not in " + s.c.Options().Region, err}
		e.Next = "set checkpoint.s3.region to " + region
		return e
	}
	if e.Status == 0 {
		return s.unsent(e, err)
	}
	return s.classify(e)
}

// bucketRegion is where the server says the bucket is.
func bucketRegion(resp *awshttp.ResponseError) string {
	if resp == nil || resp.Response == nil {
		return ""
	}
	return resp.Response.Header.Get("X-Amz-Bucket-Region")
}

// unsent classifies what failed without an answer.
func (s *s3store) unsent(e *Error, err error) *Error {
	var signing *v4.SigningError
	var send *smithyhttp.RequestSendError
	switch {
	case errors.As(err, &signing) || e.Attempts == 0 && !errors.As(err, &send) && strings.Contains(err.Error(), "credentials"):
		e.Err = &cause{"get credentials: " + innermost(err).Error(), err}
		e.kind = kindDenied
		e.Next = "set checkpoint.s3.access-key and checkpoint.s3.secret-key, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or give this machine, container or pod a role"
		return e
	case e.Attempts == 0 && !errors.As(err, &send):
		return e // refused by the SDK itself
	}
	e.kind, e.Unknown = kindRetryable, true
	text := innermost(err).Error()
	where := "the S3 endpoint of region " + s.c.Options().Region
	if s.c.Options().BaseEndpoint != nil {
		where = *s.c.Options().BaseEndpoint
	}
	e.Next = fmt.Sprintf("look whether %s can be reached from here (checkpoint.s3.endpoint)", where)
	if errors.Is(err, context.DeadlineExceeded) { // of the bandwidth limit
		e.Err, e.Next = &cause{text, err}, "raise checkpoint.max-bytes-per-second, or the time for this call"
		return e
	}
	var dns *net.DNSError
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		text = "there is no host " + dns.Name
		e.kind, e.Unknown = kindOther, false
		if s.c.Options().BaseEndpoint != nil && !s.o.PathStyle {
			e.Next = "correct checkpoint.s3.endpoint, or set checkpoint.s3.path-style to true if the server has no host names for buckets"
		} else {
			e.Next = "correct checkpoint.s3.endpoint or checkpoint.s3.region"
		}
	case errors.As(err, &record) || strings.Contains(text, "server gave HTTP response to HTTPS client"):
		e.kind, e.Unknown, e.Next = kindOther, false, "write http:// in checkpoint.s3.endpoint if the server has no TLS"
	case errors.As(err, &authority):
		e.kind, e.Unknown, e.Next = kindOther, false, "name the authority's certificate by AWS_CA_BUNDLE"
	case errors.As(err, &host):
		e.kind, e.Unknown, e.Next = kindOther, false, "correct checkpoint.s3.endpoint, or set checkpoint.s3.path-style to true if the certificate has no names for buckets"
	}
	e.Err = &cause{text, err}
	return e
}

// innermost takes off what the SDK and net/http put around a cause.
func innermost(err error) error {
	for {
		var send *smithyhttp.RequestSendError
		var u *url.Error
		var op *smithy.OperationError
		var signing *v4.SigningError
		switch {
		case errors.As(err, &send) && send.Err != nil:
			err = send.Err
		case errors.As(err, &u) && u.Err != nil:
			err = u.Err
		case errors.As(err, &signing) && signing.Err != nil:
			err = signing.Err
		case errors.As(err, &op) && op.Err != nil:
			err = op.Err
		default:
			return err
		}
	}
}

// rights are the actions that each operation needs.
func rights(op string) (action string, onBucket bool) {
	switch {
	case op == "list":
		return "s3:ListBucket", true
	case strings.HasPrefix(op, "list unfinished"):
		return "s3:ListBucketMultipartUploads", true
	case op == "delete":
		return "s3:DeleteObject", false
	case strings.HasPrefix(op, "abort"):
		return "s3:AbortMultipartUpload", false
	case op == "get" || op == "open" || op == "read" || op == "stat":
		return "s3:GetObject", false
	default:
		return "s3:PutObject", false
	}
}

// classify an answer by its code and status.
func (s *s3store) classify(e *Error) *Error {
	switch e.Code {
	case "NoSuchBucket":
		return s.noBucket(e)
	case "NoSuchKey", "NotFound":
		// No other answer says so, whatever its status: what is taken for absent is not looked for again.
		e.Err = ErrNotFound
		return e
	case "NoSuchUpload":
		e.kind, e.Next = kindRetryable, "somebody aborted it: a clean-up must wait longer than the longest upload takes"
	case "InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch", "XAdminUserNotFound":
		e.kind, e.Next = kindDenied, "the server does not know these credentials: correct checkpoint.s3.access-key and checkpoint.s3.secret-key, or what the AWS_* variables, profile or role give"
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired":
		e.kind, e.Next = kindDenied, "the session token is not valid any more: give new credentials, or leave them to a role, whose credentials are renewed"
	case "RequestTimeTooSkewed":
		e.Next = "the clocks of this machine and of the server differ by more than the server allows (15 minutes): set them, for example by NTP"
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException":
		e.Next = "set checkpoint.s3.region to the region of the bucket"
	case "NotImplemented":
		e.Next = "the server does not support what checkpoints need: take another"
	case "XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "InsufficientCapacity":
		e.kind, e.Next = kindRetryable, "make room in the store"
	case "ObjectParentIsFile", "ExistingObjectIsDirectory":
		e.Next = "the server keeps objects as files, and where this key wants a folder is a file, or the reverse: remove what Millrace did not write"
	case "InvalidObjectState":
		e.Next = "the object is archived: keep the lifecycle rules of the bucket away from this prefix"
	case "EntityTooLarge":
		e.Next = "the server limits the size of requests: look at its settings, or lower the part size"
	case "SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "TooManyRequestsException":
		e.kind, e.Unknown, e.Next = kindRetryable, true, "the store is overloaded: lower checkpoint.max-bytes-per-second, or take checkpoints less often"
	case "InternalError", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict":
		e.kind, e.Unknown = kindRetryable, true
	case "":
	default:
		if strings.HasPrefix(e.Code, "KMS.") {
			e.kind, e.Next = kindDenied, "look at the key of checkpoint.s3.kms-key-id: it must exist, be enabled, be in the region of the bucket and let the credentials use it (kms:GenerateDataKey, kms:Decrypt)"
		}
	}
	if e.Next != "" || e.kind != kindOther {
		return e
	}
	switch {
	case e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized || e.Code == "AccessDenied":
		action, onBucket := rights(e.Op)
		e.kind = kindDenied
		on := "arn:aws:s3:::" + s.url.Bucket
		if !onBucket {
			on += "/" + s.prefix + "*"
		}
		e.Next = fmt.Sprintf("allow the credentials %s on %s", action, on)
		if s.o.SSE == "aws:kms" && !onBucket {
			e.Next += ", and kms:GenerateDataKey and kms:Decrypt on the key"
		}
		if action == "s3:GetObject" {
			e.Next += "; without s3:ListBucket on the bucket this is also the answer for what is not there"
		}
	case e.Status == http.StatusTooManyRequests:
		e.kind, e.Next = kindRetryable, "the store is overloaded: lower checkpoint.max-bytes-per-second, or take checkpoints less often"
	case e.Status == http.StatusInsufficientStorage:
		e.kind, e.Next = kindRetryable, "make room in the store"
	case e.Status >= 500 && e.Status != http.StatusNotImplemented || e.Status == http.StatusRequestTimeout:
		e.kind, e.Unknown = kindRetryable, true
	case e.Status >= 200 && e.Status < 300:
		// The answer broke off, or was not one of S3.
		e.kind, e.Unknown = kindRetryable, true
		e.Err = &cause{innermost(e.Err).Error(), e.Err}
	}
	return e
}

func (s *s3store) noBucket(e *Error) *Error {
	e.Code, e.kind = "NoSuchBucket", kindOther
	e.Err = fmt.Errorf("there is no bucket %q", s.url.Bucket)
	e.Next = "create it, or correct checkpoint.url"
	return e
}
