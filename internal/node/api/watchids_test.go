package api_test

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// heard is a server-sent event.
type heard struct{ event, id, data string }

// hear reads n server-sent events of a watch that comes back with an id.
func (r *rig) hear(query, last string, n int) (out []heard) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.addr+"/v1/watch?"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", last)
	res, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); len(out) < n; {
		out = append(out, readHeard(lines))
		if out[len(out)-1] == (heard{}) {
			r.t.Fatalf("%s: the watch ended after %v", res.Status, out)
		}
	}
	return out
}

func readHeard(lines *bufio.Scanner) (h heard) {
	for lines.Scan() && lines.Text() != "" {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			h.event = value
		case "id":
			h.id = value
		case "data":
			h.data = value
		}
	}
	return h
}

// A watch that is cut behind any event, or behind its ready, and comes back with the id of that,
// is told each event once, also those of one revision.
func TestWatchComesBackBetweenEventsOfARevision(t *testing.T) {
	r := serve(t)
	put := func(keys ...string) {
		var ops []string
		for _, key := range keys {
			ops = append(ops, `{"put":{"key":"`+key+`","value":"dg=="}}`)
		}
		r.want(200, "POST", "/holdfast.v1.KVService/Txn", `{"then":[`+strings.Join(ops, ",")+`]}`)
	}
	put("k/1", "other", "k/2", "k/3", "k/4")
	put("k/5", "k/6")
	all := r.hear("prefix=k/&from=1", "", 7)
	if ids := slices.CompactFunc(slices.Clone(all), func(a, b heard) bool { return a.id == b.id }); len(ids) != len(all) {
		t.Errorf("events share an id: %v", all)
	}
	for cut := range all[1:] {
		back := r.hear("prefix=k/&from=1", all[cut].id, len(all)-cut)
		if back[0].event != "ready" || back[0].id != all[cut].id || !slices.Equal(back[1:], all[cut+1:]) {
			t.Errorf("behind %v it is told %v", all[cut], back)
		}
	}
	revision, _, _ := strings.Cut(all[2].id, ".")
	if back := r.hear("prefix=k/", revision, 7); !slices.Equal(back[1:], all[1:]) {
		t.Errorf("from revision %s on it is told %v", revision, back)
	}
	for _, id := range []string{"x", "0", "0.1", "5.", "5.x", "5.-1", ".5", "5.1.1", "5.4294967296"} {
		r.want(400, "GET", "/v1/watch", "", "Last-Event-ID", id)
	}
}

// A watch from now on that is cut before its first event comes back where it began: a denial, which
// has no revision of its own, is not lost, and one from before it is not told.
func TestWatchComesBackBeforeItsFirstEvent(t *testing.T) {
	r := serve(t)
	deny := func() { r.want(409, "POST", "/v1/locks/a:acquire", `{"timeout_ms":0,"lease_id":7}`) }
	r.want(200, "POST", "/v1/leases/7:open", "")
	r.want(200, "POST", "/v1/locks/a:acquire", "")
	deny()
	ready := r.hear("pattern=lock:denied", "", 1)
	deny()
	deny()
	first := r.hear("pattern=lock:denied", ready[0].id, 3)
	if again := r.hear("pattern=lock:denied", ready[0].id, 3); !slices.Equal(again, first) || first[1].id == first[2].id {
		t.Errorf("it is told %v, then %v", first, again)
	}
	if rest := r.hear("pattern=lock:denied", first[1].id, 2); rest[1] != first[2] {
		t.Errorf("behind the first denial it is told %v", rest)
	}
}
