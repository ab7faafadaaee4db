package limithttp

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client is a key by the client's address: of IPv4 the address, of IPv6 its network
// of 64 bits, which one customer has. X-Forwarded-For counts only as far as it was
// written by proxies within these networks: from its end to the first address that is
// none of theirs. Whatever stands before that anybody can have written.
func Client(proxies ...netip.Prefix) func(*http.Request) (string, error) {
	trusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return func(r *http.Request) (string, error) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return "", fmt.Errorf("limithttp: the address %q of the client: %w", r.RemoteAddr, err)
		}
		at := plain(peer.Addr())
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for i := len(hops) - 1; i >= 0 && trusted(at); i-- {
			hop, ok := parse(hops[i])
			if !ok {
				break // what cannot be read was not written by a proxy of ours
			}
			at = hop
		}
		return keyOf(at), nil
	}
}

// plain is an address without a zone, and of IPv4 in IPv6 the IPv4.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// parse reads an address of X-Forwarded-For, with or without a port.
func parse(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return plain(a), true
	}
	a, err := netip.ParseAddrPort(text)
	return plain(a.Addr()), err == nil
}

func keyOf(a netip.Addr) string {
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.String()
	}
	return a.String()
}
