-- What quick_acquire took is given back as quickly, unless somebody watches.
do
  local P, call, id = KEYS[1], redis.call, ARGV[1]
  local M = P .. 'm:' .. ARGV[4]
  local v = call('MGET', M, P .. 'watch')
  if v[1] and not v[2] and string.sub(v[1], 1, #id + 1) == id .. ' ' then
    call('DEL', M)
    return 1
  end
end
