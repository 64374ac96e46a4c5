"""What `Pool.statistics()` gives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot of a pool.  Counts are of tasks, threads or events since the pool was made; none is ever reset.

    kernel: `native` or `pure`
    max_workers: tasks that may run at once
    threads: threads alive, those that wait inside a task included
    threads_idle: threads without a task
    tasks_submitted, tasks_running, tasks_queued: tasks; the calls of one `map` are carried by a few of them
    tasks_spilled: moved to the injector because a local deque was full
    steals: times that a thief took something; tasks_stolen: what it took in all
    parks, wakes: times that a worker went to sleep without work, and was called
    handoffs: times that a blocked worker gave its processor away
    threads_started: threads that were started
    """

    kernel: str
    max_workers: int
    threads: int
    threads_idle: int
    tasks_submitted: int
    tasks_running: int
    tasks_queued: int
    tasks_spilled: int
    steals: int
    tasks_stolen: int
    parks: int
    wakes: int
    handoffs: int
    threads_started: int
