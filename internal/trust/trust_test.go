package trust_test

import (
	"crypto/tls"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/trust"
)

func TestRead(t *testing.T) {
	dir, ours := t.TempDir(), services.NewAuthority(t, "ours")
	ca, cert, key := ours.WriteRoots(t, dir), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "client"), cert, key)
	for _, c := range []struct {
		params []string
		plain  bool
		says   string // "": taken
	}{
		{params: nil, plain: true},
		{params: []string{"other", "1"}, plain: true},
		{params: []string{"ca", ca}},
		{params: []string{"ca", ca, "cert", cert, "key", key}},
		{params: []string{"ca", ca}, plain: true, says: "scheme is not"},
		{params: []string{"cert", cert}, says: "belong together"},
		{params: []string{"key", key}, says: "belong together"},
		{params: []string{"ca", key}, says: "no certificate in PEM"},
		{params: []string{"ca", ca + "x"}, says: "no such file"},
		{params: []string{"cert", ca, "key", key}, says: "holdfast_tls_cert: "},
		{params: []string{"nonsense", "1"}, says: "no parameter holdfast_tls_nonsense"},
	} {
		q, cfg := url.Values{}, &tls.Config{}
		for i := 0; i < len(c.params); i += 2 {
			name := c.params[i]
			if name != "other" {
				name = "holdfast_tls_" + name
			}
			q.Set(name, c.params[i+1])
		}
		if c.plain {
			cfg = nil
		}
		err := trust.Read(cfg, q)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.params, err, c.says)
		}
		if err == nil && q.Has("holdfast_tls_ca") && !cfg.RootCAs.Equal(ours.Roots()) {
			t.Errorf("%v: another authority is believed", c.params)
		}
		if err == nil && len(q) == 3 && len(cfg.Certificates) != 1 {
			t.Errorf("%v: %d certificates are shown", c.params, len(cfg.Certificates))
		}
	}
}
