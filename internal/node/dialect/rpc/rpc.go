// Package rpc maps the services of proto/holdfast/v1 to the plain calls of package
// gateway, by gRPC and, over HTTP, by Connect with JSON and gRPC-Web.
package rpc

import (
	"bufio"
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	codec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/node/relay"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Services are those of one node.
type Services struct {
	g     *gateway.Gateway
	relay *relay.Relay
	keeps chan struct{} // as many as there are messages of LeaseKeepAlive under way
}

// New is the services of a gateway.
func New(g *gateway.Gateway, r *relay.Relay) *Services {
	return &Services{g, r, make(chan struct{}, allKeeps)}
}

// Label is what metrics call an outcome: its gRPC code.
func Label(err error) string {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return codes.Code(e.Code()).String()
	}
	if err == nil {
		return codes.OK.String()
	}
	return wire.StatusOf(err, "").Code().String()
}

// status is an error as callers get it; nil stays nil. A caller that asked a node that cannot
// serve is told where the leader is.
func (s *Services) status(err error) *status.Status {
	if err == nil {
		return nil
	}
	return wire.StatusOf(err, s.g.AskInstead(err))
}

// moreStreams is how many calls a connection carries beside those that stay: they
// come and go, and a caller that finds no place waits for one.
const moreStreams = 4096

// maxBatch is the longest message of a session stream; plain requests have a
// limit of their own.
const maxBatch = 16 << 20

// Server is a gRPC server with the services. peek is how long a request may take to
// come, streams how many calls may stay on one connection, header how many bytes of
// metadata a call may have. The info of creds is a [Visit].
func (s *Services) Server(peek time.Duration, streams, header int, creds credentials.TransportCredentials) *grpc.Server {
	rpc := grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(bounded{encoding.GetCodecV2(codec.Name)}),
		grpc.InTapHandle(within(peek)), grpc.UnaryInterceptor(s.arrivedUnary), grpc.StreamInterceptor(s.arrivedStream),
		grpc.MaxHeaderListSize(uint32(header)), grpc.MaxRecvMsgSize(maxBatch), grpc.ConnectionTimeout(peek), grpc.MaxConcurrentStreams(uint32(streams+moreStreams)),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	s.register(around{rpc, s, true})
	return rpc
}

// Register adds the services to a gRPC server of another's.
func (s *Services) Register(r grpc.ServiceRegistrar) { s.register(around{r, s, false}) }

func (s *Services) register(r around) {
	g := s.g
	pb.RegisterSessionStreamServer(r, sessionStream{s: g.Node()})
	pb.RegisterWatchServiceServer(r, watchServer{g: g})
	pb.RegisterInspectServiceServer(r, inspectServer{Inspector: gateway.Inspector{Gateway: g}})
	pb.RegisterLockServiceServer(r, lockServer{Locks: gateway.Locks{Gateway: g}, s: s})
	pb.RegisterRWLockServiceServer(r, rwServer{RWLocks: gateway.RWLocks{Gateway: g}})
	pb.RegisterSemaphoreServiceServer(r, semaphoreServer{Semaphores: gateway.Semaphores{Gateway: g}})
	pb.RegisterElectionServiceServer(r, electionServer{Elections: gateway.Elections{Gateway: g}})
	pb.RegisterLatchServiceServer(r, latchServer{Latches: gateway.Latches{Gateway: g}})
	pb.RegisterBarrierServiceServer(r, barrierServer{Barriers: gateway.Barriers{Gateway: g}})
	pb.RegisterCounterServiceServer(r, counterServer{Counters: gateway.Counters{Gateway: g}})
	pb.RegisterSequenceServiceServer(r, sequenceServer{Sequences: gateway.Sequences{Gateway: g}})
	pb.RegisterLimitServiceServer(r, limitServer{Limits: gateway.Limits{Gateway: g}})
	pb.RegisterGuardServiceServer(r, guardServer{Guards: gateway.Guards{Gateway: g}})
	pb.RegisterKVServiceServer(r, kvServer{Keys: gateway.Keys{Gateway: g}})
	pb.RegisterSessionServiceServer(r, sessionServer{Sessions: gateway.Sessions{Gateway: g}})
	pb.RegisterFenceServiceServer(r, fenceServer{Fences: gateway.Fences{Gateway: g}})
	pb.RegisterAdminServiceServer(r, adminServer{Admin: gateway.Admin{Gateway: g}})
}

// The services as gRPC wants them. A call of the proto that the gateway does not have
// does not compile.
type (
	inspectServer struct {
		pb.UnsafeInspectServiceServer
		gateway.Inspector
	}
	rwServer struct {
		pb.UnsafeRWLockServiceServer
		gateway.RWLocks
	}
	semaphoreServer struct {
		pb.UnsafeSemaphoreServiceServer
		gateway.Semaphores
	}
	electionServer struct {
		pb.UnsafeElectionServiceServer
		gateway.Elections
	}
	latchServer struct {
		pb.UnsafeLatchServiceServer
		gateway.Latches
	}
	barrierServer struct {
		pb.UnsafeBarrierServiceServer
		gateway.Barriers
	}
	counterServer struct {
		pb.UnsafeCounterServiceServer
		gateway.Counters
	}
	sequenceServer struct {
		pb.UnsafeSequenceServiceServer
		gateway.Sequences
	}
	limitServer struct {
		pb.UnsafeLimitServiceServer
		gateway.Limits
	}
	guardServer struct {
		pb.UnsafeGuardServiceServer
		gateway.Guards
	}
	kvServer struct {
		pb.UnsafeKVServiceServer
		gateway.Keys
	}
	sessionServer struct {
		pb.UnsafeSessionServiceServer
		gateway.Sessions
	}
	fenceServer struct {
		pb.UnsafeFenceServiceServer
		gateway.Fences
	}
)

// watchServer is pb.WatchService.
type watchServer struct {
	pb.UnsafeWatchServiceServer
	g *gateway.Gateway
}

func (w watchServer) Watch(r *pb.WatchRequest, client grpc.ServerStreamingServer[pb.WatchResponse]) error {
	return w.g.Follow(client.Context(), r, client.Send)
}

// adminServer is pb.AdminService.
type adminServer struct {
	pb.UnsafeAdminServiceServer
	gateway.Admin
}

// Backup sends everything that the node knows.
func (s adminServer) Backup(_ *pb.BackupRequest, client grpc.ServerStreamingServer[pb.BackupResponse]) error {
	return backup(client.Context(), s.Admin, client.Send)
}

// pieceSize is how many bytes of a backup are sent at a time.
const pieceSize = 64 << 10

// pieces sends what is written to it.
type pieces func(*pb.BackupResponse) error

func (send pieces) Write(b []byte) (int, error) {
	if err := send(&pb.BackupResponse{Piece: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func backup(ctx context.Context, a gateway.Admin, send pieces) error {
	w := bufio.NewWriterSize(send, pieceSize)
	if err := a.BackUp(ctx, w); err != nil {
		return err
	}
	return w.Flush()
}

// lockServer is pb.LockService.
type lockServer struct {
	pb.UnsafeLockServiceServer
	gateway.Locks
	s *Services
}

// Watch begins a watch with each message, or ends one; responses of all of them
// share the stream.
func (l lockServer) Watch(stream pb.LockService_WatchServer) error {
	return l.WatchHolds(stream.Context(), stream.Recv, stream.Send)
}
