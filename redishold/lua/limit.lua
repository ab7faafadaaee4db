-- A limiter. It stands alone, since it is asked for every request of somebody: the
-- time, its rate and what one key has used. KEYS[1] is the prefix. ARGV: what to do,
-- the limiter, the key, the rate that the client knows, that to make it with if there
-- is none, and what is told below. The rate begins with its epoch, and what was used
-- with the epoch that it was used in: of another one it counts for nothing.
local P, call, A = KEYS[1], redis.call, ARGV
local op, rate = A[1], A[4]
local R, U = P .. 'L:' .. A[2], P .. 'U:' .. A[2] .. '\0' .. A[3]
local T = call('TIME')
local found = call('MGET', R, U)
local has, old, ok = found[1], found[2], 'ok'
if not has and A[5] ~= '' then
  has, rate, ok = A[5], A[5], 'made'
  call('SET', R, has)
end
if has ~= rate then return {'rate', has or '', T[1], T[2]} end
local epoch = string.sub(rate, 1, 32)
if old and string.sub(old, 1, 32) ~= epoch then old = nil end

-- remember keeps a key that never ends by itself until the rate is changed or deleted: it
-- is listed with the epoch for that.
local function remember(text)
  call('SET', U, text)
  call('SADD', P .. 'I:' .. epoch, A[2] .. '\0' .. A[3])
end

if op == 'read' then return {ok, old or '', T[1], T[2]} end

-- swap: what was used, if it is still as A[6]; A[7] is new, and A[8] the time until it
-- is as if it had never been used, in milliseconds; 0: never. A[9]: something is given back, which is
-- done although the server's memory is full, since it takes the room of what was used: Redis
-- refuses a script that takes memory only at its first write, and this one takes none.
if op == 'swap' then
  if (old or '') ~= A[6] then return {'again', old or '', T[1], T[2]} end
  if old and A[9] == '1' then call('DEL', P .. '-') end
  if A[7] == '' then
    call('DEL', U)
  elseif A[8] == '0' then
    remember(A[7])
  else
    call('SET', U, A[7], 'PX', A[8])
  end
  return {ok, old or '', T[1], T[2]}
end

-- take: from a bucket. Times are seconds, nanoseconds and parts of one, of which count
-- make a whole: so all numbers are exact. A[6] count, A[7] whether anything is asked for,
-- A[8..10] what the cost takes to refill, A[11..13] the burst; if it is not all 0, A[14..16] what
-- a new key lacks, A[17..18] how long the caller waits, A[19..20] how far ahead it takes it.
-- Little is called and nothing is spelled by '..' here: both take longer than the sums.
local ts, tn, count = tonumber(T[1]), T[2] * 1000, tonumber(A[6])
local function add(s, ns, p, ds, dns, dp)
  s, ns, p = s + ds, ns + dns, p + dp
  if p >= count then p, ns = p - count, ns + 1 end
  if ns >= 1000000000 then ns, s = ns - 1000000000, s + 1 end
  return s, ns, p
end
local function before(s, ns, p, s2, ns2, p2)
  if s ~= s2 then return s < s2 end
  if ns ~= ns2 then return ns < ns2 end
  return p < p2
end
local seldom, lacks, ahead = A[14], false, false
if seldom then
  lacks, ahead = A[14] + A[15] + A[16] > 0, A[19] + A[20] > 0 and A[7] == '1'
end

local fs, fn, fp = ts, tn, 0 -- when it is full
local gs, gn, rest = 0, 0, '0 0 0 0' -- what was given back; also until when it was taken ahead
if old then
  local s, ns, p, more = string.match(old, '^(%-?%d+) (%d+) (%d+) (.+)$', 34)
  s, ns, p = tonumber(s), tonumber(ns), tonumber(p)
  if before(fs, fn, fp, s, ns, p) then fs, fn, fp = s, ns, p end
  if more ~= rest then
    local a, b = string.match(more, '^(%d+) (%d+) ')
    local es, en, ep = add(s, ns, p, a, b, 0)
    if before(ts, tn, 0, es, en, ep) then gs, gn, rest = a, b, more end
  end
elseif lacks then
  fs, fn, fp = add(ts, tn, 0, A[14], A[15], A[16])
end
local es, en, ep = add(ts, tn, 0, A[11], A[12], A[13]) -- when it would be full if it were empty
local as, an, ap = fs, fn, fp
if ahead then
  local s, ns, p = add(ts, tn, 0, A[19], A[20], 0)
  local ms, mn, mp = es - A[8], en - A[9], ep - A[10]
  if mp < 0 then mp, mn = mp + count, mn - 1 end
  if mn < 0 then mn, ms = mn + 1000000000, ms - 1 end
  if before(ms, mn, mp, s, ns, p) then s, ns, p = ms, mn, mp end
  if before(as, an, ap, s, ns, p) then as, an, ap = s, ns, p end
end
as, an, ap = add(as, an, ap, A[8], A[9], A[10])
local late = before(es, en, ep, as, an, ap)
local allowed = not late
if late and seldom then
  local ws, wn, wp = add(es, en, ep, A[17], A[18], 0)
  allowed = not before(ws, wn, wp, as, an, ap)
end
if A[7] == '1' and (allowed or lacks) then
  local format = string.format
  if allowed then
    fs, fn, fp = as, an, ap
    if ahead or late then rest = format('%d %d %d %d', gs, gn, fs, fn) end
  end
  local text = format('%s %d %d %d %s', epoch, fs, fn, fp, rest)
  if lacks then
    remember(text)
  else
    call('SET', U, text, 'EX', format('%d', fs + gs - ts + 2))
  end
end
return {ok, old or '', T[1], T[2], allowed and '1' or '0'}
