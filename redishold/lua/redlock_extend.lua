if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return {'no'} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok'}
