-- A free mutex that nobody watches takes five commands and none of what follows:
-- one key instead of four, which unfold turns into the others when somebody
-- looks closer. It is not extended and nothing is swept: the client asks for this
-- only while its session is fresh, and who wants a dead one's name does sweep.
if ARGV[5] ~= '' then
  local P, call, id, sid, name = KEYS[1], redis.call, ARGV[1], ARGV[2], ARGV[4]
  local M, S = P .. 'm:' .. name, P .. 's:' .. sid
  if call('EXISTS', M, P .. 'r:' .. name, P .. 'c:' .. id, P .. 'watch', P .. 'n:' .. name, P .. 'u:' .. name, P .. '#:' .. name) == 0
    and call('EXISTS', S) == 1 then
    local t = call('INCR', P .. 'rev')
    if t >= 1048576 then
      t = string.format('%.0f', t)
      call('SET', M, id .. ' ' .. sid .. ' ' .. ARGV[3] .. ' ' .. t .. ' ' .. ARGV[5])
      call('HSET', S, 'l' .. name, 1)
      return t
    end
  end
end
