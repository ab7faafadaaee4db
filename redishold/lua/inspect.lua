local prefix, name, after, most = ARGV[1] == '1', ARGV[2], ARGV[3], tonumber(ARGV[4])
sweep(LITTLE)
local reply, room = {'ok', call('GET', P .. 'rev') or '0', ''}, {bytes = BYTES}

-- head appends what a name is, with how many hold it and wait for it, and how many
-- of those that wait come before the first that is told. False: nobody knows it.
local function head(n, skipped)
  local r = call('HMGET', P .. 'r:' .. n, 'k', 'l', 'u', 'cr')
  if not r[1] then return false end
  local holding, waiting = call('ZCARD', P .. 'h:' .. n), call('ZCARD', P .. 'q:' .. n)
  local limit, used = tonumber(r[2]), tonumber(r[3])
  if r[1] == '2' then limit, used = 0, holding end
  for _, v in ipairs({n, r[1], int(limit), int(used), r[4], int(holding), int(waiting), int(skipped)}) do reply[#reply + 1] = v end
  return true
end

local function answer()
  finish()
  return reply
end

if not prefix then
  unfold(name)
  if not tidy(name) then
    finish()
    return {'more'}
  end
  local list, from = sub(after, 1, 1), sub(after, 2)
  local skipped = list == 'w' and call('ZCOUNT', P .. 'q:' .. name, '-inf', from) or 0
  if not head(name, skipped) then return answer() end
  local held, last, more = 0, '', false
  if list == 'w' then
    reply[#reply + 1] = '0'
  else
    held, last, more = crowd(reply, P .. 'h:' .. name, from, most, room)
  end
  if more then
    reply[3] = 'h' .. last
    reply[#reply + 1] = '0'
    return answer()
  end
  local _, tail, rest = crowd(reply, P .. 'q:' .. name, list == 'w' and from or '', most - held, room)
  if rest then reply[3] = tail == '' and 'h' .. last or 'w' .. tail end
  return answer()
end

local from, to = '[' .. name, '(' .. name .. '\255'
if name == '' then from, to = '-', '+' end
if after ~= '' and sub(after, 1, #name) == name then from = '(' .. after end
local names, claims = call('ZRANGEBYLEX', P .. 'names', from, to, 'LIMIT', 0, most + 1), 0
for i, n in ipairs(names) do
  if i > most or (i > 1 and (claims >= CLAIMS or room.bytes <= 0)) then
    reply[3] = names[i - 1]
    break
  end
  if work > 0 then tidy(n) end
  if head(n, 0) then
    claims = claims + crowd(reply, P .. 'h:' .. n, '', 50, room)
    claims = claims + crowd(reply, P .. 'q:' .. n, '', 50, room)
  end
end
return answer()
