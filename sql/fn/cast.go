package fn

import (
	"fmt"

	"github.com/millrace-stream/millrace/row"
)

// Cast makes the closure of CAST(a AS t), or of TRY_CAST, which gives NULL where CAST fails. An error means that there is
// no such cast.
func Cast(env *Env, a Code, t *row.Type, try bool) (Code, error) {
	if err := Castable(a.Type, t); err != nil {
		return Code{}, err
	}
	return Code{}, fmt.Errorf("not yet")
}
