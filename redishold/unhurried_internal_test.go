package redishold

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// farServer is a server to which a connection is made when the test says so. It answers every
// command with "ok".
type farServer struct {
	dials atomic.Int32
	near  chan struct{}
	heard atomic.Int32  // commands but those that begin a connection
	mute  atomic.Bool   // it answers nothing
	conns atomic.Int32  // that are open
	late  time.Duration // how long it takes to hear of a script
}

func (s *farServer) dial(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if s.dials.Add(1) == 1 {
		return nil, errors.New("not yet") // rueidis connects when it is made
	}
	select {
	case <-s.near:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	client, server := net.Pipe()
	s.conns.Add(1)
	go s.serve(server)
	return client, nil
}

// options are those of a client with one connection.
func (s *farServer) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{"far:1"}, DialCtxFn: s.dial, ForceSingleClient: true, PipelineMultiplex: -1, DisableCache: true, AlwaysPipelining: true,
	}
}

func (s *farServer) serve(c net.Conn) {
	defer c.Close()
	defer s.conns.Add(-1)
	in := bufio.NewReader(c)
	for {
		words, err := request(in)
		if err != nil {
			return
		}
		answer := "+ok\r\n"
		switch words[0] {
		case "HELLO":
			answer = "%1\r\n+proto\r\n:3\r\n"
		case "SHUTDOWN":
			return
		case "CLIENT":
		case "EVALSHA":
			time.Sleep(s.late)
			s.heard.Add(1)
		default:
			s.heard.Add(1)
		}
		if s.mute.Load() {
			continue
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// request reads a command.
func request(in *bufio.Reader) (words []string, err error) {
	n, err := count(in)
	for range n {
		size, err := count(in)
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, err
}

// count reads the number of a line like *3 or $5.
func count(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// TestEachItsOwnContext: a call that gives up while a connection is made fails no other call
// that waits for the connection, holds none up beyond its own context, and is not sent.
func TestEachItsOwnContext(t *testing.T) {
	ways := map[string]func(context.Context, engine) error{
		"do": func(ctx context.Context, e engine) error { return e.do(ctx, []string{"GET", "k"})[0].err },
		"run": func(ctx context.Context, e engine) error {
			_, err := e.run(ctx, endScript, []string{"k"}, nil)
			return err
		},
		"quick": func(ctx context.Context, e engine) error {
			_, _, err := e.quick(ctx, endScript, []string{"k"}, nil)
			return err
		},
		"runAll": func(ctx context.Context, e engine) error {
			return e.runAll(ctx, endScript, []task{{keys: []string{"k"}}})[0].err
		},
	}
	for name, call := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { eachItsOwnContext(t, call) })
		})
	}
}

func eachItsOwnContext(t *testing.T, call func(context.Context, engine) error) {
	s := &farServer{near: make(chan struct{})}
	rc, _ := rueidis.NewClient(s.options())
	defer rc.Close()
	d, err := New(rc, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := d.(*client).rc
	var gave [3]chan error // the one that connects, one that waits and gives up, one that stays
	var give [3]context.CancelFunc
	for i := range gave {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gave[i], give[i] = make(chan error, 1), cancel
		go func() { gave[i] <- call(ctx, e) }()
		synctest.Wait()
	}
	for i := range 2 {
		give[i]()
		synctest.Wait()
		select {
		case err := <-gave[i]:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("call %d, given up: %v", i, err)
			}
		default:
			t.Errorf("call %d waits after it was given up", i)
		}
	}
	close(s.near)
	if err := <-gave[2]; err != nil {
		t.Errorf("the call that stayed: %v", err)
	}
	synctest.Wait()
	if n := s.heard.Load(); n != 1 {
		t.Errorf("the server heard %d commands", n)
	}
}

// TestCloseWhileConnecting: a connection that is being made when its client is closed ends.
func TestCloseWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &farServer{near: make(chan struct{})}
		close(s.near)
		s.dials.Add(1) // the first one stands
		rc, err := connect(s.options())
		if err != nil {
			t.Fatal(err)
		}
		s.mute.Store(true)
		if err := rc.Do(context.Background(), rc.B().Arbitrary("SHUTDOWN").Build()).Error(); err == nil {
			t.Fatal("the connection stands")
		}
		ctx, cancel := context.WithCancel(t.Context())
		gave := make(chan error, 1)
		go func() { gave <- rc.Do(ctx, rc.B().Get().Key("k").Build()).Error() }()
		synctest.Wait()
		if n := s.conns.Load(); n != 1 {
			t.Errorf("%d connections are being made", n)
		}
		cancel()
		<-gave
		rc.Close()
		synctest.Wait()
		if n := s.conns.Load(); n != 0 {
			t.Errorf("%d connections are open after Close", n)
		}
	})
}
