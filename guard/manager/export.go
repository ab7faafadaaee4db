package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
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
// would mean nothing to another process.
func (m *Manager) Export(path string) error {
	out := saved{Version: savedVersion, Locks: []savedResource{}, Semaphores: []savedResource{}}
	m.mu.Lock()
	for _, r := range m.locks {
		out.Locks = append(out.Locks, r.saved())
	}
	for _, r := range m.semaphores {
		out.Semaphores = append(out.Semaphores, r.saved())
	}
	m.mu.Unlock()
	for _, list := range [][]savedResource{out.Locks, out.Semaphores} {
		slices.SortFunc(list, func(a, b savedResource) int { return compare(a.Name, b.Name) })
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

func compare(a, b string) int {
	if a < b {
		return -1
	}
	return 1
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

// Import makes the locks and semaphores of a file known, and takes what its holders had,
// in the order of their old tokens: with new tokens, and a full threshold for everybody.
// What the manager before still has is waited for until ctx ends. The error names those
// that did not get back what they had; the others have it. A file that makes no sense
// changes nothing.
func (m *Manager) Import(ctx context.Context, path string) error {
	in, err := m.read(path)
	if err != nil {
		return fmt.Errorf("guard manager: import: %w", err)
	}
	var errs []error
	for _, list := range []struct {
		of   []savedResource
		into map[string]*resource
	}{{in.Locks, m.locks}, {in.Semaphores, m.semaphores}} {
		for _, s := range list.of {
			errs = append(errs, m.restore(ctx, list.into, &s))
		}
	}
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
	if err := json.Unmarshal(b, &in); err != nil {
		return in, fmt.Errorf("%s: %w: %w", path, err, fs.ErrInvalid)
	}
	if in.Version != savedVersion {
		return in, fmt.Errorf("%s has the version %d, not %d: %w", path, in.Version, savedVersion, fs.ErrInvalid)
	}
	for i, s := range slices.Concat(in.Locks, in.Semaphores) {
		r := s.resource()
		if err := m.settle(&r); err != nil {
			return in, fmt.Errorf("%s: %w", path, err)
		}
		if semaphore := i >= len(in.Locks); semaphore != (s.Slots > 0) {
			return in, fmt.Errorf("%s: %q has %d slots: %w", path, s.Name, s.Slots, fs.ErrInvalid)
		}
	}
	return in, nil
}

func (m *Manager) restore(ctx context.Context, list map[string]*resource, s *savedResource) error {
	if err := m.ensure(list, s.resource()); err != nil {
		return err
	}
	slices.SortFunc(s.Holders, func(a, b savedHolder) int { return int(int64(a.Token) - int64(b.Token)) })
	var errs []error
	for _, h := range s.Holders {
		if _, err := m.acquire(ctx, list, s.Name, h.ID, h.Metadata, h.Weight, true); err != nil {
			errs = append(errs, fmt.Errorf("guard manager: %q did not get %q back: %w", h.ID, s.Name, err))
		}
	}
	return errors.Join(errs...)
}
