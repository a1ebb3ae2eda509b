"""The same sweep on a cluster of two workers: the same rows, also when a worker is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import llmcalc.parameter_sweep as engine
from llmcalc.errors import InputError
from llmcalc.parameter_sweep import Sweep, sweep
from llmcalc.sweep_output import Made, local_blocks

distributed = pytest.importorskip("distributed")


def asked() -> Sweep:
    return sweep(model="llama3-8b", gpu="rtx4090,rtx3090", quant="q4", ctx="1M", occupied="0..400k+1", columns=COLUMNS)


COLUMNS = ("devices", "occupied", "decode_tokens_per_s", "fits")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0, silence_logs=50
    ) as made:
        yield made


def text(blocks: Iterator[Made]) -> bytes:
    return b"".join(made.data for made in blocks if isinstance(made.data, bytes))


@pytest.mark.slow
def test_same_rows_and_no_block_lost_with_a_worker(cluster: Any) -> None:
    from llmcalc.sweep_dask import connect, dask_blocks

    one = asked()
    expected = text(local_blocks(one, "csv"))
    assert one.block_count == 2 * -(-409_601 // engine.ROWS)
    client = connect(cluster.scheduler_address)
    assert text(dask_blocks(one, "csv", client)) == expected

    killed = []

    def kill_one(blocks: Iterator[Made]) -> Iterator[Made]:
        for made in blocks:
            if not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)
            yield made

    assert text(kill_one(dask_blocks(one, "csv", client))) == expected
    assert killed
    assert text(dask_blocks(one, "csv", client, first=2)) == text(local_blocks(one, "csv", 2))
    client.close()


def test_nobody_answers() -> None:
    from llmcalc.sweep_dask import connect

    with pytest.raises(InputError, match="does not answer"):
        connect("nonsense://here")
