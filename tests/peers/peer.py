"""One limiter of the package `limits`, driven like those of src/main.rs: `trace NAME LIMIT
WINDOW_S`, `cost NAME N` and `memory NAME KEYS`. Its clock is replaced for a trace."""

import sys
import time
import tracemalloc

from limits import RateLimitItemPerSecond, storage, strategies

STRATEGIES = {
    "limits-fixed": strategies.FixedWindowRateLimiter,
    "limits-moving": strategies.MovingWindowRateLimiter,
    "limits-sliding": strategies.SlidingWindowCounterRateLimiter,
}


def limiter(name, limit, window):
    strategy = STRATEGIES[name](storage.MemoryStorage())
    item = RateLimitItemPerSecond(limit, window)
    return lambda key: strategy.hit(item, key)


def trace(name, limit, window):
    now = 1_000_000_000.0
    time.time = lambda: now
    admits = limiter(name, limit, window)
    decided = []
    for line in sys.stdin:
        nanos, key = line.split()
        now = 1_000_000_000.0 + int(nanos) / 1e9
        decided.append("1" if admits(key) else "0")
    print("".join(decided))


def cost(name, count):
    admits = limiter(name, 1000, 60)
    for i in range(count):
        assert admits(f"client-{i % 1000}"), "no request is denied"
    print(int(time.process_time() * 1e9))


def memory(name, keys):
    tracemalloc.start()
    admits = limiter(name, 1000, 60)
    for i in range(keys):
        admits(f"client-{i}")
    print(tracemalloc.get_traced_memory()[0])


kind, name, *numbers = sys.argv[1:]
{"trace": trace, "cost": cost, "memory": memory}[kind](name, *map(int, numbers))
