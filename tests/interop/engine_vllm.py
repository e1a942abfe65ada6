"""vLLM on the CPU serves folders; its log probabilities are compared."""

import gc
import os

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1",
                  VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1",
                  VLLM_CPU_OMP_THREADS_BIND="nobind")

import torch
import vllm
from vllm.distributed import cleanup_dist_env_and_memory

import models

FORMATS = ("compressed-tensors", "gptq", "gptq_v2", "awq", "fp8", "modelopt")
NO_KERNEL = "vLLM has no such kernel for the CPU"
CANNOT = (
    *(("*", name, NO_KERNEL + ": quantized experts") for name in ("qwen3-moe", "mixtral",
                                                                 "deepseek-v3", "llama4")),
    *((f"compressed-tensors {scheme}", "*", NO_KERNEL)
      for scheme in ("int[235678]:g*", "int[235678]:c0", "int8:c0:asym")),
    *((f"* {scheme}", "*", NO_KERNEL) for scheme in (
        "nvfp4*", "mxfp4*", "mxfp8*", "fp8:b128x128*", "fp8:t*", "fp8:c0 --activations none")),
    ("gptq int8*", "*", NO_KERNEL),
    ("gptq_v2 int8*", "*", NO_KERNEL),
    ("gptq_v2 *:asym*", "*", "vLLM takes symmetric GPTQ only"),
    ("*", "bert", "not a generative model"),
    ("*", "qwen2-vl", "its inspection of the model needs torchvision, whose wheel breaks vLLM's"),
)
VOCABULARY = 320
TRIES_LIMITS = False  # each try takes a quarter of a minute


def logits(folder, model, row):
    """Log probabilities of the prompt, moved so that each row has mean 0: as good as logits."""
    engine = vllm.LLM(model=str(folder), skip_tokenizer_init=True, enforce_eager=True,
                      max_model_len=48, max_num_seqs=1, max_num_batched_tokens=64, seed=0,
                      max_logprobs=VOCABULARY, disable_log_stats=True)
    asked = vllm.SamplingParams(max_tokens=1, prompt_logprobs=VOCABULARY, temperature=0,
                                detokenize=False)
    ids = models.inputs(model)["input_ids"][0].tolist()
    try:
        answer = engine.generate([{"prompt_token_ids": ids}], asked, use_tqdm=False)[0]
    finally:
        del engine
        gc.collect()
        cleanup_dist_env_and_memory()
    rows = torch.tensor([[row[token].logprob for token in range(VOCABULARY)]
                         for row in answer.prompt_logprobs[1:]])
    return rows - rows.mean(1, keepdim=True)


def distance(row, model):
    if row.dynamic:  # three bits of each activation are left, or seven
        return 0.1 if row.is_float else 0.06
    return 0.03


TOOLS = {}
