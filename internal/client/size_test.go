package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
)

// spaces are one on each engine.
func spaces(t *testing.T) map[string]*holdfast.Space {
	t.Helper()
	node, err := server.New(server.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	svc, rpc := api.New(node), grpc.NewServer()
	svc.Register(rpc)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = rpc.Serve(ln) }()
	t.Cleanup(func() { rpc.Stop(); svc.Close(); node.Close() })
	all := map[string]*holdfast.Space{}
	for name, open := range map[string]func() (*holdfast.Space, error){
		"memory":   func() (*holdfast.Space, error) { return memhold.Open(), nil },
		"embedded": func() (*holdfast.Space, error) { return node.Space() },
		"remote": func() (*holdfast.Space, error) {
			return remote.Open(remote.Config{Endpoints: []string{ln.Addr().String()}})
		},
	} {
		if all[name], err = open(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// What makes no sense to a machine is refused at once, and the Space goes on: sent, it
// would be refused as a whole frame, with every hold of the program behind it.
func TestNonsense(t *testing.T) {
	for name, s := range spaces(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			leader, err := s.Election(name).Campaign(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var wants []holdfast.Want
			for i := range 1500 {
				wants = append(wants, s.Mutex(fmt.Sprint(i)).Want())
			}
			page := func(opts ...holdfast.RangeOption) func() error {
				return func() error { _, err := s.KV().Page(ctx, "r/", opts...); return err }
			}
			txn := func(c holdfast.Compare) func() error {
				return func() error {
					_, err := s.KV().Txn(ctx, holdfast.Txn{If: []holdfast.Compare{c}, Then: []holdfast.Op{holdfast.GetOp("k")}})
					return err
				}
			}
			for what, do := range map[string]func() error{
				"1,500 names": func() error { _, err := s.AcquireAll(ctx, wants...); return err },
				"order":       page(holdfast.Order(99)),
				"long cursor": page(holdfast.AfterKey(strings.Repeat("k", 70_000))),
				"target":      txn(holdfast.Compare{Key: "k", Target: 99}),
				"relation":    txn(holdfast.Compare{Key: "k", Is: 99}),
			} {
				if err := do(); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := s.KV().Put(ctx, "k", nil); err != nil || leader.Err() != nil {
				t.Errorf("afterwards: %v, the leader: %v", err, leader.Err())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is larger than a machine takes is refused at once, nothing of it is done, and
// the Space goes on; what is just small enough is done.
func TestTooLarge(t *testing.T) {
	for name, s := range spaces(t) {
		t.Run(name, func(t *testing.T) {
			ctx, large := t.Context(), make([]byte, 64<<10)
			leader, err := s.Election(name).Campaign(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var wants []holdfast.Want
			for i := range 200 {
				wants = append(wants, s.Mutex(fmt.Sprintf("%0500d", i)).Want())
			}
			for what, do := range map[string]func(ctx context.Context) error{
				"Put":        func(ctx context.Context) error { _, err := s.KV().Put(ctx, name, large); return err },
				"Campaign":   func(ctx context.Context) error { _, err := s.Election("f").Campaign(ctx, large); return err },
				"Proclaim":   func(ctx context.Context) error { return leader.Proclaim(ctx, large) },
				"AcquireAll": func(ctx context.Context) error { _, err := s.AcquireAll(ctx, wants...); return err },
			} {
				if err := do(ctx); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("%s of too much: %v", what, err)
				}
			}
			if _, err := s.KV().Get(ctx, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the key is there: %v", err)
			}
			if _, err := s.KV().Put(ctx, name, large[:len(large)-100]); err != nil {
				t.Errorf("what is small enough: %v", err)
			}
			if err := leader.Err(); err != nil {
				t.Errorf("the leader: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
