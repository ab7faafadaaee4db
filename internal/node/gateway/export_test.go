package gateway

import "github.com/holdfast-io/holdfast/server"

// Lead has the gateway believe that a node leads.
func (g *Gateway) Lead(l server.Leader) {
	g.tenures.current() // it looks for the leader, once
	g.tenures.set(l)
}
