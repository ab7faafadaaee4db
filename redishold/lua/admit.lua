-- What a program has to know of a server before it uses it: the version of what is
-- kept there, which is raised to the program's, and what the server does when its
-- memory is full. Neither has to be answered: a replica takes no version, and a user
-- may not have the right to ask INFO.
local known = tonumber(ARGV[1])
local is = tonumber(call('GET', P .. 'version') or '0')
if is < known then redis.pcall('SET', P .. 'version', ARGV[1]) end
local info = redis.pcall('INFO', 'memory')
local policy = type(info) == 'string' and string.match(info, 'maxmemory_policy:(%S+)') or ''
return {'ok', int(is), policy}
