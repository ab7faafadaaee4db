package limithttp

import (
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/middleware"
)

// Client is a key by the client's address: of IPv4 the address, of IPv6 its network
// of 64 bits, which one customer has. X-Forwarded-For counts only as far as it was
// written by proxies within these networks: from its end to the first address that is
// none of theirs. Whatever stands before that anybody can have written.
//
// What comes by a Unix socket comes from this machine: with proxies, from one of them;
// without, or if it names no client, all of it has the key "unix".
func Client(proxies ...netip.Prefix) func(*http.Request) (string, error) {
	proxies = plain(proxies)
	trusted := func(a netip.Addr) bool {
		if !a.IsValid() {
			return len(proxies) > 0
		}
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return func(r *http.Request) (string, error) {
		at, err := peer(r)
		if err != nil {
			return "", err
		}
		for text := range hops(r.Header.Values("X-Forwarded-For")) {
			if !trusted(at) {
				break
			}
			hop, ok := parse(text)
			if !ok {
				break // what cannot be read was not written by a proxy of ours
			}
			at = hop
		}
		if !at.IsValid() {
			return "unix", nil
		}
		return middleware.KeyOf(at), nil
	}
}

// plain are networks as addresses are compared with them: one of IPv4 in IPv6 (::ffff:10.0.0.0/104) is that of IPv4.
func plain(networks []netip.Prefix) []netip.Prefix {
	list := slices.Clone(networks)
	for i, p := range list {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			list[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return list
}

// peer is the address that a request comes from; the zero one is of a Unix socket. An
// address that an earlier handler has put there counts, as most do without a port.
func peer(r *http.Request) (netip.Addr, error) {
	if a, ok := parse(r.RemoteAddr); ok {
		return a, nil
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return netip.Addr{}, nil
	}
	return netip.Addr{}, fmt.Errorf("limithttp: the client has no address that can be read: %q", r.RemoteAddr)
}

// hops are the addresses of X-Forwarded-For, the last first. No more is read than is asked for:
// a stranger may have sent a million.
func hops(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, rest := range slices.Backward(lines) {
			for i := len(rest); i >= 0; {
				i = strings.LastIndexByte(rest, ',')
				if !yield(rest[i+1:]) {
					return
				}
				rest = rest[:max(i, 0)]
			}
		}
	}
}

// parse reads an address, with or without a port.
func parse(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return middleware.Plain(a), true
	}
	a, err := netip.ParseAddrPort(text)
	return middleware.Plain(a.Addr()), err == nil
}
