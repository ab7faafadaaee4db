package redishold_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestEviction: a server that forgets locks when its memory is full is refused,
// and the setting is named.
func TestEviction(t *testing.T) {
	server := services.Redis(t, services.Setting("maxmemory", "100mb"))
	rc := admin(t, server.URL())
	do(t, rc, "ACL", "SETUSER", "uninformed", "on", ">secret", "~*", "&*", "+@all", "-info")
	for policy, fits := range map[string]bool{
		"allkeys-lru": false, "allkeys-lfu": false, "allkeys-random": false,
		"noeviction": true, "volatile-lru": true, "volatile-ttl": true,
	} {
		do(t, rc, "CONFIG", "SET", "maxmemory-policy", policy)
		for how, err := range map[string]error{
			"Open": second(opened(t.Context(), server.URL())),
			"New":  second(onClient(t, rc).Mutex("m").TryAcquire(t.Context())),
			"KV":   second(onClient(t, rc).KV().Put(t.Context(), "k", nil)),
		} {
			refused := errors.Is(err, errors.ErrUnsupported) && strings.Contains(err.Error(), "maxmemory-policy is "+policy)
			if fits && err != nil && !errors.Is(err, holdfast.ErrHeld) || !fits && !refused {
				t.Errorf("%s with %s: %v", how, policy, err)
			}
		}
		if err := second(opened(t.Context(), strings.Replace(server.URL(), "redis://", "redis://uninformed:secret@", 1))); err != nil {
			t.Errorf("a user who cannot ask, with %s: %v", policy, err)
		}
	}
}

// opened opens a Space and closes it again.
func opened(ctx context.Context, url string) (*holdfast.Space, error) {
	s, err := holdfast.Open(ctx, url)
	if err == nil {
		err = s.Close()
	}
	return s, err
}

// TestRedLockEviction: its locks have an expiry, so that volatile-* takes them, too.
func TestRedLockEviction(t *testing.T) {
	servers := services.RedisN(t, 3)
	address := redlockURL(servers[0].Addr(), servers[1].Addr(), servers[2].Addr())
	for _, policy := range []string{"allkeys-lru", "volatile-lru"} {
		do(t, admin(t, servers[2].URL()), "CONFIG", "SET", "maxmemory-policy", policy)
		_, err := opened(t.Context(), address)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "maxmemory-policy is "+policy) {
			t.Errorf("one of three servers with %s: %v", policy, err)
		}
	}
	do(t, admin(t, servers[2].URL()), "CONFIG", "SET", "maxmemory-policy", "noeviction")
	if _, err := opened(t.Context(), address); err != nil {
		t.Error(err)
	}
}

// TestNoKeyExpires: a server that evicts keys with an expiry (volatile-*) takes
// nothing of ours: not a hold, nor what is remembered of a request or of a counter
// that was deleted.
func TestNoKeyExpires(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	acquire(t, s, "m")
	if err := errors.Join(s.Counter("deleted").Store(t.Context(), 1), s.Counter("deleted").Delete(t.Context())); err != nil {
		t.Fatal(err)
	}
	keys := matching(t, rc, "*")
	for _, key := range keys {
		if ttl := do(t, rc, "PTTL", key); ttl != "-1" {
			t.Errorf("the key %s goes by itself in %s ms", key, ttl)
		}
	}
	if len(keys) < 4 {
		t.Errorf("there are only the keys %q", keys)
	}
}

// TestVersion: what has no version is taken over, and what a newer program wrote is
// refused, also by one that has it open.
func TestVersion(t *testing.T) {
	server := services.Redis(t)
	rc := admin(t, server.URL())
	s := open(t, server.URL())
	if v := do(t, rc, "GET", "{holdfast}:version"); v == "" {
		t.Fatal("there is no version")
	}
	hold, err := s.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, rc, "DEL", "{holdfast}:version")
	if _, err := open(t, server.URL()).Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("what is there without a version is not seen: %v", err)
	}
	do(t, rc, "SET", "{holdfast}:version", "99")
	for what, err := range map[string]error{
		"Open":        second(opened(t.Context(), server.URL())),
		"New":         second(onClient(t, rc).Mutex("x").TryAcquire(t.Context())),
		"new session": second(s.Session(t.Context())),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := do(t, rc, "GET", "{holdfast}:version"); got != "99" {
		t.Errorf("the version became %s", got)
	}
	if _, err := opened(t.Context(), server.URL()+"?holdfast_prefix=other"); err != nil {
		t.Errorf("another prefix: %v", err)
	}
	if err := hold.Release(); err != nil {
		t.Errorf("the hold of before: %v", err)
	}
}
