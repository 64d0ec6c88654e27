"""Do the simulator, and the scheduler in it, what is known in closed form or was stated before?

Each experiment answers with rows of target, measured value and verdict (`verdicts.py`).
`python -m simulator.experiments e1` runs one; `--short` runs it small.
"""
