local at = 3
local function arg()
  at = at + 1
  return ARGV[at]
end

-- order compares byte by byte: Lua's own order follows the server's locale.
local function order(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x - y end
  end
  return #a - #b
end

local function range(prefix)
  if prefix == '' then return call('ZRANGEBYLEX', P .. 'keys', '-', '+') end
  return call('ZRANGEBYLEX', P .. 'keys', '[' .. prefix, '(' .. prefix .. '\255')
end

local absent = {v = '', cr = 0, mo = 0, ve = 0, s = ''}

local function holds(k, target, is, num, value, lease)
  local o
  if target == 0 then o = k.mo - num
  elseif target == 1 then o = k.cr - num
  elseif target == 2 then o = k.ve - num
  elseif k == absent then return false
  elseif target == 3 then o = order(k.v, value)
  else o = k.s == lease and 0 or 1 end
  if is == 0 then return o == 0 end
  if is == 1 then return o ~= 0 end
  if is == 2 then return o < 0 end
  return o > 0
end

-- compare reads one condition and tells whether it is true.
local function compare()
  local name, prefix, target, is = arg(), arg() == '1', tonumber(arg()), tonumber(arg())
  local num, value, lease = tonumber(arg()), arg(), arg()
  if not prefix then return holds(key(name) or absent, target, is, num, value, lease) end
  local keys = range(name)
  if not keys[1] then return holds(absent, target, is, num, value, lease) end
  for _, n in ipairs(keys) do
    if not holds(key(n), target, is, num, value, lease) then return false end
  end
  return true
end

local function ops()
  local list = {}
  for i = 1, tonumber(arg()) do
    list[i] = {kind = arg(), name = arg(), prefix = arg() == '1', value = arg(), lease = arg(), expire = tonumber(arg()),
      limit = tonumber(arg()), sort = tonumber(arg()), desc = arg() == '1', bare = arg() == '1', prev = arg() == '1'}
  end
  return list
end

sweep()
local ok = true
for _ = 1, tonumber(arg()) do
  if not compare() then ok = false end
end
local yes, no = ops(), ops()
local run = ok and yes or no
local writes, puts = false, false
for _, o in ipairs(run) do
  writes, puts = writes or o.kind ~= '0', puts or o.kind == '1'
  if o.lease ~= '' and not alive(o.lease) then
    finish()
    return {'nolease', o.name}
  end
end

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
  for _, k in ipairs(list) do
    add(k.name, bare and '' or k.v, int(k.cr), int(k.mo), int(k.ve), k.s, int(left(k)))
  end
end

local function found(o)
  local list = {}
  for _, n in ipairs(o.prefix and range(o.name) or {o.name}) do list[#list + 1] = key(n) end
  return list
end

local by = {
  function(a, b) return order(a.name, b.name) end,
  function(a, b) return a.ve - b.ve end,
  function(a, b) return a.cr - b.cr end,
  function(a, b) return a.mo - b.mo end,
  function(a, b) return order(a.v, b.v) end,
}

local function get(o)
  local list = found(o)
  local count = #list
  if count > 1 and (o.sort > 0 or o.desc) then
    local f = by[o.sort + 1]
    table.sort(list, function(a, b)
      local x = f(a, b)
      if x == 0 then x = order(a.name, b.name) end
      if o.desc then return x > 0 end
      return x < 0
    end)
  end
  local more = '0'
  if o.limit > 0 and count > o.limit then
    more = '1'
    for i = count, o.limit + 1, -1 do list[i] = nil end
  end
  add(int(count), more)
  addKeys(list, o.bare)
end

local function put(o)
  local was, r = key(o.name), once()
  if was then unbind(was) end
  local k = {name = o.name, v = o.value, cr = was and was.cr or r, mo = r, ve = was and was.ve + 1 or 1, s = o.lease, x = ''}
  if o.expire > 0 then
    k.x = int(now + o.expire)
    call('ZADD', due, k.x, 'k' .. o.name)
  end
  if o.lease ~= '' then call('HSET', P .. 's:' .. o.lease, 'k' .. o.name, 1) end
  call('HSET', P .. 'k:' .. o.name, 'v', k.v, 'cr', int(k.cr), 'mo', int(k.mo), 've', int(k.ve), 's', k.s, 'x', k.x)
  call('ZADD', P .. 'keys', 0, o.name)
  event('kv', 'put', o.name, 0, '', 0, 0, k.s, '', '', 0, was and 2 or 1)
  emit(k.name, k.v, k.cr, k.mo, k.ve, k.s, left(k))
  if was then emit(was.name, was.v, was.cr, was.mo, was.ve, was.s, left(was)) end
  add(was and '1' or '0', '0')
  addKeys(o.prev and was and {was} or {}, false)
end

local function delete(o)
  local list = found(o)
  for _, k in ipairs(list) do
    once()
    remove(k, '')
  end
  add(int(#list), '0')
  addKeys(o.prev and list or {}, false)
end

for _, o in ipairs(run) do
  if o.kind == '0' then get(o) elseif o.kind == '1' then put(o) else delete(o) end
end
reply[3] = call('GET', P .. 'rev') or '0'
if writes then return done(reply) end
finish()
return reply
