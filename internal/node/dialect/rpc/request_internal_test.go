package rpc

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// allocated is how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// eachRequest calls f with every message that a caller sends, but batches of sessions.
func eachRequest(f func(method string, d protoreflect.MessageDescriptor)) {
	services := pb.File_holdfast_v1_lock_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(services, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for k := range s.Methods().Len() {
				if m := s.Methods().Get(k); m.Input().Name() != "Batch" {
					f("/"+string(s.FullName())+"/"+string(m.Name()), m.Input())
				}
			}
		}
		return true
	})
}

// hostile are messages as long as may be that are made of the smallest parts of one
// field, or of one field of a message in them.
func hostile(d protoreflect.MessageDescriptor, size int) (list [][]byte) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if !f.IsList() && f.Message() == nil {
			continue
		}
		part := protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), nil)
		list = append(list, []byte(strings.Repeat(string(part), size/len(part))))
		if f.Message() == nil {
			continue
		}
		for _, inner := range hostile(f.Message(), size-8) {
			list = append(list, protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), inner))
		}
	}
	return list
}

// No request takes more memory than its length allows, whatever it is made of.
func TestRequestsAreBounded(t *testing.T) {
	judged, refused := 0, 0
	eachRequest(func(method string, d protoreflect.MessageDescriptor) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range hostile(d, gateway.MaxRequestOf(method)) {
			in := request{to: kind.New().Interface(), most: gateway.MaxRequestOf(method)}
			var err error
			if took := allocated(func() { err = in.decode(b) }); took > 16*len(b) {
				t.Errorf("%s: %d bytes took %d: %v, %v", method, len(b), took, err, in.bad)
			}
			if judged++; in.bad != nil {
				refused++
			}
		}
	})
	if judged < 20 || refused < 10 {
		t.Errorf("%d requests were judged, and %d refused", judged, refused)
	}
}

// The same in JSON.
func TestJSONIsBounded(t *testing.T) {
	for text, m := range map[string]interface {
		protoreflect.ProtoMessage
		Reset()
	}{
		`{"then":[` + strings.Repeat(`{},`, 21_000) + `{}]}`:  &pb.TxnRequest{},
		`{"facts":[` + strings.Repeat(`{},`, 21_000) + `{}]}`: &pb.GuardEvaluateRequest{},
	} {
		var err error
		took := allocated(func() { err = fromJSON([]byte(text), m) })
		if !errors.Is(err, gateway.ErrParts) || took > 16*len(text) {
			t.Errorf("%.20s: %d bytes took %d: %v", text, len(text), took, err)
		}
	}
	if err := fromJSON([]byte(`{"name":"`+strings.Repeat("{", 20_000)+`\"{","facts":[{},{}]}`), &pb.GuardEvaluateRequest{}); err != nil {
		t.Errorf("brackets in a name are counted: %v", err)
	}
}
