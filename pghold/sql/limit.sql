-- Limiters: a rate with its epoch, and what each key has used in that epoch.

-- limit_rate is the rate of a limiter, which is made if there is none and fresh is not
-- empty. 'ok': it is the one that the caller knows; 'made': it is fresh; 'rate': another,
-- or none.
create or replace function holdfast_v10.limit_rate(nam text, known text, fresh text, out state text, out rate text)
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
create or replace function holdfast_v10.limit_changed(nam text, ep text, was text) returns text
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
create or replace function holdfast_v10.limit_now() returns bigint
language sql volatile as $$ select (extract(epoch from clock_timestamp()) * 1000000000)::bigint $$;

-- limit_read tells what a key has used. Of another epoch that is nothing.
create or replace function holdfast_v10.limit_read(nam text, ky text, known text, fresh text,
  out state text, out rate text, out now bigint, out v bigint,
  out u_at bigint, out u_part bigint, out u_given bigint, out u_leased bigint, out u_rest text)
language plpgsql volatile as $$
declare
  u holdfast.usage; changed text;
begin
  select x.state, x.rate into state, rate from holdfast_v10.limit_rate(nam, known, fresh) x;
  now := holdfast_v10.limit_now(); v := 0;
  if state = 'rate' then return; end if;
  select * into u from holdfast.usage x where x.name = nam and x.key = ky;
  if not found then return; end if;
  changed := holdfast_v10.limit_changed(nam, u.epoch, rate);
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
create or replace function holdfast_v10.limit_swap(nam text, ky text, ep text, was bigint,
  n_at bigint, n_part bigint, n_given bigint, n_leased bigint, n_rest text, n_idle bigint, tell boolean) returns text
language plpgsql volatile as $$
declare
  done boolean;
begin
  if was = 0 then
    insert into holdfast.usage (name, key, epoch, at, part, given, leased, rest, v, idle)
      values (nam, ky, ep, n_at, n_part, n_given, n_leased, n_rest, holdfast_v10.limit_now(), n_idle) on conflict do nothing;
    done := found;
    if done then perform holdfast_v10.sweep_usage('', 2); end if;
  else
    update holdfast.usage x set epoch = ep, at = n_at, part = n_part, given = n_given, leased = n_leased, rest = n_rest,
      v = x.v + 1, idle = n_idle where x.name = nam and x.key = ky and x.v = was;
    done := found;
  end if;
  if done and tell then perform holdfast_v10.send(jsonb_build_object('k', 'limit', 'v', 'changed', 'n', nam)); end if;
  return case when done then 'ok' else 'again' end;
end
$$;

-- limit_take takes from a bucket. Times are nanoseconds and parts of one, of which cnt
-- make a whole: what the cost takes to refill, the burst, and what a new key lacks; how
-- long the caller waits, and how far ahead it takes it. asks: there is a cost. It tells
-- what was used before; a key that is new removes two that are not used any more.
create or replace function holdfast_v10.limit_take(nam text, ky text, known text, fresh text,
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
  select x.state, x.rate into state, rate from holdfast_v10.limit_rate(nam, known, fresh) x;
  if state = 'rate' then return; end if;
  loop
    select * into u from holdfast.usage x where x.name = nam and x.key = ky for update;
    exit when found or not asks;
    insert into holdfast.usage (name, key, epoch, at, part, given, leased, v, idle)
      values (nam, ky, '', 0, 0, 0, 0, holdfast_v10.limit_now(), holdfast_v10.limit_now()) on conflict do nothing;
    perform holdfast_v10.sweep_usage('', 2);
  end loop;
  changed := holdfast_v10.limit_changed(nam, u.epoch, rate);
  if changed is not null then state := 'rate'; rate := changed; return; end if;
  now := holdfast_v10.limit_now();
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
create or replace function holdfast_v10.limit_set(nam text, fresh text) returns void
language plpgsql volatile as $$
begin
  if fresh <> '' then
    insert into holdfast.limiter (name, rate) values (nam, fresh) on conflict (name) do update set rate = fresh;
  end if;
  perform holdfast_v10.send(jsonb_build_object('k', 'limit', 'v', 'changed', 'n', nam));
end
$$;

-- limit_delete removes a limiter and tells its epoch, by which its keys are removed.
create or replace function holdfast_v10.limit_delete(nam text) returns text
language plpgsql volatile as $$
declare
  ep text;
begin
  delete from holdfast.limiter x where x.name = nam returning left(x.rate, 32) into ep;
  if found then
    perform holdfast_v10.send(jsonb_build_object('k', 'limit', 'v', 'changed', 'n', nam));
  end if;
  return ep;
end
$$;

-- sweep_usage removes keys that are as if they had never been used since a minute, and
-- that nobody uses at the moment. Each new key does it, so it looks at no others: the time is read
-- before, since an index serves no condition with a clock in it, and a plan that was made
-- while the table was small may read no more than that index either.
create or replace function holdfast_v10.sweep_usage(prefix text, most int) returns bigint
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  n bigint; unused bigint := holdfast_v10.limit_now() - 60000000000;
begin
  delete from holdfast.usage x where x.ctid = any (array(
    select y.ctid from holdfast.usage y where y.idle < unused and starts_with(y.name, prefix)
    order by y.idle limit most for update skip locked));
  get diagnostics n = row_count;
  return n;
end
$$;
