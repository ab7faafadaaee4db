local k, name = tonumber(ARGV[1]), ARGV[2]
regardless()
sweep(LITTLE)
local function answer(reply)
  finish()
  return reply
end
-- absent is the answer if there is none of the kind: the name may be of another.
local function absent()
  local other = usedAs(name)
  if not other then return answer({'noexist'}) end
  return answer(other == 'more' and {'more'} or {'kind', other})
end
local function gone(kind, ...)
  if call('DEL', ...) == 0 then return absent() end
  tick()
  event(kind, 'deleted', name, 0, '', 0, 0, '', '', '', 0, 0)
  return answer({'ok'})
end
if k == 7 then
  local n, u = 'n:' .. name, 'u:' .. name
  local was = call('GET', P .. n) or GONE
  if was == GONE then
    n = u
    was = call('GET', P .. n) or GONE
  end
  if was == GONE then return absent() end
  -- Longer than any client goes without looking: see trustFor in add.go.
  call('SET', P .. n, GONE)
  remember('g', n)
  tick()
  event('counter', 'deleted', name, 0, '', 0, 0, '', '', '', 0, 0)
  return answer({'ok'})
end
if k == 9 then
  local rate = call('GET', P .. 'L:' .. name)
  if not rate then return answer({'noexist'}) end
  call('DEL', P .. 'L:' .. name)
  outdate(rate)
  wipe()
  tick()
  event('limit', 'changed', name, 0, '', 0, 0, '', '', '', 0, 0)
  return answer({'ok', stale and '1' or '0'})
end
if k == 8 then return gone('sequence', P .. '#:' .. name) end
unfold(name)
if not tidy(name) then return answer({'more'}) end
local is = call('HGET', P .. 'r:' .. name, 'k')
if not is then return absent() end
if tonumber(is) ~= k then return answer({'kind', is}) end
if call('ZCARD', P .. 'h:' .. name) + call('ZCARD', P .. 'q:' .. name) > 0 then return answer(held(name)) end
call('ZREM', P .. 'names', name)
return gone(KIND[k], P .. 'r:' .. name)
