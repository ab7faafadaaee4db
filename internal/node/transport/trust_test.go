package transport_test

import (
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// lateClock is the clock of a machine that is a year ahead, and another at each look.
func lateClock() func() time.Time {
	var looks atomic.Int64
	return func() time.Time { return time.Now().AddDate(1, 0, 0).Add(time.Duration(looks.Add(1)) * time.Minute) }
}

// refusals are what was told of n connections that node 1 begins to node 2, on both sides; "": nothing.
func refusals(t *testing.T, n int, from, to *tls.Config) (dials, answers []string) {
	t.Helper()
	told := func(c chan error) func(uint64, error) { return func(_ uint64, err error) { c <- err } }
	here, there := make(chan error, 100), make(chan error, 100)
	b := start(t, transport.Config{ID: 2, TLS: to, Refused: told(there)})
	a := start(t, transport.Config{ID: 1, TLS: from, Refused: told(here)})
	a.SetPeers(map[uint64]string{2: b.addr})
	for range n {
		if a.SendSnapshot(2, []byte("meta"), strings.NewReader("x")) == nil {
			t.Fatal("the other was let in")
		}
	}
	a.Close()
	b.Close()
	return drained(here), drained(there)
}

func drained(c chan error) (texts []string) {
	for len(c) > 0 {
		texts = append(texts, (<-c).Error())
	}
	return texts
}

// What is refused again and again for one reason is told in the same words, which come once a minute for that,
// and with what to do about this reason.
func TestExpiredCertificate_Told(t *testing.T) {
	good := mutualTLS(t)
	late := good.Clone()
	late.Time = lateClock()
	dials, _ := refusals(t, 2, late, good)
	_, answers := refusals(t, 2, good, late)
	for side, texts := range map[string][]string{"dials": dials, "answers": answers} {
		if len(texts) < 2 || texts[0] != texts[1] || !strings.Contains(texts[0], "has expired") || !strings.Contains(texts[0], "renew --peer-cert there") {
			t.Errorf("the one that %s was told: %q", side, texts)
		}
	}
}

// A certificate for another host is not one of another authority.
func TestElsewhereCertificate_Told(t *testing.T) {
	good := mutualTLS(t)
	elsewhere := good.Clone()
	elsewhere.ServerName = "elsewhere.example"
	dials, _ := refusals(t, 1, elsewhere, good)
	if len(dials) == 0 || !strings.Contains(dials[0], "the host at which the group has that node") {
		t.Errorf("the one that dials was told: %q", dials)
	}
}

// Of two nodes of which one speaks TLS alone both are told, when the other begins.
func TestPlainAmongTLS_Told(t *testing.T) {
	secure := mutualTLS(t)
	_, secured := refusals(t, 1, nil, secure)
	_, plain := refusals(t, 1, secure, nil)
	for side, texts := range map[string][]string{"with TLS": secured, "without": plain} {
		if len(texts) == 0 || !strings.Contains(texts[0], "give all nodes --peer-cert, --peer-key and --peer-ca, or none") {
			t.Errorf("the node %s was told: %q", side, texts)
		}
	}
}
