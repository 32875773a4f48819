"""A decode arm in a process of its own: llama.cpp through llama-cpp-python, batch 1. Same commands as the other arms."""

import argparse
import sys

import llama_cpp


def main() -> None:
    """Load a GGUF at the wanted precision, prefill, then decode on command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    model = llama_cpp.Llama(args.gguf, n_ctx=2048, n_threads=args.threads, n_threads_batch=args.threads, verbose=False)
    model.eval([1000 + 37 * i for i in range(args.prompt)])
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(int(line.split()[1])):
            model.eval([model.sample(temp=0.0)])
        print("done", flush=True)


if __name__ == "__main__":
    main()
