-- unfold gives the mutexes with a prefix that were taken by quick_acquire the keys
-- that List finds, session by session: ARGV[2] is how far the sessions were read,
-- ARGV[3] how far the first of those that follow was. The answer says the same for
-- the next call; it is the last if no sessions follow and those were read to 0.
local prefix, at, cursor = ARGV[1], ARGV[2], ARGV[3]
local todo, i, looked = {}, 1, 0
for j = 4, #ARGV do todo[#todo + 1] = ARGV[j] end
if not todo[1] then
  local page = call('SSCAN', P .. 'sessions', at, 'COUNT', 500)
  at, todo = page[1], page[2]
end
while todo[i] and looked < LOOKS do
  local page = call('HSCAN', P .. 's:' .. todo[i], cursor, 'COUNT', 1000)
  cursor = page[1]
  for j = 1, #page[2], 2 do
    local f = page[2][j]
    if sub(f, 1, 1) == 'l' and sub(f, 2, #prefix + 1) == prefix then
      unfold(sub(f, 2))
      looked = looked + 5 -- as many commands
    end
  end
  looked = looked + #page[2] / 2 + 1
  if cursor == '0' then i = i + 1 end
end
finish()
local reply = {'ok', at, cursor}
for j = i, #todo do reply[#reply + 1] = todo[j] end
return reply
