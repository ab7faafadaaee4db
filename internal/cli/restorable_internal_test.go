package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// "64: the command line or a setting makes no sense; nothing was done": so it is with what a restore
// could never do.
func TestRestorable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		path   string
		anew   server.Anew
		ofNode bool
		bad    bool
	}{
		"a backup":                      {path: file},
		"a node":                        {path: dir, ofNode: true},
		"nothing":                       {path: filepath.Join(dir, "missing")},
		"both addresses":                {path: file, anew: server.Anew{Peer: "10.0.0.1:7421", Client: "10.0.0.1:7420"}},
		"a negative wait":               {path: file, anew: server.Anew{Wait: -time.Second}, bad: true},
		"a client address alone":        {path: file, anew: server.Anew{Client: "10.0.0.1:7420"}, bad: true},
		"an address of all the machine": {path: file, anew: server.Anew{Peer: "0.0.0.0:7421"}, bad: true},
		"one address for both":          {path: file, anew: server.Anew{Peer: "10.0.0.1:7421", Client: "10.0.0.1:7421"}, bad: true},
		"a backup as a node":            {path: file, ofNode: true, bad: true},
		"a node as a backup":            {path: dir, bad: true},
		"no file as a backup":           {path: os.DevNull, bad: true},
		"no file as a node":             {path: os.DevNull, ofNode: true, bad: true},
	}
	for what, c := range cases {
		err := restorable(c.path, &c.anew, c.ofNode)
		f, ok := errors.AsType[*failure](err)
		if (err != nil) != c.bad || c.bad && (!ok || f.code != exitUsage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// So it is with a place where no cluster can begin, and with one in the directory that is read, which
// stays as it is.
func TestVacant(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for where, ok := range map[string]bool{t.TempDir(): true, filepath.Join(t.TempDir(), "new"): true, "": false, file: false, dir: false, filepath.Join(dir, "new"): false} {
		f, refused := errors.AsType[*failure](vacant(where, dir))
		if refused == ok || refused && (f.code != exitUsage || f.hint == "") {
			t.Errorf("%q: %v", where, f)
		}
	}
}

// A pipe, which would be waited for, is refused as what is checked or restored.
func TestSnapshot_NoFile(t *testing.T) {
	new := filepath.Join(t.TempDir(), "new")
	for _, args := range [][]string{{"snapshot", "verify", os.DevNull}, {"snapshot", "restore", os.DevNull, "--data", new}} {
		if code, said := runApp(t, t.TempDir(), args...); code != exitUsage || !strings.Contains(said, "neither a file nor a directory") {
			t.Errorf("%v: %d: %s", args, code, said)
		}
	}
}

// A check tells as many bytes as the save, those of the file.
func TestSnapshot_Bytes(t *testing.T) {
	dir := t.TempDir()
	node, err := server.New(server.Config{Dir: dir})
	if err == nil {
		err = node.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "snap-0000000000000001")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if code, said := runApp(t, t.TempDir(), "snapshot", "verify", file); code != 0 || !strings.Contains(said, fmt.Sprintf("is whole: %d bytes", info.Size())) {
		t.Errorf("%d: %s, the file has %d bytes", code, said, info.Size())
	}
}

// backups is a node from which one piece of a backup comes.
type backups struct {
	pb.AdminServiceClient
	grpc.ServerStreamingClient[pb.BackupResponse]
}

func (b backups) Backup(context.Context, *pb.BackupRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.BackupResponse], error) {
	return b, nil
}

func (backups) Recv() (*pb.BackupResponse, error) {
	return &pb.BackupResponse{Piece: []byte("piece")}, nil
}

// A disk that does not take the backup is told as such, with what to do about it.
func TestSnapshot_Unsaved(t *testing.T) {
	full, err := os.Open(os.DevNull) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	p, cancel := (&app{timeout: time.Minute}).patience(t.Context())
	defer cancel()
	_, err = fetch(p, backups{}, full)
	if f, ok := errors.AsType[*failure](err); !ok || f.code != exitFailed || !strings.Contains(f.hint, "name a file elsewhere") {
		t.Errorf("%v", err)
	}
}

// So it is with a file that another has saved meanwhile: it stays as it is.
func TestSnapshot_Taken(t *testing.T) {
	dir := t.TempDir()
	file, saved := filepath.Join(dir, "backup"), filepath.Join(dir, "saved")
	for name, text := range map[string]string{file: "of another", saved: "of this"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if f, ok := errors.AsType[*failure](rename(saved, file)); !ok || f.code != exitUsage {
		t.Errorf("the slower one is told %v", f)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "of another" {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// Of a directory in which a restore was cut off both a check and a start say that the restore is to
// be given again, and nothing of ways that lead nowhere from there.
func TestRestore_CutOffIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "unfinished"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, said := runApp(t, t.TempDir(), "snapshot", "verify", dir)
	if code != exitNo || !strings.Contains(said, "holdfast snapshot restore again") || strings.Contains(said, "--accept-loss") {
		t.Errorf("verify: %d: %s", code, said)
	}
	code, said = runApp(t, t.TempDir(), "serve", "--data", dir, "--listen", "127.0.0.1:0")
	if code != exitFailed || !strings.Contains(said, "the command is holdfast snapshot restore") {
		t.Errorf("serve: %d: %s", code, said)
	}
}

// What could not be read of a damaged node, and is not in what was restored, is told.
func TestRestore_TellsTheLoss(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	node, err := server.New(server.Config{Dir: dir})
	if err == nil {
		err = node.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log-0000000000000001")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	b[len(bytes.TrimRight(b, "\x00"))*3/4] ^= 1
	if err := os.WriteFile(log, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ends := regexp.MustCompile(`the last that is taken is log entry \d+, revision \d+: all that was behind it .* is left out`)
	code, said := runApp(t, t.TempDir(), "snapshot", "restore", dir, "--accept-loss", "--data", filepath.Join(t.TempDir(), "new"))
	if code != 0 || !strings.Contains(said, "DAMAGE: ") || !strings.Contains(said, filepath.Base(log)) || !ends.MatchString(said) {
		t.Errorf("%d: %s", code, said)
	}
}

// A time between two state checks that makes no sense is refused.
func TestServe_CheckEvery(t *testing.T) {
	for every, ok := range map[time.Duration]bool{0: false, time.Millisecond: false, -time.Minute: false, time.Second: true} {
		_, err := (&serving{data: t.TempDir(), checkEvery: every}).node()
		if f, bad := errors.AsType[*failure](err); bad == ok || bad && (f.code != exitUsage || !strings.Contains(f.hint, "--check-every at least 1s")) {
			t.Errorf("%s: %v", every, err)
		}
	}
}
