-- A watch begins, or begins anew: ARGV[1] is how long the server knows of it, in
-- milliseconds. The answer is the last revision: everything after it is published.
regardless()
watched(ARGV[1])
finish()
return {'ok', call('GET', P .. 'rev') or '0'}
