package near

import "testing"

func TestWordFindsWhatWasMeant(t *testing.T) {
	words := []string{"SELECT", "FROM", "WHERE", "GROUP"}
	for word, want := range map[string]string{"SELEC": "SELECT", "form": "FROM", "WEHRE": "WHERE", "GRUOP": "GROUP", "xyz": "", "FOO": ""} {
		if got, _ := Word(word, words); got != want {
			t.Errorf("%s gives %q, not %q", word, got, want)
		}
	}
}
