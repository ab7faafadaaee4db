-- An election's leader proclaims a value (ARGV[3] 'v') or resigns in favour of
-- a candidate (ARGV[3] 'o').
local id, sid, what, arg = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if what == 'o' then regardless() end
sweep()
local c = claim(id)
local function answer(verdict)
  finish()
  return {verdict}
end
if not c or c.s ~= sid or c.x then return answer('lost') end
if what == 'v' then
  c.v = arg
  call('HSET', P .. 'c:' .. id, 'v', arg, 'mo', int(tick()))
  call('HINCRBY', P .. 'c:' .. id, 've', 1)
  tell(c, 'proclaimed')
  return answer('ok')
end
for _, other in ipairs(call('ZRANGE', P .. 'q:' .. c.n, 0, -1)) do
  local o = claim(other)
  if o and call('HGET', P .. 's:' .. o.s, 'o') == arg then
    -- To the front of the queue: the drop grants it.
    call('ZADD', P .. 'q:' .. c.n, '-inf', other)
    drop(c, 'released', '')
    return answer('ok')
  end
end
return answer('noexist')
