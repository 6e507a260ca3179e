package checkpoint

import (
	"context"
	"errors"
	"strings"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// aligned is the blob that a subtask makes when it has the state in hand that a savepoint wants of it.
type aligned struct {
	Format    int    `json:"format"`
	Savepoint string `json:"savepoint"`
	Subtask   string `json:"subtask"`
	Epoch     uint64 `json:"epoch"`
	Owner     string `json:"owner"`
}

// alignedName is the last part of its key. The id is in it, so that a late one is nothing to a savepoint that has got the
// name since.
func alignedName(id string) string { return "aligned-" + id }

// Align says that a subtask has the state in hand, as of epoch, and will write it. It may be repeated. Errors: those of
// the blob store.
func (s *Savepoints) Align(ctx context.Context, sp *Savepoint, subtask string, epoch uint64, owner string) error {
	data, err := seal("aligned", &aligned{Format, sp.ID, subtask, epoch, owner})
	if err != nil {
		return s.fault("align subtask "+subtask+" with", sp.Name, err)
	}
	err = s.blobs.Create(ctx, s.prefix(sp.Name)+"/"+subtask+"/"+alignedName(sp.ID), data)
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return s.fault("align subtask "+subtask+" with", sp.Name, err)
	}
	return nil
}

// Progress are the subtasks of a running savepoint that are aligned, and those that have written their state so far; who
// has written it is aligned too.
func (s *Savepoints) Progress(ctx context.Context, sp *Savepoint) (alignedSubtasks, written map[string]bool, err error) {
	alignedSubtasks, written = map[string]bool{}, map[string]bool{}
	prefix := s.prefix(sp.Name) + "/"
	for info, err := range s.blobs.List(ctx, prefix) {
		if err != nil {
			return nil, nil, s.fault("look at", sp.Name, err)
		}
		subtask, last, _ := strings.Cut(strings.TrimPrefix(info.Key, prefix), "/")
		switch last {
		case alignedName(sp.ID):
			alignedSubtasks[subtask] = true
		case "manifest":
			alignedSubtasks[subtask], written[subtask] = true, true
		}
	}
	return alignedSubtasks, written, nil
}
