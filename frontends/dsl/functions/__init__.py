"""Functions over the op set, with NumPy's names and meaning, by family."""
