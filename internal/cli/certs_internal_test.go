package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

// A renewed certificate that is no good, and an authority, leave what was there before in use; the
// operator is told once of each state of the files, and not of one that is right.
func TestFresh_TellsWhatIsNoGood(t *testing.T) {
	dir, ours := t.TempDir(), services.NewAuthority(t, "ours")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "first"), cert, key)
	var told []string
	own, err := newIdentity(func(err error) { told = append(told, err.Error()) }, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	good := own.get()
	put := func(text string) {
		if err := os.WriteFile(cert, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range []string{"garbage", "other garbage"} {
		put(text)
		for range 2 {
			if own.get() != good {
				t.Errorf("with %q in its place the certificate is not used any more", text)
			}
		}
		if len(told) != i+1 || !strings.Contains(told[i], cert) || !strings.Contains(told[i], "stays in use") {
			t.Errorf("of %q is told: %q", text, told)
		}
	}
	services.WritePair(t, ours.Issue(t, "second"), cert, key)
	if own.get() == good || len(told) != 2 {
		t.Errorf("a good one is in use: %v; told: %q", own.get() != good, told)
	}
	roots, err := newRoots(func(err error) { told = append(told, err.Error()) }, cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := roots.get()
	if put(""); roots.get() != pool || len(told) != 3 || !strings.Contains(told[2], "no certificate") {
		t.Errorf("without authorities is told: %q", told)
	}
}
