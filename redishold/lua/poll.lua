-- What became of claims that wait: a token, '0' (it waits), or '' (it is gone).
-- ARGV[1] is how long the client watches on, in milliseconds; it is told whether
-- that was known, else changes were not published meanwhile.
regardless()
sweep()
local reply = {'ok', '1'}
if ARGV[1] ~= '0' and not call('SET', P .. 'watch', '1', 'PX', ARGV[1], 'GET') then reply[2] = '0' end
for i = 2, #ARGV do reply[i + 1] = call('HGET', P .. 'c:' .. ARGV[i], 't') or '' end
finish()
return reply
