package hostlist_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/hostlist"
)

// Every host of a list may be an IPv6 address; what is beside the hosts is as in other URLs.
func TestParse(t *testing.T) {
	for raw, host := range map[string]string{
		"holdfast://[::1]:1,[::1]:2":                               "[::1]:1,[::1]:2",
		"holdfast://[::1]:1,127.0.0.1:2":                           "[::1]:1,127.0.0.1:2",
		"holdfast://127.0.0.1:1,[::1]:2":                           "127.0.0.1:1,[::1]:2",
		"holdfast://[::1],[::1]":                                   "[::1],[::1]",
		"holdfast://[::1],a,b:7":                                   "[::1],a,b:7",
		"holdfast://a:1,b:2":                                       "a:1,b:2",
		"holdfast://[::1]:1":                                       "[::1]:1",
		"holdfast://[fe80::1%25eth0]:1,[fe80::2%25eth0]:1":         "[fe80::1%eth0]:1,[fe80::2%eth0]:1",
		"holdfasts://[::1]:1,[::2]:2?holdfast_tls_ca=a,b%40[c.pem": "[::1]:1,[::2]:2",
		"holdfast://[::1]:1,[::1]:2/team%2Fa":                      "[::1]:1,[::1]:2",
		"holdfast://u,v:p%40,@[::1]:1,[::1]:2/team%2Fa?x=1#f":      "[::1]:1,[::1]:2",
		"holdfast://u@[::1]:1,[::1]:2?@":                           "[::1]:1,[::1]:2",
	} {
		u, err := hostlist.Parse(raw)
		if err != nil || u.Host != host {
			t.Errorf("%s: %+v, %v", raw, u, err)
			continue
		}
		if again, err := hostlist.Parse(u.String()); err != nil || again.String() != u.String() {
			t.Errorf("%s: read again, %s is %v, %v", raw, u, again, err)
		}
	}
}

func TestParse_BesideTheHosts(t *testing.T) {
	u, err := hostlist.Parse("holdfasts://u,v:p%40,@[::1]:1,b:2/team%2Fa?x=1,[#f")
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	got := []string{u.Scheme, u.User.Username(), password, u.EscapedPath(), u.Query().Get("x"), u.Fragment}
	if want := "holdfasts u,v p@, /team%2Fa 1,[ f"; strings.Join(got, " ") != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// A URL that is none is told without a part of it, which may be a password.
func TestParse_Bad(t *testing.T) {
	for _, raw := range []string{
		"holdfast://[::1]:1,[::1", "holdfast://[::1]:1,[127.0.0.1]:2", "holdfast://[::1]:1,[::1]:secret",
		"holdfast://[::1]:1,a b", "holdfast://[::1]:1,[secret]:2", "holdfast://[::1]secret,[::1]", "redis://:secret[,/x@host", "redis://:a b@[::1],[::1]",
		"holdfast://a[::1]:1", "[::1]:1,[::1]:2", "://[::1]:1,[::1]:2", "%",
	} {
		u, err := hostlist.Parse(raw)
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "brackets") {
			t.Errorf("%s: %v, %v", raw, u, err)
		}
	}
}
