# SPDX-License-Identifier: Apache-2.0
"""What a worker of server.py has on its GPU."""
import torch
import torch.distributed

LAYERS, WORDS = 4, 8192


def join_others(args, rank, directory):
    if not args.cpu:
        torch.cuda.set_device(rank)
    if args.workers > 1:
        torch.distributed.init_process_group("gloo" if args.cpu else "nccl", f"file://{directory}/ranks", rank=rank,
                                             world_size=args.workers)


def leave_others(args):
    if args.workers > 1:
        torch.distributed.destroy_process_group()


class Decoder:
    """One sequence at a time. After step(), token has the likeliest word behind those that were put there so far."""

    def __init__(self, args, rank):
        torch.manual_seed(9)
        self.args, self.device = args, "cpu" if args.cpu else "cuda"
        width, inner = args.width, 4 * args.width // args.workers
        own = slice(rank * inner, (rank + 1) * inner)
        self.words = self.weight(WORDS, width)
        self.layers = [(self.weight(width, 3 * width), self.weight(width, width),
                        self.weight(width, 4 * width)[:, own].contiguous(),
                        self.weight(4 * width, width)[own].contiguous()) for _ in range(LAYERS)]
        self.cache = torch.zeros(LAYERS, 2, args.tokens, width, device=self.device)
        self.order = torch.arange(args.tokens, device=self.device)
        self.token, self.position = (torch.zeros(1, dtype=torch.long, device=self.device) for _ in range(2))
        self.next = self.step if args.cpu else self.capture()

    def capture(self):
        beside = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(beside):
            self.step()     # cuBLAS and NCCL make what they need, which no graph may have
        beside.synchronize()
        graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog, a thread, may go on with calls of its own.
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.step()
        return graph.replay

    def weight(self, rows, columns):
        return torch.randn(rows, columns, device=self.device) / rows ** 0.5

    def step(self):
        width = self.args.width
        state = self.words[self.token]
        for (mixing, out, up, down), (keys, values) in zip(self.layers, self.cache):
            query, key, value = (torch.nn.functional.layer_norm(state, [width]) @ mixing).chunk(3, dim=1)
            keys.index_copy_(0, self.position, key)
            values.index_copy_(0, self.position, value)
            scores = (query @ keys.T / width ** 0.5).masked_fill(self.order > self.position, float("-inf"))
            state = state + scores.softmax(1) @ values @ out
            more = (torch.nn.functional.layer_norm(state, [width]) @ up).relu() @ down
            if self.args.workers > 1:
                torch.distributed.all_reduce(more)
            state = state + more
        self.token.copy_((state @ self.words.T).argmax(1))
        self.position.add_(1)

    @torch.no_grad()
    def answer(self, prompt):
        found = []
        self.position.zero_()
        for at in range(self.args.tokens):
            if at < len(prompt):
                self.token.fill_(prompt[at])
            self.next()
            found.append(self.token.item())
        return found[len(prompt):]
