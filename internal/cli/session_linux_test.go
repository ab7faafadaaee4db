package cli_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

// A session that another ends takes its command with it, and what it held is free;
// in its own namespace only.
func TestSessionRevoke(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	url := "holdfast://" + addr + "/team"
	holder := program(t, dir, "--url", url, "lock", "--owner", "ann", "x", "--", "sh", "-c", "echo up; exec sleep 1000")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("the command says %q, %v", line, err)
	}
	var seen []struct{ ID, Owner string }
	if text := does(t, url, "--json", "session", "ls"); json.Unmarshal([]byte(text), &seen) != nil || len(seen) != 1 || seen[0].Owner != "ann" {
		t.Fatalf("the sessions are %s", text)
	}
	other := program(t, dir, "--url", "holdfast://"+addr+"/other", "session", "revoke", seen[0].ID)
	if text, err := other.CombinedOutput(); err == nil {
		t.Errorf("a session of another namespace is ended: %s", text)
	}
	if text := does(t, url, "session", "revoke", seen[0].ID); !strings.Contains(text, "session "+seen[0].ID+" is ended") {
		t.Errorf("revoke says %s", text)
	}
	if e, ok := errors.AsType[*exec.ExitError](holder.Wait()); !ok || e.ExitCode() != 76 {
		t.Errorf("the holder ends with %v, want 76", e)
	}
	does(t, url, "lock", "x", "--", "true")
}

// Where there are as many sessions as a server takes, the operator sees them, those that only
// have keys too, and ends one.
func TestSessionsAtTheirQuota(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr, "--max-sessions", "2"}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	url := "holdfast://" + addr + "/team"
	keeper := program(t, dir, "--url", url, "session", "keep", "--put", "services/a=1")
	out, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := bufio.NewReader(out).ReadString('\n')
	if id = strings.TrimSpace(id); err != nil {
		t.Fatalf("the keeper says %q, %v", id, err)
	}
	for _, args := range [][]string{{"session", "ls"}, {"session", "ls", "services/"}} {
		if text := does(t, url, args...); !strings.Contains(text, id) || !strings.Contains(text, "services/a") {
			t.Errorf("%v says %s, without %s", args, text, id)
		}
	}
	if text := does(t, url, "session", "ls", "other/"); strings.Contains(text, id) {
		t.Errorf("of another prefix it says %s", text)
	}
	does(t, url, "session", "revoke", "--now", id)
	if err := keeper.Wait(); err == nil {
		t.Error("the keeper of the session that was ended knows nothing of it")
	}
	does(t, url, "lock", "x", "--", "true")
}

// A session that is kept ends when its keeper is told to stop, or when another ends
// it, which the keeper tells; its keys are gone then.
func TestSessionKeep(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	url := "holdfast://" + addr
	for _, end := range []struct {
		how  func(keeper *exec.Cmd, id string)
		code int
		says string
	}{
		{func(keeper *exec.Cmd, _ string) { _ = keeper.Process.Signal(syscall.SIGTERM) }, 0, ""},
		{func(_ *exec.Cmd, id string) { does(t, url, "session", "revoke", id) }, 76, "is over"},
	} {
		keeper := program(t, dir, "--url", url, "session", "keep", "--put", "k=v")
		var said strings.Builder
		keeper.Stderr = &said
		out, err := keeper.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := keeper.Start(); err != nil {
			t.Fatal(err)
		}
		id, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if value := does(t, url, "kv", "get", "k"); value != "v" {
			t.Errorf("the key is %q", value)
		}
		end.how(keeper, strings.TrimSpace(id))
		_ = keeper.Wait()
		if code := keeper.ProcessState.ExitCode(); code != end.code || !strings.Contains(said.String(), end.says) {
			t.Errorf("the keeper ends with %d, want %d: %s", code, end.code, said.String())
		}
		if text, err := program(t, dir, "--url", url, "kv", "get", "k").CombinedOutput(); err == nil {
			t.Errorf("the key is still there: %s", text)
		}
	}
}
