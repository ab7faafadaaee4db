local name, unsigned, op, a, b = ARGV[4], ARGV[5] == '1', ARGV[6], ARGV[7], ARGV[8]
local mine, other, zero = P .. 'n:' .. name, P .. 'u:' .. name, '0'
if unsigned then mine, other, zero = other, mine, '-9223372036854775808' end
local was = call('GET', mine)
if was == GONE then was = nil end
if not was then
  local o = call('GET', other)
  if o and o ~= GONE then return {'sign'} end
  local k = usedAs(name)
  if k then
    finish()
    return k == 'more' and {'more'} or {'kind', k}
  end
end
local is, swapped = was or zero, '0'
if op == 'load' then
  finish()
  return {'ok', is, '0'}
end
if full then return refused() end
if op == 'store' then
  is = a
elseif op == 'swap' then
  if is ~= a then return done({'ok', is, '0'}) end
  is, swapped = b, '1'
else
  -- The parts of a number that is too great for one INCRBY, all of one sign.
  if not was then call('SET', mine, zero) end
  for i = 7, #ARGV do
    local r = redis.pcall('INCRBY', mine, ARGV[i])
    if type(r) == 'table' and r.err then
      if not string.find(r.err, 'overflow', 1, true) then error(r.err) end
      call('SET', mine, sub(ARGV[i], 1, 1) == '-' and '-9223372036854775808' or '9223372036854775807')
    end
  end
  is = call('GET', mine)
end
if op ~= 'add' then call('SET', mine, is) end
if is ~= was then
  tick()
  event('counter', 'changed', name, 0, '', unsigned and 1 or 0, 0, '', '', '', is, 0)
end
return done({'ok', is, swapped})
