-- What became of claims that wait: a token, '0' (it waits), or '' (it is gone).
-- ARGV[1] is how long the client watches on, in milliseconds; it is told whether
-- that was known, else changes were not published meanwhile. ARGV[2] is the client:
-- of all that look, one at a time is told ('1') to come again at once, and does more
-- of the work that is left than others do.
regardless()
local reply = {'ok', '1', '0'}
if ARGV[1] ~= '0' and not watched(ARGV[1]) then reply[2] = '0' end -- before anything is told, which would cover the gap
sweep(LITTLE)
if behind or stale then
  local duty = P .. 'duty'
  if call('SET', duty, ARGV[2], 'NX', 'PX', 1000) or call('GET', duty) == ARGV[2] then
    call('PEXPIRE', duty, 1000)
    sweep(PAGE)
    work = 0
    if behind or stale then reply[3] = '1' else call('DEL', duty) end
  end
end
local tidied = {}
for i = 3, #ARGV do
  local C = P .. 'c:' .. ARGV[i]
  local c = call('HMGET', C, 't', 'n')
  if c[1] == '0' and behind and work > 0 and not tidied[c[2]] then
    tidied[c[2]] = true
    tidy(c[2])
    c[1] = call('HGET', C, 't')
  end
  reply[i + 1] = c[1] or ''
end
finish()
return reply
