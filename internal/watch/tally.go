package watch

import "github.com/holdfast-io/holdfast/internal/core"

// Tally is how many events of each kind and verb were published.
type Tally [core.EventLimit + 1][core.VerbDelete + 1]uint64

// Tally counts what was published since the hub was made. What a jump passes over is not in it.
func (h *Hub) Tally() Tally { return h.tally }
