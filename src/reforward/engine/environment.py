"""The scrubbed environment of the server, of all workers and of loaders: equal for all arms."""

import os


def environment(threads: int) -> dict[str, str]:
    """Nothing of the caller's own comes along.

    Waiting OpenMP threads sleep: one that spins holds a core that another worker, or the client, may need. With two
    threads on two busy cores a spinning pool ran the same products ten times slower.
    """
    return {
        "PATH": f"/usr/local/bin:{os.defpath}",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
        "OPENBLAS_NUM_THREADS": "1",
    }
