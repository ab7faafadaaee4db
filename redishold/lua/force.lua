local name, token, at_once = ARGV[1], ARGV[2], ARGV[3] == '1'
regardless()
sweep(LITTLE)
unfold(name)
local ids = call('ZRANGEBYSCORE', P .. 'h:' .. name, token, token)
local c = ids[1] and claim(ids[1])
if c and dead(c) then
  bury(c)
  settle(name)
  c = nil
end
if not c then
  finish()
  return {'noexist'}
end
call('SADD', P .. 'x:' .. c.s, c.id)
call('PUBLISH', P .. 'to:' .. c.ch, 'l ' .. c.id)
local ends = tonumber(call('ZSCORE', due, 'r' .. c.id) or alive(c.s) or now)
if at_once then
  ends = now
  c.forced = true
  drop(c, 'expired', 'revoked')
elseif not c.x then
  call('HSET', P .. 'c:' .. c.id, 'x', 1)
  call('ZADD', due, int(ends), 'r' .. c.id)
  tick()
  c.reason = 'revoked'
  tell(c, 'revoked')
end
finish()
return {'ok', int(ends - now)}
