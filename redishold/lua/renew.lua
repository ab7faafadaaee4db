-- A renewal is answered together with the holds that were taken by force: they are
-- lost before the session lasts longer. What follows in ARGV are those that the client
-- has heard of. 'more': there are some that it has not, and the session was not
-- renewed. Nothing is swept here: a session that renews does not wait for others' work, and
-- is told that there is some.
local sid, ttl = ARGV[1], tonumber(ARGV[2])
local X, Y = P .. 'x:' .. sid, P .. 'y:' .. sid
if not alive(sid) then return {'nosession'} end
regardless()
for i = 3, #ARGV do call('SMOVE', X, Y, ARGV[i]) end
local left = overdue(1)[1] or call('EXISTS', ended, todo) > 0
local reply = {'ok', int(now), left and '1' or '0'}
local unheard = call('SRANDMEMBER', X, PAGE)
if unheard[1] then
  reply[1] = 'more'
  for _, id in ipairs(unheard) do reply[#reply + 1] = id end
else
  call('ZADD', due, 'GT', int(now + ttl), 's' .. sid)
end
return reply
