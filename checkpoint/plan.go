package checkpoint

import "slices"

// content is what makes two files equal.
type content struct {
	hash Hash
	size int64
}

// local is a file of a snapshot with its hash, and its contents if it is small.
type local struct {
	name string
	content
	data []byte // nil: it goes into a blob
}

// planUpload decides which files of a snapshot have to be uploaded. have are the blobs that the new manifest may name
// though it did not upload them; a new blob belongs to the attempt. It returns the files for the manifest, sorted by name,
// and for each blob to upload one file that has its contents.
func planUpload(files []local, have map[content]string, attempt string) (all, missing []File) {
	planned := map[content]string{}
	for _, f := range files {
		entry := File{Name: f.name, Size: f.size, SHA256: f.hash}
		switch name, ok := have[f.content]; {
		case f.data != nil:
			entry.Data = f.data
		case ok:
			entry.Blob = name
		case planned[f.content] != "":
			entry.Blob = planned[f.content]
		default:
			entry.Blob = blobName(f.hash, attempt)
			planned[f.content] = entry.Blob
			missing = append(missing, entry)
		}
		all = append(all, entry)
	}
	slices.SortFunc(all, func(a, b File) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	return all, missing
}
