-- An election's leader proclaims a value (ARGV[3] 'v') or resigns in favour of
-- a candidate (ARGV[3] 'o'), of whom those behind ARGV[5] are looked at, or some of
-- them: then it is told where to go on.
local id, sid, what, arg, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if what == 'o' then regardless() end
sweep(LITTLE)
local c = claim(id)
if c and dead(c) then
  bury(c)
  settle(c.n)
  c = nil
end
local function answer(verdict)
  finish()
  return {verdict}
end
if not c or c.s ~= sid or c.x then return answer('lost') end
if what == 'v' then
  if full then return refused() end
  c.v = arg
  call('HSET', P .. 'c:' .. id, 'v', arg, 'mo', int(tick()))
  call('HINCRBY', P .. 'c:' .. id, 've', 1)
  tell(c, 'proclaimed')
  return answer('ok')
end
local Q = P .. 'q:' .. c.n
local page = call('ZRANGEBYSCORE', Q, from == '' and '-inf' or '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, 4 * PAGE)
for i = 1, #page, 2 do
  local o = claim(page[i])
  if o and not dead(o) and call('HGET', P .. 's:' .. o.s, 'o') == arg then
    -- To the front of the queue: the drop grants it.
    call('ZADD', Q, '-inf', page[i])
    drop(c, 'released', '')
    return answer('ok')
  end
end
if #page == 8 * PAGE then
  finish()
  return {'next', page[#page]}
end
return answer('noexist')
