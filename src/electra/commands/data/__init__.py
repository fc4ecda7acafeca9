"""`electra data`: look at prepared data, check it and join it."""
