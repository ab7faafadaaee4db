local name, count, by = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local R = P .. 'r:' .. name
unfold(name)
local r = call('HMGET', R, 'k', 'f')
if r[1] and r[1] ~= '5' then
  -- It may be of one whose session is over.
  local other = usedAs(name)
  finish()
  if other == r[1] then return {'kind', other} end
  return {'more'}
end
local other = not r[1] and usedAs(name)
if other then
  finish()
  return other == 'more' and {'more'} or {'kind', other}
end
local missing, was = not r[1] and count == 0, tonumber(r[2] or count)
if missing or by == 0 then
  finish()
  return missing and {'noexist'} or {'ok', int(was)}
end
if not r[1] then
  if full then return refused() end
  call('HSET', R, 'k', 5, 'l', int(count), 'u', 0, 'cr', call('GET', P .. 'rev') or '0')
  call('ZADD', P .. 'names', 0, name)
else
  regardless()
end
sweep(LITTLE)
local is = math.max(was - by, 0)
call('HSET', R, 'f', int(is))
if is ~= was then
  tick()
  event('latch', 'counted', name, 0, '', 0, 0, '', '', '', is, 0)
  if is == 0 then
    event('latch', 'opened', name, 0, '', 0, 0, '', '', '', 0, 0)
    settle(name)
  end
end
return done({'ok', int(is)})
