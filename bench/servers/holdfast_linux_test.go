package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	_ "github.com/holdfast-io/holdfast/remote"
)

// build compiles a program of a module and returns its path.
func build(t *testing.T, module, pkg string) string {
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-C", module, "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// ours is Holdfast's server, of one node or more.
type ours struct {
	nodes []*services.Process
	url   string
	admin string // of the first
}

// startOurs runs a node or a group as an operator would: each a process, on a
// directory of its own, everything else at its default.
func startOurs(t *testing.T, program string, size int) *ours {
	listen, members := make([]string, size), make([]string, size)
	peers := make([]string, size)
	for i := range size {
		listen[i], peers[i] = services.Addr(t), services.Addr(t)
		members[i] = fmt.Sprintf("%d=%s/%s", i+1, peers[i], listen[i])
	}
	o := &ours{url: "holdfast://" + strings.Join(listen, ","), admin: services.Addr(t)}
	for i := range size {
		o.nodes = append(o.nodes, services.Start(t, "holdfast", listen[i], func(dir string) *exec.Cmd {
			cmd := exec.Command(program, "serve", "--data", filepath.Join(dir, "data"), "--listen", listen[i])
			if size > 1 {
				cmd.Args = append(cmd.Args, "--id", fmt.Sprint(i+1), "--peer", peers[i], "--members", strings.Join(members, ","))
			}
			if i == 0 {
				cmd.Args = append(cmd.Args, "--admin", o.admin)
			}
			cmd.Env = []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "PATH=" + os.Getenv("PATH")}
			return cmd
		}))
	}
	return o
}

func (o *ours) meter() meter { return metering(o.nodes...) }

// space is a program of its own: one connection.
func (o *ours) space(t *testing.T) *holdfast.Space {
	s, err := holdfast.Open(t.Context(), o.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (o *ours) spaces(t *testing.T, n int) []*holdfast.Space {
	all := make([]*holdfast.Space, n)
	for i := range all {
		all[i] = o.space(t)
	}
	return all
}

func held(ctx context.Context, s *holdfast.Space, name string) lock {
	m := s.Mutex(name)
	return func() (func() error, error) {
		h, err := m.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return h.Release, nil
	}
}

// pairs are callers with names of their own, sixteen on each connection.
func (o *ours) pairs(t *testing.T, callers int) turn {
	spaces := o.spaces(t, connections(callers))
	return each(many(callers, func(i int) func() error {
		return pair(held(t.Context(), spaces[i/perConnection], fmt.Sprint("pair-", i)))
	}), o.meter())
}

// crowd are callers that want one name, each on a connection of its own.
func (o *ours) crowd(t *testing.T, callers int) turn {
	spaces := o.spaces(t, callers)
	return handOver(many(callers, func(i int) lock {
		return held(t.Context(), spaces[i], fmt.Sprint("crowd-", callers))
	}), o.meter())
}

func (o *ours) counter(t *testing.T, callers int) turn {
	spaces := o.spaces(t, connections(callers))
	return each(many(callers, func(i int) func() error {
		c := spaces[i/perConnection].Counter("hot")
		return func() error { _, err := c.Add(t.Context(), 1); return err }
	}), o.meter())
}

// fan are watchers of one key, a hundred on each connection.
func (o *ours) fan(t *testing.T, watchers int) turn {
	ctx, fail := context.WithCancelCause(t.Context())
	t.Cleanup(func() { fail(nil) })
	f, ready := newFan(watchers), make(chan struct{}, watchers)
	for _, s := range o.spaces(t, watchers/perFeed) {
		for range perFeed {
			go func() { fail(follow(ctx, s, f, ready)) }()
		}
	}
	await(t, ctx, ready, watchers)
	keys, value := o.space(t).KV(), make([]byte, valueSize)
	return f.turn(ctx, func() error { _, err := keys.Put(ctx, "watched", value); return err }, o.meter())
}

// follow tells f about the events of the key, until ctx ends or one is missing.
func follow(ctx context.Context, s *holdfast.Space, f *fan, ready chan<- struct{}) error {
	n := 0
	for ev, err := range s.Watch(ctx, "watched", 0, holdfast.ExactName()) {
		switch {
		case err != nil:
			return err
		case ev.Kind == "watch" && ev.Verb == "ready":
			ready <- struct{}{}
		case ev.KV != nil:
			f.saw(n)
			n++
		default:
			return fmt.Errorf("a watcher was told %v", ev)
		}
	}
	return ctx.Err()
}
