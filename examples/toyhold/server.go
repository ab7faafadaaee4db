package toyhold

import (
	"bufio"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// message is what goes over the line, in both directions, as JSON.
type message struct {
	Op       string          `json:"op,omitempty"` // get, swap, delete, list, watch
	Key      string          `json:"key,omitempty"`
	Old      driver.Revision `json:"old,omitempty"`
	Value    []byte          `json:"value,omitempty"`
	Revision driver.Revision `json:"revision,omitempty"`
	Deleted  bool            `json:"deleted,omitempty"`
	Now      time.Duration   `json:"now,omitempty"`
	Conflict bool            `json:"conflict,omitempty"`
	Items    []message       `json:"items,omitempty"`
}

// Server is an engine that can compare and swap, and no more.
type Server struct {
	listener net.Listener
	start    time.Time
	work     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	revision driver.Revision
	items    map[string]message
	conns    map[net.Conn]struct{}
	watchers map[chan message]string // to the key they watch, or ""
}

// Serve listens on a "host:port".
func Serve(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, start: time.Now(), items: map[string]message{}, conns: map[net.Conn]struct{}{}, watchers: map[chan message]string{}}
	s.work.Go(s.accept)
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends it and every connection.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		if s.closed {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.work.Go(func() { s.serve(c) })
	}
}

// serve answers line by line, until the connection ends or a watch begins.
func (s *Server) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	in, out := bufio.NewScanner(c), json.NewEncoder(c)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		var m message
		if json.Unmarshal(in.Bytes(), &m) != nil {
			return
		}
		if m.Op == "watch" {
			s.watch(m.Key, in, out)
			return
		}
		if out.Encode(s.do(&m)) != nil {
			return
		}
	}
}

// do runs one command.
func (s *Server) do(m *message) message {
	s.mu.Lock()
	defer s.mu.Unlock()
	item := s.items[m.Key]
	reply := message{Revision: item.Revision, Value: item.Value, Now: time.Since(s.start) + 1}
	switch {
	case m.Op == "list":
		for key, i := range s.items {
			if strings.HasPrefix(key, m.Key) {
				reply.Items = append(reply.Items, i)
			}
		}
	case m.Op == "get":
	case item.Revision != m.Old:
		reply.Conflict = true
	default:
		reply = s.change(message{Key: m.Key, Value: m.Value, Deleted: m.Op == "delete"})
	}
	return reply
}

// change makes a change and tells all watchers; s.mu is held.
func (s *Server) change(m message) message {
	s.revision++
	m.Revision = s.revision
	if m.Deleted {
		delete(s.items, m.Key)
	} else {
		s.items[m.Key] = m
	}
	for w, key := range s.watchers {
		if key != "" && key != m.Key {
			continue
		}
		select {
		case w <- m:
		default: // too slow: it is told that it has missed something
			delete(s.watchers, w)
			close(w)
		}
	}
	return m
}

// backlog is how many changes a watcher may be behind.
const backlog = 1024

// watch sends every change, and first the revision of the last one before.
func (s *Server) watch(key string, in *bufio.Scanner, out *json.Encoder) {
	w := make(chan message, backlog)
	s.mu.Lock()
	s.watchers[w] = key
	first := message{Revision: s.revision}
	s.mu.Unlock()
	gone := make(chan struct{})
	s.work.Go(func() {
		defer close(gone)
		in.Scan() // nothing comes but its end
	})
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}()
	for m, ok := first, true; ok && out.Encode(m) == nil; {
		select {
		case m, ok = <-w:
		case <-gone:
			return
		}
	}
}
