-- A session is ended at once; what hangs on it is cleared away by as many runs of
-- this as it takes, or by anybody else's.
local sid = ARGV[1]
regardless()
sweep(0)
local verdict = 'gone'
if alive(sid) then retire(sid, 'ended') end
if call('HGET', P .. 'e:' .. sid, 'f') == 'ended' then
  clean(sid)
  verdict = call('EXISTS', P .. 'e:' .. sid) == 1 and 'more' or 'ok'
end
finish()
return {verdict}
