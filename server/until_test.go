package server_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// A node that cannot apply an entry does not start, and says the entry, the reason and
// the command that leads past it; that command does.
func TestEntryThatCannotBeApplied(t *testing.T) {
	dir := t.TempDir()
	s := start(t, server.Config{Dir: dir})
	c := newClient(t, 1, func() []*server.Server { return []*server.Server{s} })
	for range 10 {
		c.do(add())
	}
	s.Close()
	store, rec, err := storage.Open(storage.OS{}, dir, storage.Options{ClusterID: 1, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	hs, index := rec.HardState, rec.Last+1
	hs.Commit = index
	if err := store.Append(storage.Batch{HardState: hs, Entries: []storage.Entry{{Index: index, Term: hs.Term, Data: []byte{1, 1, 99}}}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = server.New(server.Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("log entry %d", index)) || !strings.Contains(err.Error(), "holdfast snapshot restore "+dir+" --until ") {
		t.Fatalf("the node says: %v", err)
	}
	until, _ := strconv.ParseUint(regexp.MustCompile(`--until (\d+)`).FindStringSubmatch(err.Error())[1], 10, 64)
	anew := filepath.Join(t.TempDir(), "new")
	began, err := server.Restore(dir, server.Anew{Dir: anew, Until: until})
	if err != nil || began.From.Index != index-1 {
		t.Fatalf("it began as %+v, %v", began, err)
	}
	s = start(t, server.Config{Dir: anew})
	if r := newClient(t, 2, func() []*server.Server { return []*server.Server{s} }).do(add()); r.Number != 11 {
		t.Errorf("the counter is %d, want 11", r.Number)
	}
}
