package onstore

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// lineModel is a Line as a plain slice, with the entries that it has let in or sent away.
type lineModel struct {
	line []*queueEntry
	in   map[*queueEntry]bool
}

func (m *lineModel) letIn() {
	if len(m.line) > 0 {
		m.in[m.line[0]] = true
	}
}

func (m *lineModel) part(p *queueEntry) {
	if i := slices.Index(m.line, p); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.letIn()
	}
}

func (m *lineModel) sendAway() {
	for _, p := range m.line[min(1, len(m.line)):] {
		m.in[p] = true
	}
	m.line = m.line[:min(1, len(m.line))]
}

func (m *lineModel) same(t *testing.T, l *Line, all []*queueEntry) {
	t.Helper()
	if l.size("n") != len(m.line) || len(l.names) > 1 || len(m.line) == 0 && len(l.names) > 0 {
		t.Fatalf("%d are in line, want %d; %d lines", l.size("n"), len(m.line), len(l.names))
	}
	for i, id := range l.Waiting("n") {
		if id != m.line[i].id {
			t.Fatalf("place %d of %d has %x, want %x", i, len(m.line), id, m.line[i].id)
		}
	}
	for _, p := range all {
		if isClosed(p.head) != m.in[p] {
			t.Fatalf("%x was let in: %t, want %t", p.id, isClosed(p.head), m.in[p])
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestLineLikeItsModel: whatever leaves a line of any length, at any place and also twice, the rest
// keeps its order, and the first is let in.
func TestLineLikeItsModel(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 10, 1_000, 100_000} {
		random, l, m := rand.New(rand.NewPCG(1, uint64(n))), &Line{}, &lineModel{in: map[*queueEntry]bool{}}
		var all []*queueEntry
		join := func() {
			p := &queueEntry{head: make(chan struct{})}
			binary.BigEndian.PutUint64(p.id[:], uint64(len(all)+1))
			all, m.line = append(all, p), append(m.line, p)
			m.letIn()
			if place := l.join("n", p); place != len(m.line) {
				t.Fatalf("place %d, want %d", place, len(m.line))
			}
		}
		for range n {
			join()
		}
		m.same(t, l, all)
		for step := range min(3*n, 1_000) {
			switch p := all[random.IntN(len(all))]; {
			case step%5 == 0:
				join()
			case step%5 == 1:
				p = m.first(p)
				fallthrough
			default:
				l.part("n", p)
				m.part(p)
			}
			if step%(1+n/100) == 0 {
				m.same(t, l, all)
			}
		}
		l.sendAway("n", errors.New("no"))
		m.sendAway()
		for _, p := range all {
			l.part("n", p)
			m.part(p)
		}
		m.same(t, l, all)
	}
}

// first is the first in line; p: there is none.
func (m *lineModel) first(p *queueEntry) *queueEntry {
	if len(m.line) > 0 {
		return m.line[0]
	}
	return p
}

// TestLongLine: waiters that leave a long line, the last first, do not each look at all before them: they would take
// minutes.
func TestLongLine(t *testing.T) {
	l, all := &Line{}, make([]queueEntry, 600_000)
	all[0].head = make(chan struct{}) // no other comes first
	for i := range all {
		l.join("n", &all[i])
	}
	for end := time.Now().Add(40 * time.Second); len(all) > 0; all = all[:len(all)-1] {
		if l.part("n", &all[len(all)-1]); time.Now().After(end) {
			t.Fatalf("40 seconds, and %d are left", len(all))
		}
	}
}
