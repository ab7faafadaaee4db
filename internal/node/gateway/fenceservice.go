package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Fences is pb.FenceService.
type Fences struct {
	*Gateway
}

// registers is the namespace of fenced registers beside each namespace: a
// register is a key there; its value begins with the token that wrote it.
const registers = reserved + "registers."

// inRegisters makes a call one about the registers of its namespace.
func inRegisters(ctx context.Context) context.Context {
	c := callerOf(ctx)
	c.namespace = registers + c.namespace
	return context.WithValue(ctx, callerKey{}, c)
}

func (s Fences) CheckToken(ctx context.Context, r *pb.CheckTokenRequest) (*pb.CheckTokenResponse, error) {
	if err := CheckName(r.Name); err != nil {
		return nil, Named(err, "check token", r.Name)
	}
	out := &pb.CheckTokenResponse{}
	ns := callerOf(ctx).namespace
	var revision uint64
	err := s.look(ctx, func(m *core.Machine, _ int64) {
		revision = m.Revision()
		h, held := m.Holder(ns, r.Name, r.Token)
		out.Held, out.Revoked = held, h.Revoked
	})
	if err != nil {
		return nil, Named(err, "check token", r.Name)
	}
	out.Header = s.Header(ctx, revision)
	return out, nil
}

// maxToken is the greatest that a hold can have. A register with one that is greater, as
// an earlier program may have written it, can be forgotten.
const maxToken = 1<<53 - 1

// Write compares and writes in one transaction: values are compared as bytes, and
// the token stands first in them, so that "not newer than token" is "less than
// the next token". The first write of a register is one on its absence.
func (s Fences) Write(ctx context.Context, r *pb.FenceWriteRequest) (*pb.FenceWriteResponse, error) {
	if r.Token > maxToken {
		return nil, Named(Invalid("", "%d is not a token, they end below 2^53: pass the token of the hold as it is", r.Token), "write register", r.Register)
	}
	older, err := notNewer(r.Register, r.Token)
	if err != nil {
		return nil, Named(err, "write register", r.Register)
	}
	value := append(binary.BigEndian.AppendUint64(nil, r.Token), r.Value...)
	absent := &pb.Compare{Key: r.Register}
	for round := 0; ; round++ {
		for _, condition := range []*pb.Compare{older, absent} {
			res, revision, err := s.writeIf(ctx, round, condition, r.Register, value)
			if err != nil {
				return nil, err
			}
			if res.Succeeded {
				return &pb.FenceWriteResponse{Header: s.Header(ctx, revision)}, nil
			}
			if err := staleFor(res, r.Token); err != nil {
				return nil, Named(err, "write register", r.Register)
			}
		}
	}
}

// writeIf writes a register, or tells what is in it.
func (g *Gateway) writeIf(ctx context.Context, round int, condition *pb.Compare, register string, value []byte) (*pb.TxnResponse, uint64, error) {
	ctx = inRegisters(ctx)
	c := callerOf(ctx)
	if c.key != "" { // each transaction is a request of its own
		c.key = fmt.Sprintf("%s %s %d", c.key, condition.Target, round)
		ctx = context.WithValue(ctx, callerKey{}, c)
	}
	return g.txn(ctx, "write register", register, &pb.TxnRequest{
		If:   []*pb.Compare{condition},
		Then: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: register, Value: value}}}},
		Else: []*pb.Op{{Op: &pb.Op_Get{Get: &pb.GetRequest{Key: register}}}},
	})
}

// notNewer is the condition that a register is there and no newer token has written it.
func notNewer(register string, token uint64) (*pb.Compare, error) {
	if token == 0 || token == math.MaxUint64 {
		return nil, Invalid("", "token %d is none that a hold can have", token)
	}
	next := binary.BigEndian.AppendUint64(nil, token+1)
	return &pb.Compare{Key: register, Target: pb.Compare_TARGET_VALUE, Relation: pb.Compare_RELATION_LESS, Value: next}, nil
}

// staleFor refuses a token if a newer one has written the register that a transaction has read.
func staleFor(res *pb.TxnResponse, token uint64) error {
	kvs := res.Results[0].Kvs
	if len(kvs) == 0 || tokenIn(kvs[0].Value) <= token {
		return nil
	}
	return driver.Errorf("", "", driver.ErrStale, "token %d has written it after token %d was granted: another holds it now", tokenIn(kvs[0].Value), token)
}

// Forget removes a register in one transaction with the comparison of its token.
func (s Fences) Forget(ctx context.Context, r *pb.FenceForgetRequest) (*pb.FenceForgetResponse, error) {
	older, err := notNewer(r.Register, r.Token)
	if err != nil {
		return nil, Named(err, "forget register", r.Register)
	}
	res, revision, err := s.txn(inRegisters(ctx), "forget register", r.Register, &pb.TxnRequest{
		If:   []*pb.Compare{older},
		Then: []*pb.Op{{Op: &pb.Op_Delete{Delete: &pb.KVDeleteRequest{Key: r.Register}}}},
		Else: []*pb.Op{{Op: &pb.Op_Get{Get: &pb.GetRequest{Key: r.Register}}}},
	})
	if err != nil {
		return nil, err
	}
	if err := staleFor(res, r.Token); !res.Succeeded && err != nil {
		return nil, Named(err, "forget register", r.Register)
	}
	return &pb.FenceForgetResponse{Header: s.Header(ctx, revision), Existed: res.Succeeded}, nil
}

func tokenIn(value []byte) uint64 {
	if len(value) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

func (s Fences) Read(ctx context.Context, r *pb.FenceReadRequest) (*pb.FenceReadResponse, error) {
	res, revision, err := s.txn(inRegisters(ctx), "read register", r.Register, &pb.TxnRequest{Then: []*pb.Op{{Op: &pb.Op_Get{Get: &pb.GetRequest{Key: r.Register}}}}})
	if err != nil {
		return nil, err
	}
	out := &pb.FenceReadResponse{Header: s.Header(ctx, revision)}
	if kvs := res.Results[0].Kvs; len(kvs) > 0 && len(kvs[0].Value) >= 8 {
		out.Token, out.Value = tokenIn(kvs[0].Value), kvs[0].Value[8:]
	}
	return out, nil
}
