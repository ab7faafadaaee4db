package api

import (
	"mime"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// watchLines serves WatchService/Watch to who asks in plain JSON, as every other
// call: a line of JSON for each response. All else, which has envelopes, goes to
// connect.
func (s *Service) watchLines(connect http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" || r.Method != http.MethodPost {
			connect.ServeHTTP(w, r)
			return
		}
		began, out := time.Now(), &lines{w: w}
		err := s.watchTo(w, r, out)
		if err = (overHTTP{s.plain}).ended(r.Context(), pb.WatchService_Watch_FullMethodName, began, err); err != nil && !out.begun {
			_ = errorWriter.Write(w, r, err) // who is gone needs no answer
		}
	})
}

// watchTo reads the request and runs it.
func (s *Service) watchTo(w http.ResponseWriter, r *http.Request, out *lines) error {
	ctx, err := withCaller(r.Context(), r.Header.Get)
	if err != nil {
		return err
	}
	body, err := takeBody(w, r)
	if err != nil {
		return err
	}
	var req pb.WatchRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		return named(invalid("", "the body is not the JSON that this call takes: %v", err), "watch", "")
	}
	return s.plain.staying(ctx, pb.WatchService_Watch_FullMethodName, func() error {
		return s.Watch(&req, &sender{ctx: withNamespace(ctx), send: out.send})
	})
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
