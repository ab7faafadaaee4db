local sid, cursor, most = ARGV[1], ARGV[2], ARGV[3]
sweep(LITTLE)
finish()
local ends = alive(sid)
if not ends then return {'noexist'} end
local s = call('HMGET', P .. 's:' .. sid, 't', 'o', 'm')
local page = call('HSCAN', P .. 's:' .. sid, cursor, 'COUNT', most)
local reply = {'ok', s[1], int(tonumber(ends) - now), s[2], s[3], page[1]}
for i = 1, #page[2], 2 do
  local f = page[2][i]
  local kind, id = sub(f, 1, 1), sub(f, 2)
  local c = kind == 'c' and claim(id)
  if kind == 'l' then
    local _, holder = folded(id)
    if holder == sid then reply[#reply + 1] = 'n' .. id end
  elseif c and c.t > 0 then
    reply[#reply + 1] = 'n' .. c.n
  elseif c then
    reply[#reply + 1] = 'w' .. c.n
  elseif kind == 'k' then
    reply[#reply + 1] = f
  end
end
return reply
