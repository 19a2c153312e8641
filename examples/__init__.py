"""Programs as users would write them, and what they share."""
