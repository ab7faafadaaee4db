package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// smallDisk is a directory on a disk that can be filled to the last byte, and the flags of
// a node that has its data there. Where nothing may be mounted it is a directory whose
// disk has little more free than the node's reserve.
func smallDisk(t *testing.T) (dir string, flags []string, fill, free func()) {
	t.Helper()
	dir = t.TempDir()
	filler := filepath.Join(dir, "filler")
	free = func() { _ = os.Remove(filler) }
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err == nil {
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		return dir, []string{"--reserve", "16MiB"}, func() { allocate(t, filler, 1<<20) }, free
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	const spare = 512 << 20
	reserve := int64(st.Bavail)*int64(st.Bsize)/1024 - spare/1024
	return dir, []string{"--reserve", fmt.Sprintf("%dKiB", reserve)}, func() { allocate(t, filler, 2*spare) }, free
}

// allocate takes space, size bytes at a time on a small disk until there is none.
func allocate(t *testing.T, name string, size int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for off := int64(0); err == nil && (size == 1<<20 || off == 0); off += size {
		err = syscall.Fallocate(int(f.Fd()), 0, off, size)
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// The disk of the leader, of another node, of all nodes is filled by something else: nobody
// loses a hold, what frees something is taken, and everything soon after there is room. How soon
// is judged by server.TestFullDisk, in fake time.
func TestGroup_FullDisk(t *testing.T) {
	t.Parallel() // it waits for TTLs
	nodes, _, hosts := group(t, t.TempDir(), 3)
	var fills, frees []func()
	for _, n := range nodes {
		dir, flags, fill, free := smallDisk(t)
		n.args[slices.Index(n.args, "--data")+1] = filepath.Join(dir, "data")
		n.args = append(n.args, flags...)
		fills, frees = append(fills, fill), append(frees, free)
		n.start()
		t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	}
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "1")
	for _, which := range []string{"leader", "follower", "all"} {
		at := leaderOf(t, url, hosts)
		full := map[string][]int{"leader": {at}, "follower": {(at + 1) % 3}, "all": {0, 1, 2}}[which]
		s, err := holdfast.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		kept, given := held(t, s, "kept "+which), held(t, s, "given "+which)
		for _, i := range full {
			fills[i]()
		}
		if which != "follower" {
			refusedSoon(t, which, s)
		}
		if err := given.Release(); err != nil {
			t.Errorf("%s full: a release: %v", which, err)
		}
		if n, err := s.Counter("n").Load(t.Context()); err != nil || n < 1 {
			t.Errorf("%s full: a read: %d, %v", which, n, err)
		}
		select {
		case <-time.After(10 * time.Second): // more than its TTL
		case <-kept.Done():
			t.Errorf("%s full: a hold was lost: %v", which, kept.Err())
		}
		for _, i := range full {
			frees[i]()
		}
		room := time.Now()
		back(t, s)
		t.Logf("proof: disk of %s full to the last byte: served %s after there was room", which, time.Since(room).Round(time.Millisecond))
		if err := kept.Release(); err != nil {
			t.Errorf("%s full: what was held all the time: %v", which, err)
		}
		s.Close()
	}
}

func held(t *testing.T, s *holdfast.Space, name string) *holdfast.Hold {
	t.Helper()
	h, err := s.Mutex(name, holdfast.TTL(9*time.Second)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// refusedSoon waits until nothing new is taken.
func refusedSoon(t *testing.T, which string, s *holdfast.Space) {
	t.Helper()
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		_, err := s.Counter("n").Add(t.Context(), 1)
		e, _ := errors.AsType[*holdfast.Error](err)
		switch {
		case errors.Is(err, holdfast.ErrExhausted) && holdfast.NotDone(err) && e.RetryAfter > 0:
			return
		case err != nil || time.Since(began) > time.Minute:
			t.Fatalf("%s full: a count: %v", which, err)
		}
	}
}

// back waits until everything is taken again.
func back(t *testing.T, s *holdfast.Space) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Counter("n").Add(ctx, 1)
	for errors.Is(err, holdfast.ErrExhausted) && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
		_, err = s.Counter("n").Add(ctx, 1)
	}
	if err != nil {
		t.Errorf("a minute after there was room: %v", err)
	}
}
