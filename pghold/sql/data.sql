-- Counters, sequences and keys, and clearing up.

-- count changes a counter: 1 add, 2 subtract, 3 store, 4 swap.
create or replace function holdfast_v10.count(
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
  perform holdfast_v10.remember(rid, v, swapped);
end
$$;

-- reserve takes numbers of a sequence; none: only the next one is told.
create or replace function holdfast_v10.reserve(rid uuid, nam text, n numeric, first numeric, out state text, out v numeric)
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
  perform holdfast_v10.remember(rid, v, true);
end
$$;

-- fresh: the key has not expired, and its session lives.
create or replace function holdfast_v10.fresh(o holdfast.kv) returns boolean
language sql volatile as $$
  select (o.expires is null or o.expires > clock_timestamp()) and (o.nonce is null or holdfast_v10.alive(o.nonce, 0))
$$;

create or replace function holdfast_v10.kv_json(o holdfast.kv) returns jsonb
language sql volatile as $$
  select jsonb_build_object('k', o.key, 'x', encode(o.value, 'base64'), 'c', o.created, 'm', o.modified, 'n', o.version,
    'l', o.lease, 'e', (extract(epoch from o.expires - clock_timestamp()) * 1000)::bigint)
$$;

create or replace function holdfast_v10.kv_tell(verb text, o holdfast.kv, p holdfast.kv, ord int, why text) returns void
language plpgsql volatile as $$
begin
  if holdfast_v10.watched() then
    perform holdfast_v10.send(jsonb_build_object('k', 'kv', 'v', verb, 'n', o.key, 'r', (select n from holdfast.revision),
      'd', ord, 'why', why, 'kv', holdfast_v10.kv_json(o), 'was', case when p.key is not null then holdfast_v10.kv_json(p) end));
  end if;
end
$$;

-- kv_why is the reason that the end of a key by itself is told with.
create or replace function holdfast_v10.kv_why(o holdfast.kv) returns text
language sql volatile as $$
  select case when o.expires <= clock_timestamp() then 'timeout' else 'session' end
$$;

-- kv_put writes a key at the current revision, which the caller has taken, and
-- returns what was there. The session's row is shared until the end: an end of the
-- session waits for the key, and a later put finds no session. The end of a key
-- that was over, and not yet removed, is told before.
create or replace function holdfast_v10.kv_put(k text, v bytea, lea uuid, ms bigint, ord int)
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
    if not found or not holdfast_v10.alive(non, 0) then
      raise exception 'the session of the key has ended' using errcode = 'HF001';
    end if;
  end if;
  select * into p from holdfast.kv x where x.key = k;
  if p.key is not null and not holdfast_v10.fresh(p) then
    delete from holdfast.kv x where x.key = k;
    perform holdfast_v10.kv_tell('delete', p, p, ord, holdfast_v10.kv_why(p));
    ord := ord + 1;
    p := null;
  end if;
  insert into holdfast.kv as x (key, value, created, modified, version, lease, nonce, expires)
    values (k, v, rev, rev, 1, lea, non, clock_timestamp() + ms * interval '1 millisecond')
    on conflict (key) do update set value = v, modified = rev, version = x.version + 1,
      lease = lea, nonce = non, expires = excluded.expires
    returning * into o;
  perform holdfast_v10.kv_tell('put', o, p, ord, null);
  if p.key is not null then return next p; end if;
end
$$;

-- kv_drop removes the key k, or the first most of those from k up to til (null: all), and
-- returns those that were still there.
create or replace function holdfast_v10.kv_drop(k text, til text, most int, ord int)
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
    if holdfast_v10.fresh(o) then
      perform holdfast_v10.kv_tell('delete', o, o, ord, null);
      return next o;
    else
      perform holdfast_v10.kv_tell('delete', o, o, ord, holdfast_v10.kv_why(o));
    end if;
    ord := ord + 1;
  end loop;
end
$$;

-- kv_remove removes keys after their time or session, at the current revision, which
-- the caller has taken, and tells the watches.
create or replace function holdfast_v10.kv_remove(keys text[]) returns int
language plpgsql volatile as $$
declare
  o holdfast.kv;
  ord int := 0;
begin
  for o in delete from holdfast.kv x where x.key = any (keys) returning * loop
    perform holdfast_v10.kv_tell('delete', o, o, ord, holdfast_v10.kv_why(o));
    ord := ord + 1;
  end loop;
  return ord;
end
$$;

-- kv_end removes up to most keys of a session that has no row any more, so that no
-- others follow, and returns how many. It looks at no nonce: the caller may be the very
-- connection that has it.
create or replace function holdfast_v10.kv_end(lea uuid, most int) returns int
language plpgsql volatile as $$
begin
  if not exists (select from holdfast.kv x where x.lease = lea) then return 0; end if;
  update holdfast.revision set n = n + 1;
  return holdfast_v10.kv_remove(array(select x.key from holdfast.kv x where x.lease = lea limit most));
end
$$;

-- kv_orphaned are the sessions with keys that have ended. Of each one key is looked at.
create or replace function holdfast_v10.kv_orphaned() returns uuid[]
language plpgsql volatile as $$
declare
  o record;
  gone uuid[] := '{}';
begin
  select x.lease, x.nonce into o from holdfast.kv x where x.lease is not null order by x.lease limit 1;
  while found loop
    if not holdfast_v10.alive(o.nonce, 0) or not exists (select from holdfast.session s where s.id = o.lease) then
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
create or replace function holdfast_v10.kv_sweep(most int) returns int
language plpgsql volatile as $$
declare
  t timestamptz := clock_timestamp();
  gone uuid[] := holdfast_v10.kv_orphaned();
begin
  if gone = '{}' and not exists (select from holdfast.kv x where x.expires <= t) then return 0; end if;
  update holdfast.revision set n = n + 1;
  return holdfast_v10.kv_remove(
    array(select x.key from holdfast.kv x where x.expires <= t order by x.expires limit most)
    || array(select x.key from holdfast.kv x where x.lease = any (gone) limit most));
end
$$;

-- sweep forgets what ended programs left behind, but for keys, for one program at a time, and
-- tells the watches. It waits for no row: others that hold wait for those that it has.
create or replace function holdfast_v10.sweep() returns void
language plpgsql volatile as $$
declare
  void text := pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched, before there is a row that others wait for
  ended bigint[];
  c holdfast.claim;
  r holdfast.resource;
begin
  if not pg_catalog.pg_try_advisory_xact_lock(5209599041173340520) then return; end if;
  ended := array(select n.nonce from (select distinct x.nonce from holdfast.claim x) n where not holdfast_v10.alive(n.nonce, 0));
  for r in select * from holdfast.resource x
      where (x.space, x.key) in (select y.space, y.key from holdfast.claim y where y.nonce = any (ended))
      for update skip locked loop
    perform holdfast_v10.pump(r, 0, '{}');
  end loop;
  for c in delete from holdfast.claim x where (x.space, x.key, x.id) in (
      select y.space, y.key, y.id from holdfast.claim y where y.nonce = any (ended)
        and not exists (select from holdfast.resource z where z.space = y.space and z.key = y.key)
      for update skip locked) returning * loop
    if c.token > 0 then perform holdfast_v10.tell(c, 'expired', 'session'); end if;
  end loop;
  delete from holdfast.session x where x.id in (
    select y.id from holdfast.session y where not holdfast_v10.alive(y.nonce, 0) for update skip locked);
  delete from holdfast.watcher x where x.nonce in (
    select y.nonce from holdfast.watcher y where not holdfast_v10.alive(y.nonce, 0) for update skip locked);
end
$$;

-- sweep_limits removes idle semaphores and barriers whose name begins with pre, among
-- the first most rows after (s, k). One that somebody uses now is left alone, so that
-- nobody is waited for.
create or replace function holdfast_v10.sweep_limits(
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
    if found and holdfast_v10.forget(r.space, r.key, r.kind) = 'ok' then removed := removed + 1; end if;
  end loop;
end
$$;

-- sweep_done removes the oldest of the answers that nobody asks for again, and looks at no others
-- (see sweep_usage).
create or replace function holdfast_v10.sweep_done(most int) returns bigint
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  n bigint; unasked timestamptz := clock_timestamp() - interval '10 minutes';
begin
  delete from holdfast.done x where x.ctid = any (array(
    select d.ctid from holdfast.done d where d.at < unasked order by d.at limit most for update skip locked));
  get diagnostics n = row_count;
  return n;
end
$$;

-- end_program is the end of a program that closes in order: its claims are forgotten,
-- and waiters for its semaphores are woken. Rows of resource are locked before
-- those of claim, as everywhere.
create or replace function holdfast_v10.end_program(nonces bigint[]) returns void
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
    if c.token > 0 then perform holdfast_v10.tell(c, 'released', 'closed'); end if;
  end loop;
  delete from holdfast.session s where s.nonce = any (nonces);
  delete from holdfast.watcher w where w.nonce = any (nonces);
  foreach r in array coalesce(touched, '{}') loop
    perform holdfast_v10.pump(r, 0, '{}');
  end loop;
end
$$;

-- The versions of the tables and of the functions are what a program looks at before
-- anything else.
comment on schema holdfast is 'holdfast 5';
comment on schema holdfast_v10 is 'functions of holdfast 5';
