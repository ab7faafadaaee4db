-- A limiter. It stands alone, since it is asked for every request of somebody: the
-- time, its rate and what one key has used. KEYS[1] is the prefix. ARGV: what to do,
-- the limiter, the key, the rate that the client knows, that to make it with if there
-- is none, and what is told below. The rate begins with its epoch, and what was used
-- with the epoch that it was used in: of another one it counts for nothing.
local P, call, A = KEYS[1], redis.call, ARGV
local op, rate = A[1], A[4]
local R, U = P .. 'L:' .. A[2], P .. 'U:' .. A[2] .. '\0' .. A[3]
local T = call('TIME')
local has = call('GET', R)
local ok = 'ok'
if not has and A[5] ~= '' then
  has, rate, ok = A[5], A[5], 'made'
  call('SET', R, has)
end
if has ~= rate then return {'rate', has or ''} end
local epoch = string.sub(rate, 1, 32)
local old = call('GET', U)
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
-- make a whole: so all numbers are exact. A[6] count, A[7..9] what the cost takes to
-- refill, A[10..12] the burst, A[13..15] what a new key lacks, A[16..17] how long the
-- caller waits, A[18..19] how far ahead it takes it, A[20] whether anything is asked for.
local function n(i) return tonumber(A[i]) end
local count = n(6)
local function add(s, ns, p, ds, dns, dp)
  s, ns, p = s + ds, ns + dns, p + dp
  if p >= count then p, ns = p - count, ns + 1 end
  if ns >= 1000000000 then ns, s = ns - 1000000000, s + 1 end
  return s, ns, p
end
local function minus(s, ns, p, ds, dns, dp)
  s, ns, p = s - ds, ns - dns, p - dp
  if p < 0 then p, ns = p + count, ns - 1 end
  if ns < 0 then ns, s = ns + 1000000000, s - 1 end
  return s, ns, p
end
local function before(s, ns, p, s2, ns2, p2)
  if s ~= s2 then return s < s2 end
  if ns ~= ns2 then return ns < ns2 end
  return p < p2
end
local function int(x) return string.format('%.0f', x) end

local ts, tn = tonumber(T[1]), tonumber(T[2]) * 1000
local fs, fn, fp = add(ts, tn, 0, n(13), n(14), n(15)) -- when it is full
local gs, gn, ls, ln = 0, 0, 0, 0
local lacks = n(13) + n(14) + n(15) > 0
if old then
  local s, ns, p, a, b, c, d = string.match(old, '^%x+ (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+)$')
  s, ns, p = tonumber(s), tonumber(ns), tonumber(p)
  fs, fn, fp = ts, tn, 0
  if before(ts, tn, 0, s, ns, p) then fs, fn, fp = s, ns, p end
  local es, en, ep = add(s, ns, p, tonumber(a), tonumber(b), 0)
  if before(ts, tn, 0, es, en, ep) then
    gs, gn, ls, ln = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  end
end
local es, en, ep = add(ts, tn, 0, n(10), n(11), n(12)) -- when it would be full if it were empty
local as, an, ap = fs, fn, fp
local ahead = n(18) + n(19) > 0 and A[20] == '1'
if ahead then
  local s, ns, p = add(ts, tn, 0, n(18), n(19), 0)
  local ms, mn, mp = minus(es, en, ep, n(7), n(8), n(9))
  if before(ms, mn, mp, s, ns, p) then s, ns, p = ms, mn, mp end
  if before(as, an, ap, s, ns, p) then as, an, ap = s, ns, p end
end
as, an, ap = add(as, an, ap, n(7), n(8), n(9))
local late = before(es, en, ep, as, an, ap)
local ws, wn, wp = add(es, en, ep, n(16), n(17), 0)
local allowed = not before(ws, wn, wp, as, an, ap)
if A[20] == '1' and (allowed or lacks) then
  if allowed then fs, fn, fp = as, an, ap end
  if allowed and (ahead or late) then ls, ln = fs, fn end
  local text = epoch .. ' ' .. int(fs) .. ' ' .. int(fn) .. ' ' .. int(fp) .. ' ' .. int(gs) .. ' ' .. int(gn) .. ' ' .. int(ls) .. ' ' .. int(ln)
  if lacks then
    remember(text)
  else
    call('SET', U, text, 'PX', int((fs + gs - ts) * 1000 + math.ceil((fn + gn - tn) / 1000000) + 2))
  end
end
return {ok, old or '', T[1], T[2], allowed and '1' or '0'}
