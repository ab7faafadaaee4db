package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// request is a message of a caller that is decoded if it is not too long and has not too many
// parts: a message in it takes two bytes and becomes some hundred, and nothing else stands
// before the decoder.
type request struct {
	to   proto.Message
	most int   // bytes that it may have
	bad  error // why it was not decoded
}

// decode decodes b, or says why not.
func (in *request) decode(b []byte) error {
	if in.bad = tooMany(b, in.to.ProtoReflect().Descriptor()); in.bad != nil {
		return nil
	}
	return proto.Unmarshal(b, in.to)
}

// take receives the message. On a server of another's it is judged when it has been decoded.
func (in *request) take(recv func(any) error, own bool) error {
	if own {
		return recv(in)
	}
	err := recv(in.to)
	if err == nil && proto.Size(in.to) > in.most {
		in.bad = gateway.TooLarge(in.most)
	}
	return err
}

// whole is take for a caller that goes on only with a message that was decoded.
func (in *request) whole(recv func(any) error, own bool) error {
	if err := in.take(recv, own); err != nil {
		return err
	}
	return in.bad
}

// bounded is the codec of servers of ours, which know requests.
type bounded struct{ encoding.CodecV2 }

// Unmarshal is of encoding.CodecV2.
func (c bounded) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*request)
	switch {
	case !ok:
		return c.CodecV2.Unmarshal(data, v)
	case data.Len() > in.most:
		in.bad = gateway.TooLarge(in.most)
		return nil
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return in.decode(b.ReadOnlyData())
}

// tooMany refuses an encoded message with too many parts.
func tooMany(b []byte, d protoreflect.MessageDescriptor) error {
	if len(b) <= 2*gateway.MaxParts || parts(b, d) <= gateway.MaxParts {
		return nil
	}
	return gateway.ErrParts
}

// parts counts the messages in an encoded message, and the elements of its lists. What cannot
// be read is left for the decoder to refuse.
func parts(b []byte, d protoreflect.MessageDescriptor) (n int) {
	for len(b) > 0 {
		num, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return n
		}
		size := protowire.ConsumeFieldValue(num, typ, b[tag:])
		if size < 0 {
			return n
		}
		f := d.Fields().ByNumber(num)
		if f != nil && (f.IsList() || f.Message() != nil) {
			n++
		}
		if f != nil && f.Message() != nil && typ == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b[tag:])
			n += parts(inner, f.Message())
		}
		b = b[tag+size:]
	}
	return n
}

// protobuf is the codec of connect for messages as gRPC-Web sends them, as bounded is.
type protobuf struct{}

// Name is of connect.Codec.
func (protobuf) Name() string { return "proto" }

// Marshal is of connect.Codec.
func (protobuf) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }

// Unmarshal is of connect.Codec.
func (protobuf) Unmarshal(data []byte, m any) error {
	in := request{to: m.(proto.Message)}
	if err := in.decode(data); err != nil {
		return err
	}
	return in.bad
}

// fromJSON decodes the JSON of a message.
func fromJSON(data []byte, m proto.Message) error {
	if err := gateway.CheckJSON(data); err != nil {
		return err
	}
	return protojson.Unmarshal(data, m)
}
