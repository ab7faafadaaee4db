-- KEYS: the lock, the last token, and the mark of a lock that was given up. A node that knows no token begins where
-- its clock is, so that one that was wiped does not bring old tokens back.
local id, ttl = ARGV[1], ARGV[2]
if redis.call('EXISTS', KEYS[3]) == 1 then return {'gone'} end
local holder = redis.call('HMGET', KEYS[1], 'id', 'owner', 'meta', 'token', 'at')
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if holder[1] and holder[1] ~= id then
  return {'held', holder[1], holder[2], holder[3], holder[4] or '0', string.format('%.0f', now - holder[5]), tostring(redis.call('PTTL', KEYS[1]))}
end
redis.call('HSET', KEYS[1], 'id', id, 'owner', ARGV[3], 'meta', ARGV[4], 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ttl)
return {'ok', redis.call('GET', KEYS[2]) or string.format('%.0f', t[1] * 1048576 + math.floor(t[2] * 1.048576))}
