package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// postgresContests are those on one PostgreSQL server.
func postgresContests(t *testing.T) field {
	server := services.PostgreSQL(t, services.Setting("max_connections", "200"))
	address := server.URL(server.CreateDatabase(t))
	pool := pgPool(t, address)
	ours, bare := pgSpace(t, pool), pgConn(t, address)
	ctx := t.Context()
	if _, err := bare.Exec(ctx, "create table public.counter (name text primary key, n bigint) with (fillfactor = 50); insert into public.counter values ('counter', 0)"); err != nil {
		t.Fatal(err)
	}
	counter := ours.Counter("counter")

	oursMany, bareMany := make([]func() error, many), make([]func() error, many)
	for i := range many {
		oursMany[i] = pair(held(ctx, ours, fmt.Sprint("many-", i)))
		bareMany[i] = pair(advisory(ctx, pgConn(t, address), int64(1000+i)))
	}
	oursCrowd, bareCrowd := make([]lock, waiters), make([]lock, waiters)
	for i := range waiters {
		oursCrowd[i] = held(ctx, pgSpace(t, pgPool(t, address)), "crowd")
		bareCrowd[i] = advisory(ctx, pgConn(t, address), 999)
	}
	return field{
		contests: []*contest{
			{what: "PostgreSQL: lock and unlock, one caller", peer: "pg_advisory_lock", least: 0.9, slice: 250 * time.Millisecond,
				ours: one(pair(held(ctx, ours, "one"))), theirs: one(pair(advisory(ctx, bare, 1)))},
			{what: "PostgreSQL: lock and unlock, 64 callers", peer: "pg_advisory_lock on 64 connections", slice: 250 * time.Millisecond,
				ours: each(oursMany), theirs: each(bareMany)},
			{what: "PostgreSQL: changes of holder, 8 waiters", peer: "pg_advisory_lock", slice: time.Second, ours: changes(oursCrowd), theirs: changes(bareCrowd)},
			{what: "PostgreSQL: counting, one caller", peer: "UPDATE … RETURNING", least: 0.8, slice: 250 * time.Millisecond,
				ours: one(func() error { _, err := counter.Add(ctx, 1); return err }),
				theirs: one(func() error {
					var n int64
					return pool.QueryRow(ctx, "update public.counter set n = n + $1 where name = $2 returning n", 1, "counter").Scan(&n)
				})},
		},
		crowds: []crowd{{who: "holdfast on PostgreSQL", most: 2, locks: oursCrowd}, {who: "pg_advisory_lock", locks: bareCrowd}},
	}
}

func pgPool(t *testing.T, address string) *pgxpool.Pool {
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func pgSpace(t *testing.T, pool *pgxpool.Pool) *holdfast.Space {
	d, err := pghold.New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pgConn(t *testing.T, address string) *pgx.Conn {
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// advisory is the lock that a program takes on a connection of its own.
func advisory(ctx context.Context, conn *pgx.Conn, key int64) lock {
	return func() (func() error, error) {
		if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", key); err != nil {
			return nil, err
		}
		return func() error {
			_, err := conn.Exec(ctx, "select pg_advisory_unlock($1)", key)
			return err
		}, nil
	}
}
