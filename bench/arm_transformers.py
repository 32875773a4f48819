"""A decode arm in a process of its own: transformers, eager or compiled. Commands on stdin, one answer line each.

`go N` decodes N more tokens for each sequence of the batch and prints `done`. The client keeps the clock.
"""

import argparse
import sys

import torch
import transformers


def main() -> None:
    """Load, prefill, then obey."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.checkpoint, dtype="auto").eval()
    serve(model, args.batch, args.prompt, args.compile)


@torch.inference_mode()
def serve(model: torch.nn.Module, batch: int, prompt: int, compiled: bool) -> None:
    """One step per token with a dynamic cache, as `generate` does it, without its per-token Python extras."""
    tokens = torch.randint(1000, 40000, (batch, prompt), generator=torch.Generator().manual_seed(7))
    out = model(tokens, use_cache=True)
    cache, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
    forward = torch.compile(model, dynamic=True) if compiled else model
    for _ in range(3):
        out = forward(last, past_key_values=cache, use_cache=True)
        cache, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(int(line.split()[1])):
            out = forward(last, past_key_values=cache, use_cache=True)
            cache, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
        print("done", flush=True)


if __name__ == "__main__":
    main()
