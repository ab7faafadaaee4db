-- A free mutex that nobody watches takes four commands (one more to ask for the
-- time, if the client does not know it) and none of what follows:
-- one key instead of four, which unfold turns into the others when somebody
-- looks closer. It is not extended and nothing is swept: the client asks for this
-- only while its session is fresh, and a caller that wants the name of an ended one does sweep.
-- The session's list of names that it may hold so keeps a name when it is given
-- back; ARGV[8] is there if this one is missing in it, and is one to strike, or ''.
if ARGV[5] ~= '' then
  local P, call, id, sid, name, strike = KEYS[1], redis.call, ARGV[1], ARGV[2], ARGV[4], ARGV[8]
  local M, S = P .. 'm:' .. name, P .. 's:' .. sid
  if call('EXISTS', M, P .. 'r:' .. name, P .. 'c:' .. id, P .. 'watch', P .. 'n:' .. name, P .. 'u:' .. name, P .. '#:' .. name) == 0
    and call('EXISTS', S) == 1 then
    local t = call('INCR', P .. 'rev')
    if t >= 1048576 then
      local at = ARGV[5]
      if at == '?' then
        local T = call('TIME')
        at = string.format('%.0f', T[1] * 1000 + math.floor(T[2] / 1000))
      end
      call('SET', M, id .. ' ' .. sid .. ' ' .. ARGV[3] .. ' ' .. string.format('%d', t) .. ' ' .. at)
      if strike then
        call('HSET', S, 'l' .. name, 1)
        if strike ~= '' then call('HDEL', S, 'l' .. strike) end
      end
      return t
    end
  end
end
