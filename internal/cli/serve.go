package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// defaultListen is where a node serves, and where commands about nodes look.
const defaultListen = "127.0.0.1:7420"

// serving is what a node is told.
type serving struct {
	data, listen, admin       string
	public, join, noReplace   bool
	moved                     bool
	hosts                     []string
	checkEvery                time.Duration
	id, clusterID             uint64
	peer                      string
	members                   []string
	cert, key, clientCA, ca   string
	peerCert, peerKey, peerCA string
	limits                    server.Limits
	calls, waits, streams     int
	maxData, reserve          size
	backups                   schedule
}

// limitFlags add the limits of a node.
func (s *serving) limitFlags(f *pflag.FlagSet) {
	l, d := &s.limits, server.DefaultLimits()
	f.IntVar(&l.Sessions, "max-sessions", d.Sessions, "sessions in a namespace")
	f.IntVar(&l.Names, "max-names", d.Names, "names in use in a namespace: locks, semaphores, counters and the like")
	f.IntVar(&l.Keys, "max-keys", d.Keys, "keys in a namespace")
	f.IntVar(&l.Holds, "max-holds", d.Holds, "holds and waits of a session")
	f.IntVar(&l.Waiters, "max-waiters", d.Waiters, "waiters for a name")
	f.IntVar(&l.LimitKeys, "max-limit-keys", d.LimitKeys, "keys that the limiters of a namespace remember")
	f.IntVar(&l.Namespaces, "max-namespaces", d.Namespaces, "namespaces, about")
	f.IntVar(&l.Queue, "max-queue", d.Queue, "commands that wait for the disk; keepalives and releases are refused last")
	s.reserve = storage.DefaultReserve
	f.Var(&s.reserve, "reserve", "free space on the disk of --data, beside a snapshot's, below which nothing new is taken; 0: none")
	f.Var(&s.maxData, "max-data", "size of --data from which on nothing new is taken, 256MiB at least (default: no limit)")
	f.IntVar(&s.calls, "max-calls", api.DefaultCalls, "plain calls under way")
	f.IntVar(&s.waits, "max-waits", api.DefaultWaits, "plain calls that wait, watches and streams")
	f.IntVar(&s.streams, "max-streams", api.DefaultStreams, "of those, on one connection")
}

func (a *app) serveCommand() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a node: a durable server, alone or in a replicated group", Args: cobra.NoArgs,
		Long: `serve runs a node until it is told to stop by ^C or SIGTERM. Without flags it is a
server of its own on ` + defaultListen + `, with its data below your account's state
directory. Every flag but --moved can also be set by HOLDFAST_… or in the configuration file.

A group is named by all its founders, the same on each of them:
NUMBER=PEER/CLIENT, the addresses for other nodes and for clients.`,
		Example: `  holdfast serve
  holdfast serve --data /var/lib/holdfast
  holdfast serve --id 1 --peer 10.0.0.1:7421 --listen 10.0.0.1:7420 --public \
      --members 1=10.0.0.1:7421/10.0.0.1:7420,2=10.0.0.2:7421/10.0.0.2:7420,3=10.0.0.3:7421/10.0.0.3:7420 \
      --peer-cert node.pem --peer-key node.key --peer-ca ca.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("id") && s.id == 0 {
				return usagef("the numbers of nodes begin with 1; without --id it is that of the data, else 1", "--id 0 is no number of a node")
			}
			a.outliveReaders()
			return untilSignal(func(ctx context.Context) error { return a.serve(ctx, &s) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.data, "data", "", "directory of the node's state (default: holdfast-server in your state directory)")
	f.StringVar(&s.listen, "listen", defaultListen, "address for clients: gRPC, HTTP and JSON on one port")
	f.BoolVar(&s.public, "public", false, "allow an address other than loopback: every caller that reaches it can do everything but change the members")
	f.StringSliceVar(&s.hosts, "host", nil, "names that clients call the node by, beside its addresses: calls that name another host are refused")
	f.StringVar(&s.admin, "admin", "", "loopback address for profiles and metrics (default: none)")
	f.StringVar(&s.cert, "tls-cert", "", "certificate for clients, in PEM; with --tls-key")
	f.StringVar(&s.key, "tls-key", "", "its key")
	f.StringVar(&s.clientCA, "tls-client-ca", "", "the authorities that sign clients' certificates, in PEM: a client without one is refused")
	f.StringVar(&s.ca, "tls-ca", "", "the authorities that sign the certificates of the group's nodes for clients, in PEM (default: the system's)")
	f.Uint64Var(&s.id, "id", 0, "the node's number in its group (default: that of the data, else 1)")
	f.Uint64Var(&s.clusterID, "cluster-id", 0, "the group's number (default: that of the data, else 1)")
	f.StringVar(&s.peer, "peer", "", "address for other nodes (default: there are none)")
	f.StringSliceVar(&s.members, "members", nil, "founders of the group: NUMBER=PEER/CLIENT,…")
	f.BoolVar(&s.join, "join", false, "wait to be added to the group of --members, by holdfast member add")
	f.DurationVar(&s.checkEvery, "check-every", 10*time.Minute, "how often the nodes of the group compare their states")
	f.BoolVar(&s.noReplace, "no-replace", false, "after the loss of the data wait for holdfast member replace, instead of asking the group for a new number")
	f.BoolVar(&s.moved, "moved", false, "the data was moved here after the node had stopped, it has not run since, and nothing of it is left at the old place; without that, no node of a group starts on a copy")
	f.StringVar(&s.backups.dir, "backup-dir", "", "directory for backups of this node (default: none)")
	f.DurationVar(&s.backups.every, "backup-every", time.Hour, "how often one is saved there")
	f.IntVar(&s.backups.keep, "backup-keep", 24, "how many of them stay")
	f.StringVar(&s.peerCert, "peer-cert", "", "certificate for other nodes, in PEM; needed beyond loopback")
	f.StringVar(&s.peerKey, "peer-key", "", "its key")
	f.StringVar(&s.peerCA, "peer-ca", "", "the authorities that sign the nodes' certificates, in PEM")
	s.limitFlags(f)
	return cmd
}

// collectAt is how much garbage, in hundredths of what lives, a node lets gather
// unless GOGC says otherwise: under overload the habit of 100 trebled its memory,
// this keeps it below twice.
const collectAt = 50

// serve runs a node until ctx ends.
func (a *app) serve(ctx context.Context, s *serving) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	cfg, err := s.node()
	if err == nil {
		err = s.peerTLS(&cfg, a.warn)
	}
	if err != nil {
		return err
	}
	web := api.Config{Public: s.public, Hosts: append([]string{s.listen}, s.hosts...), PeerCAs: cfg.PeerCAs, Calls: s.calls, Waits: s.waits, Streams: s.streams}
	if err := s.clientTLS(&web, a.warn); err != nil {
		return err
	}
	if err := s.backups.check(cfg.Dir); err != nil {
		return err
	}
	for {
		err := a.serveOnce(ctx, s, cfg, web)
		if !errors.Is(err, server.ErrReplaced) || ctx.Err() != nil {
			return err
		}
		a.warn(goesOn(err))
	}
}

// goesOn is the end of a node that got another number as it is for this program, which begins again
// by itself.
func goesOn(err error) error {
	return errors.New(strings.Replace(err.Error(), server.ErrReplaced.Error(), "the group has let it in under that number, and it goes on by itself", 1))
}

// serveOnce runs a node until ctx ends or it stops by itself.
func (a *app) serveOnce(ctx context.Context, s *serving, cfg server.Config, web api.Config) error {
	ln, err := s.open(&web)
	if err != nil {
		return err
	}
	cfg.Client = reachable(ln.Addr())
	cfg.Notice = a.warn
	node, err := server.New(cfg)
	if err != nil {
		ln.Close()
		return s.unstarted(err)
	}
	a.greet(ln.Addr().String(), cfg.Dir, web.TLS != nil)
	saving, stop := context.WithCancel(ctx)
	var saved sync.WaitGroup
	saved.Go(func() { s.backups.save(saving, node, cfg.Notice) })
	err = api.Serve(ctx, ln, api.New(node), web)
	stop()
	atMost(lastBackup, &saved)
	switch {
	case ctx.Err() != nil:
		err = nil // asked for
	case err != nil:
		_ = node.Close() // which says the same
		return err
	}
	return errors.Join(err, node.Close())
}

// reachable is an address at which others find what listens there; "": that cannot
// be told from the address.
func reachable(a net.Addr) string {
	if address.Anywhere(a.String()) {
		return ""
	}
	return a.String()
}

// unstarted says what to change for a node that could not start.
func (s *serving) unstarted(err error) error {
	if errors.Is(err, fs.ErrInvalid) {
		return err
	}
	hint := "--data names another directory"
	switch {
	case errors.Is(err, storage.ErrUnfinished):
		hint = "the command is holdfast snapshot restore; a node that is to begin with nothing gets an empty directory"
	case errors.Is(err, storage.ErrDamaged):
		hint = s.wayOutOfDamage()
	case errors.Is(err, storage.ErrCopied):
		hint = "docs/operate.md, A copied directory, has the ways to go on"
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return unbound("peer", err)
	}
	return &failure{code: exitFailed, err: err, hint: hint}
}

// unbound says what to do about the address of a flag at which the node cannot listen: it is none, or not of this
// machine, or another program listens there.
func unbound(flag string, err error) error {
	f := &failure{code: exitFailed, err: err, hint: "is another node running? --" + flag + " names another address"}
	_, nameless := errors.AsType[*net.DNSError](err)
	_, malformed := errors.AsType[*net.AddrError](err)
	if malformed {
		f.code = exitUsage
	}
	if nameless || malformed || errors.Is(err, syscall.EADDRNOTAVAIL) {
		f.hint = "--" + flag + " is HOST:PORT, with an address of this machine or a name that leads to one, and a port up to 65535"
	}
	return f
}

// wayOutOfDamage says what to do with a node of which a file is damaged.
func (s *serving) wayOutOfDamage() string {
	if s.noReplace {
		return "--no-replace keeps the node from asking its group for a new number: start it without, with --members and --id; or move its files away, start it, and give the order holdfast member replace; alone: holdfast snapshot restore"
	}
	return "a node of a group is let in again with --members and --id; alone: holdfast snapshot restore"
}

// open listens where clients come, and for profiles, before anything is written; it
// refuses what could not be served.
func (s *serving) open(web *api.Config) (net.Listener, error) {
	ln, err := net.Listen("tcp", s.listen)
	if err != nil {
		return nil, unbound("listen", err)
	}
	if s.admin != "" {
		if web.Admin, err = net.Listen("tcp", s.admin); err != nil {
			ln.Close()
			return nil, unbound("admin", err)
		}
	}
	err = web.Check(ln)
	if err == nil {
		return ln, nil
	}
	ln.Close()
	if web.Admin != nil {
		web.Admin.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, &failure{code: exitUsage, err: err, hint: "--public makes the port of --listen public; --admin takes loopback addresses only"}
	}
	return nil, err
}

// greet says what can be done now.
func (a *app) greet(addr, dir string, secure bool) {
	if a.json {
		_ = encode(a.out, map[string]string{"listen": addr, "data": dir})
		return
	}
	url, web := "holdfast://"+addr, addr
	if secure {
		url, web = "holdfasts://"+addr, "https://"+addr
	}
	fmt.Fprintf(a.out, `holdfast serves on %[1]s; its data is in %[2]s

Try, in another terminal:
  %[5]s --url %[3]s lock nightly -- sleep 30
  %[5]s --url %[3]s show nightly
  curl -s %[4]s/v1/counters/orders:add -d '{"amount":1}'

Stop it with ^C.
`, addr, dir, url, web, program())
}

// program is what a shell calls this program by: its name if PATH finds it, else
// where it is.
func program() string {
	const name = "holdfast"
	self, err := os.Executable()
	if err != nil {
		return name
	}
	if found, err := exec.LookPath(name); err == nil {
		if real, err := filepath.EvalSymlinks(found); err == nil && real == self {
			return name
		}
	}
	return self
}

// node is the configuration of the node.
func (s *serving) node() (server.Config, error) {
	cfg := server.Config{Dir: s.data, ID: s.id, ClusterID: s.clusterID, Listen: s.peer, Join: s.join, NoReplace: s.noReplace, Moved: s.moved, CheckEvery: s.checkEvery, Limits: s.limits, SoftLimit: int64(s.maxData), Reserve: int64(s.reserve)}
	if s.reserve == 0 {
		cfg.Reserve = -1
	}
	if s.maxData > 0 && s.maxData < leastData {
		return cfg, usagef("give --max-data at least "+leastData.String(), "--max-data %s is less than an empty node may take", s.maxData)
	}
	if s.checkEvery < time.Second {
		return cfg, usagef("give --check-every at least 1s; 10m is the default", "to compare the states every %s would be the group's main work", s.checkEvery)
	}
	err := s.roomy()
	if err != nil {
		return cfg, err
	}
	if cfg.Dir == "" {
		base, err := stateDir()
		if err != nil {
			return cfg, &failure{code: exitUsage, err: err, hint: "name a directory with --data"}
		}
		cfg.Dir = base + "-server"
	}
	if s.join && s.peer == "" {
		return cfg, usagef("--peer names the address for other nodes, --members the group", "--join needs an address at which the group reaches the node")
	}
	if cfg.Founders, err = founders(s.members); err != nil {
		return cfg, &failure{code: exitUsage, err: err, hint: "write --members NUMBER=PEER/CLIENT,… such as 1=10.0.0.1:7421/10.0.0.1:7420"}
	}
	return cfg, nil
}

// roomy refuses limits with which the node would serve, and refuse nearly everything for ever.
func (s *serving) roomy() error {
	least := "give at least " + strconv.Itoa(admission.Least) + ", or 0 for the default"
	for flag, n := range map[string]int{"max-queue": s.limits.Queue, "max-calls": s.calls, "max-waits": s.waits} {
		if n > 0 && n < admission.Least {
			return usagef(least, "--%s %d has no room but for keepalives and releases", flag, n)
		}
	}
	return nil
}

// founders reads NUMBER=PEER/CLIENT.
func founders(members []string) ([]server.Member, error) {
	var list []server.Member
	for _, m := range members {
		number, addrs, ok1 := strings.Cut(m, "=")
		peer, client, ok2 := strings.Cut(addrs, "/")
		id, err := strconv.ParseUint(number, 10, 64)
		if !ok1 || !ok2 || err != nil || peer == "" || client == "" {
			return nil, fmt.Errorf("%q is not a member", m)
		}
		list = append(list, server.Member{ID: id, Peer: peer, Client: client})
	}
	return list, nil
}

// clientTLS sets what clients are offered, and how calls are passed on to other
// nodes; without certificates both are plain text.
func (s *serving) clientTLS(web *api.Config, told func(error)) error {
	if s.cert == "" && s.key == "" && s.ca != "" {
		return usagef("--tls-cert and --tls-key name the node's own", "--tls-ca needs a certificate to serve TLS with")
	}
	cfg, own, err := serverTLS(s.cert, s.key, s.clientCA, told)
	if cfg == nil {
		return err
	}
	web.TLS = cfg
	web.Relay = &tls.Config{GetClientCertificate: own.client, MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		nodes, err := newRoots(told, s.ca)
		if err != nil {
			return &failure{code: exitUsage, err: err, hint: "--tls-ca names the PEM file of the authorities that sign the nodes' certificates for clients"}
		}
		web.RelayCAs = nodes.get
	}
	return nil
}

// flagged is the value of a flag.
type flagged struct{ name, value string }

// together refuses flags of which one is missing.
func together(all ...flagged) error {
	var names []string
	missing := ""
	for _, f := range all {
		names = append(names, f.name)
		if f.value == "" {
			missing = f.name
		}
	}
	if missing == "" {
		return nil
	}
	return usagef("they are given together, or none of them", "%s: %s is missing", strings.Join(names, ", "), missing)
}

// serverTLS is what clients are offered; nil without certificates.
func serverTLS(cert, key, clientCA string, told func(error)) (cfg *tls.Config, own identity, err error) {
	if cert == "" && key == "" {
		if clientCA != "" {
			err = usagef("--tls-cert and --tls-key name the node's own", "--tls-client-ca needs a certificate to serve TLS with")
		}
		return nil, own, err
	}
	if err = together(flagged{"--tls-cert", cert}, flagged{"--tls-key", key}); err != nil {
		return nil, own, err
	}
	if own, err = newIdentity(told, cert, key); err != nil {
		return nil, own, &failure{code: exitUsage, err: err, hint: "--tls-cert and --tls-key name PEM files that belong together"}
	}
	cfg = &tls.Config{GetCertificate: own.server, MinVersion: tls.VersionTLS12}
	if err = demandCertificates(cfg, clientCA, told); err != nil {
		return nil, own, err
	}
	return cfg, own, nil
}

// demandCertificates lets in only clients with a certificate that --tls-client-ca has signed.
func demandCertificates(cfg *tls.Config, clientCA string, told func(error)) error {
	if clientCA == "" {
		return nil
	}
	clients, err := newRoots(told, clientCA)
	if err != nil {
		return &failure{code: exitUsage, err: err, hint: "--tls-client-ca names the PEM file of the authorities that sign clients' certificates"}
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, clients.get()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := cfg.Clone()
		now.ClientCAs = clients.get()
		return now, nil
	}
	return nil
}

// peerTLS authenticates nodes to each other, in both directions.
func (s *serving) peerTLS(cfg *server.Config, told func(error)) error {
	if s.peerCert == "" && s.peerKey == "" && s.peerCA == "" {
		return nil
	}
	if err := together(flagged{"--peer-cert", s.peerCert}, flagged{"--peer-key", s.peerKey}, flagged{"--peer-ca", s.peerCA}); err != nil {
		return err
	}
	own, err := newIdentity(told, s.peerCert, s.peerKey)
	if err != nil {
		return &failure{code: exitUsage, err: err, hint: "--peer-cert and --peer-key name PEM files that belong together"}
	}
	roots, err := newRoots(told, s.peerCA)
	if err != nil {
		return &failure{code: exitUsage, err: err, hint: "--peer-ca names the PEM file of the authorities that sign the nodes' certificates"}
	}
	cfg.PeerTLS = &tls.Config{
		GetCertificate: own.server, GetClientCertificate: own.client,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
	cfg.PeerCAs = roots.get
	return nil
}
