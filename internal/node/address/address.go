// Package address compares the addresses of nodes, HOST:PORT, as people write them: whether another
// node can dial one, and whether two of them are the same in other words. It looks nothing up: two
// names of one machine are two addresses, but for localhost.
package address

import (
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// Findable reports whether a node can be found from elsewhere at an address: it is HOST:PORT, an IPv6
// address in brackets, the host is one machine, and there is such a port. 0 is none: it is for
// the one that listens, which gets another.
func Findable(addr string) bool {
	host, port, ok := split(addr)
	return ok && !Anywhere(addr) && !ambiguous(host) && !beyond(port) && !misspelt(host, port)
}

// misspelt reports characters that no host has, or no port: those of a URL, of a list, of a line that
// goes on, or the sign of a number, with which one port had two spellings.
func misspelt(host, port string) bool {
	odd := func(more string) func(rune) bool {
		return func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune(more, r)
		}
	}
	_, err := netip.ParseAddr(host)
	return err != nil && strings.ContainsFunc(host, odd("-_.")) || strings.ContainsFunc(port, odd("-_")) || strings.HasPrefix(port, "-")
}

// beyond reports a number that no port has.
func beyond(port string) bool {
	n, err := strconv.ParseUint(port, 10, 64)
	return err == nil && n == 0 || n > math.MaxUint16 || errors.Is(err, strconv.ErrRange)
}

// ambiguous reports a host that ends as an IPv4 address does and is none, as 0177.0.0.1, 127.1 and
// 1.2.3.400: some programs look it up as a name, and others take it for an address, not always the same.
func ambiguous(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		last, digits = hex, digits+"abcdef"
	}
	_, err := netip.ParseAddr(host)
	return err != nil && strings.Trim(last, digits) == ""
}

// Anywhere reports an address that stands for all of a machine: without a host, 0.0.0.0, [::].
func Anywhere(addr string) bool {
	host, _, ok := split(addr)
	ip, err := netip.ParseAddr(host)
	return ok && (strings.Trim(host, ":.0") == "" || err == nil && ip.Unmap().IsUnspecified())
}

// Same reports whether two addresses are one; "" is none.
func Same(a, b string) bool { return a != "" && Canonical(a) == Canonical(b) }

// Canonical is the one spelling of an address. What is no HOST:PORT stays as it is, but for its case.
func Canonical(addr string) string {
	host, port, ok := split(addr)
	if !ok {
		return strings.ToLower(addr)
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if short := strings.TrimLeft(port, "0"); short != "" {
		port = short
	}
	return host + ":" + port
}

// split is the host, without brackets, and the port of an address; false: it is none.
func split(addr string) (host, port string, ok bool) {
	at := strings.LastIndexByte(addr, ':')
	if at < 0 || at == len(addr)-1 {
		return "", "", false
	}
	host, port = addr[:at], addr[at+1:]
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		host, ok = strings.CutSuffix(inner, "]")
		return host, port, ok
	}
	return host, port, !strings.Contains(host, ":")
}
