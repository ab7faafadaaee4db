// Package nap lets a caller wait for an answer in its own thread, on a socket
// that wakes nobody else: at a server nearby, waiting by the runtime's poller takes
// longer than the answer itself. It is for connections on which one question at a
// time is asked and answered within microseconds; Linux only, elsewhere nobody
// naps.
package nap

import (
	"crypto/tls"
	"net"
)

// On is how to nap on a connection of NewConn, also with TLS over it: what it
// returns sleeps until there is something to read, or for some milliseconds. Call
// it where Read would be next, in place of the reader. On any other connection it
// returns at once.
func On(c net.Conn) func() {
	if secret, ok := c.(*tls.Conn); ok {
		c = secret.NetConn()
	}
	if n, ok := c.(interface{ nap() }); ok {
		return n.nap
	}
	return func() {}
}
