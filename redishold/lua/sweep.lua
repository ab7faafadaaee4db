-- Does a page of the work that is left over, and looks at a page of names with a
-- prefix, behind a name: with ARGV[3] '1' the limits of semaphores and barriers that
-- nobody holds or awaits are removed. It tells how many were, behind which name to go
-- on ('': that was the last, unless work is left over), and whether work is left over.
local prefix, after, limits = ARGV[1], ARGV[2], ARGV[3] == '1'
regardless()
sweep(PAGE)
local from, to = '[' .. prefix, '(' .. prefix .. '\255'
if prefix == '' then from, to = '-', '+' end
if after ~= '' then from = '(' .. after end
local names, removed, next = call('ZRANGEBYLEX', P .. 'names', from, to, 'LIMIT', 0, PAGE + 1), 0, ''
for i, n in ipairs(names) do
  if i > PAGE or work <= 0 or not tidy(n) then
    next = names[i - 1] or after
    break
  end
  local k = tonumber(call('HGET', P .. 'r:' .. n, 'k') or '0')
  if limits and (k == 3 or k == 6) and call('EXISTS', P .. 'h:' .. n, P .. 'q:' .. n) == 0 then
    call('DEL', P .. 'r:' .. n)
    call('ZREM', P .. 'names', n)
    tick()
    event(KIND[k], 'deleted', n, 0, '', 0, 0, '', '', '', 0, 0)
    removed = removed + 1
  end
end
finish()
return {'ok', int(removed), next, (behind or stale) and '1' or '0'}
