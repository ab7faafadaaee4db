// Package relay has the leader answer calls that came to another node, over gRPC or
// over HTTP as they came. Whether it is asked, and what a call means that it does not
// answer, package gateway decides.
package relay

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// passedOn is what a call has to say besides its request and its namespace: its key, and
// which trace it belongs to (W3C Trace Context, and its baggage).
var passedOn = []string{gateway.HeaderKey, "traceparent", "tracestate", "baggage"}

// Ask has the leader answer a call of the services of proto/holdfast/v1.
func (r *Relay) Ask(method string, in any) gateway.There {
	return func(ctx context.Context, t *gateway.Tenure, crowded int) (any, error) {
		out, err := answerOf(method)
		if err != nil {
			return nil, err
		}
		l, err := r.use(t)
		if err != nil {
			return nil, gateway.Unanswered(ctx, t, err, false)
		}
		defer r.leave(t, l)
		during, cancel := t.During(ctx)
		defer cancel()
		var sent atomic.Bool
		told := metadata.AppendToOutgoingContext(during, beside(ctx, crowded)...)
		err = r.invoke(context.WithValue(told, sentKey{}, &sent), l, method, in, out)
		switch {
		case err == nil:
			return out, nil
		case fromLeader(err):
			return nil, wire.Tell(err)
		}
		return nil, gateway.Unanswered(during, t, err, sent.Load())
	}
}

// beside is what the leader is told beside a request.
func beside(ctx context.Context, crowded int) []string {
	md := append([]string{gateway.HeaderRelayed, "1"}, wire.NamespaceMetadata(gateway.Said(ctx, gateway.HeaderNamespace))...)
	for _, name := range passedOn {
		if v := gateway.Said(ctx, name); v != "" {
			md = append(md, name, v)
		}
	}
	if gateway.Tried(ctx) {
		md = append(md, gateway.HeaderTried, "1")
	}
	if crowded > 0 {
		md = append(md, gateway.HeaderCrowded, strconv.Itoa(crowded))
	}
	return md
}

// fromLeader: it is the leader's own word, not that of the way to it.
func fromLeader(err error) bool {
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return len(st.Details()) > 0
	}
	return true
}

// answerOf is an empty answer of a method, /service/method.
func answerOf(full string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}
