package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// watchOf is what a request for events asks for. A browser that comes back says
// what it has seen last: it gets that revision again, since it may have seen only
// some of it.
func watchOf(r *http.Request) (*pb.WatchRequest, error) {
	q := r.URL.Query()
	out := &pb.WatchRequest{Prefix: q.Get("prefix"), Exact: q.Get("exact") == "true", Patterns: q["pattern"]}
	if err := checkWatch(q); err != nil {
		return nil, named(err, "watch", out.Prefix)
	}
	from := q.Get("from")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		from = last
	}
	if from == "" {
		return out, nil
	}
	n, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return nil, named(invalid(out.Prefix, "revision %q is no number", from), "watch", out.Prefix)
	}
	out.FromRevision = n
	return out, nil
}

// checkWatch refuses what a watch would not heed.
func checkWatch(q url.Values) error {
	for name, values := range q {
		switch {
		case !slices.Contains([]string{"prefix", "exact", "from", "pattern"}, name):
			return invalid("", "%q is nothing that a watch takes: give prefix, exact, from or pattern", clip(name))
		case name != "pattern" && len(values) > 1:
			return invalid("", "%s is given %d times: give it once", name, len(values))
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			return invalid("", "%s is not valid UTF-8", name)
		case name == "exact" && values[0] != "true" && values[0] != "false":
			return invalid("", "exact is %q: give true or false", clip(values[0]))
		}
	}
	return nil
}

// rawJSON is JSON already.
type rawJSON []byte

// MarshalJSON is of json.Marshaler.
func (j rawJSON) MarshalJSON() ([]byte, error) { return j, nil }

// events runs a watch and tells each event on its own.
func (s *Service) events(ctx context.Context, r *pb.WatchRequest, send func(event string, id uint64, v any) error) error {
	format := protojson.MarshalOptions{UseProtoNames: true}
	return s.Watch(r, &sender{ctx: withNamespace(ctx), send: func(m *pb.WatchResponse) error {
		if m.ReadyRevision != 0 {
			if err := send("ready", m.ReadyRevision, map[string]uint64{"revision": m.ReadyRevision}); err != nil {
				return err
			}
		}
		if m.ResyncRevision != 0 {
			if err := send("resync", m.ResyncRevision, map[string]uint64{"revision": m.ResyncRevision}); err != nil {
				return err
			}
		}
		for _, e := range m.Events {
			b, err := format.Marshal(e)
			if err != nil {
				return err
			}
			if err := send("event", e.Revision, rawJSON(b)); err != nil {
				return err
			}
		}
		return nil
	}})
}
