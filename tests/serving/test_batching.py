"""Which requests share a call of the model."""

import asyncio
import threading

import numpy as np

from ddl_magics.serving.process.batching import BATCH_ROWS, Batcher


def test_requests_that_come_meanwhile_share_a_call_of_bounded_size_and_one_alone_waits_for_none():
    sizes, busy, free = [], threading.Event(), threading.Event()

    def call(arrays):
        sizes.append(len(arrays["x"]))
        busy.set()
        assert free.wait(10)
        return {"y": arrays["x"] * 2}

    async def ask():
        batcher = Batcher(call)

        def asked(rows, value):
            return asyncio.create_task(batcher.predict({"x": np.full((rows, 1), value)}, rows))

        alone = asked(1, 1.0)
        await asyncio.to_thread(busy.wait, 10)
        assert sizes == [1], "it waits for no other"
        waiting = [asked(400, float(value)) for value in range(2, 5)] + [asked(2500, 9.0)]
        await asyncio.sleep(0.1)
        free.set()
        answers = await asyncio.wait_for(asyncio.gather(alone, *waiting), 10)
        batcher.close()
        return answers

    answers = asyncio.run(ask())
    assert [float(answer["y"][0, 0]) for answer in answers] == [2.0, 4.0, 6.0, 8.0, 18.0]
    assert [len(answer["y"]) for answer in answers] == [1, 400, 400, 400, 2500]
    assert sizes == [1, 800, 400, BATCH_ROWS, BATCH_ROWS, 2500 - 2 * BATCH_ROWS] and max(sizes) <= 1024


def test_a_request_that_fails_costs_no_other_its_answer():
    def call(arrays):
        if (arrays["x"] < 0).any():
            raise ValueError("below zero")
        return {"y": arrays["x"]}

    async def ask():
        batcher = Batcher(call)
        tasks = [batcher.predict({"x": np.float32([[value]])}, 1) for value in (1, -1, 2)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, failed, last = asyncio.run(ask())
    assert (first["y"].item(), str(failed), last["y"].item()) == (1.0, "below zero", 2.0)
