-- Shared by all scripts: time, revisions, events, and the life of claims,
-- sessions and keys. KEYS[1] is the prefix with its hash tag; every key begins
-- with it, so that all live in one slot. See ../doc.go for the keys.
local P, call, sub = KEYS[1], redis.call, string.sub
local T = call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
local due = P .. 'due'
local first, rev, out, size = nil, nil, {}, 0

-- One script keeps everybody else waiting, so that none does more than a page of
-- work for others: claims, keys or sessions that it ends or grants. work is how much
-- it may still do, behind whether something is left that has ended and is still
-- there: then what is looked at may be of a session that is over.
local PAGE = 128
local work, behind = PAGE, true
local ended, todo = P .. 'ended', P .. 'todo'

-- outdated are the epochs of limiters that are over. Keys that never end by themselves
-- (limit.lua) are listed with their epoch, and removed with it; stale is whether some are left.
local outdated, stale = P .. 'outdated', false

-- GONE is what a counter is for a while after it was deleted: a client that
-- adds to it without a script is told that it is no number.
local GONE = 'gone'

-- regardless lets a script go on although the server's memory is full: Redis
-- refuses one that takes memory only at its first write, and this one takes none.
-- It is for what keeps or frees what is there.
local function regardless() call('DEL', P .. '-') end

-- clearing comes before whatever a script clears away for others. Redis lets it do
-- everything from then on; so full is asked for first, by a write that changes nothing:
-- the server's refusal if its memory is full, else nil. What is new is answered with it.
local cleared, full = false, nil
local function clearing()
  if cleared then return end
  cleared = true
  local r = redis.pcall('SET', P .. '-', '', 'XX')
  if type(r) ~= 'table' or not r.err or not string.find(r.err, 'OOM', 1, true) then return end
  full = r
  regardless()
end

local function int(x) return string.format('%.0f', x + 0) end -- + 0: of -0 it would be '-0', which is no integer

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

-- refused is the answer to what is new while the memory is full: nothing of it was done.
local function refused()
  finish()
  return full
end

-- watched notes that somebody watches for some milliseconds to come. false: that was not
-- known, and changes were not published meanwhile. A revision that no message covers
-- shows that gap to all that watched before, not only to the first that comes back.
local function watched(ms)
  if call('SET', P .. 'watch', '1', 'PX', ms, 'GET') then return true end
  call('INCR', P .. 'rev')
  tick()
  return false
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

-- alive is the deadline of a session that has one to come.
local function alive(sid)
  local d = call('ZSCORE', due, 's' .. sid)
  if d and tonumber(d) > now then return d end
end

-- owner is that of a session, also of one that has ended.
local function owner(sid)
  return call('HGET', P .. 's:' .. sid, 'o') or call('HGET', P .. 'e:' .. sid, 'o') or ''
end

-- dead (has ended): the claim's session is over, or its own time is.
local function dead(c)
  if not behind then return false end
  if not alive(c.s) then return true end
  local ends = c.x and call('ZSCORE', due, 'r' .. c.id)
  return ends and tonumber(ends) <= now
end

-- fate is what becomes of things of a session that is over: verb and reason.
local function fate(sid)
  if call('HGET', P .. 'e:' .. sid, 'f') == 'ended' then return 'released', '' end
  return 'expired', 'session'
end

local function tell(c, verb)
  event(KIND[c.k], verb, c.n, c.t, owner(c.s), c.m, c.w, c.s, c.v, c.reason or '', 0, 0)
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
  work = work - 1
end

-- serve grants a claim that waited, and tells its client.
local function serve(c)
  call('ZREM', P .. 'q:' .. c.n, c.id)
  grant(c)
  call('PUBLISH', P .. 'to:' .. c.ch, 'g ' .. c.id .. ' ' .. int(c.t))
end

-- queuedAndPassed: the claim has passed a barrier, and has yet to be told; such claims are the first
-- in its queue.
local function queuedAndPassed(c)
  local passed = c.k == 6 and tonumber(call('HGET', P .. 'r:' .. c.n, 'g') or '0') or 0
  local rank = passed > 0 and call('ZRANK', P .. 'q:' .. c.n, c.id)
  return rank and rank < passed
end

-- unlink ends a claim, waiting or granted, and leaves its place to nobody yet.
local function unlink(c, verb, reason)
  clearing()
  work = work - 1
  call('DEL', P .. 'c:' .. c.id)
  call('HDEL', P .. 's:' .. c.s, 'c' .. c.id)
  if c.t > 0 then
    if c.x then call('ZREM', due, 'r' .. c.id) end
    call('ZREM', P .. 'h:' .. c.n, c.id)
    call('HINCRBY', P .. 'r:' .. c.n, 'u', int(-units(c)))
    tick()
    c.reason = reason
    if c.forced then tell(c, 'revoked') end -- its end is told at the same revision
    tell(c, verb)
    return
  end
  if queuedAndPassed(c) then call('HINCRBY', P .. 'r:' .. c.n, 'g', -1) end
  call('ZREM', P .. 'q:' .. c.n, c.id)
end

-- bury ends a claim that is past its end.
local function bury(c)
  if alive(c.s) then return unlink(c, 'expired', 'revoked') end
  unlink(c, fate(c.s))
end

-- head is the first in the queue that still is. false: there is more to clear away
-- than may be done now.
local function head(name)
  while true do
    local q = call('ZRANGE', P .. 'q:' .. name, 0, 0)
    if not q[1] then return nil end
    local c = claim(q[1])
    if c and not dead(c) then return c end
    clearing()
    if work <= 0 then return false end
    if c then bury(c) else call('ZREM', P .. 'q:' .. name, q[1]) end
  end
end

-- settle grants all at the head of the queue that fit now, and forgets a name
-- that nobody holds or awaits, unless it has a limit to remember. false: it could
-- not finish, and somebody will.
local function settle(name)
  local R = P .. 'r:' .. name
  local r = call('HMGET', R, 'k', 'l', 'u', 'f', 'g')
  if not r[1] then return true end
  local k, l, u, passed = tonumber(r[1]), tonumber(r[2]), tonumber(r[3]), tonumber(r[5] or '0')
  if (k == 6 and passed == 0) or (k == 5 and tonumber(r[4]) > 0) then return true end
  local c = head(name)
  while c and work > 0 and u + units(c) <= l do
    u = u + units(c)
    serve(c)
    if k == 6 then passed = call('HINCRBY', R, 'g', -1) end
    if k == 6 and passed == 0 then return true end
    c = head(name)
  end
  if c == false or (c and u + units(c) <= l) then
    call('SADD', todo, name)
    return false
  end
  if not c and u == 0 and (k < 3 or k == 4) then
    call('DEL', R)
    call('ZREM', P .. 'names', name)
  end
  return true
end

-- drop ends a claim, and grants what that frees.
local function drop(c, verb, reason)
  unlink(c, verb, reason)
  settle(c.n)
end

-- folded is the value of a mutex that was taken by quick_acquire: owner, session,
-- channel, token and time.
local function folded(name)
  local v = call('GET', P .. 'm:' .. name)
  if v then return string.match(v, '^(%S+) (%S+) (%S+) (%S+) (%S+)$') end
end

-- expireFolded ends a mutex that was taken by quick_acquire by a session that is
-- over. Nobody waits for it: they would have unfolded it. What a session has that
-- nobody knows is nobody's.
local function expireFolded(name, sid, t)
  call('DEL', P .. 'm:' .. name)
  if call('EXISTS', P .. 's:' .. sid, P .. 'e:' .. sid) == 0 then return end
  local verb, reason = fate(sid)
  tick()
  event('lock', verb, name, t, owner(sid), 0, 1, sid, '', reason, 0, 0)
end

-- unfold gives a mutex that was taken by quick_acquire the keys that every other
-- hold has.
local function unfold(name)
  local id, sid, ch, t, at = folded(name)
  if not id then return end
  clearing()
  if not alive(sid) then return expireFolded(name, sid, t) end
  call('DEL', P .. 'm:' .. name)
  call('HSET', P .. 's:' .. sid, 'c' .. id, 1)
  call('HSET', P .. 'c:' .. id, 'n', name, 'k', 1, 'm', 0, 'w', 1, 's', sid, 't', t, 'at', at, 'v', '', 'cr', t, 'mo', t, 've', 1, 'ch', ch)
  call('HSET', P .. 'r:' .. name, 'k', 1, 'l', 1, 'u', 1, 'f', 1, 'cr', t)
  call('ZADD', P .. 'names', 0, name)
  call('ZADD', P .. 'h:' .. name, t, id)
end

local function stored(name)
  local f = call('HMGET', P .. 'k:' .. name, 'v', 'cr', 'mo', 've', 's', 'x')
  if not f[2] then return nil end
  return {name = name, v = f[1], cr = tonumber(f[2]), mo = tonumber(f[3]), ve = tonumber(f[4]), s = f[5], x = f[6]}
end

-- gone is why a key is no more, although it is still there.
local function gone(k)
  if not behind then return false end
  return k.x ~= '' and tonumber(k.x) <= now and 'timeout' or k.s ~= '' and not alive(k.s) and 'session'
end

-- key is one that still is.
local function key(name)
  local k = stored(name)
  if k and not gone(k) then return k end
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
  work = work - 1
  call('DEL', P .. 'k:' .. k.name)
  call('ZREM', P .. 'keys', k.name)
  unbind(k)
  event('kv', 'delete', k.name, 0, '', 0, 0, k.s, '', reason, 0, 2)
  emit(k.name, k.v, k.cr, k.mo, k.ve, k.s, left(k))
  emit(k.name, k.v, k.cr, k.mo, k.ve, k.s, left(k))
end

-- lapse removes a key that is no more, at a revision of its own.
local function lapse(name)
  local k = stored(name)
  local reason = k and gone(k)
  if not reason then return end
  clearing()
  tick()
  remove(k, reason)
end

-- retire ends a session at once, by its verb. What hangs on it has ended from then on,
-- and is cleared away in pages. Its hash has another name then: nothing new hangs on
-- it.
local function retire(sid, verb)
  work, behind = work - 1, true
  local S, E = P .. 's:' .. sid, P .. 'e:' .. sid
  call('ZREM', due, 's' .. sid)
  call('SREM', P .. 'sessions', sid)
  call('UNLINK', P .. 'x:' .. sid, P .. 'y:' .. sid)
  if call('EXISTS', S) == 0 then return end
  call('RENAME', S, E)
  call('HSET', E, 'f', verb)
  call('ZADD', ended, int(now), sid)
end

-- clear ends one thing that hung on a session, by its name there.
local function clear(sid, field, verb, reason)
  local kind, id = sub(field, 1, 1), sub(field, 2)
  if kind == 'c' then
    local c = claim(id)
    if c then drop(c, verb, reason) end
  elseif kind == 'l' then
    local _, holder, _, t = folded(id)
    if holder == sid then expireFolded(id, sid, t) end
  elseif kind == 'k' then
    lapse(id)
  end
  work = work - 1
end

-- clean clears away what hung on a session that was retired, and forgets it when
-- nothing is left. Its own fields have names of one byte, and are four.
local function clean(sid)
  local E, verb, reason = P .. 'e:' .. sid, fate(sid)
  while work > 0 do
    local fields, gone = call('HRANDFIELD', E, math.min(work, 100) + 4), {}
    for _, f in ipairs(fields) do
      if #f > 1 and work > 0 then
        clear(sid, f, verb, reason)
        gone[#gone + 1] = f
      end
    end
    if not gone[1] then
      local how, name = call('HGET', E, 'f') or 'expired', owner(sid)
      call('UNLINK', E)
      call('ZREM', ended, sid)
      tick()
      return event('session', how, sid, 0, name, 0, 0, sid, '', '', 0, 0)
    end
    call('HDEL', E, unpack(gone))
  end
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

-- pass ends something that is past its deadline.
local function pass(kind, id)
  work = work - 1
  if kind == 's' then
    retire(id, 'expired')
  elseif kind == 'k' then
    lapse(id)
  elseif kind == 'r' then
    local c = claim(id)
    if c then drop(c, 'expired', 'revoked') end
  else
    forget(kind, id)
  end
end

local function overdue(n)
  return call('ZRANGEBYSCORE', due, '-inf', int(now), 'LIMIT', 0, math.max(math.min(n, 100), 1))
end

-- outdate ends the epoch of a rate, and wipe does some of the work that this leaves. What
-- a key has used in a later epoch stays.
local function outdate(rate) call('SADD', outdated, sub(rate, 1, 32)) end

local function wipe()
  local epoch = call('SRANDMEMBER', outdated)
  while epoch and work > 0 do
    local listed = P .. 'I:' .. epoch
    for _, key in ipairs(call('SPOP', listed, math.min(work, 100))) do
      if sub(call('GET', P .. 'U:' .. key) or '', 1, 32) == epoch then call('DEL', P .. 'U:' .. key) end
      work = work - 1
    end
    if call('EXISTS', listed) == 0 then call('SREM', outdated, epoch) end
    epoch = call('SRANDMEMBER', outdated)
  end
  stale = epoch and true or false
end

-- sweep does some work of what is past its deadline by the server's clock, in the
-- order of deadlines, and of what sessions and queues have left to do. Every script
-- that looks at claims or keys does a little of it first. What it leaves has ended all
-- the same: nobody sees it.
local function sweep(some)
  work, behind = some, true
  local d = overdue(work)
  if d[1] then clearing() end
  while d[1] and work > 0 do
    for _, m in ipairs(d) do
      call('ZREM', due, m)
      pass(sub(m, 1, 1), sub(m, 2))
    end
    d = overdue(work)
  end
  if call('EXISTS', ended, todo, outdated) > 0 then
    clearing()
    local name = call('SRANDMEMBER', todo)
    while name and work > 0 do
      call('SREM', todo, name)
      settle(name)
      name = call('SRANDMEMBER', todo)
    end
    local sid = call('ZRANGE', ended, 0, 0)[1]
    while sid and work > 0 do
      clean(sid)
      sid = call('ZRANGE', ended, 0, 0)[1]
    end
    behind = (d[1] or name or sid) and true or false
    wipe()
  else
    behind = d[1] ~= nil
  end
  work = PAGE
end

-- LITTLE is how much of that every script does.
local LITTLE = 16

-- tidy sees to it that a name counts nobody that has ended. false: there is more to
-- clear away than one script may do; the same request is sent again.
local function tidy(name)
  if not behind then return true end
  local k = call('HGET', P .. 'r:' .. name, 'k')
  if not k then return true end
  local sets = {P .. 'h:' .. name, tonumber(k) > 4 and P .. 'q:' .. name or nil}
  local n = 0
  for _, set in ipairs(sets) do n = n + call('ZCARD', set) end
  if n > 2 * PAGE then
    sweep(PAGE)
    work = 0
    return not behind
  end
  work = work - math.ceil(n / 4) -- a look is less work than an end
  for _, set in ipairs(sets) do
    for _, id in ipairs(call('ZRANGE', set, 0, -1)) do
      local c = claim(id)
      if c and dead(c) then bury(c) end
    end
  end
  return settle(name)
end

-- usedAs is what kind a name is, as the text of a number, or nil; 'more': see tidy.
local function usedAs(name)
  unfold(name)
  if call('EXISTS', P .. 'r:' .. name) == 1 then
    if behind then sweep(LITTLE) end
    if not tidy(name) then return 'more' end
  end
  local k = call('HGET', P .. 'r:' .. name, 'k')
  if k then return k end
  for _, v in ipairs({call('GET', P .. 'n:' .. name), call('GET', P .. 'u:' .. name)}) do
    if v and v ~= GONE then return '7' end
  end
  if call('EXISTS', P .. '#:' .. name) > 0 then return '8' end
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
    if c and not dead(c) then
      room.bytes = room.bytes - about(list, c)
      n = n + 1
    end
  end
  list[place] = int(n)
  return n, from, more
end

-- held is the answer to a caller that is refused because others hold the name.
local function held(name)
  local list = {'held', int(call('ZCARD', P .. 'q:' .. name)), call('HGET', P .. 'r:' .. name, 'k') or '0'}
  crowd(list, P .. 'h:' .. name, '', 16, {bytes = BYTES})
  return list
end
