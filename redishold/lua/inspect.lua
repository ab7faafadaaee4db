local prefix, name, after, max = ARGV[1] == '1', ARGV[2], ARGV[3], tonumber(ARGV[4])
sweep()
finish()
local names, more = {name}, '0'
unfold(name)
if prefix then
  -- A session has few of these at a time.
  for _, sid in ipairs(call('SMEMBERS', P .. 'sessions')) do
    for _, f in ipairs(call('HKEYS', P .. 's:' .. sid)) do
      if sub(f, 1, 1) == 'l' and sub(f, 2, #name + 1) == name then unfold(sub(f, 2)) end
    end
  end
  local from, to = '[' .. name, '(' .. name .. '\255'
  if name == '' then from, to = '-', '+' end
  if after ~= '' and sub(after, 1, #name) == name then from = '(' .. after end
  names = call('ZRANGEBYLEX', P .. 'names', from, to, 'LIMIT', 0, max + 1)
  if #names > max then
    more = '1'
    names[#names] = nil
  end
end
local reply = {'ok', call('GET', P .. 'rev') or '0', more}
for _, n in ipairs(names) do
  local r = call('HMGET', P .. 'r:' .. n, 'k', 'l', 'u', 'cr')
  if r[1] then
    local limit, used = tonumber(r[2]), tonumber(r[3])
    if limit >= ALL then limit, used = 0, call('ZCARD', P .. 'h:' .. n) end
    for _, v in ipairs({n, r[1], int(limit), int(used), r[4]}) do reply[#reply + 1] = v end
    crowd(reply, P .. 'h:' .. n)
    crowd(reply, P .. 'q:' .. n)
  end
end
return reply
