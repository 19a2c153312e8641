"""Random graphs over the whole op table, and what is checked with them.

``generate`` makes them, by the samplers of ``samplers/``; ``oracle`` compares the NumPy backend with onnxruntime on
them; ``python -m tests.fuzz`` does so for as many as one likes.
"""
