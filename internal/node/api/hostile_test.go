package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// methods are all calls of the proto, so that none is forgotten.
func methods() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, s.Methods().Get(j))
			}
		}
		return true
	})
	return all
}

func fullName(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// hostile is one bad request: what is bad about it, and what it has to be
// answered with; OK: anything that says whose fault it is.
type hostile struct {
	what string
	m    proto.Message
	want codes.Code
}

// hostiles are the bad requests of a method: everything left out, and each field
// with each bad value, the others being harmless.
func hostiles(m protoreflect.MethodDescriptor) []hostile {
	list := []hostile{{"nothing", dynamicpb.NewMessage(m.Input()), codes.OK}}
	spoil(m.Input(), nil, func(path []protoreflect.FieldDescriptor, v value) {
		msg := harmless(m.Input())
		at := protoreflect.Message(msg)
		for _, f := range path[:len(path)-1] {
			if f.IsList() {
				l := at.Mutable(f).List()
				e := l.NewElement()
				fill(e.Message())
				l.Append(e)
				at = e.Message()
				continue
			}
			at = at.Mutable(f).Message()
			fill(at)
		}
		f := path[len(path)-1]
		set(at, f, v)
		list = append(list, hostile{fmt.Sprintf("%s %s", f.FullName(), v.what), msg, v.want(f)})
	})
	return list
}

// value is a bad value of a field.
type value struct {
	what string
	v    protoreflect.Value
	n    int // how often in a list
}

// want is the code that a value must have in a field that everybody has.
func (v value) want(f protoreflect.FieldDescriptor) codes.Code {
	name := string(f.Name())
	switch {
	case v.what == "too large" && f.Parent().Name() == "InspectRequest": // it may name a thousand
		return codes.InvalidArgument
	case v.what == "too large":
		return codes.ResourceExhausted
	case (name == "name" || name == "owner" || name == "register") && strings.HasSuffix(v.what, "too long"),
		(name == "name" || name == "register") && (v.what == "with a control character" || v.what == "empty"),
		strings.HasSuffix(name, "_ms") && v.what != "0":
		return codes.InvalidArgument
	}
	return codes.OK
}

// spoil calls f for every field of a message and every bad value of it.
func spoil(d protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor, f func([]protoreflect.FieldDescriptor, value)) {
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		way := append(slices.Clone(path), field)
		if field.Kind() == protoreflect.MessageKind && len(path) < 3 {
			spoil(field.Message(), way, f)
			continue
		}
		for _, v := range badValues(field) {
			f(way, v)
		}
	}
}

func badValues(f protoreflect.FieldDescriptor) (list []value) {
	add := func(what string, v any) { list = append(list, value{what, protoreflect.ValueOf(v), 1}) }
	switch f.Kind() {
	case protoreflect.StringKind:
		add("empty", "")
		add("too long", strings.Repeat("x", 513))
		add("much too long", strings.Repeat("x", 20_000))
		add("too large", strings.Repeat("x", 70_000))
		add("with a control character", "a\x00b\n")
		add("of a wild kind", "../../'; DROP TABLE locks; --${jndi}%s%n/\u202e\U0001f512/")
	case protoreflect.BytesKind:
		add("too large", make([]byte, 70_000))
		add("of 4 KiB and one", make([]byte, 4097))
		add("of 15 bytes", make([]byte, 15))
	case protoreflect.Int64Kind:
		add("negative", int64(-1))
		add("at its least", int64(math.MinInt64))
		add("at its most", int64(math.MaxInt64))
	case protoreflect.Int32Kind:
		add("negative", int32(-1))
		add("at its most", int32(math.MaxInt32))
	case protoreflect.Uint64Kind:
		add("at its most", uint64(math.MaxUint64))
	case protoreflect.EnumKind:
		add("unknown", protoreflect.EnumNumber(99))
		add("negative", protoreflect.EnumNumber(-1))
	}
	if f.IsList() {
		for i := range list {
			list[i].n = 129
		}
	}
	return list
}

func set(m protoreflect.Message, f protoreflect.FieldDescriptor, v value) {
	if !f.IsList() {
		m.Set(f, v.v)
		return
	}
	if v.what == "too large" {
		v.n = 1
	}
	for range v.n {
		m.Mutable(f).List().Append(v.v)
	}
}

// harmless is a request whose fields can be as they are: it names what is there
// with a token that is not right, and does not wait.
func harmless(d protoreflect.MessageDescriptor) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	fill(m)
	return m
}

func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch name := string(f.Name()); {
		case name == "name" || name == "key" || name == "register":
			m.Set(f, protoreflect.ValueOfString("there"))
		case name == "timeout_ms":
			m.Set(f, protoreflect.ValueOfInt64(0))
		case name == "ttl_ms":
			m.Set(f, protoreflect.ValueOfInt64(600_000))
		case name == "terms":
			fill(m.Mutable(f).Message())
		}
	}
}

// dump is all that anybody can see of the state, but for the time.
func (r *rig) dump() (names string, sessions int) {
	r.t.Helper()
	err := r.node.Look(r.t.Context(), func(m *core.Machine, _ int64) {
		for _, ns := range []string{"default", "other", "holdfast.registers.default"} {
			list, _ := m.List(ns, "", "", 1<<20)
			for i := range list {
				n := &list[i]
				names += fmt.Sprintln(ns, n.Name, n.Kind, n.Limit, n.Used, n.Number, n.Version, len(n.Waiters))
				for _, h := range n.Holders {
					names += fmt.Sprintln(" ", h.Token, h.Session, h.Mode, h.Weight, h.Owner, h.Revoked)
				}
			}
			for _, k := range m.Read(ns, &core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Prefix: true}}}).Keys {
				names += fmt.Sprintf("%+v\n", k.Keys)
			}
		}
		sessions = m.Sessions()
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return names, sessions
}

// call makes a call over gRPC, of which the first answer counts.
func (r *rig) call(m protoreflect.MethodDescriptor, in proto.Message) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	if !m.IsStreamingServer() {
		return r.conn.Invoke(ctx, fullName(m), in, dynamicpb.NewMessage(m.Output()))
	}
	s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, fullName(m))
	if err == nil {
		err = s.SendMsg(in)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		err = s.RecvMsg(dynamicpb.NewMessage(m.Output()))
	}
	return err
}

// connectCodes are the names of codes in JSON.
var connectCodes = map[string]codes.Code{
	"invalid_argument": codes.InvalidArgument, "not_found": codes.NotFound, "resource_exhausted": codes.ResourceExhausted,
	"failed_precondition": codes.FailedPrecondition, "aborted": codes.Aborted, "out_of_range": codes.OutOfRange,
	"permission_denied": codes.PermissionDenied, "unimplemented": codes.Unimplemented, "deadline_exceeded": codes.DeadlineExceeded,
}

// callJSON makes it over HTTP, and returns its code.
func (r *rig) callJSON(m protoreflect.MethodDescriptor, in proto.Message) (codes.Code, string) {
	r.t.Helper()
	body, err := protojson.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := r.web.Post("http://"+r.addr+fullName(m), "application/json", strings.NewReader(string(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode == http.StatusOK {
		return codes.OK, ""
	}
	var e struct{ Code, Message string }
	if err := json.Unmarshal(text, &e); err != nil || e.Message == "" {
		r.t.Errorf("%s: %d %s", fullName(m), res.StatusCode, text)
	}
	return connectCodes[e.Code], e.Message
}

// faults are the codes that say that the caller erred, or that it came in vain.
var faults = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange,
	codes.PermissionDenied, codes.Unimplemented,
}

// Every call answers bad requests with a code that says whose fault it is, the
// same over gRPC and over HTTP, and changes nothing.
func TestHostileRequests(t *testing.T) {
	r := serve(t)
	r.furnish()
	n := 0
	for _, m := range methods() {
		if m.IsStreamingClient() || m.Name() == "ChangeMembers" || m.Name() == "Backup" { // each has a test of its own
			continue
		}
		for _, h := range hostiles(m) {
			n++
			before, sessions := r.dump()
			err := r.call(m, h.m)
			code := status.Code(err)
			if code != codes.OK && !slices.Contains(faults, code) || h.want != codes.OK && code != h.want {
				t.Errorf("%s with %s: %v, want %v", fullName(m), h.what, err, h.want)
			}
			if code == codes.OK {
				continue // it was not that bad
			}
			if text := status.Convert(err).Message(); len(text) > 2048 || !strings.HasPrefix(text, "holdfast: ") {
				t.Errorf("%s with %s: %d bytes of %.100s", fullName(m), h.what, len(text), text)
			}
			if other, text := r.callJSON(m, h.m); other != code {
				t.Errorf("%s with %s: %v, but over HTTP %v: %s", fullName(m), h.what, err, other, text)
			}
			r.unchanged(fullName(m)+" with "+h.what, before, sessions)
		}
	}
	if n < 500 {
		t.Errorf("only %d bad requests were found", n)
	}
}

// furnish makes something of everything that can be named, with the gateway's own
// session of each namespace.
func (r *rig) furnish() {
	r.t.Helper()
	for _, ns := range []string{"default", "other"} {
		r.want(200, "POST", "/v1/counters/count:add", `{"amount":5}`, "Holdfast-Namespace", ns)
	}
	r.want(200, "POST", "/v1/locks/there:acquire", `{"holder_id":"w","ttl_ms":600000}`)
	r.want(200, "PUT", "/v1/kv/there", `{"value":"v"}`)
	must[*pb.FenceWriteResponse](r.t)(pb.NewFenceServiceClient(r.conn).Write(r.ctx, &pb.FenceWriteRequest{Register: "there", Token: 9, Value: []byte("v")}))
}

// unchanged expects the state that was, once what was given up has ended, with no
// more sessions: the leases of refused calls end by and by.
func (r *rig) unchanged(what, names string, sessions int) {
	r.t.Helper()
	for {
		n, s := r.dump()
		if n != names {
			r.t.Fatalf("%s has changed\n%sto\n%s", what, names, n)
		}
		if s <= sessions {
			return
		}
		if r.ctx.Err() != nil {
			r.t.Fatalf("%s has left %d sessions of %d", what, s, sessions)
		}
	}
}

// No call takes a namespace that is not one.
func TestHostileNamespaces(t *testing.T) {
	r := serve(t)
	for _, m := range methods() {
		for _, ns := range []string{strings.Repeat("n", 513), "holdfast.registers.default"} {
			ctx, cancel := context.WithCancel(r.as("holdfast-namespace", ns))
			s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, fullName(m))
			if err != nil {
				t.Fatal(err)
			}
			_ = s.SendMsg(harmless(m.Input())) // it may be refused before
			_ = s.CloseSend()
			if err := s.RecvMsg(dynamicpb.NewMessage(m.Output())); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s in namespace %.20q: %v", fullName(m), ns, err)
			}
			cancel()
		}
	}
	r.untouched()
}

// With another's token, in another namespace or on a lease that is not there
// nobody gets anywhere.
func TestWrongHands(t *testing.T) {
	r := serve(t)
	r.furnish()
	token := must[*pb.InspectResponse](t)(pb.NewInspectServiceClient(r.conn).Inspect(r.ctx, &pb.InspectRequest{Name: "there"})).Resource.Holders[0].Token
	n := 0
	try := func(m protoreflect.MethodDescriptor, ctx context.Context, in proto.Message, want ...codes.Code) {
		t.Helper()
		n++
		before, sessions := r.dump()
		err := r.conn.Invoke(ctx, fullName(m), in, dynamicpb.NewMessage(m.Output()))
		if !slices.Contains(want, status.Code(err)) {
			t.Errorf("%s of %v: %v, want %v", fullName(m), in, err, want)
		}
		r.unchanged(fullName(m), before, sessions)
	}
	for _, m := range methods() {
		if m.IsStreamingClient() || m.IsStreamingServer() || m.Parent().Name() == "FenceService" {
			continue
		}
		fields := m.Input().Fields()
		for _, name := range []protoreflect.Name{"token", "fencing_token"} {
			f := fields.ByName(name)
			if f == nil {
				continue
			}
			for _, c := range []struct {
				ctx   context.Context
				token uint64
			}{{r.ctx, token + 1}, {r.ctx, token - 1}, {r.as("holdfast-namespace", "other"), token}} {
				in := harmless(m.Input())
				if name == "fencing_token" {
					in.Clear(fields.ByName("key"))
				}
				v := protoreflect.ValueOfUint64(c.token)
				if f.Kind() == protoreflect.Int64Kind {
					v = protoreflect.ValueOfInt64(int64(c.token))
				}
				in.Set(f, v)
				try(m, c.ctx, in, codes.FailedPrecondition, codes.NotFound)
			}
		}
		for _, in := range withLease(m.Input(), 4711) {
			if m.Name() != "Open" { // which makes it
				try(m, r.ctx, in, codes.NotFound)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d ways were tried", n)
	}
}

// withLease are requests that name a lease.
func withLease(d protoreflect.MessageDescriptor, id int64) (all []proto.Message) {
	lease := protoreflect.ValueOfInt64(id)
	for _, name := range []protoreflect.Name{"lease_id", "terms"} {
		f := d.Fields().ByName(name)
		if f == nil {
			continue
		}
		in := harmless(d)
		if name == "terms" {
			terms := in.Mutable(f).Message()
			terms.Set(terms.Descriptor().Fields().ByName(protoreflect.Name("lease_id")), lease)
			terms.Clear(terms.Descriptor().Fields().ByName("ttl_ms")) // the lease has one
		} else {
			in.Set(f, lease)
		}
		if ttl := d.Fields().ByName("ttl_ms"); ttl != nil && d.Fields().ByName("name") != nil {
			in.Clear(ttl)
		}
		all = append(all, in)
	}
	return all
}
