package natsconn

import (
	"errors"
	"net/url"

	"github.com/holdfast-io/holdfast/internal/trust"
)

// Params reads the parameters of a URL of NATS: those of TLS are left to package trust, addr
// are further servers, which are returned after the URL's own, and set takes each other one.
func Params(u *url.URL, set func(param, value string) error) (addrs []string, err error) {
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("a parameter cannot be read; the special characters of its value have to be percent-encoded")
	}
	addrs = []string{u.Host}
	for name, values := range params {
		switch {
		case name == "addr":
			addrs = append(addrs, values...)
		case trust.Is(name):
		default:
			if err := set(name, values[0]); err != nil {
				return nil, err
			}
		}
	}
	return addrs, nil
}

// InMemory reads what the parameter storage says.
func InMemory(value string) (bool, error) {
	if value != "memory" && value != "file" {
		return false, errors.New("it is file or memory")
	}
	return value == "memory", nil
}
