package statestore

import "fmt"

// CanRead reports whether values that were written by a codec of schema was can be read by one of schema now (see
// Spec.ValType); the error names what does not fit. It follows the rules by which CodecOf reads older schemas: fields
// are matched by name, integers and floats may grow, a field that is new is zero, one that is gone is ignored.
func CanRead(now, was string) error {
	if now == was {
		return nil
	}
	w, err := parseSchema(was)
	if err != nil {
		return err
	}
	n, err := parseSchema(now)
	if err != nil {
		return err
	}
	return canRead(n, w, "")
}

func canRead(now, was *wireType, path string) error {
	mismatch := func() error {
		if path == "" {
			return fmt.Errorf("stored as %s, and is now %s", was, now)
		}
		return fmt.Errorf("field %s: stored as %s, and is now %s: give the new field another name", path[1:], was, now)
	}
	wider := was.kind <= now.kind && (was.kind >= kindInt8 && now.kind <= kindInt64 || was.kind >= kindUint8 && now.kind <= kindUint64) ||
		was.kind == kindFloat32 && now.kind == kindFloat64
	if now.kind != was.kind {
		if !wider {
			return mismatch()
		}
		return nil
	}
	switch now.kind {
	case kindStruct:
		for _, wf := range was.fields {
			for _, nf := range now.fields {
				if nf.name != wf.name {
					continue
				}
				if err := canRead(nf.typ, wf.typ, path+"."+wf.name); err != nil {
					return err
				}
			}
		}
	case kindSlice, kindPointer:
		return canRead(now.elem, was.elem, path+".[]")
	case kindArray:
		if now.n != was.n {
			return mismatch()
		}
		return canRead(now.elem, was.elem, path+".[]")
	case kindMap:
		if err := canRead(now.key, was.key, path+".[key]"); err != nil {
			return err
		}
		return canRead(now.elem, was.elem, path+".[]")
	case kindBinary:
		if now.name != was.name {
			return mismatch()
		}
	}
	return nil
}
