-- Semaphores, latches and barriers.

-- pump grants what can be granted on a semaphore, latch or barrier, whose row
-- the caller has locked, all of it in one statement, and wakes waiters elsewhere. Those
-- in mine are not woken. It returns how many wait still. Whether a program lives is asked
-- once, however many of its claims there are.
create or replace function holdfast_v10.pump(r holdfast.resource, me bigint, mine bigint[]) returns int
language plpgsql volatile as $$
declare
  ended bigint[];
  held bigint;
  waits int;
  room bigint;
  c holdfast.claim;
  i bigint;
  w bigint;
  ids bigint[] := '{}';
begin
  select array_agg(p.nonce) filter (where not p.lives), coalesce(sum(p.held) filter (where p.lives), 0), coalesce(sum(p.waits) filter (where p.lives), 0)
    into ended, held, waits
    from (select n.nonce, n.held, n.waits, holdfast_v10.alive(n.nonce, me) as lives from (
      select x.nonce, sum(x.weight) filter (where x.token > 0) as held, count(*) filter (where x.token = 0) as waits
        from holdfast.claim x where x.space = r.space and x.key = r.key group by x.nonce) n) p;
  if ended is not null then
    for c in delete from holdfast.claim x where x.space = r.space and x.key = r.key and x.nonce = any (ended) returning * loop
      if c.token > 0 then perform holdfast_v10.tell(c, 'expired', 'session'); end if;
    end loop;
  end if;
  room := case r.kind when 3 then r.lim - held
    when 5 then case when r.rest = 0 then 9223372036854775807 else 0 end
    else case when waits >= r.lim then r.lim else 0 end end;
  if waits = 0 or room <= 0 then return waits; end if;
  for i, w in select x.id, x.weight from holdfast.claim x where x.space = r.space and x.key = r.key and x.token = 0 order by x.id loop
    exit when w > room;
    room := room - w;
    ids := ids || i;
  end loop;
  if ids <> '{}' then perform holdfast_v10.grant_all(r, ids, mine); end if;
  return waits - cardinality(ids);
end
$$;

-- grant_all makes holders of the claims ids, with tokens in their order.
create or replace function holdfast_v10.grant_all(r holdfast.resource, ids bigint[], mine bigint[]) returns void
language plpgsql volatile as $$
declare
  tokens bigint[] := array(select holdfast_v10.draw() from generate_series(1, cardinality(ids)));
  c holdfast.claim;
begin
  update holdfast.claim x set token = g.tok, modified = g.tok, since = clock_timestamp()
    from unnest(ids, tokens) g (id, tok) where x.space = r.space and x.key = r.key and x.id = g.id;
  if holdfast_v10.watched() then
    for c in select * from holdfast.claim x where x.space = r.space and x.key = r.key and x.id = any (ids) order by x.id loop
      perform holdfast_v10.tell(c, 'acquired', null);
    end loop;
  end if;
  if exists (select unnest(ids) except select unnest(mine)) then
    perform pg_catalog.pg_notify('holdfast', 'w ' || r.space || ' ' || r.key);
  end if;
end
$$;

-- establish makes a semaphore, latch or barrier, for a caller that keeps others from taking
-- the name quickly as a lock by its guard. 'unsure': somebody has the lock, and no
-- row says as what. sure: whoever took it quickly before has a row, or has been
-- stopped. Then a row may be about to be committed: it waits for that, and nobody
-- arrives meanwhile. A program that still has the lock, and no row, took it quickly if it may
-- have locks without a row, and else knows nothing of us.
create or replace function holdfast_v10.establish(
  s smallint, k bigint, nam text, knd smallint, li bigint, me bigint, sure boolean, out state text, out pos int)
language plpgsql volatile as $$
begin
  if sure then
    perform pg_catalog.pg_advisory_xact_lock(5209599041173340519);  -- as at the beginning of a watch
  else
    perform pg_catalog.pg_advisory_xact_lock_shared(5209599041173340519);  -- as in watched, before there is a row that others wait for
  end if;
  pos := holdfast_v10.other_kind(s, k, knd, me);
  state := 'ok';
  if pos is null and exists (select from holdfast.resource r where r.space = s and r.key = k) then return; end if;
  if pos is null and sure then
    select 1 into pos from holdfast_v10.locks(s, k) a join holdfast_v10.locks(1::smallint, 5209599041173340522) b using (pid) where a.granted and b.granted;
  end if;
  state := case when pos is not null then 'kind' when not sure and not holdfast_v10.free(s, k) then 'unsure' when li <= 0 then 'absent' else 'ok' end;
  if state <> 'ok' then return; end if;
  insert into holdfast.resource (space, key, name, kind, lim, rest, made)
    values (s, k, nam, knd, li, li, nextval('holdfast.token')) on conflict do nothing;
  perform pg_catalog.pg_notify('holdfast', 'k ' || s || ' ' || k);  -- it is no lock any more
end
$$;

-- gather is arrive for semaphores, latches and barriers. Its guard keeps others
-- from taking the name quickly as a lock. 'unsure': establish has to clear it up.
create or replace function holdfast_v10.gather(
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
    select t.state, t.pos into state, pos from holdfast_v10.establish(s, k, nam, knd, li, me, false) t;
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
  pos := holdfast_v10.pump(r, me, array[place]);
  select x.token into tok from holdfast.claim x where x.space = s and x.key = k and x.id = place;
  if tok > 0 then
    state := 'granted';
  elsif wait then
    state := 'queued';  -- the last of those that wait
  else
    state := 'held';
    delete from holdfast.claim x where x.space = s and x.key = k and x.id = place;
  end if;
end
$$;

-- look tells which of the claims ids in gather's queue were granted, and which are gone
-- (a token of 0); of those that wait on nothing. sweep: also free what ended programs hold.
create or replace function holdfast_v10.look(s smallint, k bigint, ids bigint[], me bigint, sweep boolean)
returns table (id bigint, tok bigint)
language plpgsql volatile as $$
declare
  r holdfast.resource;
begin
  if sweep then
    select * into r from holdfast.resource x where x.space = s and x.key = k for update;
    if found then perform holdfast_v10.pump(r, me, ids); end if;
  end if;
  return query select i.id, coalesce(x.token, 0) from unnest(ids) i(id)
    left join holdfast.claim x on x.space = s and x.key = k and x.id = i.id
    where x.token is distinct from 0;
end
$$;

-- drop_gathered gives claims of a semaphore, latch or barrier back, held or not, and
-- returns those that were there. Only of a semaphore that makes room for others, and not
-- if all of them waited behind another one.
create or replace function holdfast_v10.drop_gathered(s smallint, k bigint, ids bigint[], me bigint) returns bigint[]
language plpgsql volatile as $$
declare
  r holdfast.resource;
  c holdfast.claim;
  head bigint;
  room boolean := false;
  were bigint[] := '{}';
begin
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  select x.id into head from holdfast.claim x where x.space = s and x.key = k and x.token = 0 order by x.id limit 1;
  for c in delete from holdfast.claim x where x.space = s and x.key = k and x.id = any (ids) returning * loop
    if c.token > 0 then perform holdfast_v10.tell(c, 'released', null); end if;
    room := room or c.token > 0 or c.id = head;
    were := were || c.id;
  end loop;
  if r.kind = 3 and room then perform holdfast_v10.pump(r, me, '{}'); end if;
  return were;
end
$$;

-- count_down takes from a latch. 'new': it has to be made first.
create or replace function holdfast_v10.count_down(
  rid uuid, s smallint, k bigint, nam text, cnt bigint, take bigint,
  out state text, out rest bigint)
language plpgsql volatile as $$
declare
  r holdfast.resource;
begin
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  if not found then
    state := case when holdfast_v10.other_kind(s, k, 5::smallint, 0) is not null then 'kind' when cnt <= 0 then 'absent'
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
  perform holdfast_v10.remember(rid, r.rest, true);
  if holdfast_v10.watched() then
    perform holdfast_v10.send(jsonb_build_object('k', 'latch', 'v', 'counted', 'n', nam, 'u', r.rest::text));
    if r.rest = 0 then
      perform holdfast_v10.send(jsonb_build_object('k', 'latch', 'v', 'opened', 'n', nam, 'u', '0'));
    end if;
  end if;
  perform holdfast_v10.pump(r, 0, '{}');
end
$$;

create or replace function holdfast_v10.remember(rid uuid, v numeric, k boolean) returns void
language plpgsql volatile as $$
begin
  insert into holdfast.done (id, value, ok) values (rid, v, k) on conflict do nothing;
  if random() < 0.002 then
    perform holdfast_v10.sweep_done(10000);
  end if;
end
$$;

-- forget removes an idle semaphore, latch or barrier.
create or replace function holdfast_v10.forget(s smallint, k bigint, knd smallint) returns text
language plpgsql volatile as $$
declare
  c holdfast.claim;
  r holdfast.resource;
begin
  select * into r from holdfast.resource x where x.space = s and x.key = k for update;
  if not found then return 'absent'; end if;
  if r.kind <> knd then return 'kind'; end if;
  for c in delete from holdfast.claim x where x.space = s and x.key = k and not holdfast_v10.alive(x.nonce, 0) returning * loop
    if c.token > 0 then perform holdfast_v10.tell(c, 'expired', 'session'); end if;
  end loop;
  if exists (select from holdfast.claim x where x.space = s and x.key = k) then return 'held'; end if;
  delete from holdfast.resource x where x.space = s and x.key = k;
  return 'ok';
end
$$;
