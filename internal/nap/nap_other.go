//go:build !linux

package nap

import "net"

// NewConn returns c: naps are for Linux.
func NewConn(c net.Conn) net.Conn { return c }
