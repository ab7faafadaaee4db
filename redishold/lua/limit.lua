-- A limiter. It stands alone, since it is asked for every request of somebody: the
-- time, its rate and what one key has used. KEYS are that of the rate, that of what was used,
-- and the prefix where that is needed. ARGV: the rate that the client knows, what to do, the rate to
-- make the limiter with if there is none (none or '': do not), and what is told below. The rate begins
-- with its epoch, and what was used with the epoch that it was used in: of another one it counts
-- for nothing. The answer is one text: a word for what it is, the time, and what was found.
local A, call, R, U = ARGV, redis.call, KEYS[1], KEYS[2]
local T, found = call('TIME'), call('MGET', R, U)
local rate, what, old = A[1], A[2], found[2] or ''
if found[1] ~= rate then
  if found[1] or (A[3] or '') == '' then return 'rate ' .. T[1] .. ' ' .. T[2] .. ' ' .. (found[1] or '') end
  rate = A[3]
  call('SET', R, rate)
end
local epoch = string.sub(rate, 1, 32)
if string.sub(old, 1, 32) ~= epoch then old = '' end
if what == 'read' then return 'found ' .. T[1] .. ' ' .. T[2] .. ' ' .. old end

-- What the key has used from now on, whether that is for good, and else when it ends; nil: as before.
local answer, text, good, unit, ends

-- swap: what was used, if it is still as A[4]; A[5] is new, and A[6] the time until it
-- is as if it had never been used, in milliseconds; 0: never. A[7]: something is given back, which is
-- done although the server's memory is full, since it takes the room of what was used: Redis
-- refuses a script that takes memory only at its first write, and this one takes none.
if what == 'swap' then
  if old ~= A[4] then return 'again ' .. T[1] .. ' ' .. T[2] .. ' ' .. old end
  if old ~= '' and A[7] == '1' then call('DEL', KEYS[3] .. '-') end
  answer, text, good, unit, ends = 'done ', A[5], A[6] == '0', 'PX', A[6]

-- take: from a bucket. Times are seconds, nanoseconds and parts of one, of which count
-- make a whole: so all numbers are exact. A[2] packs count, what the cost takes to refill, and
-- the burst; if it is not all 0, what a new key lacks, how long the caller waits, and how far
-- ahead it takes it. Until it is written, a moment may have too many nanoseconds, or less than none.
-- A difference of more than 2^53 nanoseconds is not exact, but its sign is. A key ends 2 seconds after the
-- second in which it is full: within that second it need not be told again, which would take longer than the rest.
-- The 2 in what was used says so, since earlier programs let it end sooner.
-- What is packed comes as one argument, and nothing is a function here: both would take longer than the sums.
else
  local S = 1000000000
  local count, cs, cn, cp, bs, bn, bp, more = struct.unpack('>ddddddd', what)
  local ts, tn = T[1] + 0, T[2] * 1000
  local seldom, lacks, ahead, ls, ln, lp, ws, wn, hs, hn = more <= #what
  if seldom then
    ls, ln, lp, ws, wn, hs, hn = struct.unpack('>ddddddd', what, more)
    lacks, ahead = ls + ln + lp > 0, hs + hn > 0
  end

  local fs, fn, fp = ts, tn, 0 -- when it is full
  local none = '0 0 0 0 2'
  local gs, gn, rest, second = 0, 0, none -- what was given back; also until when it was taken ahead
  if old ~= '' then
    local s, n, p, given = string.match(old, '^(%-?%d+) (%d+) (%d+) (.+)$', 34)
    s, n, p = s + 0, n + 0, p + 0
    if (s - ts) * S + n - tn >= 0 then fs, fn, fp = s, n, p end
    if given == none then
      second = s
    else
      local a, b = string.match(given, '^(%d+) (%d+) ')
      local left = (s + a - ts) * S + n + b - tn
      if left > 0 or left == 0 and p > 0 then gs, gn, rest = a, b, given end
    end
  elseif lacks then
    fs, fn, fp = ts + ls, tn + ln, lp
  end
  if ahead then
    local s, n, p = ts + bs - cs, tn + bn - cn, bp - cp -- the latest with room for the cost
    if p < 0 then p, n = p + count, n - 1 end
    if (ts + hs - s) * S + tn + hn - n <= 0 then s, n, p = ts + hs, tn + hn, 0 end
    local later = (s - fs) * S + n - fn
    if later > 0 or later == 0 and p > fp then fs, fn, fp = s, n, p end
  end

  local s, n, p = fs + cs, fn + cn, fp + cp
  if p >= count then p, n = p - count, n + 1 end
  local over = (s - ts - bs) * S + n - tn - bn -- what it lacks beyond the burst
  local late = over > 0 or over == 0 and p > bp
  local allowed = not late
  if late and seldom then
    over = (s - ts - bs - ws) * S + n - tn - bn - wn
    allowed = over < 0 or over == 0 and p <= bp
  end
  if allowed then fs, fn, fp = s, n, p end
  if allowed or lacks then
    local format = string.format
    if fn >= S or fn < 0 then fs, fn = fs + math.floor(fn / S), fn % S end
    if allowed and (ahead or late) then rest = format('%d %d %d %d', gs, gn, fs, fn) end
    text = format('%s %d %d %d %s', epoch, fs, fn, fp, rest)
    good = lacks
    if fs ~= second or rest ~= none then unit, ends = 'PXAT', format('%d000', fs + gs + 2) end
  end
  answer = allowed and 'yes ' or 'no '
end

if text == '' then
  call('DEL', U)
elseif good then
  call('SET', U, text)
  call('SADD', KEYS[3] .. 'I:' .. epoch, string.sub(U, #KEYS[3] + 3))
elseif ends then
  call('SET', U, text, unit, ends)
elseif text then
  call('SET', U, text, 'KEEPTTL')
end
return answer .. T[1] .. ' ' .. T[2] .. ' ' .. old
