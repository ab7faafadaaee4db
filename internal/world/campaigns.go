package world

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// campaigns knows which parties wait for which election, so that leaders hand over to one that does.
type campaigns struct {
	mu    sync.Mutex
	waits map[string][]string
}

// begin notes that a party waits, until end is called.
func (c *campaigns) begin(name, owner string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == nil {
		c.waits = map[string][]string{}
	}
	c.waits[name] = append(c.waits[name], owner)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.waits[name], owner)
		c.waits[name] = slices.Delete(c.waits[name], i, i+1)
	}
}

// successor is a party that waits for an election, or most likely does not.
func (c *campaigns) successor(name string, rng *rand.Rand) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if list := c.waits[name]; len(list) > 0 && rng.Float64() < 0.8 {
		return list[rng.IntN(len(list))]
	}
	return "client-0"
}
