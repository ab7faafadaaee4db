-- Writes the token of a grant back, as long as the node still has the lock. It is
-- forgotten after a day: a node that knows none begins at its clock, which is further
-- on by then.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return {'no'} end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', 86400000) end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
return {'ok'}
