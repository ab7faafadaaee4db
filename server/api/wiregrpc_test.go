package api_test

import (
	"os"
	"regexp"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// jsonCall is a call of a service in docs/wire.md, with its answer.
var jsonCall = regexp.MustCompile(`(?m)^\$ curl -s localhost:7420/(holdfast\.v1\.\w+)/(\w+) .* -d '(.*)'\n(.*)$`)

// Every call of a service in docs/wire.md answers the same by gRPC, and no service
// that has plain calls is without one.
func TestWireDocument_GRPC(t *testing.T) {
	doc, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	r, called := serve(t), map[protoreflect.FullName]bool{}
	for _, m := range jsonCall.FindAllStringSubmatch(string(doc), -1) {
		service := protoreflect.FullName(m[1])
		called[service] = true
		if got := r.invoke(service, m[2], m[3]); !alike(got, m[4]) {
			t.Errorf("%s/%s %s\n answered %s\ninstead of %s", service, m[2], m[3], got, m[4])
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if s := f.Services().Get(i); plain(s) && !called[s.FullName()] {
				t.Errorf("docs/wire.md has no call of %s", s.FullName())
			}
		}
		return true
	})
}

// plain: it has a call that is no stream.
func plain(s protoreflect.ServiceDescriptor) bool {
	for i := range s.Methods().Len() {
		if m := s.Methods().Get(i); !m.IsStreamingClient() && !m.IsStreamingServer() {
			return true
		}
	}
	return false
}

// invoke calls a method by gRPC with a request in JSON, and returns the answer in
// JSON.
func (r *rig) invoke(service protoreflect.FullName, method, request string) string {
	r.t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(service.Append(protoreflect.Name(method)))
	if err != nil {
		r.t.Fatal(err)
	}
	m := d.(protoreflect.MethodDescriptor)
	in, out := message(r.t, m.Input()), message(r.t, m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		r.t.Fatal(err)
	}
	if err := r.conn.Invoke(r.ctx, "/"+string(service)+"/"+method, in, out); err != nil {
		r.t.Fatalf("%s/%s %s: %v", service, method, request, err)
	}
	b, err := protojson.Marshal(out)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func message(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New().Interface()
}
