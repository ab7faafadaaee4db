local sid = ARGV[1]
regardless()
sweep()
local verdict = 'gone'
if alive(sid) then
  finishSession(sid, 'ended', 'released', '')
  verdict = 'ok'
end
finish()
return {verdict}
