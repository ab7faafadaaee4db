-- Counters, sequences and keys, and clearing up.

-- count changes a counter: 1 add, 2 subtract, 3 store, 4 swap.
create or replace function holdfast_v8.count(
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
  perform holdfast_v8.remember(rid, v, swapped);
end
$$;

-- reserve takes numbers of a sequence; none: only the next one is told.
create or replace function holdfast_v8.reserve(rid uuid, nam text, n numeric, first numeric, out state text, out v numeric)
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
  perform holdfast_v8.remember(rid, v, true);
end
$$;

-- fresh: the key has not expired, and its session lives.
create or replace function holdfast_v8.fresh(o holdfast.kv) returns boolean
language sql volatile as $$
  select (o.expires is null or o.expires > clock_timestamp()) and (o.nonce is null or holdfast_v8.alive(o.nonce, 0))
$$;

create or replace function holdfast_v8.kv_json(o holdfast.kv) returns jsonb
language sql volatile as $$
  select jsonb_build_object('k', o.key, 'x', encode(o.value, 'base64'), 'c', o.created, 'm', o.modified, 'n', o.version,
    'l', o.lease, 'e', (extract(epoch from o.expires - clock_timestamp()) * 1000)::bigint)
$$;

create or replace function holdfast_v8.kv_tell(verb text, o holdfast.kv, p holdfast.kv, ord int, why text) returns void
language plpgsql volatile as $$
begin
  if holdfast_v8.watched() then
    perform holdfast_v8.send(jsonb_build_object('k', 'kv', 'v', verb, 'n', o.key, 'r', (select n from holdfast.revision),
      'd', ord, 'why', why, 'kv', holdfast_v8.kv_json(o), 'was', case when p.key is not null then holdfast_v8.kv_json(p) end));
  end if;
end
$$;

-- kv_put writes a key at the current revision, which the caller has taken, and
-- returns what was there.
create or replace function holdfast_v8.kv_put(k text, v bytea, lea uuid, ms bigint, ord int)
returns setof holdfast.kv
language plpgsql volatile as $$
declare
  o holdfast.kv;
  p holdfast.kv;
  rev bigint := (select n from holdfast.revision);
  non bigint;
begin
  if lea is not null then
    select s.nonce into non from holdfast.session s where s.id = lea and holdfast_v8.alive(s.nonce, 0);
    if not found then
      raise exception 'the session of the key has ended' using errcode = 'HF001';
    end if;
  end if;
  select * into p from holdfast.kv x where x.key = k;
  if p.key is not null and not holdfast_v8.fresh(p) then
    delete from holdfast.kv x where x.key = k;
    p := null;
  end if;
  insert into holdfast.kv as x (key, value, created, modified, version, lease, nonce, expires)
    values (k, v, rev, rev, 1, lea, non, clock_timestamp() + ms * interval '1 millisecond')
    on conflict (key) do update set value = v, modified = rev, version = x.version + 1,
      lease = lea, nonce = non, expires = excluded.expires
    returning * into o;
  perform holdfast_v8.kv_tell('put', o, p, ord, null);
  if p.key is not null then return next p; end if;
end
$$;

-- kv_drop removes keys, and returns those that were still there.
create or replace function holdfast_v8.kv_drop(k text, pre boolean, ord int, why text)
returns setof holdfast.kv
language plpgsql volatile as $$
declare
  o holdfast.kv;
begin
  for o in delete from holdfast.kv x where x.key >= k and case when pre then x.key ^@ k else x.key = k end
      and (pre or x.key <= k) returning * loop
    if holdfast_v8.fresh(o) then
      perform holdfast_v8.kv_tell('delete', o, o, ord, why);
      ord := ord + 1;
      return next o;
    end if;
  end loop;
end
$$;

-- kv_sweep removes keys whose time or session is over, and tells who watches.
create or replace function holdfast_v8.kv_sweep(lea uuid) returns int
language plpgsql volatile as $$
declare
  o holdfast.kv;
  ord int := 0;
begin
  if not exists (select from holdfast.kv x where x.lease = lea
      or x.expires <= clock_timestamp() or x.nonce is not null and not holdfast_v8.alive(x.nonce, 0)) then
    return 0;
  end if;
  update holdfast.revision set n = n + 1;
  for o in delete from holdfast.kv x where x.lease = lea
      or x.expires <= clock_timestamp() or x.nonce is not null and not holdfast_v8.alive(x.nonce, 0) returning * loop
    perform holdfast_v8.kv_tell('delete', o, o, ord, case when o.expires <= clock_timestamp() then 'timeout' else 'session' end);
    ord := ord + 1;
  end loop;
  return ord;
end
$$;

-- sweep forgets what the dead left behind, for one program at a time.
create or replace function holdfast_v8.sweep(me bigint) returns void
language plpgsql volatile as $$
begin
  if not pg_catalog.pg_try_advisory_xact_lock(5209599041173340520) then return; end if;
  delete from holdfast.claim c where not holdfast_v8.alive(c.nonce, me)
    and not exists (select from holdfast.resource r where r.space = c.space and r.key = c.key);
  delete from holdfast.session s where not holdfast_v8.alive(s.nonce, me);
  delete from holdfast.watcher w where not holdfast_v8.alive(w.nonce, me);
  perform holdfast_v8.kv_sweep(null);
end
$$;

-- sweep_limits removes idle semaphores and barriers whose name begins with pre, among
-- the first most rows after (s, k). One that somebody uses now is left alone, so that
-- nobody is waited for.
create or replace function holdfast_v8.sweep_limits(
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
    if found and holdfast_v8.forget(r.space, r.key, r.kind) = 'ok' then removed := removed + 1; end if;
  end loop;
end
$$;

-- sweep_done removes the oldest of the answers that nobody asks for again.
create or replace function holdfast_v8.sweep_done(most int) returns bigint
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
create or replace function holdfast_v8.bye(nonces bigint[]) returns void
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
    if c.token > 0 then perform holdfast_v8.tell(c, 'released', 'closed'); end if;
  end loop;
  delete from holdfast.session s where s.nonce = any (nonces);
  delete from holdfast.watcher w where w.nonce = any (nonces);
  foreach r in array coalesce(touched, '{}') loop
    perform holdfast_v8.pump(r, 0, 0);
  end loop;
end
$$;

-- The versions of the tables and of the functions are what a program looks at before
-- anything else.
comment on schema holdfast is 'holdfast 5';
comment on schema holdfast_v8 is 'functions of holdfast 5';
