-- For requests that count once: ARGV[1] is the client, ARGV[2] the request,
-- ARGV[3] requests whose answers have arrived and can be forgotten.
local W = P .. 'w:' .. ARGV[1]
if #ARGV[3] > 0 then
  clearing()
  local gone = {}
  for i = 1, #ARGV[3], 32 do gone[#gone + 1] = sub(ARGV[3], i, i + 31) end
  call('HDEL', W, unpack(gone))
end
local seen = call('HGET', W, ARGV[2])
if seen then return cmsgpack.unpack(seen) end

-- done keeps the answer until the client has it, and at most for as long as things
-- are remembered after its last request.
local function done(reply)
  call('HSET', W, ARGV[2], cmsgpack.pack(reply))
  remember('w', ARGV[1])
  finish()
  return reply
end
