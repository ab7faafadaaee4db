package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// watchOf is what a request for events asks for. A browser that comes back says
// what it has seen last: it gets that revision again, since it may have seen only
// some of it.
func watchOf(r *http.Request) (*pb.WatchRequest, error) {
	q, err := queryOf(r.URL)
	if err != nil {
		return nil, gateway.Named(err, "watch", "")
	}
	out := &pb.WatchRequest{Prefix: q.Get("prefix"), Exact: q.Get("exact") == "true", Patterns: q["pattern"]}
	if err := checkWatch(q); err != nil {
		return nil, gateway.Named(err, "watch", out.Prefix)
	}
	from, given := q.Get("from"), q.Has("from")
	if last := slices.Compact(slices.Clone(r.Header.Values("Last-Event-ID"))); len(last) > 0 && last[0] != "" {
		from, given = strings.Join(last, ", "), true
	}
	if !given {
		return out, nil
	}
	n, err := strconv.ParseUint(from, 10, 64)
	if err != nil || n == 0 { // which would be from now on
		return nil, gateway.Named(gateway.Invalid("", "%q is no revision: give a number from 1 on, or leave from out for what happens from now on", gateway.Clip(from)), "watch", out.Prefix)
	}
	out.FromRevision = n
	return out, nil
}

// checkWatch refuses what a watch would not heed.
func checkWatch(q url.Values) error {
	for name, values := range q {
		switch {
		case !slices.Contains([]string{"prefix", "exact", "from", "pattern"}, name):
			return gateway.Invalid("", "%q is nothing that a watch takes: give prefix, exact, from or pattern", gateway.Clip(name))
		case name != "pattern" && len(values) > 1:
			return gateway.Invalid("", "%s is given %d times: give it once", name, len(values))
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			return gateway.Invalid("", "%s is not valid UTF-8", name)
		case name == "exact" && values[0] != "true" && values[0] != "false":
			return gateway.Invalid("", "exact is %q: give true or false", gateway.Clip(values[0]))
		}
	}
	return nil
}

// rawJSON is JSON already.
type rawJSON []byte

// MarshalJSON is of json.Marshaler.
func (j rawJSON) MarshalJSON() ([]byte, error) { return j, nil }

// eventStream tells each event on its own, as text/event-stream.
type eventStream struct {
	w     http.ResponseWriter
	begun bool
}

var eventFormat = protojson.MarshalOptions{UseProtoNames: true}

// tell writes what a watch says.
func (o *eventStream) tell(m *pb.WatchResponse) error {
	if m.ReadyRevision != 0 {
		if err := o.send("ready", m.ReadyRevision, map[string]uint64{"revision": m.ReadyRevision}); err != nil {
			return err
		}
	}
	if m.ResyncRevision != 0 {
		if err := o.send("resync", m.ResyncRevision, map[string]uint64{"revision": m.ResyncRevision}); err != nil {
			return err
		}
	}
	for _, e := range m.Events {
		b, err := eventFormat.Marshal(e)
		if err != nil {
			return err
		}
		if err := o.send("event", e.Revision, rawJSON(b)); err != nil {
			return err
		}
	}
	return nil
}

func (o *eventStream) send(event string, id uint64, v any) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		o.w.Header().Set("Cache-Control", "no-store")
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.w, "event: %s\nid: %d\ndata: %s\n\n", event, id, data); err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}
