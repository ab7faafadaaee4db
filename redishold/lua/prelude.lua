-- Shared by all scripts: time, revisions, events, and the life of claims,
-- sessions and keys. KEYS[1] is the prefix with its hash tag; every key begins
-- with it, so that all live in one slot. See ../doc.go for the keys.
local P, call, sub = KEYS[1], redis.call, string.sub
local T = call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
local due = P .. 'due'
local first, rev, out, size = nil, nil, {}, 0

-- GONE is what a counter is for a while after it was deleted: a client that
-- adds to it without a script is told that it is no number.
local GONE = 'gone'

-- regardless lets a script go on although the server's memory is full: Redis
-- refuses one that takes memory only at its first write, and this one takes none.
-- It is for what keeps or frees what is there.
local function regardless() call('DEL', P .. '-') end

local function int(x) return string.format('%.0f', x) end

-- tick takes the next revision. A store that was never used, or was wiped,
-- begins where the clock is: 2^20 for every second, so about one for every
-- microsecond, which is more than a server can take. So no token comes twice.
local function tick()
  rev = call('INCR', P .. 'rev')
  if rev < 1048576 then
    rev = T[1] * 1048576 + math.floor(T[2] * 1.048576)
    call('SET', P .. 'rev', int(rev))
  end
  first = first or rev
  return rev
end

local function emit(...)
  for i = 1, select('#', ...) do
    local v = select(i, ...)
    if type(v) == 'number' then v = int(v) end
    size = size + 1
    out[size] = #v .. ':' .. v
  end
end

-- event tells what happened at the revision taken last. kvs are none, the key
-- as it is, or the key as it is and as it was.
local function event(kind, verb, name, token, owner, mode, weight, sid, value, reason, number, kvs)
  emit(rev, kind, verb, name, token, owner, mode, weight, sid, value, reason, number, kvs)
end

-- finish publishes what happened as one message that says which revisions it
-- covers: a reader sees every gap.
local function finish()
  if first then
    local a, b = int(first), int(rev)
    call('PUBLISH', P .. 'ev', #a .. ':' .. a .. #b .. ':' .. b .. table.concat(out))
  end
end

local KIND = {'lock', 'rwlock', 'semaphore', 'election', 'latch', 'barrier'}
local ALL = 1125899906842624 -- 2^50: what a writer takes of a reader-writer lock

-- units is what a claim takes of its resource's limit.
local function units(c)
  if c.k == 2 and c.m == 0 then return ALL end
  if c.k > 4 then return 0 end
  return c.w
end

local function claim(id)
  local f = call('HMGET', P .. 'c:' .. id, 'n', 'k', 'm', 'w', 's', 't', 'at', 'v', 'cr', 'mo', 've', 'ch', 'x')
  if not f[1] then return nil end
  return {id = id, n = f[1], k = tonumber(f[2]), m = tonumber(f[3]), w = tonumber(f[4]), s = f[5], t = tonumber(f[6]),
    at = tonumber(f[7]), v = f[8], cr = f[9], mo = f[10], ve = f[11], ch = f[12], x = f[13]}
end

local function tell(c, verb)
  event(KIND[c.k], verb, c.n, c.t, call('HGET', P .. 's:' .. c.s, 'o') or '', c.m, c.w, c.s, c.v, c.reason or '', 0, 0)
end

-- grant makes a claim a hold with a token of its own.
local function grant(c)
  c.t = tick()
  local t = int(c.t)
  if c.cr == '0' then c.cr = t end
  call('HSET', P .. 'c:' .. c.id, 'n', c.n, 'k', c.k, 'm', c.m, 'w', int(c.w), 's', c.s, 't', t, 'at', int(now), 'v', c.v,
    'cr', c.cr, 'mo', t, 've', 1, 'ch', c.ch)
  call('ZADD', P .. 'h:' .. c.n, t, c.id)
  call('HINCRBY', P .. 'r:' .. c.n, 'u', int(units(c)))
  tell(c, 'acquired')
end

-- serve grants a claim that waited, and tells its client.
local function serve(c)
  call('ZREM', P .. 'q:' .. c.n, c.id)
  grant(c)
  call('PUBLISH', P .. 'to:' .. c.ch, 'g ' .. c.id .. ' ' .. int(c.t))
end

-- head is the first in the queue that still is.
local function head(name)
  while true do
    local q = call('ZRANGE', P .. 'q:' .. name, 0, 0)
    if not q[1] then return nil end
    local c = claim(q[1])
    if c then return c end
    call('ZREM', P .. 'q:' .. name, q[1])
  end
end

-- settle grants all at the head of the queue that fit now, and forgets a name
-- that nobody holds or awaits, unless it has a limit to remember.
local function settle(name)
  local r = call('HMGET', P .. 'r:' .. name, 'k', 'l', 'u', 'f')
  if not r[1] then return end
  local k, l, u = tonumber(r[1]), tonumber(r[2]), tonumber(r[3])
  if k == 6 or (k == 5 and tonumber(r[4]) > 0) then return end
  local c = head(name)
  while c and u + units(c) <= l do
    u = u + units(c)
    serve(c)
    c = head(name)
  end
  if not c and u == 0 and (k < 3 or k == 4) then
    call('DEL', P .. 'r:' .. name)
    call('ZREM', P .. 'names', name)
  end
end

-- drop ends a claim, waiting or granted.
local function drop(c, verb, reason)
  call('DEL', P .. 'c:' .. c.id)
  call('HDEL', P .. 's:' .. c.s, 'c' .. c.id)
  if c.t > 0 then
    if c.x then call('ZREM', due, 'r' .. c.id) end
    call('ZREM', P .. 'h:' .. c.n, c.id)
    call('HINCRBY', P .. 'r:' .. c.n, 'u', int(-units(c)))
    tick()
    c.reason = reason
    tell(c, verb)
  else
    call('ZREM', P .. 'q:' .. c.n, c.id)
  end
  settle(c.n)
end

-- folded is the value of a mutex that was taken by quick_acquire: who, session,
-- channel, token and time.
local function folded(name)
  local v = call('GET', P .. 'm:' .. name)
  if v then return string.match(v, '^(%S+) (%S+) (%S+) (%S+) (%S+)$') end
end

local function alive(sid) return call('ZSCORE', due, 's' .. sid) end

-- unfold gives a mutex that was taken by quick_acquire the keys that every other
-- hold has, and returns the claim's id. by is a session that is being ended, and
-- no other's is unfolded then. What a session without a life of its own has is
-- nobody's.
local function unfold(name, by)
  local id, sid, ch, t, at = folded(name)
  if not id or (by and by ~= sid) then return nil end
  call('DEL', P .. 'm:' .. name)
  if not by and not alive(sid) then return nil end
  call('HSET', P .. 's:' .. sid, 'c' .. id, 1)
  call('HSET', P .. 'c:' .. id, 'n', name, 'k', 1, 'm', 0, 'w', 1, 's', sid, 't', t, 'at', at, 'v', '', 'cr', t, 'mo', t, 've', 1, 'ch', ch)
  call('HSET', P .. 'r:' .. name, 'k', 1, 'l', 1, 'u', 1, 'f', 1, 'cr', t)
  call('ZADD', P .. 'names', 0, name)
  call('ZADD', P .. 'h:' .. name, t, id)
  return id
end

-- usedAs is what kind a name is, as the text of a number, or nil.
local function usedAs(name)
  unfold(name)
  local k = call('HGET', P .. 'r:' .. name, 'k')
  if k then return k end
  for _, v in ipairs({call('GET', P .. 'n:' .. name), call('GET', P .. 'u:' .. name)}) do
    if v and v ~= GONE then return '7' end
  end
  if call('EXISTS', P .. '#:' .. name) > 0 then return '8' end
end

local function key(name)
  local f = call('HMGET', P .. 'k:' .. name, 'v', 'cr', 'mo', 've', 's', 'x')
  if not f[2] then return nil end
  return {name = name, v = f[1], cr = tonumber(f[2]), mo = tonumber(f[3]), ve = tonumber(f[4]), s = f[5], x = f[6]}
end

-- left is the time to a key's own expiry in milliseconds.
local function left(k)
  if k.x == '' then return 0 end
  return tonumber(k.x) - now
end

local function unbind(k)
  if k.s ~= '' then call('HDEL', P .. 's:' .. k.s, 'k' .. k.name) end
  if k.x ~= '' then call('ZREM', due, 'k' .. k.name) end
end

-- remove deletes a key, at the revision taken last.
local function remove(k, reason)
  call('DEL', P .. 'k:' .. k.name)
  call('ZREM', P .. 'keys', k.name)
  unbind(k)
  event('kv', 'delete', k.name, 0, '', 0, 0, k.s, '', reason, 0, 2)
  emit(k.name, k.v, k.cr, k.mo, k.ve, k.s, left(k))
  emit(k.name, k.v, k.cr, k.mo, k.ve, k.s, left(k))
end

-- finishSession ends a session with all that hangs on it.
local function finishSession(sid, verb, fate, reason)
  local S = P .. 's:' .. sid
  local owner, fields = call('HGET', S, 'o') or '', call('HKEYS', S)
  call('ZREM', due, 's' .. sid)
  for _, f in ipairs(fields) do
    local kind, id = sub(f, 1, 1), sub(f, 2)
    if kind == 'l' then kind, id = 'c', unfold(id, sid) end
    if kind == 'c' then
      local c = id and claim(id)
      if c then drop(c, fate, reason) end
    elseif kind == 'k' then
      local k = key(id)
      if k then
        tick()
        remove(k, 'session')
      end
    end
  end
  call('DEL', S, P .. 'x:' .. sid)
  call('SREM', P .. 'sessions', sid)
  tick()
  event('session', verb, sid, 0, owner, 0, 0, sid, '', '', 0, 0)
end

-- KEPT is for how long, in milliseconds, answers, wishes that were taken back and
-- deleted counters are remembered. They are in the list of deadlines like everything
-- else: a server may evict keys that have an expiry of their own (volatile-*).
local KEPT = 600000

local function remember(kind, id) call('ZADD', due, int(now + KEPT), kind .. id) end

local function forget(kind, id)
  if kind == 'w' then
    call('UNLINK', P .. 'w:' .. id)
  elseif kind == 'z' then
    if call('HEXISTS', P .. 'c:' .. id, 'z') == 1 then call('DEL', P .. 'c:' .. id) end
  elseif call('GET', P .. id) == GONE then
    call('DEL', P .. id)
  end
end

-- sweep ends what is past its deadline by the server's clock. Every script that
-- looks at claims or keys does it first: nobody sees the dead.
local function sweep()
  while true do
    local d = call('ZRANGEBYSCORE', due, '-inf', int(now), 'LIMIT', 0, 100)
    if not d[1] then return end
    for _, m in ipairs(d) do
      local kind, id = sub(m, 1, 1), sub(m, 2)
      call('ZREM', due, m)
      if kind == 's' then
        finishSession(id, 'expired', 'expired', 'session')
      elseif kind == 'k' then
        local k = key(id)
        if k then
          tick()
          remove(k, 'timeout')
        end
      elseif kind == 'r' then
        local c = claim(id)
        if c then drop(c, 'expired', 'revoked') end
      else
        forget(kind, id)
      end
    end
  end
end

-- about is a claim as people are told of it. It returns about how many bytes that is.
local function about(list, c)
  local s = call('HMGET', P .. 's:' .. c.s, 'o', 'm')
  local ends = tonumber(alive(c.s) or now)
  if c.x then ends = math.min(ends, tonumber(call('ZSCORE', due, 'r' .. c.id) or ends)) end
  for _, v in ipairs({int(c.m), int(c.w), int(c.t), s[1] or '', s[2] or '', c.s, c.v, c.cr, c.mo, c.ve,
    int(math.max(now - c.at, 0)), int(math.max(ends - now, 0)), c.x or ''}) do
    list[#list + 1] = v
  end
  return 128 + #(s[1] or '') + #(s[2] or '') + #c.v
end

-- What one answer tells at most, of claims, keys and names that are looked at, and
-- about how many bytes.
local CLAIMS, LOOKS, BYTES = 1000, 10000, 1048576

-- crowd appends the claims of a sorted set behind a score ('': all), their number
-- first: as many as most and room allow, which it lowers, but one if most is not 0.
-- It returns how many there are, the score of the last, and whether there are more.
local function crowd(list, set, from, most, room)
  local ids = call('ZRANGEBYSCORE', set, from == '' and '-inf' or '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, most + 1)
  local place, n, more = #list + 1, 0, #ids / 2 > most
  list[place] = '0'
  for i = 1, #ids, 2 do
    local c = claim(ids[i])
    if n == most or (n > 0 and room.bytes <= 0) then
      more = true
      break
    end
    from = ids[i + 1]
    if c then
      room.bytes = room.bytes - about(list, c)
      n = n + 1
    end
  end
  list[place] = int(n)
  return n, from, more
end

-- held is the answer to who is refused because others hold the name.
local function held(name)
  local list = {'held', int(call('ZCARD', P .. 'q:' .. name))}
  crowd(list, P .. 'h:' .. name, '', 16, {bytes = BYTES})
  return list
end
