-- What quick_acquire took is given back as quickly, unless somebody watches.
do
  local P, call, id, name = KEYS[1], redis.call, ARGV[1], ARGV[4]
  local M = P .. 'm:' .. name
  local v = call('MGET', M, P .. 'watch')
  if v[1] and not v[2] and string.sub(v[1], 1, #id + 1) == id .. ' ' then
    call('DEL', M)
    call('HDEL', P .. 's:' .. ARGV[2], 'l' .. name)
    return 'ok'
  end
end
