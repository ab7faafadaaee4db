-- Numbers are kept as uint64 less 2^63, so that INCRBY can count them.
local name, start = ARGV[4], ARGV[5]
local K = P .. '#:' .. name
local was = call('GET', K)
if not was then
  local k = usedAs(name)
  if k then
    finish()
    return k == 'more' and {'more'} or {'kind', k}
  end
end
if #ARGV == 5 then
  finish()
  return {'ok', was or start}
end
if full then return refused() end
call('SET', K, was or start)
for i = 6, #ARGV do
  local r = redis.pcall('INCRBY', K, ARGV[i])
  if type(r) == 'table' and r.err then
    if not string.find(r.err, 'overflow', 1, true) then error(r.err) end
    if was then call('SET', K, was) else call('DEL', K) end
    return done({'exhausted'})
  end
end
tick()
event('sequence', 'reserved', name, 0, '', 0, 0, '', '', '', call('GET', K), 0)
return done({'ok', was or start})
