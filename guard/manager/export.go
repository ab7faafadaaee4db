package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/strictjson"
)

// saved is what a file of [Manager.Export] has.
type saved struct {
	Version    int             `json:"version"`
	Locks      []savedResource `json:"locks"`
	Semaphores []savedResource `json:"semaphores"`
}

type savedResource struct {
	Name      string        `json:"name"`
	Slots     int64         `json:"max_slots,omitempty"`
	Threshold int64         `json:"stale_threshold_ms,omitempty"`
	Heartbeat int64         `json:"heartbeat_ms,omitempty"`
	Holders   []savedHolder `json:"holders,omitempty"`
}

type savedHolder struct {
	ID       string         `json:"holder"`
	Metadata string         `json:"metadata,omitempty"`
	Weight   int64          `json:"weight"`
	Token    holdfast.Token `json:"token"`
}

const savedVersion = 1

// Export writes the locks and semaphores with their holders as JSON: to a file beside it
// first, which then takes its name. Stale holders are left out. No times are written: they
// would mean nothing to another process. What is there and no regular file, as a device, is not replaced; of a symbolic
// link the file that it leads to is, and one that leads nowhere is ErrInvalid. After
// [Manager.Close], or if the Space is closed, it is ErrClosed: nothing is held any more.
func (m *Manager) Export(path string) error {
	out := saved{Version: savedVersion, Locks: []savedResource{}, Semaphores: []savedResource{}}
	if err := m.collect(&out); err != nil {
		return fmt.Errorf("guard manager: export: %w", err)
	}
	for _, list := range [][]savedResource{out.Locks, out.Semaphores} {
		slices.SortFunc(list, func(a, b savedResource) int { return strings.Compare(a.Name, b.Name) })
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err == nil {
		err = replace(path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("guard manager: export: %w", err)
	}
	return nil
}

func (m *Manager) collect(out *saved) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return errClosed
	}
	for _, r := range m.locks {
		out.Locks = append(out.Locks, r.saved())
	}
	for _, r := range m.semaphores {
		out.Semaphores = append(out.Semaphores, r.saved())
	}
	if err := m.space.Ping(ended()); errors.Is(err, holdfast.ErrClosed) {
		return err // what it held until now was left out
	}
	return nil
}

func (r *resource) saved() savedResource {
	s := savedResource{Name: r.name, Slots: r.slots, Threshold: r.threshold.Milliseconds(), Heartbeat: r.heartbeat.Milliseconds()}
	for _, h := range r.list() {
		if !h.Stale {
			s.Holders = append(s.Holders, savedHolder{h.ID, h.Metadata, h.Weight, h.Token})
		}
	}
	return s
}

// replace writes a file whole or not at all.
func replace(path string, b []byte) error {
	if path == "" {
		return fmt.Errorf("no file is named: name one: %w", holdfast.ErrInvalid)
	}
	path, err := linked(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: name another, or a new one: %w", path, holdfast.ErrInvalid)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// linked is the file that a path leads to, which need not be there unless the path is a symbolic link.
func linked(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil // to make the file tells what is wrong with its directory
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%s is a symbolic link that leads to no file: remove it, or make the file: %w: %w", path, err, holdfast.ErrInvalid)
	}
	return file, nil
}

// Import makes the locks and semaphores of a file known, and takes what its holders had, those
// of one semaphore in the order of their old tokens: with new tokens, and a full threshold for
// everybody from when it returns. What the manager before still has is waited for until ctx ends,
// for all names at a time. The error names those that did not get back what they had; the others
// have it. A file that makes no sense changes nothing. After [Manager.Close] it is ErrClosed.
func (m *Manager) Import(ctx context.Context, path string) error {
	in, err := m.read(path)
	if err != nil {
		return fmt.Errorf("guard manager: import: %w", err)
	}
	if m.ctx.Err() != nil {
		return fmt.Errorf("guard manager: import: %w", errClosed)
	}
	b := newBeats(ctx)
	defer b.stop()
	var each []func() error
	for i, list := range in.lists() {
		for _, s := range list {
			each = append(each, func() error { return m.restore(ctx, m.lists()[i], &s, b) })
		}
	}
	return together(each)
}

// lists are the locks and the semaphores.
func (in *saved) lists() [2][]savedResource { return [...][]savedResource{in.Locks, in.Semaphores} }

func (m *Manager) lists() [2]map[string]*resource {
	return [...]map[string]*resource{m.locks, m.semaphores}
}

// together runs all at a time and joins their errors in order.
func together(all []func() error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, f := range all {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *savedResource) resource() resource {
	return resource{name: s.Name, slots: s.Slots, threshold: time.Duration(s.Threshold) * time.Millisecond, heartbeat: time.Duration(s.Heartbeat) * time.Millisecond}
}

// read reads a file and checks all of it.
func (m *Manager) read(path string) (in saved, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return in, err
	}
	if err := strictjson.Unmarshal(b, &in); err != nil {
		return in, fmt.Errorf("%s: %w: %w", path, err, holdfast.ErrInvalid)
	}
	if in.Version != savedVersion {
		return in, fmt.Errorf("%s has the version %d, not %d: %w", path, in.Version, savedVersion, holdfast.ErrInvalid)
	}
	names := map[string]bool{}
	for i, list := range in.lists() {
		for _, s := range list {
			if err := m.check(&s, names, i == 1); err != nil {
				return in, fmt.Errorf("%s: %q: %w", path, s.Name, err)
			}
		}
	}
	return in, nil
}

// check refuses what restore could not do, whatever others hold.
func (m *Manager) check(s *savedResource, names map[string]bool, semaphore bool) error {
	const most = int64(math.MaxInt64 / time.Millisecond)
	switch {
	case names[s.Name]:
		return fmt.Errorf("the name is there twice: %w", holdfast.ErrInvalid)
	case semaphore != (s.Slots > 0) || s.Slots < 0:
		return fmt.Errorf("it has %d slots: %w", s.Slots, holdfast.ErrInvalid)
	case s.Threshold > most || s.Heartbeat > most:
		return fmt.Errorf("a threshold of %d ms or a heartbeat each %d ms is too long: %w", s.Threshold, s.Heartbeat, holdfast.ErrInvalid)
	}
	names[s.Name] = true
	r := s.resource()
	if err := m.settle(&r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.clash(&r); err != nil {
		return err
	}
	return s.checkHolders()
}

// checkHolders: there is room for all of them, and they have names of their own.
func (s *savedResource) checkHolders() error {
	room, names := max(s.Slots, 1), map[string]bool{}
	for _, h := range s.Holders {
		if h.ID == "" || names[h.ID] || h.Weight < 1 || h.Weight > room {
			return fmt.Errorf("the holder %q of weight %d has no name or no place: %w", h.ID, h.Weight, holdfast.ErrInvalid)
		}
		names[h.ID] = true
		room -= h.Weight
	}
	return nil
}

func (m *Manager) restore(ctx context.Context, list map[string]*resource, s *savedResource, b *beats) error {
	if err := m.ensure(list, s.resource()); err != nil {
		return err
	}
	slices.SortFunc(s.Holders, func(a, b savedHolder) int { return cmp.Compare(a.Token, b.Token) })
	var errs []error
	for _, h := range s.Holders {
		if _, err := m.acquire(ctx, list, s.Name, h.ID, h.Metadata, h.Weight, b); err != nil {
			errs = append(errs, fmt.Errorf("guard manager: %q did not get %q back: %w", h.ID, s.Name, err))
		}
	}
	return errors.Join(errs...)
}
