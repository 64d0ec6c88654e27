"""The models of a Triton server, for its own Python backend: each is this file under its own name.

`double` doubles numbers in batches, `slow` takes a tenth of a second for each; the others answer a
text word by word.
"""

import json
import threading
import time

import numpy as np
import triton_python_backend_utils as triton

WORD_S = 0.02  # between two words


class TritonPythonModel:
    """As the backend wants it: made once, then called with what Triton has gathered."""

    def initialize(self, args):
        chosen = {"double": self.double, "slow": self.wait}
        self.answer = chosen.get(args["model_name"], self.write)
        self.writing = 0

    def execute(self, requests):
        return self.answer(requests)

    def double(self, requests):
        """Twice the input, and how many rows came together."""
        given = [number(request) for request in requests]
        together = sum(len(x) for x in given)
        return [
            triton.InferenceResponse(
                [
                    triton.Tensor("y", x * 2),
                    triton.Tensor("rows", np.full((len(x), 1), together, np.int32)),
                ]
            )
            for x in given
        ]

    def wait(self, requests):
        """A tenth of a second each."""
        answers = []
        for request in requests:
            time.sleep(0.1)
            answers.append(triton.InferenceResponse([triton.Tensor("y", number(request))]))
        return answers

    def write(self, requests):
        """Each text in a thread of its own, as decoupled models may."""
        for request in requests:
            text = triton.get_input_tensor_by_name(request, "text_input").as_numpy()
            limit = json.loads(request.parameters() or "{}").get("max_tokens")
            words = text.reshape(-1)[0].decode().split(" ")[:limit]
            sender = request.get_response_sender()
            threading.Thread(target=self.write_words, args=(words, sender)).start()

    def write_words(self, words, sender):
        """ "wait": nothing for a minute. "count": how many others. "refuse": a fault."""
        if words == ["count"]:
            words = [str(self.writing)]
        fault = None
        self.writing += 1
        try:
            if words == ["refuse"]:
                fault = triton.TritonError("will not write it", triton.TritonError.INVALID_ARG)
                return
            give_up_at = time.monotonic() + 60
            while words[0] == "wait" and time.monotonic() < give_up_at:
                if sender.is_cancelled():
                    return
                time.sleep(WORD_S)
            for word in words:
                if sender.is_cancelled():
                    return
                time.sleep(WORD_S)
                piece = np.array([f"{word} ".encode()], dtype=np.object_)
                sender.send(triton.InferenceResponse([triton.Tensor("text_output", piece)]))
        finally:
            self.writing -= 1
            answer = () if fault is None else (triton.InferenceResponse(error=fault),)
            sender.send(*answer, flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def number(request):
    return triton.get_input_tensor_by_name(request, "x").as_numpy()
