package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/hostlist"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
)

// nodes are the addresses of the server that the settings name.
func (a *app) nodes() (hosts []string, creds credentials.TransportCredentials, err error) {
	if a.url == "" {
		a.url = "holdfast://" + defaultListen
	}
	u, err := hostlist.Parse(a.url)
	if err != nil {
		return nil, nil, &failure{code: exitUsage, err: err, hint: "name a server with --url holdfast://host:port"}
	}
	cfg, err := remote.ParseURL(u)
	if err != nil && u.RawQuery != "" && strings.HasPrefix(u.Scheme, "holdfast") {
		return nil, nil, &failure{code: exitUsage, err: err, hint: "correct --url; nothing was asked"}
	}
	if err != nil {
		return nil, nil, &failure{code: exitUsage, err: err, hint: "name a server with --url holdfast://host:port"}
	}
	creds = insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	return cfg.Endpoints, creds, nil
}

// onNode calls f with a node's connection, which has to stand within some time: a machine
// that is gone without a word must not use up that of the next; 0: as long as ctx lasts. NotDone:
// f was not called.
func onNode(ctx context.Context, host string, creds credentials.TransportCredentials, within time.Duration, f func(*grpc.ClientConn) error) error {
	patient := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Hour} // reach has the bound
	conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(creds), grpc.WithConnectParams(patient))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = reach(ctx, conn, pb.NewAdminServiceClient(conn), within); err == nil {
		err = f(conn)
	}
	if _, ok := status.FromError(err); ok {
		err = wire.Error(err)
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok && e.Op == "" {
		e.Op, e.Name = "ask", host
	}
	return err
}

// reach waits until a connection stands, and says why not.
func reach(ctx context.Context, conn *grpc.ClientConn, c pb.AdminServiceClient, within time.Duration) error {
	limited := ctx
	if within > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.TransientFailure {
			return unreached(limited, c)
		}
		if conn.WaitForStateChange(limited, state) || limited.Err() == nil {
			continue
		}
		switch cause := context.Cause(ctx); {
		case cause == errTimeout:
			return driver.Errorf("", "", context.DeadlineExceeded, "no connection in time")
		case cause != nil:
			return cause
		}
		return driver.Errorf("", "", driver.ErrUnavailable, "no connection within %s", within)
	}
	return nil
}

// unreached is why a connection does not stand, which a call that changes nothing is told;
// nil: it does by now.
func unreached(ctx context.Context, c pb.AdminServiceClient) error {
	_, err := c.Status(ctx, &pb.StatusRequest{})
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		return nil
	}
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: errors.New(status.Convert(err).Message())}
}

// administering is a command for the leader that changes something: each node is asked until
// one says yes, or why not.
func (a *app) administering(run func(ctx context.Context, c pb.AdminServiceClient, args []string) error) func(*cobra.Command, []string) error {
	return a.ordering(holdfast.NotDone, run)
}

// reading is administering for what may be asked twice.
func (a *app) reading(run func(ctx context.Context, c pb.AdminServiceClient, args []string) error) func(*cobra.Command, []string) error {
	return a.ordering(always, run)
}

func always(error) bool { return true }

func (a *app) ordering(again func(error) bool, run func(ctx context.Context, c pb.AdminServiceClient, args []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		return untilSignal(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
			defer cancel()
			end := time.Now().Add(a.timeout)
			left := func() time.Duration { return time.Until(end) }
			return unfit(unanswered(a.onNodes(ctx, left, again, func(c *grpc.ClientConn) error { return run(ctx, pb.NewAdminServiceClient(c), args) })))
		})
	}
}

// onNodes runs a call on one node after the other, until one answers. One that may have done
// it is the last: the next would say that there is nothing to do, as if it was refused. One that
// denies it is not: it has done nothing, and another may be on this machine, which it obeys. A node
// has its share of the time that is left to connect, the last one all of it.
func (a *app) onNodes(ctx context.Context, left func() time.Duration, again func(error) bool, run func(*grpc.ClientConn) error) error {
	hosts, creds, err := a.nodes()
	if err != nil {
		return err
	}
	var denied error
	for i, host := range hosts {
		within := time.Duration(0)
		if next := len(hosts) - i; next > 1 {
			within = left() / time.Duration(next)
		}
		err = onNode(ctx, host, creds, within, run)
		switch {
		case errors.Is(err, fs.ErrPermission):
			denied = err
		case !errors.Is(err, holdfast.ErrUnavailable):
			return err
		case !again(err):
			return fmt.Errorf("%w; it may be done all the same: look before you repeat it", err)
		}
	}
	if denied != nil {
		return denied
	}
	return err
}

// nodeJSON is a node's own word for programs.
type nodeJSON struct {
	Address  string `json:"address"`
	Error    string `json:"error,omitempty"`
	ID       uint64 `json:"id,string,omitempty"`
	Cluster  uint64 `json:"cluster,string,omitempty"`
	Leader   uint64 `json:"leader,string"`
	Serving  bool   `json:"serving"`
	Term     uint64 `json:"term,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	Applied  uint64 `json:"applied,omitempty"`
	Snapshot uint64 `json:"snapshot,omitempty"`
	Waiting  int64  `json:"waiting"`
	// Version is that of the group; the node supports those from Least to Newest.
	Version uint32 `json:"version,omitempty"`
	Least   uint32 `json:"least_version,omitempty"`
	Newest  uint32 `json:"newest_version,omitempty"`
	// Check is the log entry of the last state check, CheckResult what the node knows of
	// its own outcome.
	Check       uint64 `json:"check,string,omitempty"`
	CheckAgeMs  int64  `json:"check_age_ms,string,omitempty"`
	CheckResult string `json:"check_result,omitempty"`
	Healing     bool   `json:"healing,omitempty"`
	Frozen      bool   `json:"frozen,omitempty"`
	HeldMs      int64  `json:"held_ms,string,omitempty"`
	DiskFull    bool   `json:"disk_full,omitempty"`
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Tell where the nodes of a Holdfast server stand", Args: cobra.NoArgs, Example: "  holdfast status\n  holdfast --url holdfast://a:7420,b:7420,c:7420 status",
		RunE: func(*cobra.Command, []string) error { return untilSignal(a.status) },
	}
}

func (a *app) status(ctx context.Context) error {
	hosts, creds, err := a.nodes()
	if err != nil {
		return err
	}
	all := make([]nodeJSON, len(hosts))
	var asked sync.WaitGroup // at once: each silent node takes all of the timeout
	for i, host := range hosts {
		asked.Go(func() { all[i] = a.askNode(ctx, host, creds) })
	}
	asked.Wait()
	var rows [][]string
	var silent []string
	for i := range all {
		if n := &all[i]; n.Error != "" {
			silent = append(silent, fmt.Sprintf("%s does not answer: %s", n.Address, n.Error))
		}
		rows = append(rows, nodeRow(&all[i]))
	}
	if err := a.print().table(all, []string{"ADDRESS", "NODE", "ROLE", "TERM", "REVISION", "APPLIED", "SNAPSHOT", "WAITING", "VERSION", "SUPPORTS", "CHECK"}, rows); err != nil {
		return err
	}
	if several := severalClusters(all); several != "" {
		return &failure{code: exitNo, err: errors.New(strings.Join(append(silent, several), "; ")), hint: severalHint}
	}
	if len(silent) == 0 {
		return nil
	}
	text := strings.Join(silent, "; ")
	return &failure{code: exitNo, err: errors.New(text), hint: cmp.Or(trustHint(text), "is it running? start it with holdfast serve")}
}

// severalHint says what to do about nodes of several clusters.
const severalHint = "decide for one, and name its nodes alone in --url, here and for all clients; stop the nodes of the others for good: to go on they join that one, each on an empty directory, with its --cluster-id and a number of their own (docs/operate.md, A lost majority)"

// severalClusters says of which clusters nodes are, if they are of more than one: each grants what the others
// grant, too.
func severalClusters(nodes []nodeJSON) string {
	of := map[uint64][]string{}
	for i := range nodes {
		if n := &nodes[i]; n.Error == "" {
			of[n.Cluster] = append(of[n.Cluster], n.Address)
		}
	}
	if len(of) < 2 {
		return ""
	}
	var parts []string
	for _, cluster := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("cluster %d at %s", cluster, strings.Join(of[cluster], ", ")))
	}
	return fmt.Sprintf("these are nodes of %d clusters, each of which grants the same once more: %s", len(of), strings.Join(parts, "; "))
}

func (a *app) askNode(ctx context.Context, host string, creds credentials.TransportCredentials) nodeJSON {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
	defer cancel()
	n := nodeJSON{Address: host}
	err := onNode(ctx, host, creds, 0, func(c *grpc.ClientConn) error {
		st, err := pb.NewAdminServiceClient(c).Status(ctx, &pb.StatusRequest{})
		h := st.GetHeader()
		n.ID, n.Cluster, n.Term, n.Revision = h.GetMemberId(), h.GetClusterId(), h.GetRaftTerm(), uint64(h.GetRevision())
		n.Leader, n.Serving, n.Applied, n.Snapshot, n.Waiting = st.GetLeader(), st.GetServing(), st.GetApplied(), st.GetSnapshot(), st.GetWaiting()
		n.Version = st.GetVersion()
		n.Check, n.CheckAgeMs, n.CheckResult, n.Healing, n.Frozen = st.GetCheck(), st.GetCheckAgeMs(), st.GetCheckResult(), st.GetHealing(), st.GetFrozen()
		n.HeldMs, n.DiskFull = st.GetHeldMs(), st.GetDiskFull()
		for _, m := range st.GetMembers() {
			if m.GetId() == n.ID {
				n.Least, n.Newest = m.GetLeastVersion(), m.GetNewestVersion()
			}
		}
		return err
	})
	if err != nil {
		n.Error = strings.TrimPrefix(err.Error(), "holdfast: ")
	}
	return n
}

func nodeRow(n *nodeJSON) []string {
	number := func(x uint64) string { return strconv.FormatUint(x, 10) }
	role := "follows " + number(n.Leader)
	switch {
	case n.Error != "":
		return []string{n.Address, "-", "does not answer", "-", "-", "-", "-", "-", "-", "-", "-"}
	case n.Serving:
		role = "leads"
	case n.Leader == 0:
		role = "knows no leader"
	}
	if n.DiskFull {
		role += "; its disk is full"
	}
	return []string{n.Address, number(n.ID), role, number(n.Term), number(n.Revision), number(n.Applied), number(n.Snapshot), strconv.FormatInt(n.Waiting, 10),
		n.version(), n.supports(), n.check()}
}

// version and supports are "-" of a node that belongs to no group yet, which would tell them.
func (n *nodeJSON) version() string {
	if n.Version == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(n.Version), 10)
}

func (n *nodeJSON) supports() string {
	if n.Newest == 0 {
		return "-"
	}
	return fmt.Sprintf("%d-%d", n.Least, n.Newest)
}

// check is the last state check in words.
func (n *nodeJSON) check() string {
	word := "-"
	if n.Check != 0 {
		age := time.Duration(n.CheckAgeMs) * time.Millisecond
		word = fmt.Sprintf("%s at %d, %s ago", n.CheckResult, n.Check, age.Round(time.Second))
	}
	switch {
	case n.Healing:
		word += "; heals"
	case n.HeldMs > 0 && !n.Serving:
		word += "; grants nothing yet: the leader tells how long"
	case n.HeldMs > 0:
		held := time.Duration(n.HeldMs) * time.Millisecond
		word += fmt.Sprintf("; grants nothing for another %s", held.Round(time.Second))
	case n.Frozen:
		word += "; frozen"
	}
	return word
}

func (a *app) memberCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "member", Short: "List and change the nodes of a group", Args: subcommand,
		Example: "  holdfast member ls\n  holdfast member add 4 10.0.0.4:7421 10.0.0.4:7420\n  holdfast member promote 4\n  holdfast member remove 2\n  holdfast member lead 3",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the members", Args: cobra.NoArgs, Example: "  holdfast member ls", RunE: a.reading(a.members)},
		&cobra.Command{Use: "add NUMBER PEER CLIENT", Short: "Add a node, which was started with --join; it does not vote before it is promoted", Args: cobra.ExactArgs(3), Example: "  holdfast member add 4 10.0.0.4:7421 10.0.0.4:7420",
			RunE: a.administering(func(ctx context.Context, c pb.AdminServiceClient, args []string) error {
				m, err := nodeAt(args)
				if err != nil {
					return err
				}
				_, err = c.ChangeMembers(ctx, &pb.ChangeMembersRequest{Add: []*pb.Member{m}})
				return a.changed(taken(err), "node %d was added; promote it when it has caught up: holdfast member promote %[1]d", m.GetId())
			})},
		&cobra.Command{Use: "promote NUMBER", Short: "Let a node vote that has caught up", Args: cobra.ExactArgs(1), Example: "  holdfast member promote 4",
			RunE: a.change("node %d votes", func(id uint64) *pb.ChangeMembersRequest { return &pb.ChangeMembersRequest{Promote: []uint64{id}} })},
		&cobra.Command{Use: "remove NUMBER", Short: "Remove a node; its number is never used again", Args: cobra.ExactArgs(1), Example: "  holdfast member remove 2",
			RunE: a.change("node %d was removed", func(id uint64) *pb.ChangeMembersRequest { return &pb.ChangeMembersRequest{Remove: []uint64{id}} })},
		&cobra.Command{Use: "update NUMBER PEER CLIENT", Short: "Tell the group a node's new addresses", Args: cobra.ExactArgs(3), Example: "  holdfast member update 2 10.0.0.9:7421 10.0.0.9:7420",
			RunE: a.administering(func(ctx context.Context, c pb.AdminServiceClient, args []string) error {
				m, err := nodeAt(args)
				if err != nil {
					return err
				}
				_, err = c.ChangeMembers(ctx, &pb.ChangeMembersRequest{Update: []*pb.Member{m}})
				return a.changed(taken(err), "node %d is found at %s, and by clients at %s", m.GetId(), m.GetPeerAddress(), m.GetClientAddress())
			})},
		&cobra.Command{Use: "replace NUMBER [PEER CLIENT]", Short: "Give a node that lost its data a new number", Args: cobra.RangeArgs(1, 3), Example: "  holdfast member replace 2",
			RunE: a.administering(a.replaceMember)},
		&cobra.Command{Use: "check", Short: "Have the nodes compare their states now", Args: cobra.NoArgs, Example: "  holdfast member check",
			RunE: a.administering(func(ctx context.Context, c pb.AdminServiceClient, _ []string) error {
				_, err := c.CheckState(ctx, &pb.CheckStateRequest{})
				return a.changed(err, "the nodes compare their states: see holdfast status")
			})},
		&cobra.Command{Use: "unfreeze [NUMBER]", Short: "End a freeze with the state of one node, else of the leader: the others take it over", Args: cobra.MaximumNArgs(1), Example: "  holdfast member unfreeze 2",
			RunE: a.administering(a.unfreeze)},
		&cobra.Command{Use: "lead NUMBER", Short: "Ask the leader to hand over to a node", Args: cobra.ExactArgs(1), Example: "  holdfast member lead 3",
			RunE: a.administering(func(ctx context.Context, c pb.AdminServiceClient, args []string) error {
				id, err := nodeNumber(args[0])
				if err != nil {
					return err
				}
				_, err = c.MoveLeader(ctx, &pb.MoveLeaderRequest{Id: id})
				return a.changed(err, "the leader was asked to hand over to node %d: see holdfast status", id)
			})},
	)
	return cmd
}

// unfreeze has the nodes of a group take over the state of one of them, after a check
// without a majority.
func (a *app) unfreeze(ctx context.Context, c pb.AdminServiceClient, args []string) error {
	id, source := uint64(0), "the leader"
	if len(args) > 0 {
		var err error
		if id, err = nodeNumber(args[0]); err != nil {
			return err
		}
		source = "node " + args[0]
	}
	_, err := c.Unfreeze(ctx, &pb.UnfreezeRequest{Id: id})
	return a.changed(err, "the nodes take over the state of %s, then grants go on: see holdfast status", source)
}

// replaceMember takes out the number of a node that lost its data, and gives the node another.
func (a *app) replaceMember(ctx context.Context, c pb.AdminServiceClient, args []string) error {
	m, err := nodeAt(args)
	if err != nil {
		return err
	}
	r, err := c.ChangeMembers(ctx, &pb.ChangeMembersRequest{Replace: []*pb.Member{m}})
	return a.changed(taken(err), "node %d is node %d from now on: start it with an empty directory; if node %[1]d voted, it votes when it has caught up", m.GetId(), r.GetNumber())
}

// nodeAt is the node that arguments name by its number alone, or with both its addresses.
func nodeAt(args []string) (*pb.Member, error) {
	id, err := nodeNumber(args[0])
	switch {
	case err != nil:
		return nil, err
	case len(args) == 1:
		return &pb.Member{Id: id}, nil
	case len(args) == 2 || args[1] == "" || args[2] == "":
		return nil, usagef("name both, or, for member replace, none if they are as before", "a node has two addresses, for other nodes and for clients")
	}
	return &pb.Member{Id: id, PeerAddress: args[1], ClientAddress: args[2]}, nil
}

func nodeNumber(s string) (uint64, error) {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || id == 0 {
		return 0, &failure{code: exitUsage, err: fmt.Errorf("%q is not a node's number", s), hint: "see holdfast member ls"}
	}
	return id, nil
}

// change is a change of the membership by a node's number.
func (a *app) change(text string, request func(id uint64) *pb.ChangeMembersRequest) func(*cobra.Command, []string) error {
	return a.administering(func(ctx context.Context, c pb.AdminServiceClient, args []string) error {
		id, err := nodeNumber(args[0])
		if err != nil {
			return err
		}
		_, err = c.ChangeMembers(ctx, request(id))
		return a.changed(err, text, id)
	})
}

func (a *app) changed(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return a.print().value(map[string]bool{"done": true}, format, args...)
}

// memberJSON is a member for programs.
type memberJSON struct {
	ID      uint64 `json:"id,string"`
	Peer    string `json:"peer"`
	Client  string `json:"client"`
	Learner bool   `json:"learner"`
}

// membersOf asks the leader, which any node knows: another may be behind.
func (a *app) membersOf(ctx context.Context, c pb.AdminServiceClient) ([]*pb.Member, error) {
	st, err := c.Status(ctx, &pb.StatusRequest{})
	if err != nil || st.GetServing() {
		return st.GetMembers(), err
	}
	addr := leaderOf(st)
	if addr == "" {
		return nil, driver.Errorf("list members", "", driver.ErrUnavailable, "this node knows no leader, or no address of it for clients: see holdfast status, or name all nodes in --url")
	}
	_, creds, err := a.nodes()
	if err != nil {
		return nil, err
	}
	err = onNode(ctx, addr, creds, a.timeout/4, func(c *grpc.ClientConn) (err error) { // else the next node of --url is asked
		if st, err = pb.NewAdminServiceClient(c).Status(ctx, &pb.StatusRequest{}); err == nil && !st.GetServing() {
			err = driver.Errorf("list members", "", driver.ErrUnavailable, "node %d, at %s, does not lead any more: try again", st.GetHeader().GetMemberId(), addr)
		}
		return err
	})
	return st.GetMembers(), err
}

// leaderOf is where clients find the leader that a node knows; "": that is not known.
func leaderOf(st *pb.StatusResponse) string {
	for _, m := range st.GetMembers() {
		if m.GetId() == st.GetLeader() {
			return m.GetClientAddress()
		}
	}
	return ""
}

func (a *app) members(ctx context.Context, c pb.AdminServiceClient, _ []string) error {
	list, err := a.membersOf(ctx, c)
	if err != nil {
		return err
	}
	all := []memberJSON{}
	var rows [][]string
	for _, m := range list {
		all = append(all, memberJSON{m.GetId(), m.GetPeerAddress(), m.GetClientAddress(), m.GetLearner()})
		role := "votes"
		if m.GetLearner() {
			role = "learns"
		}
		rows = append(rows, []string{strconv.FormatUint(m.GetId(), 10), role, dash(m.GetPeerAddress()), dash(m.GetClientAddress())})
	}
	return a.print().table(all, []string{"NODE", "ROLE", "PEER", "CLIENT"}, rows)
}
