-- A renewal is answered together with the holds that were taken by force: they
-- are lost before the session lasts longer.
local sid, ttl = ARGV[1], tonumber(ARGV[2])
regardless()
sweep()
finish()
if not alive(sid) then return {'nosession'} end
call('ZADD', due, 'GT', int(now + ttl), 's' .. sid)
local reply = {'ok', int(now)}
for _, id in ipairs(call('SMEMBERS', P .. 'x:' .. sid)) do reply[#reply + 1] = id end
return reply
