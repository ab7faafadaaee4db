//go:build unix

package services

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

const (
	superuser   = "holdfast"
	clusterName = "cluster" // directory of a cluster in the server's directory
)

// patternMu keeps a second server from making the pattern at the same time.
var patternMu sync.Mutex

// copyCluster makes a fresh cluster from a pattern. The pattern is made by
// initdb once per scratch directory and lives in it.
func copyCluster(bin, cluster string, as *syscall.Credential) error {
	pattern, err := clusterPattern(bin, as)
	if err != nil {
		return err
	}
	return runAs(as, "cp", "-a", pattern, cluster)
}

func clusterPattern(bin string, as *syscall.Credential) (string, error) {
	patternMu.Lock()
	defer patternMu.Unlock()
	root, err := scratchDir()
	if err != nil {
		return "", err
	}
	pattern := filepath.Join(root, "pattern")
	if _, err := os.Stat(pattern); err == nil {
		return filepath.Join(pattern, clusterName), nil
	}
	unfinished, err := ownedDir("unfinished-", as)
	if err != nil {
		return "", err
	}
	err = runAs(as, filepath.Join(bin, "initdb"), "-D", filepath.Join(unfinished, clusterName),
		"-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err != nil {
		err = fmt.Errorf("make a PostgreSQL cluster: %w\n(if access was denied: set TMPDIR to a directory open to all users)", err)
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return filepath.Join(pattern, clusterName), os.Rename(unfinished, pattern)
}

func runAs(as *syscall.Credential, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.SysProcAttr = "/", attributes(as)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// unprivileged returns the user that runs PostgreSQL and PgBouncer, which
// refuse to run as root. It is nil, for this user, when this is not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("find a user to run PostgreSQL as, which refuses to run as root: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// freeSharedMemory removes the System V segment which a PostgreSQL that was
// killed leaves in the kernel. Its id is the second field of the seventh line of
// the server's status; a server that ended in order removed both. Failure is
// harmless: a segment is 56 bytes.
func freeSharedMemory(cluster string) {
	status, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return
	}
	lines := bytes.Split(status, []byte("\n"))
	if len(lines) < 7 {
		return
	}
	if fields := bytes.Fields(lines[6]); len(fields) == 2 {
		_ = exec.Command("ipcrm", "-m", string(fields[1])).Run()
	}
}
