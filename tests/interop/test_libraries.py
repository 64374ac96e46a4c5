"""The pool behind the libraries that take executors: each against the real library."""

import asyncio
import concurrent.futures
import io
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import filch


@pytest.fixture
def pool() -> Iterator[filch.Pool]:
    with filch.Pool(max_workers=3) as pool:
        yield pool


def square(number: int) -> int:
    return number * number


def test_dask_takes_it_as_scheduler(pool: filch.Pool) -> None:
    """dask's local scheduler refuses the pool, or loses a task of the graph."""
    dask = pytest.importorskip("dask")
    total = dask.delayed(sum)([dask.delayed(square)(number) for number in range(40)])
    assert dask.compute(total, scheduler=pool)[0] == sum(map(square, range(40)))


def test_dask_takes_it_from_its_configuration(pool: filch.Pool) -> None:
    """`dask.config.set(pool=...)` does not reach the threaded scheduler."""
    dask = pytest.importorskip("dask")
    threaded = pytest.importorskip("dask.threaded")
    names: set[str] = set()

    def where(number: int) -> int:
        names.add(threading.current_thread().name.rpartition("_")[0])
        return number

    with dask.config.set(pool=pool, scheduler="threads"):
        assert dask.compute(*[dask.delayed(where)(number) for number in range(20)]) == tuple(range(20))
    assert names == {"filch"}
    assert threaded.get({"a": 1, "b": (square, "a")}, "b", pool=pool) == 1


def test_tqdm_counts_each_call() -> None:
    """tqdm replaces `submit` on the instance and calls `map`: the bar stays at zero."""
    concurrent_map = pytest.importorskip("tqdm.contrib.concurrent")
    monitor = pytest.importorskip("tqdm").tqdm
    monitor.monitor_interval = 0  # its watching thread would be left over
    out = io.StringIO()
    found = concurrent_map._executor_map(filch.Pool, square, range(30), max_workers=2, file=out, mininterval=0)
    assert found == [square(number) for number in range(30)]
    # A result may be there before its callback has counted it; and without the GIL, tqdm itself may lose a count.
    assert max(int(count) for count in re.findall(r"(\d+)/30 ", out.getvalue())) >= 25


def joblib_backend(joblib_parallel: Any) -> type:
    """A joblib backend that runs its batches on a pool; nested calls get a backend of their own."""

    class Backend(joblib_parallel.AutoBatchingMixin, joblib_parallel.ParallelBackendBase):  # type: ignore[misc]
        supports_retrieve_callback = True
        supports_sharedmem = True
        uses_threads = True
        supports_timeout = True

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            return 2 if n_jobs in (None, -1) else max(1, n_jobs or 1)

        def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
            self.parallel = parallel
            self.pool = filch.Pool(max_workers=self.effective_n_jobs(n_jobs))
            return self.effective_n_jobs(n_jobs)

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = self.pool.submit(func)
            if callback is not None:
                future.add_done_callback(callback)
            return future

        def retrieve_result_callback(self, future: Any) -> Any:
            return future.result()

        def get_nested_backend(self) -> tuple[Any, None]:
            return type(self)(nesting_level=(self.nesting_level or 0) + 1), None

        def abort_everything(self, ensure_ready: bool = True) -> None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            if ensure_ready:
                self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

        def terminate(self) -> None:
            self.pool.shutdown()

    return Backend


def test_joblib_runs_on_it_nested_too() -> None:
    """A joblib backend over the pool loses results, errors, or hangs when calls are nested."""
    joblib = pytest.importorskip("joblib")
    joblib.register_parallel_backend("filch", joblib_backend(joblib.parallel))
    with joblib.parallel_config(backend="filch", n_jobs=2):
        delayed, parallel = joblib.delayed, joblib.Parallel
        assert parallel()(delayed(square)(number) for number in range(40)) == list(map(square, range(40)))
        nested = parallel()(
            delayed(lambda count: sum(parallel()(delayed(square)(number) for number in range(count))))(5)
            for _ in range(4)
        )
        assert nested == [30] * 4
        with pytest.raises(ZeroDivisionError):
            parallel()(delayed(lambda number: 1 // (number - 7))(number) for number in range(20))


def test_more_executors_layers_over_it(pool: filch.Pool) -> None:
    """Retries and maps of more-executors do not work on the pool's futures."""
    more_executors = pytest.importorskip("more_executors")
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return "ok"

    policy = more_executors.ExceptionRetryPolicy(sleep=0.01)
    with more_executors.Executors.with_retry(filch.Pool(max_workers=2), retry_policy=policy).with_map(str.upper) as ex:
        assert ex.submit(flaky).result(20) == "OK"
    assert len(tries) == 3


def test_asyncio_runs_calls_in_it(pool: filch.Pool) -> None:
    """run_in_executor, wrap_future and awaiting a future do not give the results."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(pool, square, number) for number in range(50)]
        assert await asyncio.gather(*calls) == list(map(square, range(50)))
        assert await asyncio.wrap_future(pool.submit(square, 3)) == 9
        assert await pool.submit(square, 4) == 16
        with pytest.raises(ZeroDivisionError):
            await pool.submit(divmod, 1, 0)

    asyncio.run(main())


def test_asyncio_takes_it_as_default_executor() -> None:
    """set_default_executor insists on a ThreadPoolExecutor; asyncio.run then shuts it down."""
    pool = filch.Pool(max_workers=2)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(pool)
        assert await asyncio.to_thread(square, 4) == 16
        assert await asyncio.to_thread(lambda: threading.current_thread().name.startswith("filch"))
        assert await loop.getaddrinfo("127.0.0.1", 80)

    asyncio.run(main())
    with pytest.raises(filch.PoolShutdown):
        pool.submit(square, 1)


def test_a_cancelled_await_takes_its_call_out_of_the_queue() -> None:
    """A call whose awaiting task was cancelled while it was queued runs all the same."""
    ran: list[int] = []
    with filch.Pool(max_workers=1) as pool:
        gate = threading.Event()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            held = loop.run_in_executor(pool, gate.wait, 20)
            queued = asyncio.ensure_future(loop.run_in_executor(pool, ran.append, 1))
            await asyncio.sleep(0)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            await asyncio.sleep(0)  # only then has the loop told the pool's future
            gate.set()
            await held

        asyncio.run(main())
    assert ran == []


def test_futures_of_two_kinds_wait_together(pool: filch.Pool) -> None:
    """wait() and as_completed() over futures of both kinds, in many threads, lock each other out."""
    with concurrent.futures.ThreadPoolExecutor(2) as standard:
        errors: list[BaseException] = []

        def watch() -> None:
            try:
                futures = [executor.submit(square, n) for n in range(20) for executor in (pool, standard)]
                done, rest = concurrent.futures.wait(futures[::-1], timeout=20)
                assert (len(done), len(rest)) == (40, 0)
                assert len(list(concurrent.futures.as_completed(futures, timeout=20))) == 40
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=watch) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        assert not errors
