-- ARGV[5] is the server's time, by the client, if it may be quick ('?': it does not know),
-- and ARGV[6] what only this part reads, in one piece: every argument costs.
local id, sid, ch, name, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[7]
local ttl, try, k, m, w, limit = string.match(ARGV[6], '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
ttl, try, k, m, w, limit = tonumber(ttl), try == '1', tonumber(k), tonumber(m), tonumber(w), tonumber(limit)
sweep(LITTLE)
unfold(name)
local R, Q, S = P .. 'r:' .. name, P .. 'q:' .. name, P .. 's:' .. sid
local function answer(reply)
  finish()
  return reply
end
-- granted is the answer to a claim that is a hold. The session is extended then, unless some of its
-- holds were taken by force and its client may not know: they are lost before it lasts longer.
local function granted(token)
  local told = call('EXISTS', P .. 'x:' .. sid) == 0
  if told then call('ZADD', due, 'XX', 'GT', int(now + ttl), 's' .. sid) end
  return answer({'ok', token, told and '1' or '0'})
end
local known = call('HMGET', P .. 'c:' .. id, 't', 'z')
if known[2] then return answer({'gone'}) end
if not alive(sid) then return answer({'nosession'}) end
if known[1] then
  regardless()
  if known[1] ~= '0' then return granted(known[1]) end
  return answer({'queued', int((call('ZRANK', Q, id) or 0) + 1)})
end
if not tidy(name) then return answer({'more'}) end
local r = call('HMGET', R, 'k', 'l', 'u', 'f')
if r[1] then
  if tonumber(r[1]) ~= k then return answer({'kind', r[1]}) end
  if (k == 3 or k == 6) and limit ~= 0 and limit ~= tonumber(r[2]) then return answer({'limit', r[2]}) end
  limit = tonumber(r[2])
else
  local other = usedAs(name)
  if other then return answer(other == 'more' and {'more'} or {'kind', other}) end
  if (k == 3 or k > 4) and limit == 0 then return answer({'noexist'}) end
  if k == 1 or k == 4 then limit = 1 elseif k == 2 then limit = ALL end
end
if k == 3 and w > limit then return answer({'heavy', int(limit)}) end
if not r[1] then
  if full then return refused() end
  r = {tostring(k), int(limit), '0', int(limit)}
  call('HSET', R, 'k', k, 'l', r[2], 'u', 0, 'f', r[4], 'cr', call('GET', P .. 'rev') or '0')
  call('ZADD', P .. 'names', 0, name)
end
local c = {id = id, n = name, k = k, m = m, w = w, s = sid, t = 0, v = value, ch = ch, cr = '0', mo = '0', ve = '0', at = now}
local waiting = call('ZCARD', Q)
local fits = waiting == 0 and tonumber(r[3]) + units(c) <= limit
if k == 5 then fits = tonumber(r[4]) == 0 end
if k == 6 then fits = waiting + 1 >= limit end
if not fits and try then return answer(held(name)) end
if full then return refused() end
call('HSET', S, 'c' .. id, 1)
if not fits then
  call('ZADD', due, 'XX', 'GT', int(now + ttl), 's' .. sid) -- the client does not count on that
  c.cr = call('GET', P .. 'rev') or '0'
  call('HSET', P .. 'c:' .. id, 'n', name, 'k', k, 'm', m, 'w', int(w), 's', sid, 't', 0, 'at', int(now), 'v', value,
    'cr', c.cr, 'mo', c.cr, 've', 0, 'ch', ch)
  call('ZADD', Q, call('HINCRBY', R, 'q', 1), id)
  return answer({'queued', int(waiting + 1)})
end
if k == 6 then
  tick()
  event('barrier', 'tripped', name, 0, '', 0, 0, '', '', '', limit, 0)
  if waiting > 0 then
    call('HSET', R, 'g', waiting)
    settle(name)
  end
end
grant(c)
return granted(int(c.t))
