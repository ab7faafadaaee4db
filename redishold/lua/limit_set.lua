-- Sets a limiter's rate, or makes one of its keys as if it had never been used: ARGV
-- is what to do, the limiter, and the rate with its epoch or the key.
local op, name = ARGV[1], ARGV[2]
sweep(LITTLE)
if op == 'rate' then
  call('SET', P .. 'L:' .. name, ARGV[3])
else
  call('UNLINK', P .. 'U:' .. name .. '\0' .. ARGV[3])
end
tick()
event('limit', 'changed', name, 0, '', 0, 0, '', '', '', 0, 0)
finish()
return {'ok'}
