package api_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// flood is a client that need not be polite: it writes frames to a stream as fast
// as it is told, whatever becomes of them.
type flood struct {
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[pb.Batch, pb.Batch]
	ids    []core.SessionID
	names  [perFrame]string
	seq    uint64
	next   int

	done, refused atomic.Int64
	ended         atomic.Bool
	news          chan struct{}
	receiver      sync.WaitGroup
}

// perFrame is how many commands a frame has.
const perFrame = 8

// newFlood opens so many sessions on a stream of their own.
func newFlood(ctx context.Context, t *testing.T, addr string, number, sessions int) *flood {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{conn: conn, news: make(chan struct{}, 1)}
	for i := range f.names {
		f.names[i] = fmt.Sprintf("flood/%d/%d", number, i)
	}
	f.stream = must[grpc.BidiStreamingClient[pb.Batch, pb.Batch]](t)(pb.NewSessionStreamClient(conn).Attach(ctx))
	f.receiver.Go(f.receive)
	var batch []byte
	for i := range sessions {
		id := core.SessionID{0xf1, byte(number)}
		binary.BigEndian.PutUint32(id[8:], uint32(i))
		f.ids = append(f.ids, id)
		batch = append(append(batch, attachTo(id)...), frameOf(id, id, core.Command{Op: core.OpOpen, TTL: int64(time.Hour)})...)
	}
	f.send(t, batch)
	f.await(ctx, int64(sessions))
	return f
}

func (f *flood) send(t *testing.T, batch []byte) {
	t.Helper()
	if err := f.stream.Send(&pb.Batch{Messages: batch}); err != nil && f.ended.CompareAndSwap(false, true) {
		t.Errorf("the stream has ended: %v", err)
	}
}

// receive counts what is answered and what is refused.
func (f *flood) receive() {
	for {
		b, err := f.stream.Recv()
		if err != nil {
			return
		}
		for data := b.Messages; len(data) > 0; {
			m, rest, err := session.DecodeMessage(data)
			if err != nil {
				return
			}
			switch data = rest; m.Kind {
			case session.KindReply:
				f.done.Add(1)
			case session.KindRefused:
				f.refused.Add(1)
			}
		}
		select {
		case f.news <- struct{}{}:
		default:
		}
	}
}

// await waits until so many frames in all are answered or refused.
func (f *flood) await(ctx context.Context, n int64) {
	for f.done.Load()+f.refused.Load() < n {
		select {
		case <-f.news:
		case <-ctx.Done():
			return
		}
	}
}

// frames appends n frames of additions, of one session after the other.
func (f *flood) frames(batch []byte, n int) []byte {
	var body []byte
	frame := core.Frame{Commands: make([]core.Command, perFrame)}
	for range n {
		if f.next == 0 {
			f.seq += perFrame
		}
		id := f.ids[f.next]
		f.next = (f.next + 1) % len(f.ids)
		frame.Session, frame.Attempt, frame.Mark = id, f.seq, f.seq
		for i := range frame.Commands {
			frame.Commands[i] = core.Command{Op: core.OpCount, Seq: f.seq + uint64(i), Name: f.names[i], Count: core.CountAdd, A: 1}
		}
		body = core.AppendFrame(body[:0], &frame)
		batch = session.AppendMessage(batch, &session.Message{Kind: session.KindFrame, Session: id, Stream: 1, Body: body})
	}
	return batch
}

// saturate keeps one frame of each session under way, and tells how many were
// answered.
func (f *flood) saturate(ctx context.Context, t *testing.T, d time.Duration) (answered int64) {
	before, over := f.done.Load(), time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			return f.done.Load() - before
		default:
		}
		all := f.done.Load() + f.refused.Load()
		f.send(t, f.frames(nil, len(f.ids)))
		f.await(ctx, all+int64(len(f.ids)))
	}
}

// pour sends so many frames a second for a time, and tells how many. What the node
// does not read in time is not sent at all.
func (f *flood) pour(t *testing.T, rate float64, d time.Duration) (sent int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	began, offered := time.Now(), int64(0)
	for time.Since(began) < d {
		<-tick.C
		n := int64(rate*time.Since(began).Seconds()) - offered
		offered += n
		n = min(n, 1024)
		f.send(t, f.frames(nil, int(n)))
		sent += n
	}
	return sent
}

func (f *flood) close() {
	_ = f.stream.CloseSend()
	f.receiver.Wait()
	f.conn.Close()
}
