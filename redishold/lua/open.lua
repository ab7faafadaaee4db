local sid, ttl, owner, meta = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local is = call('GET', P .. 'version')
if is and tonumber(is) > tonumber(ARGV[5]) then return {'newer', is} end
sweep(LITTLE)
if full then return refused() end
call('HSET', P .. 's:' .. sid, 't', int(ttl), 'o', owner, 'm', meta)
call('SADD', P .. 'sessions', sid)
call('ZADD', due, int(now + ttl), 's' .. sid)
tick()
event('session', 'opened', sid, 0, owner, 0, 0, sid, '', '', 0, 0)
finish()
return {'ok', int(now)}
