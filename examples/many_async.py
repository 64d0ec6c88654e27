"""Twenty requests at once over one shared stream. Run `batchyard dev` first."""

import asyncio

from batchyard import AsyncClient


async def main() -> None:
    async with AsyncClient() as client:  # BATCHYARD_ADDRESS, else 127.0.0.1:7611
        questions = [f"Is {number} even or odd?" for number in range(20)]
        results = await asyncio.gather(
            *(client.generate(question, max_tokens=8, timeout="120s") for question in questions)
        )
    for question, result in zip(questions, results, strict=True):
        print(f"{result.node_id:12} {question:24} {result.text!r}")


if __name__ == "__main__":
    asyncio.run(main())
