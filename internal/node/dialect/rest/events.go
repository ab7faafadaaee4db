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
	"github.com/holdfast-io/holdfast/internal/watch"
)

// watchOf is what a request for events asks for, and where its reader stands.
func watchOf(r *http.Request) (*pb.WatchRequest, watch.Cursor, error) {
	q, err := queryOf(r.URL)
	if err != nil {
		return nil, watch.Cursor{}, gateway.Named(err, "watch", "")
	}
	out := &pb.WatchRequest{Prefix: q.Get("prefix"), Exact: q.Get("exact") == "true", Patterns: q["pattern"]}
	if err := checkWatch(q); err != nil {
		return nil, watch.Cursor{}, gateway.Named(err, "watch", out.Prefix)
	}
	at, err := standing(r.Header.Values("Last-Event-ID"), q)
	out.FromRevision = at.Ask()
	return out, at, gateway.Named(err, "watch", out.Prefix)
}

// standing is where the reader of a watch stands: behind the event that it has seen last,
// which a browser that comes back says, or before a revision.
func standing(last []string, q url.Values) (watch.Cursor, error) {
	if last = slices.Compact(slices.Clone(last)); len(last) > 0 && last[0] != "" {
		return behind(strings.Join(last, ", "))
	}
	if !q.Has("from") {
		return watch.Cursor{}, nil
	}
	return before(q.Get("from"))
}

// behind reads what idOf wrote.
func behind(id string) (watch.Cursor, error) {
	revision, ordinal, ok := strings.Cut(id, ".")
	c, err := before(revision)
	if !ok || err != nil {
		return c, err
	}
	n, err := strconv.ParseUint(ordinal, 10, 32)
	if err != nil {
		return watch.Cursor{}, gateway.Invalid("", "%q is no id of an event: give one as it was told, REVISION.ORDINAL, or a revision to begin with", gateway.Clip(id))
	}
	c.Take(watch.Position{Revision: c.Next().Revision, Ordinal: uint32(n)})
	return c, nil
}

// before reads a revision to begin with.
func before(revision string) (watch.Cursor, error) {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil || n == 0 { // which would be from now on
		return watch.Cursor{}, gateway.Invalid("", "%q is no revision: give a number from 1 on, or leave from out for what happens from now on", gateway.Clip(revision))
	}
	return watch.NewCursor(n), nil
}

// idOf is the id by which the reader of a watch that stands at next comes back there: the event
// before it, or a revision of which nothing was told.
func idOf(next watch.Position) string {
	if next.Ordinal == 0 {
		return strconv.FormatUint(next.Revision, 10)
	}
	return fmt.Sprintf("%d.%d", next.Revision, next.Ordinal-1)
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

// eventStream tells each event on its own, as text/event-stream. What its reader has seen
// before it came back is not told again.
type eventStream struct {
	w     http.ResponseWriter
	at    watch.Cursor
	begun bool
}

var eventFormat = protojson.MarshalOptions{UseProtoNames: true}

// tell writes what a watch says.
func (o *eventStream) tell(m *pb.WatchResponse) error {
	if r := m.ReadyRevision; r != 0 {
		o.at.Ready(watch.Before(r, m.Ordinal))
		return o.send("ready", map[string]uint64{"revision": r})
	}
	if r := m.ResyncRevision; r != 0 && o.at.Resync(watch.Before(r, m.Ordinal)) != (watch.Position{}) {
		if err := o.send("resync", map[string]uint64{"revision": r}); err != nil {
			return err
		}
	}
	for _, e := range m.Events {
		if err := o.tellEvent(e); err != nil {
			return err
		}
	}
	return nil
}

func (o *eventStream) tellEvent(e *pb.Event) error {
	if !o.at.Take(watch.Position{Revision: e.Revision, Ordinal: e.Ordinal}) {
		return nil
	}
	b, err := eventFormat.Marshal(e)
	if err != nil {
		return err
	}
	return o.send("event", rawJSON(b))
}

// send writes what brought the reader to where it stands.
func (o *eventStream) send(event string, v any) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		o.w.Header().Set("Cache-Control", "no-store")
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.w, "event: %s\nid: %s\ndata: %s\n\n", event, idOf(o.at.Next()), data); err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}
