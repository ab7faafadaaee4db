// Package hostlist reads URLs that name several hosts, of which any may be an IPv6 address:
// holdfast://[::1]:7420,10.0.0.2:7420. Package net/url takes such a list only without brackets.
package hostlist

import (
	"errors"
	"net/url"
	"strings"
)

// errURL does not repeat the URL, nor a part of it: that may be a password.
var errURL = errors.New("not a URL; the special characters of a password have to be percent-encoded, a port is a number, and an IPv6 address is in brackets, as [::1]:7420")

// Parse is url.Parse that also takes a list of hosts with brackets. Host of the result is the
// list, with its commas; its String is not for url.Parse then, but for Parse.
func Parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		u, err = parseList(rawURL)
	}
	if err != nil {
		return nil, errURL
	}
	return u, nil
}

// parseList reads what is beside the hosts with the first of them, and each host alone.
func parseList(rawURL string) (*url.URL, error) {
	before, hosts, after := around(rawURL)
	list := strings.Split(hosts, ",")
	u, err := url.Parse(before + list[0] + after)
	for i := 0; i < len(list) && err == nil; i++ {
		list[i], err = hostOf(u.Scheme, list[i])
	}
	if err != nil {
		return nil, err
	}
	u.Host = strings.Join(list, ",")
	return u, nil
}

// around splits a URL where its hosts begin and end.
func around(rawURL string) (before, hosts, after string) {
	start := strings.Index(rawURL, "://") + len("://")
	if start < len("://") {
		return rawURL, "", ""
	}
	end := len(rawURL)
	if i := strings.IndexAny(rawURL[start:], "/?#"); i >= 0 {
		end = start + i
	}
	start += strings.LastIndex(rawURL[start:end], "@") + 1
	return rawURL[:start], rawURL[start:end], rawURL[end:]
}

// hostOf is one host as package net/url reads it.
func hostOf(scheme, host string) (string, error) {
	u, err := url.Parse(scheme + "://" + host)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}
