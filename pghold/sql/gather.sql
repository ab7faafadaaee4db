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
