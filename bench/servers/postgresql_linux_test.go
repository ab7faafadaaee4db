package servers

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/internal/services"
)

// postgres is a PostgreSQL that syncs every commit, with a row for each lock: its
// holder, until when, and a token that grows.
type postgres struct {
	node *services.PostgreSQLServer
	pool *pgxpool.Pool
}

const (
	leaseTable = "create table lease (name text primary key, owner text not null, token bigint not null, until timestamptz not null) with (fillfactor = 50)"
	takeLease  = `insert into lease values ($1, $2, 1, now() + interval '30 s')
		on conflict (name) do update set owner = excluded.owner, token = lease.token + 1, until = excluded.until where lease.until < now()
		returning token`
	leaveLease = "update lease set until = '-infinity' where name = $1 and token = $2"
)

// startPostgreSQL has a pool of 64 connections: with one for each of 256 callers
// it is slower.
func startPostgreSQL(t *testing.T) *postgres {
	p := &postgres{node: services.PostgreSQL(t, services.Durable(), services.Setting("max_connections", "100"))}
	pool, err := pgxpool.New(t.Context(), p.node.URL(p.node.CreateDatabase(t))+"&pool_max_conns=64")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), leaseTable); err != nil {
		t.Fatal(err)
	}
	p.pool = pool
	return p
}

func (p *postgres) meter() meter { return metering(&p.node.Process) }

func (p *postgres) pairs(t *testing.T, callers int) turn {
	return each(many(callers, func(i int) func() error {
		name := fmt.Sprint("pair-", i)
		return func() error {
			var token int64
			if err := p.pool.QueryRow(t.Context(), takeLease, name, "caller").Scan(&token); err != nil {
				return err
			}
			_, err := p.pool.Exec(t.Context(), leaveLease, name, token)
			return err
		}
	}), p.meter())
}
