package servers

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// zookeeper is one ZooKeeper server of Debian's package.
type zookeeper struct{ node *services.Process }

var zookeeperProgram = programs.Program{
	Package: "zookeeper", Executables: [][]string{{"zkServer.sh"}}, Places: []string{"/usr/share/zookeeper/bin"}, Tool: true,
}

// startZooKeeper runs it without the package's scripts, which want its user and
// its directories. It syncs every write, which is its default.
func startZooKeeper(t *testing.T) *zookeeper {
	if _, err := zookeeperProgram.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	addr := services.Addr(t)
	host, port, _ := net.SplitHostPort(addr)
	z := &zookeeper{services.Start(t, "zookeeper", addr, func(dir string) *exec.Cmd {
		conf := filepath.Join(dir, "zoo.cfg")
		text := fmt.Sprintf("tickTime=2000\ndataDir=%s/data\nclientPort=%s\nclientPortAddress=%s\nmaxClientCnxns=0\nadmin.enableServer=false\n", dir, port, host)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return &exec.Cmd{Err: err}
		}
		return exec.Command("java", "-Xmx1000m", "-cp", "/usr/share/java/slf4j-nop.jar:/usr/share/java/zookeeper.jar",
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
	})}
	z.await(t)
	return z
}

// await waits until it serves: it accepts connections before it does, and forgets
// those until they time out.
func (z *zookeeper) await(t *testing.T) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if answers(z.node.Addr()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("ZooKeeper does not answer within a minute")
		}
	}
}

// answers asks for the server's state.
func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return false
	}
	text, _ := io.ReadAll(conn)
	return strings.Contains(string(text), "Mode: standalone")
}

func (z *zookeeper) meter() meter { return metering(z.node) }

type silent struct{}

func (silent) Printf(string, ...any) {}

// conns are programs: one connection and session each.
func (z *zookeeper) conns(t *testing.T, n int) []*zk.Conn {
	all := make([]*zk.Conn, n)
	for i := range all {
		c, _, err := zk.Connect([]string{z.node.Addr()}, 30*time.Second, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		all[i] = c
	}
	return all
}

func zkLock(c *zk.Conn, name string) lock {
	l := zk.NewLock(c, name, zk.WorldACL(zk.PermAll))
	return func() (func() error, error) { return l.Unlock, l.Lock() }
}

func (z *zookeeper) pairs(t *testing.T, callers int) turn {
	conns := z.conns(t, connections(callers))
	return each(many(callers, func(i int) func() error {
		return pair(zkLock(conns[i/perConnection], fmt.Sprint("/pair-", i)))
	}), z.meter())
}

func (z *zookeeper) crowd(t *testing.T, callers int) turn {
	conns := z.conns(t, callers)
	return handOver(many(callers, func(i int) lock { return zkLock(conns[i], fmt.Sprint("/crowd-", callers)) }), z.meter())
}
