package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/internal/edgeserver"
	"github.com/holdfast-io/holdfast/limit"
)

// edgeListen is where an edge node answers.
const edgeListen = "127.0.0.1:7430"

// edgeVariables are settings of an edge node that deployments know by these names.
var edgeVariables = map[string]string{"actor-id": "ACTOR_ID", "nats-url": "NATS_URL", "window": "WINDOW_DURATION", "max-requests": "MAX_REQUESTS"}

// edging is what an edge node is told.
type edging struct {
	actor, nats, listen, name, algorithm string
	public, sync                         bool
	window                               inSeconds
	count, burst, localCap               int64
	flush                                time.Duration
	topKeys                              int
	alertURL                             string
	alertAge                             time.Duration
	alertDivergence                      uint64
	cert, key, clientCA                  string
}

func (a *app) edgeCommand() *cobra.Command {
	e := edging{}
	cmd := &cobra.Command{
		Use: "edge", Short: "Run an edge node: one rate limit on many nodes, decided without asking anyone", Args: cobra.NoArgs,
		Long: `edge answers whether a request may pass, for any number of keys, from its own memory,
and tells the other nodes over NATS what it has counted. It goes on without NATS. Nodes
together can admit more than the limit: docs/limits.md tells how much.

ACTOR_ID, NATS_URL, WINDOW_DURATION and MAX_REQUESTS of the environment set
what the flags do not.`,
		Example: `  holdfast edge --max-requests 100 --window 60s
  holdfast edge --actor-id "$POD_UID" --nats-url nats://nats:4222 --listen :7430 --public
  curl -i '127.0.0.1:7430/v1/check?key=10.0.0.1'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			a.outliveReaders()
			return untilSignal(func(ctx context.Context) error { return a.edge(ctx, &e) })
		},
	}
	e.flags(cmd.Flags())
	return cmd
}

func (e *edging) flags(f *pflag.FlagSet) {
	f.StringVar(&e.actor, "actor-id", "", "what no other running node is called: a pod's uid or name (default: the host's name)")
	f.StringVar(&e.nats, "nats-url", "", "nats://host:port, with parameters of edge/natslink (default: no other nodes)")
	e.window = inSeconds(time.Minute)
	f.Var(&e.window, "window", "the time that --max-requests is for, in seconds or with a unit")
	f.Int64Var(&e.count, "max-requests", 100, "what all nodes together admit for each key in that time")
	f.StringVar(&e.algorithm, "algorithm", limit.FixedWindow.String(), edgeAlgorithms)
	f.Int64Var(&e.burst, "burst", 0, "of gcra and token-bucket: what may pass at once (default: --max-requests)")
	f.Int64Var(&e.localCap, "local-cap", 0, "what this node admits alone for each key in that time (default: as much as all)")
	f.StringVar(&e.name, "limiter", "requests", "the limit's name, the same on all nodes that share it")
	f.BoolVar(&e.sync, "sync", true, "tell other nodes, and listen to them")
	f.DurationVar(&e.flush, "flush", 100*time.Millisecond, "time between two messages of what has changed, 1ms at least")
	f.StringVar(&e.listen, "listen", edgeListen, "address for checks, by HTTP and gRPC on one port")
	f.BoolVar(&e.public, "public", false, "allow an address other than loopback: every caller that reaches it can take from every key")
	f.StringVar(&e.cert, "tls-cert", "", "certificate for clients, in PEM; with --tls-key (default: no TLS)")
	f.StringVar(&e.key, "tls-key", "", "its key")
	f.StringVar(&e.clientCA, "tls-client-ca", "", "the authorities that sign clients' certificates, in PEM: a client without one is refused")
	f.IntVar(&e.topKeys, "top-keys", 0, "how many keys, those with most, /metrics names (default: none)")
	f.StringVar(&e.alertURL, "alert-url", "", "URL that gets a POST when an alert begins or ends (default: none)")
	f.DurationVar(&e.alertAge, "alert-age", 30*time.Second, "alert when nothing was heard of other nodes for so long, 20s at least; 0: never")
	f.Uint64Var(&e.alertDivergence, "alert-divergence", 0, "alert when nodes differ by more than this; 0: never")
}

// fromEnvironment sets what the command line left open.
func fromEnvironment(f *pflag.FlagSet) error {
	for name, variable := range edgeVariables {
		value := os.Getenv(variable)
		if f.Changed(name) || value == "" {
			continue
		}
		if err := f.Set(name, value); err != nil {
			return usagef("", "%s is %q: %w", variable, value, errors.Unwrap(err))
		}
	}
	return nil
}

// inSeconds is a flag in seconds, as deployments write it, or with a unit.
type inSeconds time.Duration

// Set is of pflag.Value.
func (s *inSeconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if _, plain := strconv.ParseUint(text, 10, 32); plain == nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil {
		return fmt.Errorf("%q is no time, such as 60 or 1m", text)
	}
	*s = inSeconds(d)
	return nil
}

// String is of pflag.Value.
func (s inSeconds) String() string { return time.Duration(s).String() }

// Type is of pflag.Value.
func (s inSeconds) Type() string { return "duration" }

// edgeAlgorithms are those of which nodes can tell each other the counts.
const edgeAlgorithms = "fixed-window, sliding-window, gcra or token-bucket"

// rate is what all nodes admit together.
func (e *edging) rate() (limit.Rate, error) {
	r := limit.Rate{Name: e.name, Count: e.count, Per: time.Duration(e.window), Burst: e.burst}
	var err error
	r.Algorithm, err = limit.ParseAlgorithm(e.algorithm)
	if err != nil || r.Algorithm == limit.CalendarWindow || r.Algorithm == limit.SlidingLog {
		return r, usagef("it is "+edgeAlgorithms, "an edge node has no algorithm %q", e.algorithm)
	}
	return r, nil
}

// state is the time between two messages of all that is known, which a node with nothing to tell sends too.
func (e *edging) state() time.Duration { return max(10*time.Second, e.flush) }

// edge runs an edge node until ctx ends.
func (a *app) edge(ctx context.Context, e *edging) (err error) {
	if e.actor == "" {
		if e.actor, err = os.Hostname(); err != nil {
			return usagef("name the node with --actor-id", "the host has no name: %w", err)
		}
	}
	rate, err := e.rate()
	if err != nil {
		return err
	}
	cfg, _, err := serverTLS(e.cert, e.key, e.clientCA, a.warn)
	if err := errors.Join(err, e.checkAlerts()); err != nil {
		return err
	}
	ln, err := e.open()
	if err != nil {
		return err
	}
	defer ln.Close()
	link, err := a.edgeLink(ctx, e)
	if err != nil {
		return err
	}
	config := edge.Config{Actor: e.actor, Flush: e.flush, State: e.state(), OnConflict: func(c crdt.Actor) {
		a.warn(fmt.Errorf("two nodes are called %q, or the clock of one was set back since it ran before; give each its own --actor-id, and the right time", c.Node))
	}}
	web := &edgeserver.Config{Rate: rate, TopKeys: e.topKeys}
	if link != nil {
		defer link.Close()
		config.Link, web.LinkErr = link, link.Err
	}
	if web.Node, err = edge.Open(config); err != nil {
		return err
	}
	defer web.Node.Close()
	if web.Limiter, err = web.Node.Limiter(e.name, edge.LimiterConfig{Rate: rate, LocalCap: e.localCap}); err != nil {
		return err
	}
	return a.edgeServe(ctx, e, ln, cfg, web)
}

// checkAlerts refuses a URL that no alert can go to, before there is something to tell, and an age that nodes which
// are well go beyond: a message may come late.
func (e *edging) checkAlerts() error {
	if e.alertURL == "" {
		return nil
	}
	u, err := url.Parse(e.alertURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("write it as https://host/path", "--alert-url %q is no URL of HTTP", e.alertURL)
	}
	if least := 2 * e.state(); e.alertAge != 0 && e.alertAge < least {
		return usagef(fmt.Sprintf("give it %s or more, or 0 for never", least), "--alert-age %s: nodes that have nothing to tell are heard every %s only", e.alertAge, e.state())
	}
	return nil
}

// edgeLink is nil if there are no other nodes.
func (a *app) edgeLink(ctx context.Context, e *edging) (*natslink.Link, error) {
	if e.nats == "" || !e.sync {
		return nil, nil
	}
	return natslink.Open(ctx, e.nats, &natslink.Options{OnError: a.warn})
}

func (e *edging) open() (net.Listener, error) {
	ln, err := net.Listen("tcp", e.listen)
	if err != nil {
		return nil, &failure{code: exitFailed, err: err, hint: "is another node running? --listen names another address"}
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); !e.public && (!ok || !tcp.IP.IsLoopback()) {
		ln.Close()
		return nil, usagef("--public allows it: every caller that reaches the port can take from every key", "%s is not a loopback address", e.listen)
	}
	return ln, nil
}

// edgeServe answers until ctx ends.
func (a *app) edgeServe(ctx context.Context, e *edging, ln net.Listener, cfg *tls.Config, web *edgeserver.Config) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg == nil)
	s := &http.Server{Handler: edgeserver.Handler(web), Protocols: protocols, ReadTimeout: edgeRead, IdleTimeout: 2 * time.Minute, ErrorLog: quiet}
	scheme := ""
	if cfg != nil {
		cfg.NextProtos = []string{"h2", "http/1.1"}
		ln, scheme = tls.NewListener(ln, cfg), "https://"
	}
	var running sync.WaitGroup
	alerting, stop := context.WithCancel(ctx)
	if e.alertURL != "" {
		alerts := &edgeserver.Alerts{Node: web.Node, URL: e.alertURL, Divergence: e.alertDivergence, SyncAge: e.alertAge, OnError: a.warn}
		running.Go(func() { alerts.Run(alerting) })
	}
	ended := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(ended)
		short, cancel := context.WithTimeout(context.Background(), edgePatience)
		defer cancel()
		s.Shutdown(short)
	})
	a.greetEdge(scheme, ln.Addr().String(), web)
	err := s.Serve(ln)
	stop()
	running.Wait()
	if !end() {
		<-ended // Serve returns when that begins; what is still asked is answered, and told by the node's last message
		if errors.Is(err, http.ErrServerClosed) {
			return nil // asked for
		}
	}
	return err
}

// quiet drops what net/http says about callers' mistakes. They would fill the standard error, and
// with a reader that stalls each would keep its connection.
var quiet = log.New(io.Discard, "", 0)

// edgeRead is how long a request may take to come, its form with it: one that drips keeps a
// connection no longer.
const edgeRead = 10 * time.Second

// edgePatience is how long a node that is told to stop waits for requests under way.
const edgePatience = 5 * time.Second

func (a *app) greetEdge(scheme, addr string, web *edgeserver.Config) {
	if a.json {
		_ = encode(a.out, map[string]string{"listen": addr, "actor": web.Node.Actor().Node, "limit": web.Rate.String()})
		return
	}
	fmt.Fprintf(a.out, `holdfast edge serves on %[1]s as %[2]s: %[3]s for each key

Try, in another terminal:
  curl -i '%[4]s%[1]s/v1/check?key=10.0.0.1'
  curl -s %[4]s%[1]s/metrics

Stop it with ^C.
`, addr, web.Node.Actor().Node, web.Rate, scheme)
}
