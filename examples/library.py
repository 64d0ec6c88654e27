"""The library: one whole answer, then one as it comes. Run `batchyard dev` first."""

from batchyard import Client, errors


def main() -> None:
    with Client() as client:  # BATCHYARD_ADDRESS, else 127.0.0.1:7611
        question = "Name three primary colours."
        result = client.generate(question, task_type="qa", priority=8, max_tokens=24)
        print(f"{result.model} on {result.node_id}: {result.text}")

        messages = [{"role": "user", "content": "Say hello in one sentence."}]
        for event in client.stream(messages=messages, task_type="chat", max_tokens=24):
            print(event.text, end="", flush=True)
        print()


if __name__ == "__main__":
    try:
        main()
    except errors.Unavailable as error:
        raise SystemExit(f"{error}\nStart a scheduler with: batchyard dev") from None
