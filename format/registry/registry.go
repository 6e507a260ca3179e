// Package registry speaks to a schema registry with Confluent's interface, which others have, too: it gets schemas by the
// id that stands before each message, and registers the schemas of tables that are written.
//
// What it is asked for by id is kept for ever: a registry never gives an id to another schema. A request is tried again
// while the registry does not answer or says that it is at fault itself, and then given up: Get and Register return
// within half a minute.
package registry

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/millrace-stream/millrace/format"
)

const (
	// patience bounds a call with all its attempts.
	patience = 20 * time.Second
	// The pause before the second attempt, which doubles to the longest.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
	// glance bounds a look for what only makes a message better.
	glance = 2 * time.Second
	// An id that the registry does not know is asked for again after forget. Of such ids so many are remembered.
	forget      = 5 * time.Second
	mostMissing = 1000
)

// The types of schemas.
const (
	Avro     = sr.TypeAvro
	Protobuf = sr.TypeProtobuf
	JSON     = sr.TypeJSON
)

// Client is a registry as a table uses it. It is safe for concurrent use.
type Client struct {
	cl       *sr.Client
	where    string // URLs, for messages
	subject  string
	lookOnly bool

	mu      sync.Mutex // held while the registry is asked: who wants the same waits for the one answer
	byID    map[int]*Schema
	missing map[int]time.Time // when an id was asked for that there is not
	names   map[int]string
	ids     map[string]int // of registered schemas, by subject, type and text
}

// Schema is a schema with the ones that it refers to.
type Schema struct {
	ID   int
	Type sr.SchemaType
	Text string
	// References are the schemas that it refers to, directly or not, each before those that refer to it.
	References []Reference
}

// Reference is a schema that another refers to by a name: of Avro the full name of a type, of Protobuf the path of an import,
// of JSON a URL.
type Reference struct {
	Name, Text string
}

// Subject is the subject that the table's options name.
func (c *Client) Subject() string { return c.subject }

// UnknownIDError says that a registry has no schema of that id: the message is no message of this registry, or was cut.
type UnknownIDError struct {
	ID    int
	Where string
}

func (e *UnknownIDError) Error() string {
	return fmt.Sprintf("schema id %d is unknown to the schema registry at %s", e.ID, e.Where)
}

// Get is the schema of an id. An *UnknownIDError is the message's fault; any other error is a *format.OutsideError.
func (c *Client) Get(id int) (*Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		return s, nil
	}
	if at, ok := c.missing[id]; ok && time.Since(at) < forget {
		return nil, &UnknownIDError{id, c.where}
	}
	var s *Schema
	err := c.try(func(ctx context.Context) error {
		got, err := c.cl.SchemaByID(ctx, id)
		if err != nil {
			return err
		}
		s = &Schema{ID: id, Type: got.Type, Text: got.Schema}
		s.References, err = c.references(ctx, got.References)
		return err
	})
	var answer *sr.ResponseError
	switch {
	case err == nil:
		c.byID[id] = s
		return s, nil
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound && answer.ErrorCode == sr.ErrSchemaNotFound.Code:
		if len(c.missing) >= mostMissing {
			clear(c.missing)
		}
		c.missing[id] = time.Now()
		return nil, &UnknownIDError{id, c.where}
	}
	return nil, c.outside(fmt.Sprintf("get schema id %d", id), err)
}

// references gets what a schema refers to, depth first. A registry takes no circles, but what it answers is not trusted.
func (c *Client) references(ctx context.Context, refs []sr.SchemaReference) ([]Reference, error) {
	const most = 1000
	var all []Reference
	seen := map[string]bool{}
	var walk func(refs []sr.SchemaReference) error
	walk = func(refs []sr.SchemaReference) error {
		for _, r := range refs {
			if seen[r.Name] {
				continue
			}
			if seen[r.Name] = true; len(seen) > most {
				return fmt.Errorf("it refers to more than %d schemas", most)
			}
			s, err := c.cl.SchemaByVersion(ctx, r.Subject, r.Version)
			if err != nil {
				return fmt.Errorf("reference %s, subject %s, version %d: %w", r.Name, r.Subject, r.Version, err)
			}
			if err := walk(s.References); err != nil {
				return err
			}
			all = append(all, Reference{r.Name, s.Schema.Schema})
		}
		return nil
	}
	return all, walk(refs)
}

// Name is how messages name a schema: its id, and the subjects that have it if the registry says so at once.
func (c *Client) Name(id int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name, ok := c.names[id]; ok {
		return name
	}
	ctx, cancel := context.WithTimeout(context.Background(), glance)
	defer cancel()
	name := fmt.Sprintf("schema id %d", id)
	if subjects, err := c.cl.SubjectsByID(ctx, id); err == nil && len(subjects) > 0 {
		name += " (subject " + strings.Join(subjects[:min(len(subjects), 3)], ", ") + ")"
	}
	c.names[id] = name
	return name
}

// Latest is the newest schema of a subject. ok is false if there is none.
func (c *Client) Latest(subject string) (s *Schema, ok bool, err error) {
	var id int
	err = c.try(func(ctx context.Context) error {
		got, err := c.cl.SchemaByVersion(ctx, subject, -1)
		id = got.ID
		return err
	})
	var answer *sr.ResponseError
	switch {
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, c.outside(fmt.Sprintf("get the latest schema of subject %s", subject), err)
	}
	s, err = c.Get(id)
	return s, err == nil, err
}

// ErrNoSubject says that a table that is written does not know its subject.
var ErrNoSubject = errors.New("option 'subject' is missing: the schema that the table writes is registered under it")

// Register registers a schema under a subject and is its id; what is registered already keeps its id. With
// auto.register.schemas = false it only looks for it. Errors are *format.OutsideError; one that wraps an *IncompatibleError
// says that the registry refuses the schema.
func (c *Client) Register(subject string, kind sr.SchemaType, text string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := kind.String() + " " + subject + "\n" + text
	if id, ok := c.ids[key]; ok {
		return id, nil
	}
	schema := sr.Schema{Schema: text, Type: kind}
	id := 0
	err := c.try(func(ctx context.Context) (err error) {
		if c.lookOnly {
			var found sr.SubjectSchema
			found, err = c.cl.LookupSchema(ctx, subject, schema)
			id = found.ID
			return err
		}
		id, err = c.cl.RegisterSchema(ctx, subject, schema, -1, -1)
		return err
	})
	var answer *sr.ResponseError
	switch {
	case err == nil:
		c.ids[key] = id
		return id, nil
	case errors.As(err, &answer) && answer.StatusCode == http.StatusConflict:
		return 0, &format.OutsideError{Err: &IncompatibleError{Subject: subject, Where: c.where, Reasons: c.reasons(subject, schema, short(answer.Error()))}, Final: true}
	case c.lookOnly && errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return 0, c.unregistered(subject, text)
	}
	return 0, c.outside(fmt.Sprintf("register the schema of subject %s", subject), err)
}

func (c *Client) unregistered(subject, text string) error {
	return &format.OutsideError{Err: fmt.Errorf("subject %s at %s has not the schema that the table writes, and auto.register.schemas is false; register it: %s", subject, c.where, text), Final: true}
}

// Takes asks whether the registry would register a schema under a subject, and changes nothing there. It says what it found;
// errors are those of Register. Of a registry that does not say why it would refuse a schema, differs is asked: it names what is
// otherwise in the latest schema of the subject.
func (c *Client) Takes(subject string, kind sr.SchemaType, text string, differs func(latest string) string) (found string, err error) {
	schema := sr.Schema{Schema: text, Type: kind}
	var got sr.CheckCompatibilityResult
	err = c.try(func(ctx context.Context) (err error) {
		if c.lookOnly {
			_, err = c.cl.LookupSchema(ctx, subject, schema)
			return err
		}
		got, err = c.cl.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -2, schema)
		return err
	})
	var answer *sr.ResponseError
	absent := errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
	switch {
	case absent && c.lookOnly:
		return "", c.unregistered(subject, text)
	case absent:
		return "subject " + subject + " will be new", nil
	case err != nil:
		return "", c.outside(fmt.Sprintf("compare the schema of the table with subject %s", subject), err)
	case !c.lookOnly && !got.Is:
		return "", &format.OutsideError{Err: &IncompatibleError{Subject: subject, Where: c.where, Reasons: c.reasons(subject, schema, c.ownReason(subject, differs))}, Final: true}
	}
	return "subject " + subject + " takes the schema", nil
}

// ownReason is why a schema is refused, as far as we can tell.
func (c *Client) ownReason(subject string, differs func(latest string) string) string {
	latest, ok, err := c.Latest(subject)
	if err != nil || !ok {
		return "it does not say why"
	}
	return "it does not say why; in its latest schema, id " + strconv.Itoa(latest.ID) + ", is otherwise: " + differs(latest.Text)
}

// IncompatibleError says that a registry refuses a schema, since it does not go with earlier ones of the subject.
type IncompatibleError struct {
	Subject, Where string
	// Reasons are what the registry says, which names fields where it can.
	Reasons []string
}

func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("the schema of the table is not compatible with what subject %s at %s has: %s; change the table, or the subject's compatibility level, or write under another subject",
		e.Subject, e.Where, strings.Join(e.Reasons, "; "))
}

// reasons asks why a schema is not compatible with the latest version: some registries say so only when asked so.
func (c *Client) reasons(subject string, schema sr.Schema, otherwise string) []string {
	var got sr.CheckCompatibilityResult
	err := c.try(func(ctx context.Context) (err error) {
		got, err = c.cl.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -1, schema)
		return err
	})
	if err == nil && len(got.Messages) > 0 {
		return withFields(got.Messages, schema)
	}
	return withFields([]string{otherwise}, schema)
}

// pointer is how registries say where in a schema of Avro something is wrong: /fields/1/type/0.
var pointer = regexp.MustCompile(`/fields/\d+(/\w+)*`)

// withFields puts the names of fields behind the places of a schema of Avro.
func withFields(reasons []string, schema sr.Schema) []string {
	var root any
	if schema.Type != Avro || json.Unmarshal([]byte(schema.Schema), &root) != nil {
		return reasons
	}
	out := slices.Clone(reasons)
	for i, r := range out {
		out[i] = pointer.ReplaceAllStringFunc(r, func(at string) string {
			var names []string
			v := root
			for _, part := range strings.Split(at[1:], "/") {
				switch x := v.(type) {
				case map[string]any:
					v = x[part]
				case []any:
					n, err := strconv.Atoi(part)
					if err != nil || n >= len(x) {
						return at
					}
					v = x[n]
					if f, ok := v.(map[string]any); ok && f["type"] != nil {
						if name, ok := f["name"].(string); ok && f["fields"] == nil {
							names = append(names, name)
						}
					}
				default:
					return at
				}
			}
			return at + " (field " + strings.Join(names, ".") + ")"
		})
	}
	return out
}

// try calls f until it succeeds, fails for good, or patience is over.
func (c *Client) try(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pause := firstPause
	for {
		err := f(ctx)
		if err == nil || final(err) {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		if pause *= 2; pause > longestPause {
			pause = longestPause
		}
	}
}

// final says whether another attempt would end in the same way: the registry has answered and it is not its own fault.
func final(err error) bool {
	var answer *sr.ResponseError
	if !errors.As(err, &answer) {
		return false
	}
	return answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusRequestTimeout
}

func (c *Client) outside(what string, err error) error {
	var answer *sr.ResponseError
	hint := ""
	if errors.As(err, &answer) {
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			hint = "; check basic-auth.user-info or bearer-auth.token, and what the user may do"
		}
		err = fmt.Errorf("HTTP status %d: %s", answer.StatusCode, short(answer.Error()))
	}
	return &format.OutsideError{Err: fmt.Errorf("%s at the schema registry %s: %w%s", what, c.where, err, hint)}
}

// short is a text of a server, which may be a page.
func short(s string) string {
	const most = 500
	if s = strings.TrimSpace(s); len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// headerLen is the length of what stands before each message: a zero byte and the id.
const headerLen = 5

// ID is the schema's id of a message and the rest behind it.
func ID(message []byte) (id int, rest []byte, err error) {
	if len(message) < headerLen || message[0] != 0 {
		n := min(len(message), headerLen)
		return 0, nil, fmt.Errorf("the message does not begin with a zero byte and a schema id of 4 bytes but with % x: it was not written with a schema registry", message[:n])
	}
	return int(binary.BigEndian.Uint32(message[1:])), message[headerLen:], nil
}

// AppendID appends what stands before a message.
func AppendID(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(id))
}

// firstMessage is the index of the first message of a Protobuf schema.
var firstMessage = []int{0}

// mostIndexes bounds how deep a message of Protobuf may be nested in others.
const mostIndexes = 100

// Index is which message of a Protobuf schema is meant, as the indexes of the message in the file and of those nested in it,
// and the rest behind it: b is what ID gave. The slice must not be changed.
func Index(b []byte) (index []int, rest []byte, err error) {
	if len(b) > 0 && b[0] == 0 {
		return firstMessage, b[1:], nil
	}
	if index, rest, err = (&sr.ConfluentHeader{}).DecodeIndex(b, mostIndexes); err != nil {
		return nil, nil, errors.New("the indexes of the message behind the schema id are cut off or wrong")
	}
	return index, rest, nil
}

// AppendIndex appends which message of a Protobuf schema is meant.
func AppendIndex(dst []byte, index []int) []byte {
	if slices.Equal(index, firstMessage) {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(dst, int64(len(index)))
	for _, i := range index {
		dst = binary.AppendVarint(dst, int64(i))
	}
	return dst
}
