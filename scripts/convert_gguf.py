"""Turns a GGUF file into a Hugging Face folder (safetensors, float32) with transformers, and checks that it speaks.

Usage: convert_gguf.py FILE.gguf FOLDER. Run by scripts/vllm-server inside vLLM's own virtual environment.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

QUESTION = "What is the capital of France?"
ANSWER = "Paris"


def convert(weights: Path, folder: Path) -> None:
    """Dequantise ``weights`` and write model and tokenizer to ``folder``."""
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    read = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    config = AutoConfig.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    plain = AutoModelForCausalLM.from_config(config)  # transformers 5 refuses to save what it read from a GGUF
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def answer(folder: Path) -> str:
    """What the converted model says to one easy question, decoded greedily."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    messages = [{"role": "user", "content": QUESTION}]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        said = model.generate(**asked, max_new_tokens=24, do_sample=False)
    return str(tokenizer.decode(said[0][asked["input_ids"].shape[1] :], skip_special_tokens=True))


def main() -> int:
    """Convert into a neighbouring folder first, so that a broken run leaves nothing that looks whole."""
    weights, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    convert(weights, draft)
    said = answer(draft)
    print(f"asked {QUESTION!r}, it said {said!r}")
    if ANSWER not in said:
        print(f"the converted model does not answer {ANSWER!r}: the conversion is wrong", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
