#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers: a Llama and a GPT-2 of random weights generate text, greedily and by sampling."""
import os

from rounds import deterministic, digest, need, run

need("torch", "transformers")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig,  # noqa: E402
                          LlamaForCausalLM)

deterministic(torch)
# Without an end token every text has its full length.
TOKENS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
NEW = 48


def models():
    torch.manual_seed(10)
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=1024, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=256, **TOKENS))
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_positions=256, n_embd=256, n_layer=4,
                                      n_head=4, **TOKENS))
    return llama.cuda().eval(), gpt2.cuda().eval()


LLAMA, GPT2 = models()
PROMPT = torch.randint(2, 1024, (4, 16), device="cuda")


def texts(model, **how):
    with torch.no_grad():
        made = model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=NEW,
                              **how)
        return made, model(made).logits


def one_round():
    torch.manual_seed(11)
    return digest(*texts(LLAMA, do_sample=False), *texts(GPT2, do_sample=True, top_k=50))


run(one_round)
