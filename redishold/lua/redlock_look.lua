local h = redis.call('HMGET', KEYS[1], 'id', 'owner', 'meta', 'token', 'at')
if not h[1] then return {'no'} end
local t = redis.call('TIME')
return {'ok', h[1], h[2], h[3], h[4] or '0', string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) - h[5]), tostring(redis.call('PTTL', KEYS[1]))}
