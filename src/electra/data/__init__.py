"""From text to batches: readers, sentences, tokenizers, token shards, packing, sampling."""
