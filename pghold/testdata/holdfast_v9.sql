-- The tables of pghold, in the schema holdfast, which programs of all versions share.
-- The functions are in a schema that has their version in its name: a program calls
-- those that it was made with, and a later one takes none of them away. Every statement
-- can be repeated. What describes claims is unlogged: after a crash of the server nobody
-- holds anything.

-- One at a time makes it, until the end of its transaction.
select pg_catalog.pg_advisory_xact_lock(5209599041173340518);

create schema if not exists holdfast;
create schema if not exists holdfast_v9;

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

-- Who holds and who waits. nonce is an advisory lock (bigint form) that the
-- claim's connection holds: if nobody holds it, the claim is dead.
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

-- "if not exists" would lock the table even so, against all who use it.
do $$
begin
  if pg_catalog.to_regclass('holdfast.claim_key') is null then
    create index claim_key on holdfast.claim (space, key);
  end if;
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

-- Who watches, by the nonce of its connection; events that are too large for a
-- notification.
create unlogged table if not exists holdfast.watcher (nonce bigint primary key);
create unlogged table if not exists holdfast.event (
  id   bigint primary key,
  body text not null,
  at   timestamptz not null default clock_timestamp()
);

-- Indexes that earlier versions did not make. The wait for a table is short: whatever
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
end
$$;
-- What belongs to quick grants: locks that are taken without a row, which follows
-- soon if they are still held.

-- noted returns when every lock that was held before the call has its row. It
-- closes the gates, so that no more are granted without one, and waits for those
-- who may have one. A program that has been stopped is not waited for longer than
-- a second.
create or replace function holdfast_v9.noted() returns void
language plpgsql volatile as $$
declare
  enough timestamptz := clock_timestamp() + interval '1 second';
begin
  perform pg_catalog.pg_advisory_xact_lock_shared(5209599041173340544 + i) from generate_series(0, 31) i;
  while not pg_catalog.pg_try_advisory_xact_lock(5209599041173340522) and clock_timestamp() < enough loop
    perform pg_catalog.pg_sleep(0.0005);
  end loop;
end
$$;

-- free: no connection has the lock of a key.
create or replace function holdfast_v9.free(s smallint, k bigint) returns boolean
language sql volatile as $$
  select case when s = 1 then pg_catalog.pg_try_advisory_xact_lock(k)
    else pg_catalog.pg_try_advisory_xact_lock((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;
-- Liveness, events, and the steps of a claim on an advisory lock.

-- alive: somebody holds the nonce. me is the nonce of this very connection.
create or replace function holdfast_v9.alive(n bigint, me bigint) returns boolean
language sql volatile as $$
  select n = me or not pg_catalog.pg_try_advisory_xact_lock_shared(n)
$$;

-- try_lock, unlock and lock are plain expressions, so that the server puts them into
-- what calls them.
create or replace function holdfast_v9.try_lock(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_try_advisory_lock(k)
    when s = 1 then pg_catalog.pg_try_advisory_lock_shared(k)
    when m = 0 then pg_catalog.pg_try_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_try_advisory_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

create or replace function holdfast_v9.unlock(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_advisory_unlock(k)
    when s = 1 then pg_catalog.pg_advisory_unlock_shared(k)
    when m = 0 then pg_catalog.pg_advisory_unlock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_advisory_unlock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

create or replace function holdfast_v9.lock(s smallint, k bigint, m smallint) returns void
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_advisory_lock(k)
    when s = 1 then pg_catalog.pg_advisory_lock_shared(k)
    when m = 0 then pg_catalog.pg_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_advisory_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

-- locks are the advisory locks on a key in this database, of all programs.
create or replace function holdfast_v9.locks(s smallint, k bigint)
returns table (pid int, granted boolean, mode text)
language sql stable as $$
  select l.pid, l.granted, l.mode from pg_catalog.pg_locks l
  where l.locktype = 'advisory' and l.objsubid = s
    and l.classid = ((k >> 32) & 4294967295)::oid and l.objid = (k & 4294967295)::oid
    and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
$$;

-- has: this connection has the lock.
create or replace function holdfast_v9.has(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select exists (select from holdfast_v9.locks(s, k) l
    where l.pid = pg_backend_pid() and l.granted and l.mode = case m when 0 then 'ExclusiveLock' else 'ShareLock' end)
$$;

-- unlock_if_held cleans up after a wait whose end is not known.
create or replace function holdfast_v9.unlock_if_held(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  return holdfast_v9.has(s, k, m) and holdfast_v9.unlock(s, k, m);
end
$$;

-- lock_in_time waits for a lock until lock_timeout; false: it did not come. A time-out
-- that is caught here leaves no ERROR in the server's log. The lock may have been granted
-- in the moment in which the time was up.
create or replace function holdfast_v9.lock_in_time(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  perform holdfast_v9.lock(s, k, m);
  return true;
exception when lock_not_available then
  return holdfast_v9.has(s, k, m);
end
$$;

-- lock_tx_in_time is lock_in_time for the rest of the caller's transaction.
create or replace function holdfast_v9.lock_tx_in_time(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  if s = 1 and m = 0 then perform pg_catalog.pg_advisory_xact_lock(k);
  elsif s = 1 then perform pg_catalog.pg_advisory_xact_lock_shared(k);
  elsif m = 0 then perform pg_catalog.pg_advisory_xact_lock((k >> 32)::int, ((k << 32) >> 32)::int);
  else perform pg_catalog.pg_advisory_xact_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int);
  end if;
  return true;
exception when lock_not_available then
  return false;
end
$$;

-- watched: somebody wants events. Who begins to watch takes the lock alone, so
-- that no transaction which has looked before is still under way.
create or replace function holdfast_v9.watched() returns boolean
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);
begin
  return exists (select from holdfast.watcher);
end
$$;

-- send hands an event to who watches.
create or replace function holdfast_v9.send(e jsonb) returns void
language plpgsql volatile as $$
declare
  body text := e::text;
  n bigint;
begin
  if octet_length(body) > 7900 then
    n := nextval('holdfast.token');
    delete from holdfast.event where at < clock_timestamp() - interval '1 minute';
    insert into holdfast.event (id, body) values (n, body);
    body := '@' || n;
  end if;
  perform pg_catalog.pg_notify('holdfast_event', body);
end
$$;

create or replace function holdfast_v9.tell(c holdfast.claim, verb text, reason text) returns void
language plpgsql volatile as $$
begin
  if holdfast_v9.watched() then
    perform holdfast_v9.send(jsonb_build_object(
      'k', (array['lock', 'rwlock', 'semaphore', 'election', 'latch', 'barrier'])[c.kind],
      'v', verb, 'n', c.name, 't', c.token, 'o', c.owner, 'm', c.mode, 'w', c.weight, 'l', c.lease,
      'x', encode(c.value, 'base64'), 'why', reason));
  end if;
end
$$;

-- What looks at rows is plpgsql, whose plans the server keeps: a function in SQL
-- that it cannot put into what calls it is parsed and planned at each call.

-- others tells a newcomer of those who are there: that the name is in use as
-- another kind, that somebody who waits goes first, and how many wait.
create or replace function holdfast_v9.others(
  s smallint, k bigint, want smallint, m smallint, me bigint, out other smallint, out blocked boolean, out waiting int)
language plpgsql volatile as $$
begin
  select coalesce((select r.kind from holdfast.resource r where r.space = s and r.key = k and r.kind <> want),
      max(c.kind) filter (where c.kind <> want)),
    coalesce(bool_or(c.token = 0 and (c.mode = 0 or m = 0)), false), count(*) filter (where c.token = 0)
    into other, blocked, waiting
    from holdfast.claim c where c.space = s and c.key = k and holdfast_v9.alive(c.nonce, me);
end
$$;

-- other_kind: the name is in use as another kind, this one.
create or replace function holdfast_v9.other_kind(s smallint, k bigint, want smallint, me bigint) returns smallint
language plpgsql volatile as $$
begin
  return (select t.other from holdfast_v9.others(s, k, want, 0::smallint, me) t);
end
$$;

-- blocked: somebody who waits goes before the claim place (0: a newcomer).
create or replace function holdfast_v9.blocked(s smallint, k bigint, m smallint, place bigint, me bigint) returns boolean
language plpgsql volatile as $$
begin
  return exists (
    select from holdfast.claim c
    where c.space = s and c.key = k and c.token = 0 and c.id <> place and (c.mode = 0 or m = 0)
      and (place = 0 or c.chosen or c.id < place)
      and holdfast_v9.alive(c.nonce, me));
end
$$;

-- place is how many wait up to and with a claim.
create or replace function holdfast_v9.place(s smallint, k bigint, i bigint, me bigint) returns int
language plpgsql volatile as $$
begin
  return (
    select count(*) from holdfast.claim c
    where c.space = s and c.key = k and c.token = 0 and c.id <= i and holdfast_v9.alive(c.nonce, me));
end
$$;

-- draw: the token that is drawn now must not be forgotten by a crash, and
-- drawn again, whatever the server's default is.
create or replace function holdfast_v9.draw() returns bigint
language plpgsql volatile as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
  return nextval('holdfast.token');
end
$$;

-- inter forgets holders of a lock that the caller has now: they are dead. true:
-- there were some.
create or replace function holdfast_v9.inter(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  for c in delete from holdfast.claim x where x.space = s and x.key = k and x.token > 0 and (x.mode = 0 or m = 0) returning * loop
    perform holdfast_v9.tell(c, 'expired', 'session');
  end loop;
  return found;
end
$$;

-- arrive is the first step of every claim on a lock: take it if it is free and
-- nobody waits, else join the queue (wait), or be refused. 'inherited' is granted,
-- after somebody who died with it. Who joins takes the name's guard (0: has it
-- already). unsure: who holds it has no row that says as what; or of a grant, the
-- next one cannot be quick.
create or replace function holdfast_v9.arrive(
  s smallint, k bigint, nam text, knd smallint, m smallint, me bigint, lea uuid, own text, met bytea, val bytea,
  try boolean, again boolean, wait boolean, guard bigint,
  out state text, out tok bigint, out place bigint, out pos int, out pid int, out unsure boolean)
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched
  c holdfast.claim;
  busy boolean;
  watched boolean;
begin
  pid := pg_backend_pid();
  select exists (select from holdfast.claim x where x.space = s and x.key = k)
      or exists (select from holdfast.resource r where r.space = s and r.key = k),
    exists (select from holdfast.watcher) into busy, watched;
  if busy then
    select t.other, try and not t.blocked, t.waiting into pos, try, place from holdfast_v9.others(s, k, knd, m, me) t;
    if pos is not null then state := 'kind'; return; end if;
    pos := place + 1;
  end if;
  if try and again then
    try := not exists (select from holdfast_v9.locks(s, k) l where not l.granted);
  end if;
  if try and holdfast_v9.try_lock(s, k, m) then
    pos := (select r.kind from holdfast.resource r where r.space = s and r.key = k);
    if pos is not null then  -- somebody made it something that is no lock since we looked
      perform holdfast_v9.unlock(s, k, m);
      state := 'kind'; return;
    end if;
    state := 'granted';
    if busy and holdfast_v9.inter(s, k, m) then state := 'inherited'; end if;
    tok := nextval('holdfast.token'); place := tok; unsure := busy or watched;
  elsif wait then
    if guard <> 0 then perform pg_catalog.pg_advisory_lock_shared(guard); end if;
    tok := 0; place := nextval('holdfast.token'); state := 'queued'; pos := coalesce(pos, 1);
    unsure := knd <> 1 and not exists (select from holdfast.claim x where x.space = s and x.key = k and x.token > 0);
  else
    state := 'held'; return;
  end if;
  insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, value, modified)
    values (s, k, place, tok, nam, knd, m, 1, me, lea, own, met, val, place);
  if tok > 0 and watched then
    select * into c from holdfast.claim x where x.space = s and x.key = k and x.id = place;
    perform holdfast_v9.tell(c, 'acquired', null);
  end if;
end
$$;

-- settle makes a claim that waited the holder. The caller's connection has the
-- lock; free says whether settle gives it back if another one goes first, if the
-- claim was taken for dead, or if somebody was making the name something that is
-- no lock when it began to wait.
create or replace function holdfast_v9.settle(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid, free boolean,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
declare
  c holdfast.claim;
  dead boolean;
begin
  pid := pg_backend_pid();
  select case when bool_or(x.id = i) is not true then 'gone'
      when exists (select from holdfast.resource r where r.space = s and r.key = k) then 'kind'
      when bool_or(x.id = i and x.chosen) then null
      when bool_or(x.id <> i and x.token = 0 and (x.mode = 0 or m = 0) and (x.chosen or x.id < i) and holdfast_v9.alive(x.nonce, me)) then 'blocked' end,
    bool_or(x.token > 0)
    into state, dead from holdfast.claim x where x.space = s and x.key = k;
  if state is not null then
    if free then perform holdfast_v9.unlock(s, k, m); end if;
    return;
  end if;
  state := 'granted';
  if dead and holdfast_v9.inter(s, k, m) then state := 'inherited'; end if;
  tok := holdfast_v9.draw();
  update holdfast.claim x
    set token = tok, modified = tok, nonce = me, lease = lea, chosen = false, since = clock_timestamp()
    where x.space = s and x.key = k and x.id = i;
  if holdfast_v9.watched() then
    select * into c from holdfast.claim x where x.space = s and x.key = k and x.id = i;
    perform holdfast_v9.tell(c, 'acquired', null);
  end if;
end
$$;

-- ticket is an advisory lock (bigint form) that a claim has while it waits in the
-- server: who is behind it waits for that.
create or replace function holdfast_v9.ticket(i bigint) returns bigint
language sql immutable as $$ select i # 5209599041173340521 $$;

-- pass returns when a claim has no ticket, or after lock_timeout. What it took for that
-- ends with the block, also when the wait is cancelled.
create or replace function holdfast_v9.pass(i bigint) returns void
language plpgsql volatile as $$
begin
  perform pg_catalog.pg_advisory_xact_lock_shared(holdfast_v9.ticket(i));
  raise exception using errcode = 'HF002';
exception when sqlstate 'HF002' or lock_not_available then
end
$$;

-- before is the claim that the claim i waits for: one that was chosen, else of the
-- programs that have an older one in its way the newest of their first ones, since
-- of each program only the first waits in the server. If it is i itself, i was chosen.
create or replace function holdfast_v9.before(s smallint, k bigint, m smallint, i bigint, me bigint, out id bigint, out chosen boolean)
language plpgsql volatile as $$
begin
  select coalesce(p.chosen, p.first), p.chosen is not null into id, chosen
    from (select x.nonce, min(x.id) as first, max(x.id) filter (where x.chosen) as chosen, bool_or(x.id = i) as own
      from holdfast.claim x where x.space = s and x.key = k and x.token = 0 and (x.chosen or x.id < i)
      group by x.nonce having bool_or(x.id = i or x.mode = 0 or m = 0)) p
    where p.own or holdfast_v9.alive(p.nonce, me)
    order by p.chosen desc nulls last, p.first desc limit 1;
end
$$;

-- await waits for the lock in the order of the claims, and makes the claim the
-- holder. Only who is next waits for the lock itself, so that the server wakes
-- nobody out of turn. It returns 'wait' when it has waited for ms: a longer
-- statement would keep the server from clearing up old rows. A claim before it that
-- has no ticket is looked at again and again: it is about to wait, which takes its
-- program a trip, or has no connection to wait on.
create or replace function holdfast_v9.await(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid, ms bigint,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
declare
  pause float;
  b record;
  passed bigint := 0;
begin
  pid := pg_backend_pid();
  begin
    perform pg_catalog.pg_advisory_xact_lock(holdfast_v9.ticket(i));
  exception when lock_not_available then  -- somebody who passes has been stopped
    state := 'wait'; return;
  end;
  loop
    b := holdfast_v9.before(s, k, m, i, me);
    exit when b.id is null or b.id = i;
    if b.chosen then state := 'blocked'; return; end if;
    if clock_timestamp() > statement_timestamp() + ms * interval '1 millisecond' then state := 'wait'; return; end if;
    if b.id <> passed then
      passed := b.id;
      pause := 0.0002;
    else
      perform pg_catalog.pg_sleep(pause);
      pause := least(2 * pause, 0.02);
    end if;
    perform holdfast_v9.pass(passed);
  end loop;
  if not holdfast_v9.lock_in_time(s, k, m) then state := 'wait'; return; end if;
  select t.state, t.tok into state, tok from holdfast_v9.settle(s, k, m, i, me, lea, true) t;
end
$$;

-- retry is a claim that waits without a connection of its own.
create or replace function holdfast_v9.retry(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
begin
  pid := pg_backend_pid(); state := 'blocked';
  if not exists (select from holdfast.claim x where x.space = s and x.key = k and x.id = i) then
    state := 'gone';
  elsif exists (select from holdfast.claim x where x.space = s and x.key = k and x.id = i and x.chosen)
     or not holdfast_v9.blocked(s, k, m, i, me) then
    if holdfast_v9.try_lock(s, k, m) then
      select t.state, t.tok into state, tok from holdfast_v9.settle(s, k, m, i, me, lea, true) t;
    end if;
  end if;
end
$$;

-- drop_claim forgets a claim that nobody makes any more.
create or replace function holdfast_v9.drop_claim(s smallint, k bigint, i bigint, why text) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  delete from holdfast.claim x where x.space = s and x.key = k and x.id = i returning * into c;
  if not found then return false; end if;
  if c.token > 0 then
    perform holdfast_v9.tell(c, 'released', why);
  end if;
  return true;
end
$$;

-- release gives a lock back, on the connection that has it.
create or replace function holdfast_v9.release(s smallint, k bigint, m smallint, i bigint) returns boolean
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched
  gone record;
begin
  delete from holdfast.claim x where x.space = s and x.key = k and x.id = i
    returning exists (select from holdfast.watcher) as watched, x as claim into gone;
  if gone.watched then perform holdfast_v9.tell(gone.claim, 'released', null); end if;
  return holdfast_v9.unlock(s, k, m);
end
$$;

-- proclaim changes the value of a leader.
create or replace function holdfast_v9.proclaim(s smallint, k bigint, i bigint, v bytea) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  update holdfast.claim x set value = v, version = x.version + 1, modified = nextval('holdfast.token')
    where x.space = s and x.key = k and x.id = i and x.token > 0 returning * into c;
  if not found then return false; end if;
  perform holdfast_v9.tell(c, 'proclaimed', null);
  return true;
end
$$;
-- Semaphores, latches and barriers.

-- pump grants what can be granted on a semaphore, latch or barrier, whose row
-- the caller has locked, and wakes waiters elsewhere. Those in mine are not woken.
-- Whether a program lives is asked once, however many of its claims there are.
create or replace function holdfast_v9.pump(r holdfast.resource, me bigint, mine bigint[]) returns void
language plpgsql volatile as $$
declare
  dead bigint[] := array(select n.nonce from (
    select distinct x.nonce from holdfast.claim x where x.space = r.space and x.key = r.key) n where not holdfast_v9.alive(n.nonce, me));
  c holdfast.claim;
  room bigint;
  woken int := 0;
begin
  for c in delete from holdfast.claim x where x.space = r.space and x.key = r.key and x.nonce = any (dead) returning * loop
    if c.token > 0 then perform holdfast_v9.tell(c, 'expired', 'session'); end if;
  end loop;
  if r.kind = 3 then
    select r.lim - coalesce(sum(x.weight), 0) into room from holdfast.claim x
      where x.space = r.space and x.key = r.key and x.token > 0;
  elsif r.kind = 5 then
    room := case when r.rest = 0 then 9223372036854775807 else 0 end;
  else
    select case when count(*) >= r.lim then r.lim else 0 end into room from holdfast.claim x
      where x.space = r.space and x.key = r.key and x.token = 0;
  end if;
  for c in select * from holdfast.claim x where x.space = r.space and x.key = r.key and x.token = 0 order by x.id loop
    exit when c.weight > room;
    room := room - c.weight;
    update holdfast.claim x set token = holdfast_v9.draw(), since = clock_timestamp()
      where x.space = r.space and x.key = r.key and x.id = c.id returning * into c;
    update holdfast.claim x set modified = c.token where x.space = r.space and x.key = r.key and x.id = c.id;
    perform holdfast_v9.tell(c, 'acquired', null);
    if c.id <> all (mine) then woken := woken + 1; end if;
  end loop;
  if woken > 0 then
    perform pg_catalog.pg_notify('holdfast', 'w ' || r.space || ' ' || r.key);
  end if;
end
$$;

-- establish makes a semaphore, latch or barrier, for who keeps others from taking
-- the name quickly as a lock by its guard. 'unsure': somebody has the lock, and no
-- row says as what. sure: whoever took it quickly before has a row, or has been
-- stopped. Then a row may be about to be committed: it waits for that, and nobody
-- arrives meanwhile. Who has the lock still, and no row, took it quickly if it may
-- have locks without a row, and else knows nothing of us.
create or replace function holdfast_v9.establish(
  s smallint, k bigint, nam text, knd smallint, li bigint, me bigint, sure boolean, out state text, out pos int)
language plpgsql volatile as $$
begin
  if sure then
    perform pg_catalog.pg_advisory_xact_lock(5209599041173340519);  -- as who begins to watch
  else
    perform pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched, before there is a row that others wait for
  end if;
  pos := holdfast_v9.other_kind(s, k, knd, me);
  state := 'ok';
  if pos is null and exists (select from holdfast.resource r where r.space = s and r.key = k) then return; end if;
  if pos is null and sure then
    select 1 into pos from holdfast_v9.locks(s, k) a join holdfast_v9.locks(1::smallint, 5209599041173340522) b using (pid) where a.granted and b.granted;
  end if;
  state := case when pos is not null then 'kind' when not sure and not holdfast_v9.free(s, k) then 'unsure' when li <= 0 then 'absent' else 'ok' end;
  if state <> 'ok' then return; end if;
  insert into holdfast.resource (space, key, name, kind, lim, rest, made)
    values (s, k, nam, knd, li, li, nextval('holdfast.token')) on conflict do nothing;
  perform pg_catalog.pg_notify('holdfast', 'k ' || s || ' ' || k);  -- it is no lock any more
end
$$;

-- gather is arrive for semaphores, latches and barriers. Its guard keeps others
-- from taking the name quickly as a lock. 'unsure': establish has to clear it up.
create or replace function holdfast_v9.gather(
  s smallint, k bigint, nam text, knd smallint, m smallint, wei bigint, li bigint,
  me bigint, lea uuid, own text, met bytea, wait boolean, guard bigint,
  out state text, out tok bigint, out place bigint, out pos int, out has bigint)
language plpgsql volatile as $$
declare
  r holdfast.resource;
begin
  if guard <> 0 then perform pg_catalog.pg_advisory_lock_shared(guard); end if;
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  if not found then
    if knd = 3 and li > 0 and wei > li then state := 'heavy'; has := li; return; end if;
    select t.state, t.pos into state, pos from holdfast_v9.establish(s, k, nam, knd, li, me, false) t;
    if state <> 'ok' then return; end if;
    select * into r from holdfast.resource x where x.space = s and x.key = k for update;
    if not found then state := 'unsure'; return; end if;  -- somebody removed it at once
  end if;
  has := r.lim;
  if r.kind <> knd then state := 'kind'; pos := r.kind; return; end if;
  if knd <> 5 and li > 0 and r.lim <> li then state := 'limit'; return; end if;
  if knd = 3 and wei > r.lim then state := 'heavy'; return; end if;
  place := nextval('holdfast.token');
  insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified)
    values (s, k, place, 0, nam, knd, m, wei, me, lea, own, met, place);
  perform holdfast_v9.pump(r, me, array[place]);
  select x.token into tok from holdfast.claim x where x.space = s and x.key = k and x.id = place;
  if tok > 0 then
    state := 'granted';
  elsif wait then
    state := 'queued'; pos := holdfast_v9.place(s, k, place, me);
  else
    state := 'held';
    delete from holdfast.claim x where x.space = s and x.key = k and x.id = place;
  end if;
end
$$;

-- look tells which of the claims ids in gather's queue were granted, and which are gone
-- (a token of 0); of those that wait on nothing. sweep: also free what the dead hold.
create or replace function holdfast_v9.look(s smallint, k bigint, ids bigint[], me bigint, sweep boolean)
returns table (id bigint, tok bigint)
language plpgsql volatile as $$
declare
  r holdfast.resource;
begin
  if sweep then
    select * into r from holdfast.resource x where x.space = s and x.key = k for update;
    if found then perform holdfast_v9.pump(r, me, ids); end if;
  end if;
  return query select i.id, coalesce(x.token, 0) from unnest(ids) i(id)
    left join holdfast.claim x on x.space = s and x.key = k and x.id = i.id
    where x.token is distinct from 0;
end
$$;

-- drop_gathered gives a semaphore, latch or barrier claim back, held or not.
create or replace function holdfast_v9.drop_gathered(s smallint, k bigint, i bigint, me bigint, why text) returns boolean
language plpgsql volatile as $$
declare
  r holdfast.resource;
  was boolean;
begin
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  was := holdfast_v9.drop_claim(s, k, i, why);
  if r.kind is not null then
    perform holdfast_v9.pump(r, me, '{}');
  end if;
  return was;
end
$$;

-- count_down takes from a latch. 'new': it has to be made first.
create or replace function holdfast_v9.count_down(
  rid uuid, s smallint, k bigint, nam text, cnt bigint, take bigint,
  out state text, out rest bigint)
language plpgsql volatile as $$
declare
  r holdfast.resource;
begin
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  if not found then
    state := case when holdfast_v9.other_kind(s, k, 5::smallint, 0) is not null then 'kind' when cnt <= 0 then 'absent'
      when take > 0 then 'new' else 'ok' end;
    rest := cnt;
    return;
  end if;
  if r.kind <> 5 then state := 'kind'; return; end if;
  state := 'ok'; rest := r.rest;
  if take = 0 or r.rest = 0 then return; end if;
  select d.value into rest from holdfast.done d where d.id = rid;
  if found then return; end if;
  r.rest := r.rest - least(take, r.rest);
  rest := r.rest;
  update holdfast.resource x set rest = r.rest where x.space = s and x.key = k;
  perform holdfast_v9.remember(rid, r.rest, true);
  if holdfast_v9.watched() then
    perform holdfast_v9.send(jsonb_build_object('k', 'latch', 'v', 'counted', 'n', nam, 'u', r.rest::text));
    if r.rest = 0 then
      perform holdfast_v9.send(jsonb_build_object('k', 'latch', 'v', 'opened', 'n', nam, 'u', '0'));
    end if;
  end if;
  perform holdfast_v9.pump(r, 0, '{}');
end
$$;

create or replace function holdfast_v9.remember(rid uuid, v numeric, k boolean) returns void
language plpgsql volatile as $$
begin
  insert into holdfast.done (id, value, ok) values (rid, v, k) on conflict do nothing;
  if random() < 0.002 then
    perform holdfast_v9.sweep_done(10000);
  end if;
end
$$;

-- forget removes an idle semaphore, latch or barrier.
create or replace function holdfast_v9.forget(s smallint, k bigint, knd smallint) returns text
language plpgsql volatile as $$
declare
  c holdfast.claim;
  r holdfast.resource;
begin
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  if not found then return 'absent'; end if;
  if r.kind <> knd then return 'kind'; end if;
  for c in delete from holdfast.claim x where x.space = s and x.key = k and not holdfast_v9.alive(x.nonce, 0) returning * loop
    if c.token > 0 then perform holdfast_v9.tell(c, 'expired', 'session'); end if;
  end loop;
  if exists (select from holdfast.claim x where x.space = s and x.key = k) then return 'held'; end if;
  delete from holdfast.resource x where x.space = s and x.key = k;
  return 'ok';
end
$$;
-- Counters, sequences and keys, and clearing up.

-- count changes a counter: 1 add, 2 subtract, 3 store, 4 swap.
create or replace function holdfast_v9.count(
  rid uuid, nam text, op smallint, uns boolean, a numeric, b numeric,
  out state text, out v numeric, out swapped boolean)
language plpgsql volatile as $$
declare
  c holdfast.counter;
  low numeric := case when uns then 0 else -9223372036854775808 end;
  high numeric := case when uns then 18446744073709551615 else 9223372036854775807 end;
begin
  state := 'ok'; swapped := false;
  loop
    select * into c from holdfast.counter x where x.name = nam for update;
    exit when found;
    if op = 4 and a <> 0 then v := 0; return; end if;
    insert into holdfast.counter (name, unsigned, value) values (nam, uns, 0) on conflict do nothing;
  end loop;
  select d.value, d.ok into v, swapped from holdfast.done d where d.id = rid;
  if found then return; end if;
  swapped := false;
  if c.unsigned <> uns then state := 'sign'; return; end if;
  v := case op when 1 then c.value + a when 2 then c.value - a when 3 then a
       else case when c.value = a then b else c.value end end;
  v := least(greatest(v, low), high);
  swapped := op = 4 and c.value = a;
  update holdfast.counter x set value = v where x.name = nam;
  perform holdfast_v9.remember(rid, v, swapped);
end
$$;

-- reserve takes numbers of a sequence; none: only the next one is told.
create or replace function holdfast_v9.reserve(rid uuid, nam text, n numeric, first numeric, out state text, out v numeric)
language plpgsql volatile as $$
begin
  state := 'ok';
  if n = 0 then
    select x.next into v from holdfast.sequence x where x.name = nam;
    v := coalesce(v, greatest(first, 1));
    return;
  end if;
  select x.next into v from holdfast.sequence x where x.name = nam for update;
  if not found then
    if n > 18446744073709551615 - greatest(first, 1) then
      state := 'exhausted'; v := greatest(first, 1); return;
    end if;
    insert into holdfast.sequence (name, next) values (nam, greatest(first, 1)) on conflict do nothing;
    select x.next into v from holdfast.sequence x where x.name = nam for update;
  end if;
  if exists (select from holdfast.done d where d.id = rid) then
    select d.value into v from holdfast.done d where d.id = rid;
    return;
  end if;
  if n > 18446744073709551615 - v then
    state := 'exhausted'; return;
  end if;
  update holdfast.sequence x set next = v + n where x.name = nam;
  perform holdfast_v9.remember(rid, v, true);
end
$$;

-- fresh: the key has not expired, and its session lives.
create or replace function holdfast_v9.fresh(o holdfast.kv) returns boolean
language sql volatile as $$
  select (o.expires is null or o.expires > clock_timestamp()) and (o.nonce is null or holdfast_v9.alive(o.nonce, 0))
$$;

create or replace function holdfast_v9.kv_json(o holdfast.kv) returns jsonb
language sql volatile as $$
  select jsonb_build_object('k', o.key, 'x', encode(o.value, 'base64'), 'c', o.created, 'm', o.modified, 'n', o.version,
    'l', o.lease, 'e', (extract(epoch from o.expires - clock_timestamp()) * 1000)::bigint)
$$;

create or replace function holdfast_v9.kv_tell(verb text, o holdfast.kv, p holdfast.kv, ord int, why text) returns void
language plpgsql volatile as $$
begin
  if holdfast_v9.watched() then
    perform holdfast_v9.send(jsonb_build_object('k', 'kv', 'v', verb, 'n', o.key, 'r', (select n from holdfast.revision),
      'd', ord, 'why', why, 'kv', holdfast_v9.kv_json(o), 'was', case when p.key is not null then holdfast_v9.kv_json(p) end));
  end if;
end
$$;

-- kv_why is the reason that the end of a key by itself is told with.
create or replace function holdfast_v9.kv_why(o holdfast.kv) returns text
language sql volatile as $$
  select case when o.expires <= clock_timestamp() then 'timeout' else 'session' end
$$;

-- kv_put writes a key at the current revision, which the caller has taken, and
-- returns what was there. The session's row is shared until the end: an end of the
-- session waits for the key, and a later put finds no session. The end of a key
-- that was over, and not yet removed, is told before.
create or replace function holdfast_v9.kv_put(k text, v bytea, lea uuid, ms bigint, ord int)
returns setof holdfast.kv
language plpgsql volatile as $$
declare
  o holdfast.kv;
  p holdfast.kv;
  rev bigint := (select n from holdfast.revision);
  non bigint;
begin
  if lea is not null then
    select s.nonce into non from holdfast.session s where s.id = lea for key share;
    if not found or not holdfast_v9.alive(non, 0) then
      raise exception 'the session of the key has ended' using errcode = 'HF001';
    end if;
  end if;
  select * into p from holdfast.kv x where x.key = k;
  if p.key is not null and not holdfast_v9.fresh(p) then
    delete from holdfast.kv x where x.key = k;
    perform holdfast_v9.kv_tell('delete', p, p, ord, holdfast_v9.kv_why(p));
    ord := ord + 1;
    p := null;
  end if;
  insert into holdfast.kv as x (key, value, created, modified, version, lease, nonce, expires)
    values (k, v, rev, rev, 1, lea, non, clock_timestamp() + ms * interval '1 millisecond')
    on conflict (key) do update set value = v, modified = rev, version = x.version + 1,
      lease = lea, nonce = non, expires = excluded.expires
    returning * into o;
  perform holdfast_v9.kv_tell('put', o, p, ord, null);
  if p.key is not null then return next p; end if;
end
$$;

-- kv_drop removes the key k, or the first most of those from k up to til (null: all), and
-- returns those that were still there.
create or replace function holdfast_v9.kv_drop(k text, til text, most int, ord int)
returns setof holdfast.kv
language plpgsql volatile as $$
declare
  keys text[] := array[k];
  o holdfast.kv;
begin
  if til is not null then
    keys := array(select x.key from holdfast.kv x where x.key >= k and x.key < til order by x.key limit most);
  end if;
  for o in delete from holdfast.kv x where x.key = any (keys) returning * loop
    if holdfast_v9.fresh(o) then
      perform holdfast_v9.kv_tell('delete', o, o, ord, null);
      return next o;
    else
      perform holdfast_v9.kv_tell('delete', o, o, ord, holdfast_v9.kv_why(o));
    end if;
    ord := ord + 1;
  end loop;
end
$$;

-- kv_remove removes keys after their time or session, at the current revision, which
-- the caller has taken, and tells the watches.
create or replace function holdfast_v9.kv_remove(keys text[]) returns int
language plpgsql volatile as $$
declare
  o holdfast.kv;
  ord int := 0;
begin
  for o in delete from holdfast.kv x where x.key = any (keys) returning * loop
    perform holdfast_v9.kv_tell('delete', o, o, ord, holdfast_v9.kv_why(o));
    ord := ord + 1;
  end loop;
  return ord;
end
$$;

-- kv_end removes up to most keys of a session that has no row any more, so that no
-- others follow, and returns how many. It looks at no nonce: the caller may be the very
-- connection that has it.
create or replace function holdfast_v9.kv_end(lea uuid, most int) returns int
language plpgsql volatile as $$
begin
  if not exists (select from holdfast.kv x where x.lease = lea) then return 0; end if;
  update holdfast.revision set n = n + 1;
  return holdfast_v9.kv_remove(array(select x.key from holdfast.kv x where x.lease = lea limit most));
end
$$;

-- kv_orphaned are the sessions with keys that have ended. Of each one key is looked at.
create or replace function holdfast_v9.kv_orphaned() returns uuid[]
language plpgsql volatile as $$
declare
  o record;
  gone uuid[] := '{}';
begin
  select x.lease, x.nonce into o from holdfast.kv x where x.lease is not null order by x.lease limit 1;
  while found loop
    if not holdfast_v9.alive(o.nonce, 0) or not exists (select from holdfast.session s where s.id = o.lease) then
      gone := gone || o.lease;
    end if;
    select x.lease, x.nonce into o from holdfast.kv x where x.lease > o.lease order by x.lease limit 1;
  end loop;
  return gone;
end
$$;

-- kv_sweep removes up to most keys after their time, and as many after their session, and
-- returns how many. It must not run on a connection that sessions live by, which would
-- find their nonces free.
create or replace function holdfast_v9.kv_sweep(most int) returns int
language plpgsql volatile as $$
declare
  t timestamptz := clock_timestamp();
  gone uuid[] := holdfast_v9.kv_orphaned();
begin
  if gone = '{}' and not exists (select from holdfast.kv x where x.expires <= t) then return 0; end if;
  update holdfast.revision set n = n + 1;
  return holdfast_v9.kv_remove(
    array(select x.key from holdfast.kv x where x.expires <= t order by x.expires limit most)
    || array(select x.key from holdfast.kv x where x.lease = any (gone) limit most));
end
$$;

-- sweep forgets what the dead left behind, but for keys, for one program at a time, and
-- tells the watches. It waits for no row: others that hold wait for those that it has.
create or replace function holdfast_v9.sweep() returns void
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched, before there is a row that others wait for
  dead bigint[];
  c holdfast.claim;
  r holdfast.resource;
begin
  if not pg_catalog.pg_try_advisory_xact_lock(5209599041173340520) then return; end if;
  dead := array(select n.nonce from (select distinct x.nonce from holdfast.claim x) n where not holdfast_v9.alive(n.nonce, 0));
  for r in select * from holdfast.resource x
      where (x.space, x.key) in (select y.space, y.key from holdfast.claim y where y.nonce = any (dead))
      for update skip locked loop
    perform holdfast_v9.pump(r, 0, '{}');
  end loop;
  for c in delete from holdfast.claim x where (x.space, x.key, x.id) in (
      select y.space, y.key, y.id from holdfast.claim y where y.nonce = any (dead)
        and not exists (select from holdfast.resource z where z.space = y.space and z.key = y.key)
      for update skip locked) returning * loop
    if c.token > 0 then perform holdfast_v9.tell(c, 'expired', 'session'); end if;
  end loop;
  delete from holdfast.session x where x.id in (
    select y.id from holdfast.session y where not holdfast_v9.alive(y.nonce, 0) for update skip locked);
  delete from holdfast.watcher x where x.nonce in (
    select y.nonce from holdfast.watcher y where not holdfast_v9.alive(y.nonce, 0) for update skip locked);
end
$$;

-- sweep_limits removes idle semaphores and barriers whose name begins with pre, among
-- the first most rows after (s, k). One that somebody uses now is left alone, so that
-- nobody is waited for.
create or replace function holdfast_v9.sweep_limits(
  pre text, s smallint, k bigint, most int,
  out removed bigint, out looked int, out last_space smallint, out last_key bigint)
language plpgsql volatile as $$
declare
  r holdfast.resource;
begin
  removed := 0; looked := 0; last_space := s; last_key := k;
  for r in select * from holdfast.resource x where (x.space, x.key) > (s, k) order by x.space, x.key limit most loop
    looked := looked + 1; last_space := r.space; last_key := r.key;
    continue when r.kind not in (3, 6) or not starts_with(r.name, pre);
    perform from holdfast.resource x where x.space = r.space and x.key = r.key for update skip locked;
    if found and holdfast_v9.forget(r.space, r.key, r.kind) = 'ok' then removed := removed + 1; end if;
  end loop;
end
$$;

-- sweep_done removes the oldest of the answers that nobody asks for again.
create or replace function holdfast_v9.sweep_done(most int) returns bigint
language plpgsql volatile as $$
declare
  n bigint;
begin
  delete from holdfast.done where id in (select d.id from holdfast.done d
    where d.at < clock_timestamp() - interval '10 minutes' order by d.at limit most for update skip locked);
  get diagnostics n = row_count;
  return n;
end
$$;

-- bye is the end of a program that closes in order: its claims are forgotten,
-- and who waited for its semaphores is woken. Rows of resource are locked before
-- those of claim, as everywhere.
create or replace function holdfast_v9.bye(nonces bigint[]) returns void
language plpgsql volatile as $$
declare
  c holdfast.claim;
  r holdfast.resource;
  touched holdfast.resource[];
begin
  for r in select * from holdfast.resource x
      where exists (select from holdfast.claim y where y.space = x.space and y.key = x.key and y.nonce = any (nonces))
      order by x.space, x.key for update loop
    touched := touched || r;
  end loop;
  for c in delete from holdfast.claim x where x.nonce = any (nonces) returning * loop
    if c.token > 0 then perform holdfast_v9.tell(c, 'released', 'closed'); end if;
  end loop;
  delete from holdfast.session s where s.nonce = any (nonces);
  delete from holdfast.watcher w where w.nonce = any (nonces);
  foreach r in array coalesce(touched, '{}') loop
    perform holdfast_v9.pump(r, 0, '{}');
  end loop;
end
$$;

-- The versions of the tables and of the functions are what a program looks at before
-- anything else.
comment on schema holdfast is 'holdfast 5';
comment on schema holdfast_v9 is 'functions of holdfast 5';
-- Limiters: a rate with its epoch, and what each key has used in that epoch.

-- limit_rate is the rate of a limiter, which is made if there is none and fresh is not
-- empty. 'ok': it is the one that the caller knows; 'made': it is fresh; 'rate': another,
-- or none.
create or replace function holdfast_v9.limit_rate(nam text, known text, fresh text, out state text, out rate text)
language plpgsql volatile as $$
begin
  state := 'ok';
  select l.rate into rate from holdfast.limiter l where l.name = nam;
  if not found and fresh <> '' then
    insert into holdfast.limiter (name, rate) values (nam, fresh) on conflict do nothing;
    select l.rate into rate from holdfast.limiter l where l.name = nam;
    if rate = fresh then state := 'made'; end if;
  end if;
  if state = 'ok' and rate is distinct from known then state := 'rate'; end if;
  rate := coalesce(rate, '');
end
$$;

-- limit_changed is the rate of a limiter ('': none), if it is not what it was when the caller
-- read it. Asked after the row of a key was read, or locked: a rate that has changed before
-- that has perhaps been used at that key.
create or replace function holdfast_v9.limit_changed(nam text, ep text, was text) returns text
language plpgsql volatile as $$
declare
  rate text;
begin
  if coalesce(ep, '') in ('', left(was, 32)) then return null; end if;
  select l.rate into rate from holdfast.limiter l where l.name = nam;
  return nullif(coalesce(rate, ''), was);
end
$$;

-- limit_now is the time in nanoseconds.
create or replace function holdfast_v9.limit_now() returns bigint
language sql volatile as $$ select (extract(epoch from clock_timestamp()) * 1000000000)::bigint $$;

-- limit_read tells what a key has used. Of another epoch that is nothing.
create or replace function holdfast_v9.limit_read(nam text, ky text, known text, fresh text,
  out state text, out rate text, out now bigint, out v bigint,
  out u_at bigint, out u_part bigint, out u_given bigint, out u_leased bigint, out u_rest text)
language plpgsql volatile as $$
declare
  u holdfast.usage; changed text;
begin
  select x.state, x.rate into state, rate from holdfast_v9.limit_rate(nam, known, fresh) x;
  now := holdfast_v9.limit_now(); v := 0;
  if state = 'rate' then return; end if;
  select * into u from holdfast.usage x where x.name = nam and x.key = ky;
  if not found then return; end if;
  changed := holdfast_v9.limit_changed(nam, u.epoch, rate);
  if changed is not null then state := 'rate'; rate := changed; return; end if;
  v := u.v;
  if u.epoch = left(rate, 32) then
    u_at := u.at; u_part := u.part; u_given := u.given; u_leased := u.leased; u_rest := u.rest;
  end if;
end
$$;

-- limit_swap sets what a key has used, if its v is what it was, and tells watches if it is to;
-- 'again': it has changed. A key that is new removes two that are not used any more. Its v
-- begins with the time: so none that was removed had the same.
create or replace function holdfast_v9.limit_swap(nam text, ky text, ep text, was bigint,
  n_at bigint, n_part bigint, n_given bigint, n_leased bigint, n_rest text, n_idle bigint, tell boolean) returns text
language plpgsql volatile as $$
declare
  done boolean;
begin
  if was = 0 then
    insert into holdfast.usage (name, key, epoch, at, part, given, leased, rest, v, idle)
      values (nam, ky, ep, n_at, n_part, n_given, n_leased, n_rest, holdfast_v9.limit_now(), n_idle) on conflict do nothing;
    done := found;
    if done then perform holdfast_v9.sweep_usage('', 2); end if;
  else
    update holdfast.usage x set epoch = ep, at = n_at, part = n_part, given = n_given, leased = n_leased, rest = n_rest,
      v = x.v + 1, idle = n_idle where x.name = nam and x.key = ky and x.v = was;
    done := found;
  end if;
  if done and tell then perform holdfast_v9.send(jsonb_build_object('k', 'limit', 'v', 'changed', 'n', nam)); end if;
  return case when done then 'ok' else 'again' end;
end
$$;

-- limit_take takes from a bucket. Times are nanoseconds and parts of one, of which cnt
-- make a whole: what the cost takes to refill, the burst, and what a new key lacks; how
-- long the caller waits, and how far ahead it takes it. asks: there is a cost. It tells
-- what was used before; a key that is new removes two that are not used any more.
create or replace function holdfast_v9.limit_take(nam text, ky text, known text, fresh text,
  cnt bigint, cost bigint, cost_part bigint, burst bigint, burst_part bigint, lack bigint, lack_part bigint,
  wait bigint, ahead bigint, asks boolean,
  out state text, out rate text, out now bigint, out allowed boolean,
  out u_at bigint, out u_part bigint, out u_given bigint, out u_leased bigint)
language plpgsql volatile as $$
declare
  u holdfast.usage; changed text;
  full_at bigint; full_part bigint; after bigint; after_part bigint; empty bigint; most bigint; most_part bigint;
  gave bigint := 0; lent bigint := 0; late boolean; lacks boolean := lack + lack_part > 0;
begin
  select x.state, x.rate into state, rate from holdfast_v9.limit_rate(nam, known, fresh) x;
  if state = 'rate' then return; end if;
  loop
    select * into u from holdfast.usage x where x.name = nam and x.key = ky for update;
    exit when found or not asks;
    insert into holdfast.usage (name, key, epoch, at, part, given, leased, v, idle)
      values (nam, ky, '', 0, 0, 0, 0, holdfast_v9.limit_now(), holdfast_v9.limit_now()) on conflict do nothing;
    perform holdfast_v9.sweep_usage('', 2);
  end loop;
  changed := holdfast_v9.limit_changed(nam, u.epoch, rate);
  if changed is not null then state := 'rate'; rate := changed; return; end if;
  now := holdfast_v9.limit_now();
  full_at := now + lack; full_part := lack_part;
  if u.epoch = left(rate, 32) then
    u_at := u.at; u_part := u.part; u_given := u.given; u_leased := u.leased;
    full_at := now; full_part := 0;
    if (u.at, u.part) > (now, 0::bigint) then full_at := u.at; full_part := u.part; end if;
    if (u.at + u.given, u.part) > (now, 0::bigint) then gave := u.given; lent := u.leased; end if;
  end if;
  empty := now + burst;
  after := full_at; after_part := full_part;
  if ahead > 0 and asks then
    most := empty - cost; most_part := burst_part - cost_part;
    if most_part < 0 then most := most - 1; most_part := most_part + cnt; end if;
    if (most, most_part) > (now + ahead, 0::bigint) then most := now + ahead; most_part := 0; end if;
    if (after, after_part) < (most, most_part) then after := most; after_part := most_part; end if;
  end if;
  after := after + cost; after_part := after_part + cost_part;
  if after_part >= cnt then after := after + 1; after_part := after_part - cnt; end if;
  late := (after, after_part) > (empty, burst_part);
  allowed := (after, after_part) <= (empty + wait, burst_part);
  if not asks or not (allowed or lacks) then return; end if;
  if allowed then
    full_at := after; full_part := after_part;
    if late or ahead > 0 then lent := after; end if;
  end if;
  update holdfast.usage x set epoch = left(rate, 32), at = full_at, part = full_part, given = gave, leased = lent, rest = null,
    v = x.v + 1, idle = case when lacks then null else full_at + gave + 1 end where x.name = nam and x.key = ky;
end
$$;

-- limit_set sets a limiter's rate, if there is a fresh one, and tells watches.
create or replace function holdfast_v9.limit_set(nam text, fresh text) returns void
language plpgsql volatile as $$
begin
  if fresh <> '' then
    insert into holdfast.limiter (name, rate) values (nam, fresh) on conflict (name) do update set rate = fresh;
  end if;
  perform holdfast_v9.send(jsonb_build_object('k', 'limit', 'v', 'changed', 'n', nam));
end
$$;

-- limit_delete removes a limiter and tells its epoch, by which its keys are removed.
create or replace function holdfast_v9.limit_delete(nam text) returns text
language plpgsql volatile as $$
declare
  ep text;
begin
  delete from holdfast.limiter x where x.name = nam returning left(x.rate, 32) into ep;
  if found then
    perform holdfast_v9.send(jsonb_build_object('k', 'limit', 'v', 'changed', 'n', nam));
  end if;
  return ep;
end
$$;

-- sweep_usage removes keys that are as if they had never been used since a minute, and
-- that nobody uses at the moment.
create or replace function holdfast_v9.sweep_usage(prefix text, most int) returns bigint
language plpgsql volatile as $$
declare
  n bigint;
begin
  delete from holdfast.usage x using (
    select y.name, y.key from holdfast.usage y where y.idle < holdfast_v9.limit_now() - 60000000000 and starts_with(y.name, prefix)
    order by y.idle limit most for update skip locked) gone
  where x.name = gone.name and x.key = gone.key;
  get diagnostics n = row_count;
  return n;
end
$$;
