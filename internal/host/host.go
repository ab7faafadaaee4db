// Package host lets the project's own tests run production nodes and clients on a
// machine that is not the real one: with files, a network and segments of their
// own choice, and with an ear for what each node applies.
//
//	cfg := server.Config{Dir: "data", Listen: "127.0.0.1:7421"}
//	host.Put(&cfg, &host.Host{Files: disk, Listen: net.Listen, Dial: net.Dial})
//	node, err := server.New(cfg)
//
// Programs cannot do that: the field that Put sets has no exported name.
package host

import (
	"context"
	"fmt"
	"net"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Host is a machine. nil is the real one, and so is each part that is not set.
type Host struct {
	// Files is a storage.FS, which is not named here since clients have no use for
	// that package.
	Files any
	// SegmentSize is the size of a log file in bytes; 0: the default of package
	// storage.
	SegmentSize int64
	// Trailing is how many entries of its log a node keeps for others; 0: the default
	// of package replica.
	Trailing uint64
	// Newest is the newest version of a group that a node supports; 0: that of the
	// program.
	Newest uint8
	// Listen and Dial are the network, of TCP addresses.
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	// Applied is told each event that a node applies, by the goroutine that drives
	// the node, before anybody else; it must neither block nor keep them.
	Applied func([]core.Event)
}

// settings are the setters of the types of configuration that know a Host.
var settings []func(cfg any, h *Host) bool

// Accept says how a configuration of type C takes its Host; it is called by the
// package of C when the program starts.
func Accept[C any](set func(cfg *C, h *Host)) {
	settings = append(settings, func(cfg any, h *Host) bool {
		c, ok := cfg.(*C)
		if ok {
			set(c, h)
		}
		return ok
	})
}

// Put has what runs by cfg, a pointer, run on h. It panics if cfg knows no Host.
func Put(cfg any, h *Host) {
	for _, set := range settings {
		if set(cfg, h) {
			return
		}
	}
	panic(fmt.Sprintf("host: %T runs only on the real machine", cfg))
}

// ListenTCP listens on addr.
func (h *Host) ListenTCP(addr string) (net.Listener, error) {
	if h == nil || h.Listen == nil {
		return net.Listen("tcp", addr)
	}
	return h.Listen(addr)
}

// Dialer is how to connect to TCP addresses; nil: as usual.
func (h *Host) Dialer() func(ctx context.Context, addr string) (net.Conn, error) {
	if h == nil {
		return nil
	}
	return h.Dial
}

// Entries is Trailing.
func (h *Host) Entries() uint64 {
	if h == nil {
		return 0
	}
	return h.Trailing
}

// Version is Newest.
func (h *Host) Version() uint8 {
	if h == nil {
		return 0
	}
	return h.Newest
}

// Here is the machine of what knows no other: the real one, unless a test has this
// whole process run elsewhere.
var Here *Host

// Tell tells what a node has applied.
func (h *Host) Tell(events []core.Event) {
	if h != nil && h.Applied != nil && len(events) > 0 {
		h.Applied(events)
	}
}
