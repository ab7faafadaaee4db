-- What became of claims that wait: a token, '0' (it waits), or '' (it is gone).
sweep()
local reply = {'ok'}
for i = 1, #ARGV do reply[i + 1] = call('HGET', P .. 'c:' .. ARGV[i], 't') or '' end
finish()
return reply
