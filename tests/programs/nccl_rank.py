# SPDX-License-Identifier: Apache-2.0
"""What the ranks of nccl_ranks.py and nccl_training.py have in common: NCCL's transport, their GPU, the last step.

With TEST_NCCL, the path of a libnccl.so.2 of NCCL 2.30 or later, all ranks share GPU 0. Older ones
refuse that.
"""
import ctypes
import os

# NVLS is left out always: it needs multicast objects. "default" is what NCCL chooses by itself, and "shm" what it
# chooses for GPUs without access to each other: host memory of cuMemCreate() from NCCL 2.24 on.
TRANSPORTS = {
    "default": {},
    "host": {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"},
    "shm": {"NCCL_P2P_DISABLE": "1"},
    "cumem": {"NCCL_P2P_LEVEL": "SYS", "NCCL_CUMEM_ENABLE": "1"},
    "ipc": {"NCCL_P2P_LEVEL": "SYS", "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"},
}


def choose(transport):
    """Before CUDA is used, in the process that starts the ranks and in each rank."""
    for name, value in {"NCCL_NVLS_ENABLE": "0", **TRANSPORTS[transport]}.items():
        os.environ.setdefault(name, value)


def device_of(rank):
    """The number of the GPU of @rank. Before PyTorch is imported, which loads NCCL."""
    library = os.environ.get("TEST_NCCL")
    if not library:
        return rank
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    return 0


# No rank is so many steps ahead of rank 0: each waits for a result of all ranks more often.
AHEAD = 64


def is_last(file, rank, step):
    """True if @step of @rank is the job's last one. The job ends when @file has been made, at a step that rank 0 sets."""
    last = f"{file}.last"
    if rank == 0 and os.path.exists(file) and not os.path.exists(last):
        with open(f"{file}.new", "w", encoding="ascii") as new:
            new.write(str(step + AHEAD))
        os.replace(f"{file}.new", last)
    if not os.path.exists(last):
        return False
    with open(last, encoding="ascii") as given:
        return step >= int(given.read())
