"""How do runs look on a page? One HTML file each, with plots as SVG, that needs nothing else.

`charts.py` draws, `page.py` is the frame with its style, `comparison.py` and `curve.py` are the
pages of simulate (and replay) and of plan.
"""
