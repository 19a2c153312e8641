"""Recurrent layers: differentiated through the scans that they stand for (``irkit.opsets.recurrent``)."""

from __future__ import annotations

from irkit.passes.autodiff.registry import proven_zero

proven_zero("RNN GRU LSTM", "lengths", [4])
