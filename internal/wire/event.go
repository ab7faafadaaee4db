package wire

import (
	"github.com/holdfast-io/holdfast/driver"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// KeyValue is a key; nil stays nil.
func KeyValue(k *driver.KV) *pb.KeyValue {
	if k == nil {
		return nil
	}
	return &pb.KeyValue{
		Key: k.Key, Value: k.Value, CreateRevision: uint64(k.Created), ModRevision: uint64(k.Modified), Version: k.Version,
		Session: Session(k.Session), ExpiresInMs: ms(k.ExpiresIn),
	}
}

func keyValue(k *pb.KeyValue) *driver.KV {
	if k == nil {
		return nil
	}
	return &driver.KV{
		Key: k.GetKey(), Value: k.GetValue(), Created: driver.Revision(k.GetCreateRevision()), Modified: driver.Revision(k.GetModRevision()), Version: k.GetVersion(),
		Session: LeaseID(k.GetSession()), ExpiresIn: duration(k.GetExpiresInMs()),
	}
}

// Events are what a watch saw.
func Events(list []driver.Event) []*pb.Event {
	out := make([]*pb.Event, len(list))
	for i := range list {
		e := &list[i]
		out[i] = &pb.Event{
			Revision: uint64(e.Revision), Ordinal: e.Ordinal, Kind: e.Kind, Verb: e.Verb, Name: e.Name, Token: uint64(e.Token), Owner: Text(e.Owner),
			Mode: Mode(e.Mode), Weight: e.Weight, Session: Session(e.Session), Value: e.Value, Reason: e.Reason, Number: e.Number,
			Kv: KeyValue(e.KV), PrevKv: KeyValue(e.Prev),
		}
	}
	return out
}

// ToEvents are what a watch saw.
func ToEvents(list []*pb.Event) []driver.Event {
	out := make([]driver.Event, len(list))
	for i, e := range list {
		out[i] = driver.Event{
			Revision: driver.Revision(e.GetRevision()), Ordinal: e.GetOrdinal(), Kind: e.GetKind(), Verb: e.GetVerb(), Name: e.GetName(), Token: driver.Token(e.GetToken()),
			Owner: e.GetOwner(), Mode: mode(e.GetMode()), Weight: e.GetWeight(), Session: LeaseID(e.GetSession()), Value: e.GetValue(),
			Reason: e.GetReason(), Number: e.GetNumber(), KV: keyValue(e.GetKv()), Prev: keyValue(e.GetPrevKv()),
		}
	}
	return out
}

// WatchRequest is what to follow.
func WatchRequest(r *driver.WatchRequest) *pb.WatchRequest {
	return &pb.WatchRequest{
		Prefix: r.Prefix, Exact: r.Exact, FromRevision: uint64(r.From), Patterns: r.Patterns, Glob: r.Glob, Previous: r.Previous,
	}
}

// ToWatchRequest is what to follow.
func ToWatchRequest(r *pb.WatchRequest) *driver.WatchRequest {
	return &driver.WatchRequest{
		Prefix: r.GetPrefix(), Exact: r.GetExact(), From: driver.Revision(r.GetFromRevision()), Patterns: r.GetPatterns(), Glob: r.GetGlob(), Previous: r.GetPrevious(),
	}
}
