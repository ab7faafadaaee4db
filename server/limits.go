package server

import (
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// Limits bound the memory of a group. What exceeds one is refused with
// ErrExhausted, which names the limit; what is there already stays. The limits of
// the node that leads are in force: give all nodes the same.
type Limits struct {
	// Sessions, Names (in use: locks, semaphores, counters and the like) and Keys
	// are for each namespace; default 1,000,000, 4,000,000 and 4,000,000.
	Sessions, Names, Keys int
	// Holds is how many claims one session may have, held or waiting; default
	// 1,000,000.
	Holds int
	// Waiters is how many claims may wait for one name; default 10,000.
	Waiters int
	// LimitKeys is how many keys the limiters of a namespace may remember; default
	// 4,000,000.
	LimitKeys int
	// Namespaces is how many there may be; default 10,000. It is approximate:
	// those that are being made at the same time are not counted.
	Namespaces int
	// Queue is how many commands may wait for the disk; default 16,384, more than
	// one write of a fast disk takes. As it fills, new sessions are refused
	// first, from five eighths of it on, then what takes or changes something, from
	// three quarters on; keepalives, and what gives something back, may fill it whole.
	// A longer one lets
	// everybody wait longer when the node has too little processor time. One of 1
	// would take nothing but those, and is refused.
	Queue int
}

// DefaultLimits are those of zero fields.
func DefaultLimits() Limits {
	return Limits{
		Sessions: 1_000_000, Names: 4_000_000, Keys: 4_000_000, Holds: 1_000_000,
		Waiters: 10_000, LimitKeys: 4_000_000, Namespaces: 10_000, Queue: 16_384,
	}
}

func (l *Limits) fields() [8]*int {
	return [...]*int{&l.Sessions, &l.Names, &l.Keys, &l.Holds, &l.Waiters, &l.LimitKeys, &l.Namespaces, &l.Queue}
}

func (l Limits) filled() (Limits, error) {
	def := DefaultLimits()
	for i, n := range l.fields() {
		if *n < 0 {
			return l, driver.Errorf("start server", "", fs.ErrInvalid, "a limit of %d makes no sense: give at least 1, or 0 for the default", *n)
		}
		if *n == 0 {
			*n = *def.fields()[i]
		}
	}
	if l.Queue < admission.Least {
		return l, driver.Errorf("start server", "", fs.ErrInvalid, "a queue of %d takes nothing but keepalives and releases: give at least %d, or 0 for the default", l.Queue, admission.Least)
	}
	return l, nil
}

func (l *Limits) quota() core.Quota {
	return core.Quota{Sessions: l.Sessions, Names: l.Names, Keys: l.Keys, Holds: l.Holds, Waiters: l.Waiters, LimitKeys: l.LimitKeys}
}
