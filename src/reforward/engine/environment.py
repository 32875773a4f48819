"""The scrubbed environment of the server, of all workers and of loaders: equal for all arms."""

import os

SPINS = 10_000
"""About ten microseconds."""


def environment(threads: int) -> dict[str, str]:
    """Nothing of the caller's own comes along.

    Waiting OpenMP threads spin `SPINS` times, then sleep. One that spins for long holds a core that another
    worker, or the client, may need; one that sleeps at once pays a wake-up at every operator, which halves the speed of
    the stock forward and would make a weak baseline of it (docs/decisions.md).
    """
    return {
        "PATH": f"/usr/local/cuda/bin:/usr/local/bin:{os.defpath}",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": str(SPINS),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # so that asking for a device opens none in the server
    }
