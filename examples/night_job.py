"""A job: many requests that nobody waits for. Run `batchyard dev` first."""

from batchyard import Client, errors
from batchyard.v1 import InferenceRequest, JobItem, TextInput


def main() -> None:
    colours = ["red", "yellow", "blue"]
    items = [
        JobItem(
            custom_id=colour,
            request=InferenceRequest(text=TextInput(prompt=f"What is {colour}? In one word.")),
        )
        for colour in colours
    ]
    defaults = InferenceRequest()
    defaults.params.max_tokens = 8
    with Client() as client:  # BATCHYARD_ADDRESS, else 127.0.0.1:7611
        job = client.jobs.create(items, defaults=defaults, labels={"made-by": "example"})
        print(f"{job.job_id} is stored: {job.counts.total} items")
        client.jobs.wait(job.job_id)
        for answer in client.jobs.results(job.job_id):
            text = answer.result.outputs[0].text if answer.result.outputs else answer.result.error
            print(f"{answer.custom_id}: {text}")


if __name__ == "__main__":
    try:
        main()
    except errors.Unavailable as error:
        raise SystemExit(f"{error}\nStart a scheduler with: batchyard dev") from None
