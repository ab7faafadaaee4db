-- Liveness, events, and the steps of a claim on an advisory lock.

-- alive: somebody holds the nonce. me is the nonce of this very connection.
create or replace function holdfast_v10.alive(n bigint, me bigint) returns boolean
language sql volatile as $$
  select n = me or not pg_catalog.pg_try_advisory_xact_lock_shared(n)
$$;

-- try_lock, unlock and lock are plain expressions, so that the server puts them into
-- what calls them.
create or replace function holdfast_v10.try_lock(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_try_advisory_lock(k)
    when s = 1 then pg_catalog.pg_try_advisory_lock_shared(k)
    when m = 0 then pg_catalog.pg_try_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_try_advisory_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

create or replace function holdfast_v10.unlock(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_advisory_unlock(k)
    when s = 1 then pg_catalog.pg_advisory_unlock_shared(k)
    when m = 0 then pg_catalog.pg_advisory_unlock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_advisory_unlock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

create or replace function holdfast_v10.lock(s smallint, k bigint, m smallint) returns void
language sql volatile as $$
  select case
    when s = 1 and m = 0 then pg_catalog.pg_advisory_lock(k)
    when s = 1 then pg_catalog.pg_advisory_lock_shared(k)
    when m = 0 then pg_catalog.pg_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int)
    else pg_catalog.pg_advisory_lock_shared((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;

-- locks are the advisory locks on a key in this database, of all programs.
create or replace function holdfast_v10.locks(s smallint, k bigint)
returns table (pid int, granted boolean, mode text)
language sql stable as $$
  select l.pid, l.granted, l.mode from pg_catalog.pg_locks l
  where l.locktype = 'advisory' and l.objsubid = s
    and l.classid = ((k >> 32) & 4294967295)::oid and l.objid = (k & 4294967295)::oid
    and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
$$;

-- has: this connection has the lock.
create or replace function holdfast_v10.has(s smallint, k bigint, m smallint) returns boolean
language sql volatile as $$
  select exists (select from holdfast_v10.locks(s, k) l
    where l.pid = pg_backend_pid() and l.granted and l.mode = case m when 0 then 'ExclusiveLock' else 'ShareLock' end)
$$;

-- unlock_if_held cleans up after a wait whose end is not known.
create or replace function holdfast_v10.unlock_if_held(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  return holdfast_v10.has(s, k, m) and holdfast_v10.unlock(s, k, m);
end
$$;

-- lock_in_time waits for a lock until lock_timeout; false: it did not come. A time-out
-- that is caught here leaves no ERROR in the server's log. The lock may have been granted
-- in the moment in which the time was up.
create or replace function holdfast_v10.lock_in_time(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
begin
  perform holdfast_v10.lock(s, k, m);
  return true;
exception when lock_not_available then
  return holdfast_v10.has(s, k, m);
end
$$;

-- lock_tx_in_time is lock_in_time for the rest of the caller's transaction.
create or replace function holdfast_v10.lock_tx_in_time(s smallint, k bigint, m smallint) returns boolean
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

-- watched: somebody wants events. The lock is taken alone to begin a watch, so
-- that no transaction which has looked before is still under way.
create or replace function holdfast_v10.watched() returns boolean
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);
begin
  return exists (select from holdfast.watcher);
end
$$;

-- send hands an event to watchers.
create or replace function holdfast_v10.send(e jsonb) returns void
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

create or replace function holdfast_v10.tell(c holdfast.claim, verb text, reason text) returns void
language plpgsql volatile as $$
begin
  if holdfast_v10.watched() then
    perform holdfast_v10.send(jsonb_build_object(
      'k', (array['lock', 'rwlock', 'semaphore', 'election', 'latch', 'barrier'])[c.kind],
      'v', verb, 'n', c.name, 't', c.token, 'o', c.owner, 'm', c.mode, 'w', c.weight, 'l', c.lease,
      'x', encode(c.value, 'base64'), 'why', reason));
  end if;
end
$$;

-- What looks at rows is plpgsql, whose plans the server keeps: a function in SQL
-- that it cannot put into what calls it is parsed and planned at each call.

-- others tells a newcomer of those that are there: that the name is in use as
-- another kind, that a waiter goes first, and how many wait.
create or replace function holdfast_v10.others(
  s smallint, k bigint, want smallint, m smallint, me bigint, out other smallint, out blocked boolean, out waiting int)
language plpgsql volatile as $$
begin
  select coalesce((select r.kind from holdfast.resource r where r.space = s and r.key = k and r.kind <> want),
      max(c.kind) filter (where c.kind <> want)),
    coalesce(bool_or(c.token = 0 and (c.mode = 0 or m = 0)), false), count(*) filter (where c.token = 0)
    into other, blocked, waiting
    from holdfast.claim c where c.space = s and c.key = k and holdfast_v10.alive(c.nonce, me);
end
$$;

-- other_kind: the name is in use as another kind, this one.
create or replace function holdfast_v10.other_kind(s smallint, k bigint, want smallint, me bigint) returns smallint
language plpgsql volatile as $$
begin
  return (select t.other from holdfast_v10.others(s, k, want, 0::smallint, me) t);
end
$$;

-- blocked: a waiter goes before the claim place (0: a newcomer).
create or replace function holdfast_v10.blocked(s smallint, k bigint, m smallint, place bigint, me bigint) returns boolean
language plpgsql volatile as $$
begin
  return exists (
    select from holdfast.claim c
    where c.space = s and c.key = k and c.token = 0 and c.id <> place and (c.mode = 0 or m = 0)
      and (place = 0 or c.chosen or c.id < place)
      and holdfast_v10.alive(c.nonce, me));
end
$$;

-- draw: the token that is drawn now must not be forgotten by a crash, and
-- drawn again, whatever the server's default is.
create or replace function holdfast_v10.draw() returns bigint
language plpgsql volatile as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
  return nextval('holdfast.token');
end
$$;

-- drop_ended forgets holders of a lock that the caller has now: they have ended. true:
-- there were some.
create or replace function holdfast_v10.drop_ended(s smallint, k bigint, m smallint) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  for c in delete from holdfast.claim x where x.space = s and x.key = k and x.token > 0 and (x.mode = 0 or m = 0) returning * loop
    perform holdfast_v10.tell(c, 'expired', 'session');
  end loop;
  return found;
end
$$;

-- arrive is the first step of every claim on a lock: take it if it is free and
-- nobody waits, else join the queue (wait), or be refused. 'inherited' is granted,
-- after one that ended with it. A claim that joins takes the name's guard (0: has it
-- already). unsure: the holder has no row that says as what; or of a grant, the
-- next one cannot be quick.
create or replace function holdfast_v10.arrive(
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
    select t.other, try and not t.blocked, t.waiting into pos, try, place from holdfast_v10.others(s, k, knd, m, me) t;
    if pos is not null then state := 'kind'; return; end if;
    pos := place + 1;
  end if;
  if try and again then
    try := not exists (select from holdfast_v10.locks(s, k) l where not l.granted);
  end if;
  if try and holdfast_v10.try_lock(s, k, m) then
    pos := (select r.kind from holdfast.resource r where r.space = s and r.key = k);
    if pos is not null then  -- somebody made it something that is no lock since we looked
      perform holdfast_v10.unlock(s, k, m);
      state := 'kind'; return;
    end if;
    state := 'granted';
    if busy and holdfast_v10.drop_ended(s, k, m) then state := 'inherited'; end if;
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
    perform holdfast_v10.tell(c, 'acquired', null);
  end if;
end
$$;

-- settle makes a claim that waited the holder. The caller's connection has the
-- lock; free says whether settle gives it back if another one goes first, if the
-- claim was taken for an ended one, or if somebody was making the name something that is
-- no lock when it began to wait.
create or replace function holdfast_v10.settle(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid, free boolean,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
declare
  c holdfast.claim;
  ended boolean;
begin
  pid := pg_backend_pid();
  select case when bool_or(x.id = i) is not true then 'gone'
      when exists (select from holdfast.resource r where r.space = s and r.key = k) then 'kind'
      when bool_or(x.id = i and x.chosen) then null
      when bool_or(x.id <> i and x.token = 0 and (x.mode = 0 or m = 0) and (x.chosen or x.id < i) and holdfast_v10.alive(x.nonce, me)) then 'blocked' end,
    bool_or(x.token > 0)
    into state, ended from holdfast.claim x where x.space = s and x.key = k;
  if state is not null then
    if free then perform holdfast_v10.unlock(s, k, m); end if;
    return;
  end if;
  state := 'granted';
  if ended and holdfast_v10.drop_ended(s, k, m) then state := 'inherited'; end if;
  tok := holdfast_v10.draw();
  update holdfast.claim x
    set token = tok, modified = tok, nonce = me, lease = lea, chosen = false, since = clock_timestamp()
    where x.space = s and x.key = k and x.id = i;
  if holdfast_v10.watched() then
    select * into c from holdfast.claim x where x.space = s and x.key = k and x.id = i;
    perform holdfast_v10.tell(c, 'acquired', null);
  end if;
end
$$;

-- ticket is an advisory lock (bigint form) that a claim has while it waits in the
-- server: the one behind it waits for that.
create or replace function holdfast_v10.ticket(i bigint) returns bigint
language sql immutable as $$ select i # 5209599041173340521 $$;

-- pass returns when a claim has no ticket, or after lock_timeout. What it took for that
-- ends with the block, also when the wait is cancelled.
create or replace function holdfast_v10.pass(i bigint) returns void
language plpgsql volatile as $$
begin
  perform pg_catalog.pg_advisory_xact_lock_shared(holdfast_v10.ticket(i));
  raise exception using errcode = 'HF002';
exception when sqlstate 'HF002' or lock_not_available then
end
$$;

-- before is the claim that the claim i waits for: one that was chosen, else of the
-- programs that have an older one in its way the newest of their first ones, since
-- of each program only the first waits in the server. If it is i itself, i was chosen.
create or replace function holdfast_v10.before(s smallint, k bigint, m smallint, i bigint, me bigint, out id bigint, out chosen boolean)
language plpgsql volatile as $$
begin
  select coalesce(p.chosen, p.first), p.chosen is not null into id, chosen
    from (select x.nonce, min(x.id) as first, max(x.id) filter (where x.chosen) as chosen, bool_or(x.id = i) as own
      from holdfast.claim x where x.space = s and x.key = k and x.token = 0 and (x.chosen or x.id < i)
      group by x.nonce having bool_or(x.id = i or x.mode = 0 or m = 0)) p
    where p.own or holdfast_v10.alive(p.nonce, me)
    order by p.chosen desc nulls last, p.first desc limit 1;
end
$$;

-- await waits for the lock in the order of the claims, and makes the claim the
-- holder. Only the next one waits for the lock itself, so that the server wakes
-- nobody out of turn. It returns 'wait' when it has waited for ms: a longer
-- statement would keep the server from clearing up old rows. A claim before it that
-- has no ticket is looked at again and again: it is about to wait, which takes its
-- program a trip, or has no connection to wait on.
create or replace function holdfast_v10.await(
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
    perform pg_catalog.pg_advisory_xact_lock(holdfast_v10.ticket(i));
  exception when lock_not_available then  -- one that passes has been stopped
    state := 'wait'; return;
  end;
  loop
    b := holdfast_v10.before(s, k, m, i, me);
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
    perform holdfast_v10.pass(passed);
  end loop;
  if not holdfast_v10.lock_in_time(s, k, m) then state := 'wait'; return; end if;
  select t.state, t.tok into state, tok from holdfast_v10.settle(s, k, m, i, me, lea, true) t;
end
$$;

-- try_waiting is a claim that waits without a connection of its own.
create or replace function holdfast_v10.try_waiting(
  s smallint, k bigint, m smallint, i bigint, me bigint, lea uuid,
  out state text, out tok bigint, out pid int)
language plpgsql volatile as $$
begin
  pid := pg_backend_pid(); state := 'blocked';
  if not exists (select from holdfast.claim x where x.space = s and x.key = k and x.id = i) then
    state := 'gone';
  elsif exists (select from holdfast.claim x where x.space = s and x.key = k and x.id = i and x.chosen)
     or not holdfast_v10.blocked(s, k, m, i, me) then
    if holdfast_v10.try_lock(s, k, m) then
      select t.state, t.tok into state, tok from holdfast_v10.settle(s, k, m, i, me, lea, true) t;
    end if;
  end if;
end
$$;

-- drop_claim forgets a claim that nobody makes any more.
create or replace function holdfast_v10.drop_claim(s smallint, k bigint, i bigint, why text) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  delete from holdfast.claim x where x.space = s and x.key = k and x.id = i returning * into c;
  if not found then return false; end if;
  if c.token > 0 then
    perform holdfast_v10.tell(c, 'released', why);
  end if;
  return true;
end
$$;

-- release gives a lock back, on the connection that has it.
create or replace function holdfast_v10.release(s smallint, k bigint, m smallint, i bigint) returns boolean
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched
  gone record;
begin
  delete from holdfast.claim x where x.space = s and x.key = k and x.id = i
    returning exists (select from holdfast.watcher) as watched, x as claim into gone;
  if gone.watched then perform holdfast_v10.tell(gone.claim, 'released', null); end if;
  return holdfast_v10.unlock(s, k, m);
end
$$;

-- proclaim changes the value of a leader.
create or replace function holdfast_v10.proclaim(s smallint, k bigint, i bigint, v bytea) returns boolean
language plpgsql volatile as $$
declare
  c holdfast.claim;
begin
  update holdfast.claim x set value = v, version = x.version + 1, modified = nextval('holdfast.token')
    where x.space = s and x.key = k and x.id = i and x.token > 0 returning * into c;
  if not found then return false; end if;
  perform holdfast_v10.tell(c, 'proclaimed', null);
  return true;
end
$$;
