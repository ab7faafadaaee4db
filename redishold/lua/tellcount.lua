-- Tells watchers what a counter is, after an addition without a script.
local name, unsigned = ARGV[1], ARGV[2] == '1'
local v = call('GET', P .. (unsigned and 'u:' or 'n:') .. name)
if v and v ~= GONE then
  tick()
  event('counter', 'changed', name, 0, '', unsigned and 1 or 0, 0, '', '', '', v, 0)
end
finish()
return {'ok'}
