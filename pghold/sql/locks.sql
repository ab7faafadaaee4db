-- Liveness, events, and the steps of a claim on an advisory lock.

-- alive: somebody holds the nonce. me is the nonce of this very connection.
create or replace function holdfast.alive(n bigint, me bigint) returns boolean
language sql volatile as $$
  select n = me or not pg_catalog.pg_try_advisory_xact_lock_shared(n)
$$;

-- try_lock, unlock and lock are plain expressions, so that the server puts them into
-- what calls them.
create or replace function holdfast.try_lock(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_try_advisory_lock(k)
    when s = 1 then pg_catalog.pg_try_advisory_lock_shared(k)
    when m = 0 then pg_catalog.pg_try_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_try_advisory_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

create or replace function holdfast.unlock(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_advisory_unlock(k)
    when s = 1 then pg_catalog.pg_advisory_unlock_shared(k)
    when m = 0 then pg_catalog.pg_advisory_unlock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_advisory_unlock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

create or replace function holdfast.lock(s smallint, k bigint, m smallint) returns void
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_advisory_lock(k)
    when s = 1 then pg_catalog.pg_advisory_lock_shared(k)
    when m = 0 then pg_catalog.pg_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_advisory_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

-- locks are the advisory locks on a key in this database, of all programs.
create or replace function holdfast.locks(s smallint, k bigint)
returns table (pid int, granted boolean, mode text)
language sql stable as $$
  select l.pid, l.granted, l.mode from pg_catalog.pg_locks l
  where l.locktype = 'advisory' and l.objsubid = s
    and l.classid = ((k >> 32) & 4294967295)::oid and l.objid = (k & 4294967295)::oid
    and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
$$;

-- have: this connection has the lock.
create or replace function holdfast.have(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  return exists (select from holdfast.locks(s, k) l
    where l.pid = pg_backend_pid() and l.granted and l.mode = case m when 0 then 'ExclusiveLock' else 'ShareLock' end);
end
$$;

-- watched: somebody wants events. Who begins to watch takes the lock alone, so
-- that no transaction which has looked before is still under way.
create or replace function holdfast.watched() returns boolean
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);
begin
  return exists (select from holdfast.watcher);
end
$$;

-- send hands an event to who watches.
create or replace function holdfast.send(e jsonb) returns void
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

create or replace function holdfast.tell(c holdfast.claim, verb text, reason text) returns void
language plpgsql volatile as $$
begin
  if holdfast.watched() then
    perform holdfast.send(jsonb_build_object(
      'k', (array['lock', 'rwlock', 'semaphore', 'election', 'latch', 'barrier'])[c.kind],
      'v', verb, 'n', c.name, 't', c.token, 'o', c.owner, 'm', c.mode, 'w', c.weight, 'l', c.lease,
      'x', encode(c.value, 'base64'), 'why', reason));
  end if;
end
$$;

-- What looks at rows is plpgsql, whose plans the server keeps: a function in SQL
-- that it cannot put into what calls it is parsed and planned at each call.

-- other_kind: the name is in use as another kind, this one.
create or replace function holdfast.other_kind(s smallint, k bigint, want smallint, me bigint) returns smallint
language plpgsql volatile as $$
begin
  return coalesce((select r.kind from holdfast.resource r where r.space = s and r.key = k and r.kind <> want),
    (select max(c.kind) from holdfast.claim c where c.space = s and c.key = k and c.kind <> want and holdfast.alive(c.nonce, me)));
end
$$;

-- place is how many wait up to and with a claim.
create or replace function holdfast.place(s smallint, k bigint, i bigint, me bigint) returns int
language plpgsql volatile as $$
begin
  return (
    select count(*) from holdfast.claim c
    where c.space = s and c.key = k and c.token = 0 and c.id <= i and holdfast.alive(c.nonce, me));
end
$$;

-- draw: the token that is drawn now must not be forgotten by a crash, and
-- drawn again, whatever the server's default is.
create or replace function holdfast.draw() returns bigint
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
create or replace function holdfast.inter(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  for c in delete from holdfast.claim x where x.space = s and x.key = k and x.token > 0 and (x.mode = 0 or m = 0) returning * loop
    perform holdfast.tell(c, 'expired', 'session');
  end loop;
  return found;
end
$$;

-- wait waits for a lock in the server's own queue, looks whether a row is left of the
-- holder before, and draws the token. It returns the token 0 when lock_timeout is over
-- or the wait is cancelled, without an error that would go to the server's log, and -1
-- if the name is no lock. A lock that was granted in the very moment in which the wait
-- ended is kept.
create or replace function holdfast.wait(s smallint, k bigint, m smallint, out tok bigint, out dead boolean, out pid int)
language plpgsql volatile as $$
declare
  void text;
begin
  pid := pg_backend_pid(); tok := 0; dead := false;
  begin
    void := holdfast.lock(s, k, m);
  exception when lock_not_available or query_canceled then
    if not holdfast.have(s, k, m) then return; end if;
  end;
  select case when (select true from holdfast.resource r where r.space = s and r.key = k limit 1) then -1 else pg_catalog.nextval('holdfast.token') end,
    (select true from holdfast.claim c where c.space = s and c.key = k and c.token > 0 and (c.mode = 0 or m = 0) limit 1) is not null
    into tok, dead;
  if tok < 0 then perform holdfast.unlock(s, k, m); end if;
end
$$;

-- wait_in_tx is wait for a lock that ends with the transaction; got: without a token.
create or replace function holdfast.wait_in_tx(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  case
    when s = 1 and m = 0 then perform pg_catalog.pg_advisory_xact_lock(k);
    when s = 1 then perform pg_catalog.pg_advisory_xact_lock_shared(k);
    when m = 0 then perform pg_catalog.pg_advisory_xact_lock((k >> 32)::int, ((k << 32) >> 32)::int);
    else perform pg_catalog.pg_advisory_xact_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int);
  end case;
  return true;
exception when lock_not_available or query_canceled then
  return false;
end
$$;

-- grant_in_tx describes a lock that another connection of the caller has in its
-- transaction, and draws its token: -1 if the name is no lock.
create or replace function holdfast.grant_in_tx(
  s smallint, k bigint, nam text, knd smallint, m smallint, me bigint, lea uuid, own text, met bytea, out tok bigint, out dead boolean)
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  tok := -1; dead := false;
  if exists (select from holdfast.resource r where r.space = s and r.key = k) then return; end if;
  dead := holdfast.inter(s, k, m);
  tok := holdfast.draw();
  insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified)
    values (s, k, tok, tok, nam, knd, m, 1, me, lea, own, met, tok) returning * into c;
  perform holdfast.tell(c, 'acquired', null);
end
$$;

-- may_share: no writer has the lock or waits for it. The caller must not have it.
create or replace function holdfast.may_share(s smallint, k bigint) returns boolean
language sql volatile as $$
  select case when s = 1 then pg_catalog.pg_try_advisory_xact_lock_shared(k)
    else pg_catalog.pg_try_advisory_xact_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

-- free: no connection has the lock of a key.
create or replace function holdfast.free(s smallint, k bigint) returns boolean
language sql volatile as $$
  select case when s = 1 then pg_catalog.pg_try_advisory_xact_lock(k)
    else pg_catalog.pg_try_advisory_xact_lock((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

-- try_in_tx takes a lock for the transaction, if it is free.
create or replace function holdfast.try_in_tx(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case when m = 1 then holdfast.may_share(s, k) else holdfast.free(s, k) end
$$;

-- queued is how many wait for a lock in the server, if the process p does.
create or replace function holdfast.queued(s smallint, k bigint, p int) returns int
language plpgsql volatile as $$
begin
  if p <> 0 and cardinality(pg_catalog.pg_blocking_pids(p)) = 0 then return 0; end if;
  return (select count(*) from holdfast.locks(s, k) l where not l.granted);
end
$$;

-- undescribed is how many locks of programs that use this schema have no row that tells
-- of them; s null: of all names. Their connections are known by their nonces, whose upper
-- half is one of two numbers.
create or replace function holdfast.undescribed(s smallint, k bigint) returns bigint
language sql volatile as $$
  with a as materialized (
    select l.pid, l.granted, l.mode, l.objsubid as space, (l.classid::bigint << 32) | l.objid::bigint as key,
      l.objsubid = 1 and l.mode = 'ExclusiveLock' and l.classid in (1212566084, 1212566102) as is_nonce
    from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.database = (select oid from pg_catalog.pg_database where datname = current_database()))
  select count(*) from a join a n on n.pid = a.pid and n.is_nonce
  where not a.is_nonce and (a.granted or s is not null) and (s is null or a.space = s and a.key = k)
    and not (a.space = 1 and a.key = 5209599041173340522)
    and not exists (select from holdfast.claim c
      where c.space = a.space and c.key = a.key and (c.token > 0) = a.granted and (c.nonce = n.key or not a.granted))
$$;

-- unaware is how many programs do not know yet that somebody watches. Those that do have
-- a share of a lock on the connection by which they hear.
create or replace function holdfast.unaware() returns bigint
language sql volatile as $$
  with a as materialized (
    select l.pid, l.classid, (l.classid::bigint << 32) | l.objid::bigint as key from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
      and l.database = (select oid from pg_catalog.pg_database where datname = current_database()))
  select count(*) from a h where h.classid = 1212566084 and not exists (select from a f where f.pid = h.pid and f.key = 5209599041173340522)
$$;

-- drop_claim forgets a claim that nobody makes any more.
create or replace function holdfast.drop_claim(s smallint, k bigint, i bigint, why text) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  delete from holdfast.claim x where x.space = s and x.key = k and x.id = i returning * into c;
  if not found then return false; end if;
  if c.token > 0 then
    perform holdfast.tell(c, 'released', why);
  end if;
  return true;
end
$$;

-- proclaim changes the value of a leader.
create or replace function holdfast.proclaim(s smallint, k bigint, i bigint, v bytea) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  update holdfast.claim x set value = v, version = x.version + 1, modified = nextval('holdfast.token')
    where x.space = s and x.key = k and x.id = i and x.token > 0 returning * into c;
  if not found then return false; end if;
  perform holdfast.tell(c, 'proclaimed', null);
  return true;
end
$$;
