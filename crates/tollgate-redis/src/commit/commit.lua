-- Compare-and-swap, and the engine's clock. Knows nothing of quotas.
-- KEYS[1]: the key. ARGV: the expected bytes, or "" for none; the new bytes; their life in
-- milliseconds, 0 to delete the key, -1 to keep what is there; the time it was decided at in
-- milliseconds; by how much the clock may differ from that; the number of this call.
-- Reply: 0 done, 1 other bytes stand there, 2 the times differ; seconds; microseconds; the bytes
-- unless it is done; the number, so that it cannot be taken for the reply to another call.
local time = redis.call('TIME')
local stands = redis.call('GET', KEYS[1]) or ''
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if math.abs(now - ARGV[4]) > tonumber(ARGV[5]) then
    return {2, time[1], time[2], stands, ARGV[6]}
end
if stands ~= ARGV[1] then
    return {1, time[1], time[2], stands, ARGV[6]}
end
if ARGV[3] == '0' then
    redis.call('DEL', KEYS[1])
elseif ARGV[3] ~= '-1' then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return {0, time[1], time[2], ARGV[6]}
