package pghold

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// silentTx is a transaction on a server that does not answer.
type silentTx struct{}

func (silentTx) Exec(ctx context.Context, _ string, _ ...any) (pgconn.CommandTag, error) {
	<-ctx.Done()
	return pgconn.CommandTag{}, ctx.Err()
}

func (silentTx) QueryRow(ctx context.Context, _ string, _ ...any) pgx.Row { return silentRow{ctx} }

func (silentTx) Rollback(context.Context) error { return nil }

type silentRow struct{ ctx context.Context }

func (r silentRow) Scan(...any) error {
	<-r.ctx.Done()
	return r.ctx.Err()
}

// TestLockTx_SilentServer: the deadline of a context, or its end, ends a LockTx also if the server
// does not answer its first statement.
func TestLockTx_SilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := LockTx(ctx, silentTx{}, "m"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute+defaultTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		if err := LockTx(ctx, silentTx{}, "m"); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
