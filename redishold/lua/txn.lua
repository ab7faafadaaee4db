local at = 3
local function arg()
  at = at + 1
  return ARGV[at]
end

-- order compares byte by byte: Lua's own order follows the server's locale. What is
-- equal is passed over in pieces, since single bytes of long texts take long.
local function order(a, b)
  if a == b then return 0 end
  local from = 1
  for _, n in ipairs({4096, 256, 16}) do
    while from + n - 1 <= #a and sub(a, from, from + n - 1) == sub(b, from, from + n - 1) do from = from + n end
  end
  for i = from, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x - y end
  end
  return #a - #b
end

-- range names at most n keys with a prefix, up or down from behind a key.
local function range(prefix, n, after, down)
  local from, to = '[' .. prefix, '(' .. prefix .. '\255'
  if prefix == '' then from, to = '-', '+' end
  if after and after ~= '' then
    if down and order(after, prefix .. '\255') < 0 then to = '(' .. after end
    if not down and order(after, prefix) >= 0 then from = '(' .. after end
  end
  if down then return call('ZREVRANGEBYLEX', P .. 'keys', to, from, 'LIMIT', 0, n) end
  return call('ZRANGEBYLEX', P .. 'keys', from, to, 'LIMIT', 0, n)
end

-- count is how many keys have a prefix; some of them may be no more.
local function count(prefix)
  if prefix == '' then return call('ZCARD', P .. 'keys') end
  return call('ZLEXCOUNT', P .. 'keys', '[' .. prefix, '(' .. prefix .. '\255')
end

-- What the ranges and conditions of a transaction may still look at, how many bytes
-- of values conditions may still read and ranges still tell, and the answer if that is
-- not enough.
local looks, reads, bytes, crowded = LOOKS, 8 * BYTES, BYTES, nil

-- crowds refuses the transaction: what a prefix is asked for is too much.
local function crowds(name, why) crowded = crowded or {'crowded', name, why} end

-- bare is a key without its value.
local function bare(name)
  local f = call('HMGET', P .. 'k:' .. name, 'cr', 'mo', 've', 's', 'x')
  if not f[1] then return nil end
  local k = {name = name, v = '', cr = tonumber(f[1]), mo = tonumber(f[2]), ve = tonumber(f[3]), s = f[4], x = f[5]}
  if not gone(k) then return k end
end

-- live is a key that still is. The value of one that is no more is not read: it may be long, and of
-- many.
local function live(name)
  if behind and not bare(name) then return nil end
  return key(name)
end

local absent = {v = '', cr = 0, mo = 0, ve = 0, s = ''}

local function holds(k, target, is, num, value, session)
  local o
  if target == 0 then o = k.mo - num
  elseif target == 1 then o = k.cr - num
  elseif target == 2 then o = k.ve - num
  elseif k == absent then return false
  elseif target == 3 then o = order(k.v, value)
  else o = k.s == session and 0 or 1 end
  if is == 0 then return o == 0 end
  if is == 1 then return o ~= 0 end
  if is == 2 then return o < 0 end
  return o > 0
end

-- compare reads one condition and tells whether it is true.
local function compare()
  local name, prefix, target, is = arg(), arg() == '1', tonumber(arg()), tonumber(arg())
  local num, value, session = tonumber(arg()), arg(), arg()
  local read = target == 3 and live or bare
  if not prefix then return holds(read(name) or absent, target, is, num, value, session) end
  local any = false
  for _, n in ipairs(range(name, looks + 1)) do
    local k = looks > 0 and read(n)
    if k then reads = reads - #k.v end
    if looks == 0 or reads < 0 then
      crowds(name, 'looks')
      return false
    end
    looks = looks - 1
    if k and not holds(k, target, is, num, value, session) then return false end
    any = any or k
  end
  return any or holds(absent, target, is, num, value, session)
end

-- counted is how many keys with a prefix there are, if that may be looked at.
local function counted(prefix)
  local n = count(prefix)
  if not behind or n > LOOKS then return n end
  for _, name in ipairs(range(prefix, -1)) do
    if not bare(name) then n = n - 1 end
  end
  return n
end

-- DELETES is how many keys a transaction may look at for each that it removes.
local DELETES = 4

-- sortable: in another order than that of keys all have to be looked at, behind the
-- puts before them. By value all are told, which a transaction that writes has to know
-- before it does; one that only reads finds out.
local told = 0
local function sortable(o, puts, writes)
  looks = looks - count(o.name) - puts
  if looks < 0 then return crowds(o.name, 'looks') end
  if o.sort < 4 or not writes then return end
  for _, n in ipairs(range(o.name, -1)) do told = told + #n + 64 + call('HSTRLEN', P .. 'k:' .. n, 'v') end
  if told > BYTES then crowds(o.name, 'bytes') end
end

local function ops()
  local list = {}
  for i = 1, tonumber(arg()) do
    list[i] = {kind = arg(), name = arg(), prefix = arg() == '1', value = arg(), session = arg(), expire = tonumber(arg()),
      limit = tonumber(arg()), sort = tonumber(arg()), desc = arg() == '1', bare = arg() == '1', prev = arg() == '1',
      after = arg(), count = arg() == '1'}
  end
  return list
end

sweep(LITTLE)
local ok = true
for _ = 1, tonumber(arg()) do
  if not compare() then ok = false end
end
local yes, no = ops(), ops()
local run = ok and yes or no
local writes, puts, before = false, false, 0
for _, o in ipairs(run) do writes, puts = writes or o.kind ~= '0', puts or o.kind == '1' end
for _, o in ipairs(run) do
  if o.session ~= '' and not alive(o.session) then
    finish()
    return {'nosession', o.name}
  end
  if o.kind == '1' then before, told = before + 1, told + #o.name + 64 + #o.value end
  if o.kind == '1' and behind then lapse(o.name) end
  if o.kind == '2' and o.prefix then
    if o.limit == 0 then looks = looks - DELETES * count(o.name) end
    if looks < 0 then crowds(o.name, 'deletes') end
  end
  if o.kind == '0' and o.prefix and o.sort > 0 then sortable(o, before, writes) end
end
if crowded then
  finish()
  return crowded
end

if puts and full then return refused() end
if writes and not puts then regardless() end

local at_rev
local function once()
  if not at_rev then at_rev = tick() end
  return at_rev
end

local reply = {'ok', ok and '1' or '0', '0', int(#run)}
local function add(...)
  for i = 1, select('#', ...) do reply[#reply + 1] = select(i, ...) end
end
local function addKeys(list, bare)
  add(int(#list))
  local n = #reply
  for _, k in ipairs(list) do
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = k.name, bare and '' or k.v, int(k.cr), int(k.mo)
    reply[n + 5], reply[n + 6], reply[n + 7] = int(k.ve), k.s, int(left(k))
    n = n + 7
  end
end

-- found is what a delete removes, and whether there is more.
local function found(o)
  if not o.prefix then return {key(o.name)}, false end
  local most, list = o.limit, {}
  if most > 0 then most = math.max(math.min(most, math.floor(looks / DELETES)), 1) end
  local names = range(o.name, most > 0 and most or -1)
  for _, n in ipairs(names) do list[#list + 1] = live(n) end
  if most > 0 then looks = math.max(looks - DELETES * most, 0) end
  return list, most > 0 and #names == most and count(o.name) > most
end

-- PASSED is how many keys that are no more a range passes over at a time.
local PASSED = 8 * PAGE

-- page is the keys of a range in order of key that fit, at least one. Keys that are no
-- more are passed over. If there are too many before the first, some of them are removed
-- and the request is run again; one that writes tells none, and that there are more.
local function page(o)
  local most, list, after, passed = o.limit > 0 and math.min(o.limit, looks) or looks, {}, o.after, 0
  local n, read = math.max(most, 1) + 1, o.bare and bare or live
  while true do
    local names = range(o.name, n, after, o.desc)
    for _, name in ipairs(names) do
      if list[1] and (#list >= most or looks == 0 or bytes <= 0 or passed >= PASSED) then return list, true end
      local k = read(name)
      looks = math.max(looks - 1, 0)
      if k then
        bytes = bytes - #name - 64 - (o.bare and 0 or #k.v)
        list[#list + 1] = k
      else
        passed = passed + 1
      end
      if not list[1] and (looks == 0 or passed >= PASSED) then
        if not writes then
          sweep(PAGE)
          crowded = crowded or {'more'}
        end
        return list, true
      end
    end
    if #names < n then return list, false end
    after, n = names[#names], math.max(n, PAGE)
  end
end

-- sorted is a list in order of name in that of a number, which the server's own code
-- compares: a function for each pair would take most of the time.
local function sorted(list, field, desc)
  local same, numbers, out = {}, {}, {}
  for _, k in ipairs(list) do
    local n = k[field]
    if not same[n] then same[n], numbers[#numbers + 1] = {}, n end
    table.insert(same[n], k)
  end
  table.sort(numbers)
  for _, n in ipairs(numbers) do
    for _, k in ipairs(same[n]) do out[#out + 1] = k end
  end
  for i = 1, desc and math.floor(#out / 2) or 0 do out[i], out[#out + 1 - i] = out[#out + 1 - i], out[i] end
  return out
end

-- room takes what telling a key needs; false: there is none.
local function room(o, k)
  bytes = bytes - #k.name - 64 - #k.v
  if bytes >= 0 or writes then return true end
  crowds(o.name, 'bytes')
end

-- values tells all keys of a range, for the client to sort by value: here nothing
-- compares texts by their bytes in bounded time.
local function values(o)
  local list = {}
  for _, n in ipairs(range(o.name, -1)) do
    local k = live(n)
    if k and not room(o, k) then return end
    list[#list + 1] = k
  end
  add(int(#list), '0')
  addKeys(list, false)
end

local function get(o)
  if o.prefix and o.sort == 0 then
    local list, more = page(o)
    add(int(o.count and counted(o.name) or #list), more and '1' or '0')
    addKeys(list, o.bare)
    return
  end
  if not o.prefix then
    local k = key(o.name)
    add(k and '1' or '0', '0')
    addKeys({k}, o.bare)
    return
  end
  if o.sort == 4 then return values(o) end
  local list = {}
  for _, n in ipairs(range(o.name, -1)) do list[#list + 1] = bare(n) end
  list = sorted(list, ({'ve', 'cr', 'mo'})[o.sort], o.desc)
  local n, more = #list, '0'
  if o.limit > 0 and n > o.limit then
    more = '1'
    for i = n, o.limit + 1, -1 do list[i] = nil end
  end
  for _, k in ipairs(list) do
    if not o.bare then k.v = call('HGET', P .. 'k:' .. k.name, 'v') end
    if not room(o, k) then return end
  end
  add(int(o.count and n or #list), more)
  addKeys(list, o.bare)
end

local function put(o)
  local was, r = key(o.name), once()
  if was then unbind(was) end
  local k = {name = o.name, v = o.value, cr = was and was.cr or r, mo = r, ve = was and was.ve + 1 or 1, s = o.session, x = ''}
  if o.expire > 0 then
    k.x = int(now + o.expire)
    call('ZADD', due, k.x, 'k' .. o.name)
  end
  if o.session ~= '' then call('HSET', P .. 's:' .. o.session, 'k' .. o.name, 1) end
  call('HSET', P .. 'k:' .. o.name, 'v', k.v, 'cr', int(k.cr), 'mo', int(k.mo), 've', int(k.ve), 's', k.s, 'x', k.x)
  call('ZADD', P .. 'keys', 0, o.name)
  event('kv', 'put', o.name, 0, '', 0, 0, k.s, '', '', 0, was and 2 or 1)
  emit(k.name, k.v, k.cr, k.mo, k.ve, k.s, left(k))
  if was then emit(was.name, was.v, was.cr, was.mo, was.ve, was.s, left(was)) end
  add(was and '1' or '0', '0')
  addKeys(o.prev and was and {was} or {}, false)
end

local function delete(o)
  local list, more = found(o)
  for _, k in ipairs(list) do
    once()
    remove(k, '')
  end
  add(int(#list), more and '1' or '0')
  addKeys(o.prev and list or {}, false)
end

for _, o in ipairs(run) do
  if o.kind == '0' then get(o) elseif o.kind == '1' then put(o) else delete(o) end
end
if crowded then
  finish()
  return crowded
end
reply[3] = call('GET', P .. 'rev') or '0'
if writes then return done(reply) end
finish()
return reply
