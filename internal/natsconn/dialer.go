package natsconn

import (
	"net"
	"sync"
)

// dialer makes the connections of a client, of which one is used at a time. The library
// leaves one open that did not begin as one to NATS does: the next, or the end, closes it.
type dialer struct {
	mu   sync.Mutex
	last net.Conn
	over bool
}

// Dial is for the library.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.leave(false)
	nc, err := (&net.Dialer{Timeout: Patience}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	d.last = nc
	return nc, nil
}

// leave closes the last connection; for good: there will be no other.
func (d *dialer) leave(forGood bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = d.over || forGood
	if d.last != nil {
		_ = d.last.Close() // most are closed already
		d.last = nil
	}
}
