"""Pools of threads: `Pool`, its views and what belongs to them."""

from filch._kernel import Future, blocking, checkpoint, isolate
from filch.pool.cpus import default_workers
from filch.pool.default import current_pool, default_pool, spawn
from filch.pool.options import View
from filch.pool.pool import Pool
from filch.pool.statistics import PoolStatistics

__all__ = [
    "Future",
    "Pool",
    "PoolStatistics",
    "View",
    "blocking",
    "checkpoint",
    "current_pool",
    "default_pool",
    "default_workers",
    "isolate",
    "spawn",
]
