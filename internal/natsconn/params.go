package natsconn

import (
	"errors"
	"net/url"

	"github.com/holdfast-io/holdfast/internal/trust"
)

// Params reads the parameters of a URL of NATS: those of TLS are left to package trust, addr
// are further servers, which are returned after the URL's own, and set takes each other one.
func Params(u *url.URL, set func(param, value string) error) (addrs []string, err error) {
	addrs = []string{u.Host}
	for name, values := range u.Query() {
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
