package api_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// jsonCall is a call of a service in docs/wire.md.
var jsonCall = regexp.MustCompile(`^curl -sN? localhost:7420/(holdfast\.v1\.\w+)/(\w+) .* -d '(.*)'$`)

// Every call of a service in docs/wire.md answers the same by gRPC, and no service is
// without one, but for that of Holdfast's own clients.
func TestWireDocument_GRPC(t *testing.T) {
	r, called := documented(t), map[protoreflect.FullName]bool{"holdfast.v1.SessionStream": true}
	for _, e := range wireExamples(t) {
		m := jsonCall.FindStringSubmatch(e.command)
		if m == nil {
			continue
		}
		service := protoreflect.FullName(m[1])
		called[service] = true
		if got := r.invoke(service, m[2], m[3], len(e.want)); !slices.EqualFunc(got, e.want, alike) {
			t.Errorf("%s/%s %s\n answered %s\ninstead of %s", service, m[2], m[3], got, e.want)
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if s := f.Services().Get(i); !called[s.FullName()] {
				t.Errorf("docs/wire.md has no call of %s", s.FullName())
			}
		}
		return true
	})
}

// invoke calls a method by gRPC with a request in JSON, and returns its first answers
// in JSON.
func (r *rig) invoke(service protoreflect.FullName, method, request string, answers int) (said []string) {
	r.t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(service.Append(protoreflect.Name(method)))
	if err != nil {
		r.t.Fatal(err)
	}
	m := d.(protoreflect.MethodDescriptor)
	in := message(r.t, m.Input())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	stream, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer()}, "/"+string(service)+"/"+method)
	if err == nil {
		err = errors.Join(stream.SendMsg(in), stream.CloseSend())
	}
	for err == nil && len(said) < answers {
		out := message(r.t, m.Output())
		if err = stream.RecvMsg(out); err == nil {
			b, _ := protojson.Marshal(out)
			said = append(said, string(b))
		}
	}
	if err != nil {
		r.t.Fatalf("%s/%s %s: %v", service, method, request, err)
	}
	return said
}

func message(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New().Interface()
}
