#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes that pass CUDA tensors to each other by queues of torch.multiprocessing, which shares
them by legacy IPC handles and orders the work by interprocess events. Each step prints a sum over all
that was passed so far; the numbers are integers, so that the sums are exact.
"""
import argparse
import time

import torch
import torch.multiprocessing as multiprocessing

WORDS, FEW = 3 << 20, 1000     # large tensors have memory of their own, small ones share it


def consume(given, answers):
    total = torch.zeros(WORDS, dtype=torch.int32, device="cuda")
    while (tensors := given.get()) is not None:
        large, small = tensors
        total = total * 5 + large
        total[:FEW] += small
        # The one who receives it needs it to live until then, which is before the next step.
        answer = total.clone()
        answers.put((answer, int(total.sum(dtype=torch.int64))))
        del large, small, tensors


def produce(args, given, answers):
    numbers = torch.arange(WORDS, dtype=torch.int32, device="cuda")
    for k in range(args.steps):
        numbers = numbers * 1103515245 + k
        sent = numbers.clone(), numbers[:FEW] + 1
        given.put(sent)
        back, total = answers.get()
        numbers = numbers ^ back
        del back, sent
        print("step", k + 1, total, flush=True)
        time.sleep(args.step_ms / 1000)
    given.put(None)
    print("numbers", int(numbers.sum(dtype=torch.int64)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    consumer = context.Process(target=consume, args=(given, answers))
    consumer.start()
    produce(args, given, answers)
    consumer.join()
    if consumer.exitcode:
        raise SystemExit(f"torch_queue: the consumer ended with {consumer.exitcode}")


if __name__ == "__main__":
    main()
