// Package wire says in the messages of proto/holdfast/v1 what package driver says
// in Go, and back, for the server and its client.
package wire

import (
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func ms(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// Text is what a client said of itself over a session's stream, where nobody looks at it. Messages
// take UTF-8 alone: with other bytes nobody could read an answer that tells of that client.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Session is a session's id on the wire; the zero id is none.
func Session(id driver.SessionID) []byte {
	if id == (driver.SessionID{}) {
		return nil
	}
	return id[:]
}

// LeaseID is the session that the wire names; anything but 16 bytes is none.
func LeaseID(b []byte) (id driver.SessionID) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// Mode is how a claim holds.
func Mode(m driver.Mode) pb.Mode {
	if m == driver.Shared {
		return pb.Mode_MODE_SHARED
	}
	return pb.Mode_MODE_EXCLUSIVE
}

func mode(m pb.Mode) driver.Mode {
	if m == pb.Mode_MODE_SHARED {
		return driver.Shared
	}
	return driver.Exclusive
}

// Claims are holders or waiters.
func Claims(list []driver.Claim) []*pb.Claim {
	out := make([]*pb.Claim, len(list))
	for i := range list {
		c := &list[i]
		out[i] = &pb.Claim{
			Name: c.Name, Kind: pb.ResourceKind(c.Kind), Mode: Mode(c.Mode), Weight: c.Weight, Token: uint64(c.Token), Owner: Text(c.Owner), Meta: Text(c.Meta),
			Session: Session(c.Session), Value: c.Value, CreateRevision: uint64(c.Created), ModRevision: uint64(c.Modified), Version: c.Version,
			HeldMs: ms(c.Held), ExpiresInMs: ms(c.ExpiresIn), Position: int32(c.Position), Before: Session(c.Before), Revoked: c.Revoked, Stale: c.Stale,
		}
	}
	return out
}

func claims(list []*pb.Claim) []driver.Claim {
	var out []driver.Claim
	for _, c := range list {
		out = append(out, driver.Claim{
			Name: c.GetName(), Kind: driver.ResourceKind(c.GetKind()), Mode: mode(c.GetMode()), Weight: c.GetWeight(), Token: driver.Token(c.GetToken()),
			Owner: c.GetOwner(), Meta: c.GetMeta(), Session: LeaseID(c.GetSession()), Value: c.GetValue(),
			Created: driver.Revision(c.GetCreateRevision()), Modified: driver.Revision(c.GetModRevision()), Version: c.GetVersion(),
			Held: duration(c.GetHeldMs()), ExpiresIn: duration(c.GetExpiresInMs()), Position: int(c.GetPosition()),
			Before: LeaseID(c.GetBefore()), Revoked: c.GetRevoked(), Stale: c.GetStale(),
		})
	}
	return out
}

// Resource is one name.
func Resource(r *driver.Resource) *pb.Resource {
	return &pb.Resource{
		Name: r.Name, Kind: pb.ResourceKind(r.Kind), Limit: r.Limit, Used: r.Used, CreateRevision: uint64(r.Created), ModRevision: uint64(r.Modified),
		Holders: Claims(r.Holders), Waiters: Claims(r.Waiters), Holding: int32(r.Holding), Waiting: int32(r.Waiting), More: r.More,
	}
}

// ToResource is one name.
func ToResource(r *pb.Resource) driver.Resource {
	return driver.Resource{
		Name: r.GetName(), Kind: driver.ResourceKind(r.GetKind()), Limit: r.GetLimit(), Used: r.GetUsed(),
		Created: driver.Revision(r.GetCreateRevision()), Modified: driver.Revision(r.GetModRevision()), Holders: claims(r.GetHolders()), Waiters: claims(r.GetWaiters()),
		Holding: int(r.GetHolding()), Waiting: int(r.GetWaiting()), More: r.GetMore(),
	}
}

// SessionInfo is a session.
func SessionInfo(i *driver.SessionInfo) *pb.GetSessionResponse {
	return &pb.GetSessionResponse{
		Session: Session(i.ID), TtlMs: ms(i.TTL), ExpiresInMs: ms(i.ExpiresIn), Owner: Text(i.Owner), Meta: Text(i.Meta),
		Names: i.Names, Waits: i.Waits, Keys: i.Keys, Next: i.Next,
	}
}

// ToSessionInfo is a session.
func ToSessionInfo(r *pb.GetSessionResponse) driver.SessionInfo {
	return driver.SessionInfo{
		ID: LeaseID(r.GetSession()), TTL: duration(r.GetTtlMs()), ExpiresIn: duration(r.GetExpiresInMs()), Owner: r.GetOwner(), Meta: r.GetMeta(),
		Names: r.GetNames(), Waits: r.GetWaits(), Keys: r.GetKeys(), Next: r.GetNext(),
	}
}
