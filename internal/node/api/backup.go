package api

import (
	"bufio"
	"context"

	"connectrpc.com/connect"
	"google.golang.org/grpc"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

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

func (s adminService) backup(ctx context.Context, send pieces) error {
	w := bufio.NewWriterSize(send, pieceSize)
	if err := s.s.Backup(ctx, w); err != nil {
		return named(err, "backup", "")
	}
	return w.Flush()
}

// Backup sends everything that the node knows.
func (s adminService) Backup(_ *pb.BackupRequest, client grpc.ServerStreamingServer[pb.BackupResponse]) error {
	return s.backup(client.Context(), client.Send)
}

// adminOverHTTP is AdminService over connect.
type adminOverHTTP struct{ adminService }

func (s adminOverHTTP) Backup(ctx context.Context, _ *pb.BackupRequest, client *connect.ServerStream[pb.BackupResponse]) error {
	return s.backup(ctx, client.Send)
}
