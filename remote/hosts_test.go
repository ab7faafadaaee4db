package remote_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	_ "github.com/holdfast-io/holdfast/remote"
)

// A group is named by a list in which any node may have an IPv6 address.
func TestOpen_IPv6(t *testing.T) {
	for _, url := range []string{"holdfast://[::1]:1,[::1]:2", "holdfasts://[::1]:1,127.0.0.1:2", "holdfast://127.0.0.1:1,[::1]:2/team", "holdfast://[::1],[::1]"} {
		d, err := driver.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := d.Close(t.Context()); err != nil {
			t.Errorf("%s: Close: %v", url, err)
		}
	}
}

// What is wrong with the parameters of a URL is told without advice on its hosts: with certificates
// in a plain URL the scheme for them is named.
func TestOpen_Parameters(t *testing.T) {
	for url, want := range map[string]string{
		"holdfast://127.0.0.1:1?holdfast_tls_ca=ca.pem":                       "write holdfasts://",
		"holdfasts://127.0.0.1:1?holdfast_tls_ca=" + t.TempDir() + "/missing": "no such file",
		"holdfasts://127.0.0.1:1?holdfast_tls_cert=a":                         "belong together",
		"holdfasts://127.0.0.1:1?holdfast_tls_cax=a":                          "no parameter holdfast_tls_cax",
	} {
		_, err := driver.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "use holdfast://") {
			t.Errorf("%s: %v, want a word of %q", url, err, want)
		}
	}
}
