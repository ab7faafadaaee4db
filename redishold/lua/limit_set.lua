-- Sets a limiter's rate, or makes one of its keys as if it had never been used: ARGV
-- is what to do, the limiter, and the rate with its epoch; or the key, the rate, what
-- the key has used, what to make of that, and for how many milliseconds (0: for good).
local op, name, tells = ARGV[1], ARGV[2], true -- a key that was not in use is as it was
sweep(LITTLE)
if full and ARGV[6] ~= '' then return refused() end
if op == 'rate' then
  local was = call('GET', P .. 'L:' .. name)
  call('SET', P .. 'L:' .. name, ARGV[3])
  if was then outdate(was) end
  call('SREM', outdated, sub(ARGV[3], 1, 32)) -- sent again
  wipe()
else
  local U, rate = P .. 'U:' .. name .. '\0' .. ARGV[3], ARGV[4]
  local old = call('GET', U) or ''
  if string.sub(old, 1, 32) ~= string.sub(rate, 1, 32) then old = '' end
  if call('GET', P .. 'L:' .. name) ~= rate or old ~= ARGV[5] then
    finish()
    return {'again'}
  end
  if ARGV[6] == '' then
    call('UNLINK', U)
  elseif ARGV[7] == '0' then
    call('SET', U, ARGV[6])
    call('SADD', P .. 'I:' .. sub(rate, 1, 32), name .. '\0' .. ARGV[3])
  else
    call('SET', U, ARGV[6], 'PX', ARGV[7])
  end
  tells = old ~= ''
end
if tells then
  tick()
  event('limit', 'changed', name, 0, '', 0, 0, '', '', '', 0, 0)
end
finish()
return {'ok', stale and '1' or '0'}
