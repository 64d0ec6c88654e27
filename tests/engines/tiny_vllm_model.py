"""Write a tiny random Llama with a byte-level tokenizer, and an adapter (LoRA) for it.

.cache/engines/vllm/bin/python tests/engines/tiny_vllm_model.py FOLDER CONTEXT

They are as vLLM loads them, in `FOLDER/model` and `FOLDER/adapter`; it needs no network.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# With fewer layers tokens come so fast that vLLM's server, on a busy machine, looks after one
# stream for many seconds and lets all other calls wait; so it does without an agent, too.
HIDDEN, LAYERS, RANK = 64, 12, 8


def main(folder: Path, context: int) -> None:
    write_model(folder / "model", context)
    write_adapter(folder / "adapter")


def write_adapter(folder: Path) -> None:
    """A random one on the queries."""
    folder.mkdir()
    weights = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(RANK, HIDDEN)
        weights[f"{name}.lora_B.weight"] = torch.randn(HIDDEN, RANK)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": ["q_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def write_model(folder: Path, context: int) -> None:
    """Random, but the same each time."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate([*alphabet, "<eos>", "<pad>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", chat_template=TEMPLATE
    )
    fast.save_pretrained(folder)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=context,
        eos_token_id=vocabulary["<eos>"],
        bos_token_id=None,
        pad_token_id=vocabulary["<pad>"],
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    for symbol, row in vocabulary.items():
        if symbol > "~":  # no byte that is a character, nor an end: only hot sampling writes it
            model.lm_head.weight.data[row] = 0
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
