-- The tables of pghold, in the schema holdfast, which programs of all versions share.
-- The functions are in a schema that has their version in its name: a program calls
-- those that it was made with, and a later one takes none of them away. Every statement
-- can be repeated. What describes claims is unlogged: after a crash of the server nobody
-- holds anything.

-- One at a time makes it, until the end of its transaction.
select pg_catalog.pg_advisory_xact_lock(5209599041173340518);

create schema if not exists holdfast;
create schema if not exists holdfast_v10;

-- Tokens and places in queues. CACHE 1: a cached number could be handed out
-- after a greater one. A new one begins at unix seconds * 2^20, so that a schema
-- that was dropped and made anew repeats no token.
do $$
begin
  execute format('create sequence if not exists holdfast.token as bigint start with %s cache 1 no cycle',
    (extract(epoch from clock_timestamp()) * 1048576)::bigint);
end
$$;

-- The clock of the keys: every transaction that writes keys takes the next
-- revision, one transaction after the other.
create table if not exists holdfast.revision (n bigint not null);
insert into holdfast.revision
  select (extract(epoch from clock_timestamp()) * 1048576)::bigint
  where not exists (select from holdfast.revision);

-- Holders and waiters. nonce is an advisory lock (bigint form) that the
-- claim's connection holds: if nobody holds it, the claim has ended.
create unlogged table if not exists holdfast.claim (
  space    smallint not null,  -- 1: one bigint, 2: two integers
  key      bigint not null,
  id       bigint not null,    -- place in the queue
  token    bigint not null,    -- 0: it waits
  name     text collate "C" not null,
  kind     smallint not null,
  mode     smallint not null,
  weight   bigint not null,
  nonce    bigint not null,
  lease    uuid not null,
  owner    text not null,
  meta     bytea not null,
  value    bytea,
  version  bigint not null default 1,
  modified bigint not null,
  chosen   boolean not null default false,  -- leadership is handed to it
  revoked  boolean not null default false,
  since    timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Semaphores (lim), latches (lim, rest) and barriers (lim).
create table if not exists holdfast.resource (
  space smallint not null,
  key   bigint not null,
  name  text collate "C" not null,
  kind  smallint not null,
  lim   bigint not null,
  rest  bigint not null default 0,
  made  bigint not null,
  primary key (space, key)
);

-- Sessions that programs opened themselves.
create unlogged table if not exists holdfast.session (
  id    uuid primary key,
  nonce bigint not null,
  owner text not null,
  meta  bytea not null,
  ttl   bigint not null
);

create table if not exists holdfast.counter (
  name     text collate "C" primary key,
  unsigned boolean not null,
  value    numeric(20, 0) not null
) with (fillfactor = 50);

create table if not exists holdfast.sequence (
  name text collate "C" primary key,
  next numeric(20, 0) not null
) with (fillfactor = 50);

create table if not exists holdfast.limiter (
  name text collate "C" primary key,
  rate text not null -- an epoch of 32 characters, and the rate
);

-- What the keys of limiters have used. idle is when one is as if it had never been used,
-- in nanoseconds; null: never.
create table if not exists holdfast.usage (
  name   text collate "C",
  key    text collate "C",
  epoch  text not null,
  at     bigint not null,
  part   bigint not null,
  given  bigint not null,
  leased bigint not null,
  rest   text, -- of all but buckets
  v      bigint not null,
  idle   bigint,
  primary key (name, key)
) with (fillfactor = 50);

-- Answers to requests that may be repeated, kept for ten minutes.
create table if not exists holdfast.done (
  id    uuid primary key,
  value numeric(20, 0) not null,
  ok    boolean not null,
  at    timestamptz not null default clock_timestamp()
);

create table if not exists holdfast.kv (
  key      text collate "C" primary key,
  value    bytea not null,
  created  bigint not null,
  modified bigint not null,
  version  bigint not null,
  lease    uuid,
  nonce    bigint,
  expires  timestamptz
);

-- "if not exists" would lock the table even so, against all that use it.
do $$
begin
  if pg_catalog.to_regclass('holdfast.done_at') is null then
    create index done_at on holdfast.done (at);
  end if;
  if pg_catalog.to_regclass('holdfast.usage_idle') is null then
    create index usage_idle on holdfast.usage (idle) where idle is not null;
  end if;
  if pg_catalog.to_regclass('holdfast.kv_lease') is null then
    create index kv_lease on holdfast.kv (lease) where lease is not null;
    create index kv_expires on holdfast.kv (expires) where expires is not null;
  end if;
end
$$;

-- Watchers, by the nonce of its connection; events that are too large for a
-- notification.
create unlogged table if not exists holdfast.watcher (nonce bigint primary key);
create unlogged table if not exists holdfast.event (
  id   bigint primary key,
  body text not null,
  at   timestamptz not null default clock_timestamp()
);

-- Indexes that earlier versions did not make. claim_key, which they made instead of claim_place, stays: to drop
-- it would wait for everything that has read the table, as waiters of those versions have. The wait for a table is short: whatever
-- uses the table waits behind it, and may have a connection to lose by it. If the time
-- was up, run all of it again.
do $$
begin
  perform pg_catalog.set_config('lock_timeout', '500ms', true);
  if pg_catalog.to_regclass('holdfast.event_at') is null then
    create index event_at on holdfast.event (at);
  end if;
  if pg_catalog.to_regclass('holdfast.resource_name') is null then
    create index resource_name on holdfast.resource (name);
  end if;
  if pg_catalog.to_regclass('holdfast.claim_name') is null then
    create index claim_name on holdfast.claim (name);
  end if;
  if pg_catalog.to_regclass('holdfast.claim_place') is null then
    create index claim_place on holdfast.claim (space, key, id);
  end if;
end
$$;
