-- What belongs to quick grants: locks that are taken without a row, which follows
-- soon if they are still held.

-- noted returns when every lock that was held before the call has its row. It
-- closes the fast path, so that no more are granted without one, and waits for the
-- programs that may have one. A program that has been stopped is not waited for longer than
-- a second.
create or replace function holdfast_v10.noted() returns void
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
create or replace function holdfast_v10.free(s smallint, k bigint) returns boolean
language sql volatile as $$
  select case when s = 1 then pg_catalog.pg_try_advisory_xact_lock(k)
    else pg_catalog.pg_try_advisory_xact_lock((k >> 32)::int, ((k << 32) >> 32)::int) end
$$;
