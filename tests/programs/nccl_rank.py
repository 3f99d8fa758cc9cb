# SPDX-License-Identifier: Apache-2.0
"""What the ranks of nccl_ranks.py and nccl_training.py begin with: NCCL's transport, and their GPU.

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
