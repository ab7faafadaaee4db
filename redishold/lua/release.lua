local id, sid, cancel = ARGV[1], ARGV[2], ARGV[3] == '1'
regardless()
sweep(LITTLE)
unfold(ARGV[4])
local c = claim(id)
local marked = call('SREM', P .. 'x:' .. sid, id) + call('SREM', P .. 'y:' .. sid, id) > 0
local verdict, passed = 'gone', '0'
if c and dead(c) then
  bury(c)
  settle(c.n)
elseif c and c.s == sid then
  verdict = 'ok'
  if c.x then verdict = 'lost' end
  if c.t > 0 or queuedAndPassed(c) then passed = '1' end
  drop(c, 'released', cancel and 'canceled' or '')
elseif marked then
  verdict = 'lost'
elseif cancel then
  -- The wish may still be on its way: it must not be granted to nobody.
  call('HSET', P .. 'c:' .. id, 'z', 1)
  remember('z', id)
end
finish()
return {verdict, passed}
