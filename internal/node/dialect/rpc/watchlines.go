package rpc

import (
	"context"
	"mime"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/node/relay"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// watchLines serves WatchService/Watch to clients that ask in plain JSON, as every other
// call: a line of JSON for each response. All else, which has envelopes, goes to
// connect.
func (s *Services) watchLines(connect http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" || r.Method != http.MethodPost {
			connect.ServeHTTP(w, r)
			return
		}
		out := &lines{w: w}
		c := gateway.CallOf(pb.WatchService_Watch_FullMethodName, nil, r.Header.Values, nil)
		err := s.g.Stay(r.Context(), c, func(ctx context.Context) error { return s.watchTo(ctx, w, r, out) })
		switch {
		case err != nil && r.Context().Err() != nil: // its caller has gone
		case err != nil && out.begun:
			panic(http.ErrAbortHandler) // an answer that ends as it should would be all of it
		case err != nil:
			_ = errorWriter.Write(w, r, s.connectError(err)) // a caller that is gone needs no answer
		}
	})
}

// watchTo reads the request and runs it.
func (s *Services) watchTo(ctx context.Context, w http.ResponseWriter, r *http.Request, out *lines) error {
	body, err := relay.TakeBody(w, r, "", gateway.MaxRequest+envelope)
	if err != nil {
		return err
	}
	var req pb.WatchRequest
	if err := fromJSON(body, &req); err != nil {
		return gateway.Named(gateway.Invalid("", "the body is not the JSON that this call takes: %v", err), "watch", "")
	}
	return s.g.Follow(ctx, &req, out.send)
}

// lines are responses, one a line.
type lines struct {
	w     http.ResponseWriter
	begun bool
}

func (l *lines) send(m *pb.WatchResponse) error {
	line, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	if _, err := l.w.Write(append(line, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}
