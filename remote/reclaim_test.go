package remote_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// holdEnv makes the test binary a holder at the node that it names, until it is killed.
const holdEnv = "REMOTE_TEST_HOLD"

// holdAlone is that other process: it says its token.
func holdAlone(url string) error {
	ctx := context.Background()
	s, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	h, err := s.Mutex("killed", lapses()...).Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Println(uint64(h.Token()))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

const reclaimGrace = time.Second

func lapses() []holdfast.HoldOption {
	return []holdfast.HoldOption{holdfast.TTL(2 * time.Second), holdfast.ReclaimOnDemand(reclaimGrace), holdfast.Owner("old")}
}

// A holder that is killed, cut off or merely silent is told as stale, its name is
// reclaimed with a new token when another wants it and the grace has passed, and what it
// says afterwards changes nothing.
func TestReclaim(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, steady)
	for name, hold := range map[string]func(*testing.T, *group) (token holdfast.Token, late func() error){
		"killed": killedHolder, "cut off": cutOffHolder, "silent": silentHolder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAt(t, g.cfgs[0].Founders[0].Client)
			next, stop := iter.Pull2(s.Watch(t.Context(), name, 0, holdfast.Patterns{"lock:*"}))
			defer stop()
			sees(t, next, "watch:ready", 0)
			token, late := hold(t, g)
			sees(t, next, "lock:acquired", token)
			sees(t, next, "lock:stale", token)
			h, err := s.Mutex(name).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sees(t, next, "lock:queued", 0)
			sees(t, next, "lock:reclaimed", token)
			sees(t, next, "lock:acquired", h.Token())
			if err := late(); !errors.Is(err, holdfast.ErrLost) || h.Token() <= token {
				t.Errorf("the late release of %d, now %d: %v", token, h.Token(), err)
			}
			if info, err := s.Inspect(t.Context(), name); err != nil || len(info.Holders) != 1 || info.Holders[0].Token != h.Token() {
				t.Errorf("after the late release: %+v, %v", info, err)
			}
		})
	}
}

// sees expects what the watch tells next.
func sees(t *testing.T, next func() (holdfast.Event, error, bool), what string, token holdfast.Token) {
	t.Helper()
	e, err, _ := next()
	if err != nil || e.Kind+":"+e.Verb != what || token != 0 && e.Token != token {
		t.Fatalf("the watch tells %s of token %d (%v), want %s of %d", e.String(), e.Token, err, what, token)
	}
}

func killedHolder(t *testing.T, g *group) (holdfast.Token, func() error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+g.url())
	cmd.Stderr = t.Output()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	token, err2 := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	if err := errors.Join(err, err2, cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	return holdfast.Token(token), func() error { return holdfast.ErrLost }
}

func cutOffHolder(t *testing.T, g *group) (holdfast.Token, func() error) {
	link := services.Proxy(t, g.cfgs[0].Founders[0].Client)
	h, err := openAt(t, link.Addr()).Mutex("cut off", lapses()...).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link.Cut()
	return h.Token(), func() error { link.Heal(); return h.Release() }
}

func silentHolder(t *testing.T, g *group) (holdfast.Token, func() error) {
	h, err := openAt(t, g.cfgs[0].Founders[0].Client).Mutex("silent", append(lapses(), holdfast.ManualRenew())...).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h.Token(), h.Release
}
