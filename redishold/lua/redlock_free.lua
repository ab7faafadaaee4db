-- A lock that is not there may still be on its way: KEYS[3] keeps it out.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[2])
  return {'no'}
end
redis.call('DEL', KEYS[1])
return {'ok'}
