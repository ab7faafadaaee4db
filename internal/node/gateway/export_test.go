package gateway

import "github.com/holdfast-io/holdfast/server"

// Lead has the gateway believe that a node leads.
func (g *Gateway) Lead(l server.Leader) {
	g.tenures.mu.Lock()
	g.tenures.lead = func() (server.Leader, <-chan struct{}) { return l, nil }
	g.tenures.mu.Unlock()
	g.tenures.follow()
}
