"""What does the scheduler show of itself? Figures, sentences and the messages of `report.proto`.

`statistics.py` counts what the core's records say; `diagnosis.py` judges it over the window, in the
words of `texts.py`; the other modules write protocol messages from the core's state, read only.
"""
