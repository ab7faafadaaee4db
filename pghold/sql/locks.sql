-- Liveness, events, and the steps of a claim on an advisory lock.

-- alive: somebody holds the nonce. me is the nonce of this very connection.
create or replace function holdfast.alive(n bigint, me bigint) returns boolean
language sql volatile as $$
  select n = me or not pg_catalog.pg_try_advisory_xact_lock_shared(n)
$$;

-- try_lock and unlock are plain expressions, so that the server puts them into
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

-- locks are the advisory locks on a key in this database, of all programs.
create or replace function holdfast.locks(s smallint, k bigint)
returns table (pid int, granted boolean, mode text)
language sql stable as $$
  select l.pid, l.granted, l.mode from pg_catalog.pg_locks l
  where l.locktype = 'advisory' and l.objsubid = s
    and l.classid = ((k >> 32) & 4294967295)::oid and l.objid = (k & 4294967295)::oid
    and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
$$;

-- unlock_if_held cleans up after a wait whose end is not known.
create or replace function holdfast.unlock_if_held(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  if not exists (select from holdfast.locks(s, k) l
                 where l.pid = pg_backend_pid() and l.granted and l.mode = case m when 0 then 'ExclusiveLock' else 'ShareLock' end) then
    return false;
  end if;
  return holdfast.unlock(s, k, m);
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

-- other_kind: the name is in use as another kind, this one.
create or replace function holdfast.other_kind(s smallint, k bigint, want smallint, me bigint) returns smallint
language sql volatile as $$
  select r.kind from holdfast.resource r where r.space = s and r.key = k and r.kind <> want
  union all
  select c.kind from holdfast.claim c where c.space = s and c.key = k and c.kind <> want and holdfast.alive(c.nonce, me)
  limit 1
$$;

-- blocked: somebody who waits goes before the claim place (0: a newcomer).
create or replace function holdfast.blocked(s smallint, k bigint, m smallint, place bigint, me bigint) returns boolean
language sql volatile as $$
  select exists (
    select from holdfast.claim c
    where c.space = s and c.key = k and c.token = 0 and c.id <> place and (c.mode = 0 or m = 0)
      and (place = 0 or c.chosen or c.id < place)
      and holdfast.alive(c.nonce, me))
$$;

-- place is how many wait up to and with a claim.
create or replace function holdfast.place(s smallint, k bigint, i bigint, me bigint) returns int
language sql volatile as $$
  select count(*)::int from holdfast.claim c
  where c.space = s and c.key = k and c.token = 0 and c.id <= i and holdfast.alive(c.nonce, me)
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

-- bury forgets holders of a lock that the caller has now: they are dead.
create or replace function holdfast.bury(s smallint, k bigint, m smallint) returns void
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  for c in delete from holdfast.claim x where x.space = s and x.key = k and x.token > 0 and (x.mode = 0 or m = 0) returning * loop
    perform holdfast.tell(c, 'expired', 'session');
  end loop;
end
$$;

-- arrive is the first step of every claim on a lock: take it if it is free and
-- nobody waits, else join the queue (wait), or be refused.
create or replace function holdfast.arrive(
  s smallint, k bigint, nam text, knd smallint, m smallint, me bigint, lea uuid, own text, met bytea, val bytea,
  try boolean, again boolean, wait boolean,
  out state text, out tok bigint, out place bigint, out pos int, out pid int)
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched
  c holdfast.claim;
  busy boolean;
  watched boolean;
  other smallint;
begin
  pid := pg_backend_pid();
  select exists (select from holdfast.claim x where x.space = s and x.key = k)
      or exists (select from holdfast.resource r where r.space = s and r.key = k),
    exists (select from holdfast.watcher) into busy, watched;
  if busy then
    other := holdfast.other_kind(s, k, knd, me);
    if other is not null then
      state := 'kind'; pos := other; return;
    end if;
    try := try and not holdfast.blocked(s, k, m, 0, me);
  end if;
  if try and again then
    try := not exists (select from holdfast.locks(s, k) l where not l.granted);
  end if;
  if try and holdfast.try_lock(s, k, m) then
    if busy then perform holdfast.bury(s, k, m); end if;
    tok := nextval('holdfast.token'); place := tok; state := 'granted';
  elsif wait then
    tok := 0; place := nextval('holdfast.token'); state := 'queued';
  else
    state := 'held'; return;
  end if;
  insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, value, modified)
    values (s, k, place, tok, nam, knd, m, 1, me, lea, own, met, val, place);
  if tok > 0 and watched then
    select * into c from holdfast.claim x where x.space = s and x.key = k and x.id = place;
    perform holdfast.tell(c, 'acquired', null);
  elsif tok = 0 then
    pos := holdfast.place(s, k, place, me);
  end if;
end
$$;

-- settle makes a claim that waited the holder. The caller's connection has the
-- lock; free says whether settle gives it back if another one goes first, or if
-- the claim was taken for dead.
create or replace function holdfast.settle(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid, free boolean,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  pid := pg_backend_pid();
  select * into c from holdfast.claim x where x.space = s and x.key = k and x.id = i;
  if not found then
    state := 'gone';
  elsif not c.chosen and holdfast.blocked(s, k, m, i, me) then
    state := 'blocked';
  end if;
  if state is not null then
    if free then perform holdfast.unlock(s, k, m); end if;
    return;
  end if;
  perform holdfast.bury(s, k, m);
  tok := holdfast.draw(); state := 'granted';
  update holdfast.claim x
    set token = tok, modified = tok, nonce = me, lease = lea, chosen = false, since = clock_timestamp()
    where x.space = s and x.key = k and x.id = i returning * into c;
  perform holdfast.tell(c, 'acquired', null);
end
$$;

-- retry is a claim that waits without a connection of its own.
create or replace function holdfast.retry(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
begin
  pid := pg_backend_pid(); state := 'blocked';
  if not exists (select from holdfast.claim x where x.space = s and x.key = k and x.id = i) then
    state := 'gone';
  elsif exists (select from holdfast.claim x where x.space = s and x.key = k and x.id = i and x.chosen)
     or not holdfast.blocked(s, k, m, i, me) then
    if holdfast.try_lock(s, k, m) then
      select t.state, t.tok into state, tok from holdfast.settle(s, k, m, i, me, lea, true) t;
    end if;
  end if;
end
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

-- release gives a lock back, on the connection that has it.
create or replace function holdfast.release(s smallint, k bigint, m smallint, i bigint) returns boolean
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched
  c holdfast.claim;
begin
  if exists (select from holdfast.watcher) then
    delete from holdfast.claim x where x.space = s and x.key = k and x.id = i returning * into c;
    if c.token > 0 then perform holdfast.tell(c, 'released', null); end if;
  else
    delete from holdfast.claim x where x.space = s and x.key = k and x.id = i;
  end if;
  return holdfast.unlock(s, k, m);
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
