package natshold_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestLargeValues: as large as docs/backends.md says a value is taken, and one that is larger is refused with the reason.
// A range tells the revision of the newest key in it.
func TestLargeValues(t *testing.T) {
	words := string(must(os.ReadFile("../docs/backends.md"))(t))
	if !strings.Contains(words, "about 785,000 bytes") || !strings.Contains(words, "0 if there are none") {
		t.Error("docs/backends.md does not say how large a value may be, or what the revision of a Page is")
	}
	kv, ctx := open(t, services.SharedNATS(t).URL()+"/large").KV(), context.Background()
	first := must(kv.Put(ctx, "a", make([]byte, 785_000)))(t)
	if _, err := kv.Put(ctx, "b", make([]byte, 790_000)); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "base64") {
		t.Errorf("a value of 790,000 bytes: %v", err)
	}
	must(kv.Put(ctx, "c", nil))(t)
	if found, none := must(kv.Page(ctx, "a"))(t), must(kv.Page(ctx, "x"))(t); found.Revision != first || none.Revision != 0 {
		t.Errorf("pages are of the revisions %d and %d; want %d and 0", found.Revision, none.Revision, first)
	}
}
