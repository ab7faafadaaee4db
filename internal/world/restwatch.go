package world

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// follow watches by server-sent events, as a browser does.
func (x *rester) follow(ctx context.Context, prefix string, from uint64) (func() (*pb.WatchResponse, error), error) {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+x.p.node()+"/v1/watch?prefix="+url.QueryEscape(prefix), nil)
	if err != nil {
		return nil, err
	}
	if from != 0 {
		r.Header.Set("Last-Event-ID", fmt.Sprint(from))
	}
	resp, err := x.c.Do(r)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() }) // nothing of it is wanted any more
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return func() (*pb.WatchResponse, error) { return nextEvent(lines) }, nil
}

// nextEvent reads up to the empty line that ends an event.
func nextEvent(lines *bufio.Scanner) (*pb.WatchResponse, error) {
	fields := map[string]string{}
	for lines.Scan() {
		if lines.Text() == "" && len(fields) > 0 {
			return parseEvent(fields)
		}
		if name, value, ok := strings.Cut(lines.Text(), ": "); ok {
			fields[name] = value
		}
	}
	return nil, fmt.Errorf("the stream has ended: %w", lines.Err())
}

func parseEvent(fields map[string]string) (*pb.WatchResponse, error) {
	var at struct{ Revision uint64 }
	switch fields["event"] {
	case "ready":
		err := json.Unmarshal([]byte(fields["data"]), &at)
		return &pb.WatchResponse{ReadyRevision: at.Revision}, err
	case "resync":
		err := json.Unmarshal([]byte(fields["data"]), &at)
		return &pb.WatchResponse{ResyncRevision: at.Revision}, err
	}
	e := &pb.Event{}
	if err := protojson.Unmarshal([]byte(fields["data"]), e); err != nil {
		return nil, err
	}
	return &pb.WatchResponse{Events: []*pb.Event{e}}, nil
}
