// Package checkpoint keeps the state of subtasks in object storage, and decides how to get it back.
//
// A checkpoint is the files of one store at one epoch, and a manifest that names them. Files are blobs named by their
// contents, so that only new ones are uploaded; the manifest is written last, by a conditional create, and only a
// checkpoint whose manifest can be read exists. It accelerates a restore, and is never the truth: that is the changelog,
// whose tail is read after it. A savepoint belongs to the user: it is complete in itself, its format is portable between
// stores and their versions, and nothing here removes it unless told to.
//
// Layout, all below "<app id>/":
//
//	<incarnation>/<subtask>/manifests/<epoch, 20 digits>
//	<incarnation>/<subtask>/blobs/<SHA-256>-<attempt>
//	savepoints/<name>/begin, savepoints/<name>/manifest
//	savepoints/<name>/<subtask>/manifest, savepoints/<name>/<subtask>/<SHA-256>-<attempt>
//
// docs/checkpoints.md describes every byte.
//
// # Why garbage collection is safe, also beside a zombie
//
// Blobs are deleted that no manifest names. The danger is a publisher that found a blob there, and whose manifest names it
// when it is gone. Nothing can lock a publisher out of a bucket that has lost its subtask and does not know it yet. So:
//
//   - A blob's name ends with the upload attempt that made it. No two attempts make the same blob, and what was deleted
//     never comes back.
//   - A publisher names only blobs that the newest manifest names, which it listed in this attempt, or that it uploaded itself.
//     It writes its manifest within the time-out of its attempt (and of the uploads it takes over from a failed attempt), or
//     not at all.
//   - A manifest is deleted the grace time after it was seen to have Retain newer ones, a blob the grace time after it was
//     seen without a manifest that names it, and only if it is still so. The grace time is longer than the attempt's
//     time-out and the time by which a listing may lag behind.
//
// Say that a blob has no manifest in two listings with the grace time between. An attempt that uploaded it began before
// the first listing, or it would not have been listed; it has ended. An attempt that found it in a manifest, which was the
// newest one then: that manifest stays visible longer than the attempt lasts, so one of both is in the second listing, or the
// attempt began after it and the manifest it read was itself written later. Going back along these, the first of
// them contradicts one of the two cases. So the blob is never named again, and may be deleted at any later time, by anybody.
// Deleting waits for one more thing, that the subtask has committed an epoch since the second listing: whoever can commit
// owns the subtask, and a zombie deletes nothing.
package checkpoint
